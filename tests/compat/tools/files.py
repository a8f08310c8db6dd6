"""Our folders, read by Kafka's own programs after the node has stopped."""

from __future__ import annotations

from pathlib import Path

from tests.compat.tools.run import Run

FIRST = "00000000000000000000"


def run(run: Run) -> None:
    run.begin("Files", "The folder of the node, after it stopped.")
    lines = f"data/lines-0/{FIRST}"
    if (run.folder / f"{lines}.log").exists():
        run.tool(
            f"kafka-dump-log --files {lines}.log --print-data-log",
            "payload: none 0",
            "payload: zstd 9",
            "compresscodec: zstd",
            "isvalid: true",
            hides="isvalid: false",
        )
        run.tool(f"kafka-dump-log --files {lines}.timeindex --index-sanity-check", "passed sanity check.")
    if (run.folder / f"data/speed-0/{FIRST}.log").exists():
        run.tool(
            f"kafka-dump-log --files data/speed-0/{FIRST}.log --deep-iteration", "isvalid: true", hides="isvalid: false"
        )
        run.tool(f"kafka-dump-log --files data/speed-0/{FIRST}.index --index-sanity-check", "passed sanity check.")
        run.tool(f"kafka-dump-log --files data/speed-0/{FIRST}.index", "position:", hides="ismatch")
        run.tool(f"kafka-dump-log --files data/speed-0/{FIRST}.timeindex", "timestamp:", hides="ound ")
    if (run.folder / "data" / "ledger-0").exists():
        run.tool(f"kafka-dump-log --files data/ledger-0/{FIRST}.log --print-data-log", "endTxnMarker: COMMIT")
        run.tool(f"kafka-dump-log --files data/ledger-0/{FIRST}.txnindex", "lastStableOffset:")
        for path in sorted((run.folder / "data" / "ledger-0").glob("*.snapshot")):
            run.tool(f"kafka-dump-log --files {path.relative_to(run.folder)}", "producerId:")
    state(run, "__consumer_offsets", "--offsets-decoder", 'key: {"type":"1","data":{"group":')
    state(run, "__transaction_state", "--transaction-log-decoder", '"transactionalId":"')
    run.tool(
        f"kafka-dump-log --files data/__cluster_metadata-0/{FIRST}.log --cluster-metadata-decoder",
        '"type":"FEATURE_LEVEL_RECORD"',
        '"type":"REGISTER_BROKER_RECORD"',
    )
    for path in sorted((run.folder / "disk1" / "__cluster_metadata-0").glob("*.checkpoint"))[-1:]:
        run.tool(
            f"kafka-dump-log --files {path.relative_to(run.folder)} --cluster-metadata-decoder",
            "SnapshotHeader",
            '"type":"TOPIC_RECORD"',
            "SnapshotFooter",
        )
    run.write("server.properties", properties(run.folder / "data"))
    run.tool("kafka-storage info -c server.properties", "cluster.id", "node.id", hides="WARN")


def state(run: Run, topic: str, decoder: str, key: str) -> None:
    """The largest log of a topic of state; what is looked for are the keys."""
    logs = sorted((run.folder / "data").glob(f"{topic}-*/{FIRST}.log"), key=lambda path: path.stat().st_size)
    if logs:
        path = logs[-1].relative_to(run.folder)
        run.tool(f"kafka-dump-log --files {path} {decoder}", key, hides="rror")


def properties(data: Path) -> str:
    lines = (
        "process.roles=broker,controller",
        "node.id=1",
        "controller.quorum.voters=1@127.0.0.1:9093",
        "listeners=PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093",
        "controller.listener.names=CONTROLLER",
        f"log.dirs={data}",
    )
    return "\n".join(lines) + "\n"
