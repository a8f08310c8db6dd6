"""Partitions that move: between the folders of a node, and to a node that there is not."""

from __future__ import annotations

import json
import re
from pathlib import Path

from tests.compat.process import Process
from tests.compat.tools.run import Run

RECORDS = 1000
# Soon, so that there is a snapshot of the metadata for the programs that read files.
SETTINGS = ("--set", "metadata.log.max.record.bytes.between.snapshots=500")


def run(run: Run) -> None:
    run.begin("Reassignments", "On a node of its own, with two folders.")
    folders = [str(run.folder / name) for name in ("disk1", "disk2")]
    node = Process(Path(",".join(folders)), *SETTINGS)
    node.start()
    before, run.bootstrap = run.bootstrap, node.bootstrap
    try:
        moves(run, folders)
        code = node.stop()
        run.check("SIGTERM to the node", "exit code 0", "" if code == 0 else f"it ended with {code}: {node.said}")
        run.check("the node's log", "no failure inside", "".join(node.defects))
    finally:
        run.bootstrap = before
        if node.is_running:
            node.kill()


def moves(run: Run, folders: list[str]) -> None:
    run.tool("kafka-topics --create --topic moved", "Created topic moved.")
    run.tool(f"kafka-verifiable-producer --topic moved --max-messages {RECORDS}", f'"acked":{RECORDS}')
    run.write("topics.json", json.dumps({"version": 1, "topics": [{"topic": "moved"}]}))
    run.tool(
        "kafka-reassign-partitions --generate --topics-to-move-json-file topics.json --broker-list 1",
        "Proposed partition reassignment configuration",
        '"topic":"moved","partition":0,"replicas":[1]',
    )
    here = folder_of(run, folders)
    (there,) = [folder for folder in folders if folder != here]
    run.write("move.json", reassignment(1, there))
    run.tool(
        "kafka-reassign-partitions --execute --reassignment-json-file move.json",
        "Successfully started partition reassignment for moved-0",
        "Successfully started moving log directory",
    )
    run.tool(
        "kafka-reassign-partitions --verify --reassignment-json-file move.json",
        "Reassignment of partition moved-0 is completed.",
        "Reassignment of replica moved-0-1 completed successfully.",
    )
    run.check("the folder of moved-0", "the other one", "" if folder_of(run, folders) == there else "it is still there")
    run.tool(
        "kafka-console-consumer --topic moved --from-beginning --max-messages 1000 --timeout-ms 60000",
        f"Processed a total of {RECORDS} messages",
    )
    run.tool("kafka-reassign-partitions --list", "No partition reassignments found.")
    run.write("elsewhere.json", reassignment(2, "any"))
    run.tool(
        "kafka-reassign-partitions --execute --reassignment-json-file elsewhere.json",
        re.compile(r"Unknown broker id 2|InvalidReplicaAssignment"),
        ends=1,
    )
    run.tool("kafka-reassign-partitions --cancel --reassignment-json-file move.json", "None of the specified partition")


def folder_of(run: Run, folders: list[str]) -> str:
    """As kafka-log-dirs tells it."""
    said = run.tool("kafka-log-dirs --describe --topic-list moved", '"partition":"moved-0"')
    found = re.search(r"^\{.*\}$", said, re.MULTILINE)
    if found:
        for log_dir in json.loads(found[0])["brokers"][0]["logDirs"]:
            if log_dir["partitions"]:
                return str(log_dir["logDir"])
    return folders[0]


def reassignment(broker: int, folder: str) -> str:
    move = {"topic": "moved", "partition": 0, "replicas": [broker], "log_dirs": [folder]}
    return json.dumps({"version": 1, "partitions": [move]})
