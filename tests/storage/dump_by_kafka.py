"""Has Apache Kafka's own DumpLogSegments read folders that our log wrote, and holds it to what we wrote.

    python -m tests.storage.dump_by_kafka [--keep DIR]

Needs Java, and Maven for the first time; `make test` needs neither. It says in short what the tool printed of each kind
of file, and ends with 1 at the first complaint.
"""

from __future__ import annotations

import argparse
import re
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

from bench.peers.kafka import tool
from headrace.config import CompressionType, LogConfig, TimestampType
from headrace.protocol.batch_builder import build
from headrace.protocol.compression import Compression
from headrace.protocol.control import build_marker
from headrace.storage.flush import DirectFlusher
from headrace.storage.handles import Handles
from headrace.storage.index import IndexCache
from headrace.storage.local_disk import LocalDisk
from headrace.storage.log import Log
from headrace.storage.log_options import LogOptions
from headrace.storage.place import Place
from headrace.storage.producer_state import Origin
from headrace.storage.recovery import Saved, open_log

NOW_MS: Final = 1_700_000_000_000
DUMP: Final = "org.apache.kafka.tools.DumpLogSegments"
COMPLAINTS: Final = re.compile(
    r"mismatch|Exception|corrupt|invalid|non-increasing|Non-secutive|Found timestamp|isvalid: false|missing|unexpected",
    re.IGNORECASE,
)
SMALL: Final = LogConfig(segment_bytes=4000, index_interval_bytes=200)


def plain(log: Log) -> None:
    for number in range(100):
        records = [(b"k%d" % n, b"v" * n, (("h", b"x"), ("n", None)), NOW_MS + number) for n in range(3)]
        append(log, build(records), NOW_MS + number)


def codecs(log: Log) -> None:
    for number in range(40):
        records = [(None, b"abc" * 40, (), NOW_MS + number + n) for n in range(10)]
        append(log, build(records, compression=Compression(number % 5)), NOW_MS)


def transactions(log: Log) -> None:
    sequence = 0
    for number in range(20):
        for _ in range(2):
            producer = {"producer_id": 7, "producer_epoch": 0, "base_sequence": sequence}
            append(log, build([(b"k", b"v" * 80, (), NOW_MS + number)], transactional=True, **producer), NOW_MS)  # type: ignore[arg-type]
            sequence += 1
        append(log, build([(b"k", b"outside", (), NOW_MS + number)]), NOW_MS)
        marker = build_marker(
            committed=number % 2 == 0, producer_id=7, producer_epoch=0, coordinator_epoch=1, timestamp_ms=NOW_MS
        )
        append(log, marker, NOW_MS, Origin.COORDINATOR)
    producer = {"producer_id": 8, "producer_epoch": 0, "base_sequence": 0}
    append(log, build([(b"k", b"open", (), NOW_MS)], transactional=True, **producer), NOW_MS)  # type: ignore[arg-type]


def idempotent(log: Log) -> None:
    for number in range(60):
        records = [(b"k", b"v" * 50, (), NOW_MS + number)] * 3
        append(log, build(records, producer_id=9, producer_epoch=2, base_sequence=number * 3), NOW_MS)


def follower(log: Log) -> None:
    """Gaps, several batches in one write, several epochs."""
    offset = 0
    for number in range(30):
        content = bytearray()
        for _ in range(4):
            records = [(b"k", b"v" * 60, (), NOW_MS + number)] * 2
            content += build(records, base_offset=offset, partition_leader_epoch=number // 10)
            offset += 2 + number % 3
        log.append_as_follower(memoryview(content), 9, NOW_MS)


def truncated(log: Log) -> None:
    plain(log)
    log.truncate_to(150, NOW_MS)
    plain(log)


TOPICS: Final[dict[str, tuple[LogConfig, Callable[[Log], None]]]] = {
    "plain": (SMALL, plain),
    "codecs": (SMALL, codecs),
    "recompressed": (SMALL.replace(compression_type=CompressionType.ZSTD), codecs),
    "append-time": (SMALL.replace(message_timestamp_type=TimestampType.LOG_APPEND_TIME), plain),
    "transactions": (SMALL, transactions),
    "idempotent": (SMALL, idempotent),
    "follower": (SMALL, follower),
    "truncated": (SMALL, truncated),
    "preallocated": (SMALL.replace(preallocate=True), plain),
}


def append(log: Log, content: bytearray, now_ms: int, origin: Origin = Origin.CLIENT) -> None:
    log.append_as_leader(memoryview(content), 3, now_ms, origin)


def opened(disk: LocalDisk, topic: str, config: LogConfig, saved: Saved) -> Log:
    disk.make_directory(f"{topic}-0")
    place = Place(disk, f"{topic}-0", Handles(10), IndexCache(1 << 20))
    return open_log(place, topic, 0, config, LogOptions(), DirectFlusher(disk), saved=saved, now_ms=NOW_MS)


def dump(folder: Path, log: Log) -> None:
    """Every way of the tool over every file."""
    files = {
        kind: ",".join(str(path) for path in sorted(folder.glob(f"*.{kind}")))
        for kind in ("log", "index", "timeindex", "txnindex", "snapshot")
    }
    deep = tool(DUMP, "--deep-iteration", "--print-data-log", "--files", files["log"])
    printed = complain("log --deep-iteration", deep)
    offsets = [int(found) for found in re.findall(r"^\| offset: (\d+) ", printed, re.MULTILINE)]
    assert offsets, "no records were printed"
    assert len(set(offsets)) == len(offsets)
    batches = re.findall(r"^baseOffset: (\d+) lastOffset: (\d+)", printed, re.MULTILINE)
    assert int(batches[-1][1]) + 1 == log.log_end_offset
    for kind, option in (
        ("index", "--index-sanity-check"),
        ("index", "--verify-index-only"),
        ("timeindex", "--index-sanity-check"),
        ("timeindex", "--verify-index-only"),
        ("txnindex", ""),
        ("snapshot", ""),
    ):
        if files[kind]:
            options = [option] if option else []
            found = complain(f"{kind} {option}", tool(DUMP, *options, "--files", files[kind]))
            if option == "--index-sanity-check":
                passed = found.count("passed sanity check") + found.count(" is empty.")
                assert passed == files[kind].count(",") + 1, found
    print(f"   {len(batches)} batches, {len(offsets)} records, {len(log.segments)} segments")


def complain(what: str, printed: str) -> str:
    lines = [line for line in printed.splitlines() if not line.startswith("SLF4J")]
    bad = [line for line in lines if COMPLAINTS.search(line) and "isvalid: true" not in line]
    print(f"   {what:28} {len(lines):5} lines, {len(bad)} complaints")
    if bad:
        print("\n".join(bad[:10]))
        sys.exit(1)
    return printed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keep", type=Path, help="write the folders there and leave them")
    keep: Path | None = parser.parse_args().keep
    scratch = keep or Path(tempfile.mkdtemp(prefix="headrace-dump-"))
    try:
        disk = LocalDisk(str(scratch))
        for topic, (config, fill) in TOPICS.items():
            print(topic)
            log = opened(disk, topic, config, Saved())
            fill(log)
            log.write_out()
            log.close()
            dump(scratch / f"{topic}-0", log)
        print("recovered after an unclean stop")
        log = opened(disk, "transactions", SMALL, Saved())
        log.write_out()
        log.close()
        dump(scratch / "transactions-0", log)
    finally:
        if keep is None:
            shutil.rmtree(scratch)
    print("DumpLogSegments has no complaint.")


if __name__ == "__main__":
    main()
