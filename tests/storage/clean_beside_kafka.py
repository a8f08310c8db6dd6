"""Has Apache Kafka compact its folders and our cleaner compact copies of them, and compares what is left.

    python -m tests.storage.clean_beside_kafka [--keep DIR]

Some passes, each from the same files: records with tombstones, all codecs, idempotent producers and transactions. The
records that are left must be the same, and so must the markers. Then Kafka's own DumpLogSegments reads our folders.
Needs Java, and Maven for the first time; `make test` needs neither.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic

from bench.peers.kafka import Kafka
from headrace.config import CleanerConfig, LogConfig
from headrace.protocol.batch import Batch
from headrace.protocol.records import records_of
from headrace.storage.checkpoint import CLEANED, HIGH_WATERMARKS, LOG_STARTS, RECOVERY_POINTS, read_offsets
from headrace.storage.cleaner import Cleaner
from headrace.storage.cleaning_work import InlineWork
from headrace.storage.flush import DirectFlusher
from headrace.storage.handles import Handles
from headrace.storage.index import IndexCache
from headrace.storage.local_disk import LocalDisk
from headrace.storage.log import Log
from headrace.storage.log_options import LogOptions
from headrace.storage.lookup import headers, read_batch
from headrace.storage.place import Place
from headrace.storage.recovery import Saved, open_log
from headrace.testing.workers import SteppedWorkers
from tests.storage.dump_by_kafka import dump

START_MS: Final = time.time_ns() // 1_000_000  # markers get the time of day, and would never roll a segment behind it
HOUR_MS: Final = 3_600_000
PASSES: Final = 3
DELETE_RETENTION_MS: Final = 1
CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
TOPICS: Final = ("values", "codecs", "transactions")
NEVER, SOON = "1.0", "0.01"
CONFIG: Final = {
    "cleanup.policy": "compact",
    "segment.ms": str(HOUR_MS // 2),
    "index.interval.bytes": "64",
    "message.timestamp.after.max.ms": str(1000 * HOUR_MS),
    "min.cleanable.dirty.ratio": NEVER,
    "delete.retention.ms": str(DELETE_RETENTION_MS),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keep", type=Path, help="write the folders there and leave them")
    keep: Path | None = parser.parse_args().keep
    scratch = keep or Path(tempfile.mkdtemp(prefix="headrace-clean-"))
    kafka = Kafka(scratch / "kafka", settings=("log.cleaner.backoff.ms=100",))
    chance = random.Random(7)
    try:
        for number in range(PASSES):
            with running(kafka):
                if not number:
                    make_topics(kafka)
                write(kafka.bootstrap, chance, 100 * number)
            ours = scratch / f"ours-{number}"
            shutil.copytree(kafka.data, ours)
            with running(kafka):
                let_clean(kafka)
            compare(kafka.data, ours, number)
            for topic in TOPICS:
                print(f"  DumpLogSegments of our {topic}")
                dump(ours / f"{topic}-0", opened(LocalDisk(str(ours)), topic))
    finally:
        if keep is None:
            shutil.rmtree(scratch)
    print("What Kafka left and what we left is the same, and DumpLogSegments has no complaint.")


class running:
    """Kafka, from its start to its clean stop."""

    def __init__(self, kafka: Kafka) -> None:
        self.kafka = kafka

    def __enter__(self) -> None:
        self.kafka.start()

    def __exit__(self, *_: object) -> None:
        self.kafka.stop()


# -------------------------------------------------------------------------------------------------------------- writing


def make_topics(kafka: Kafka) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    for future in admin.create_topics([NewTopic(topic, 1, 1, config=CONFIG) for topic in TOPICS]).values():
        future.result()


def write(bootstrap: str, chance: random.Random, first_hour: int) -> None:
    """Each hour is a segment."""
    plain = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
    idempotent = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5})
    transactional = [transactions(bootstrap, name) for name in ("first", "second")]
    for hour in range(first_hour, first_hour + 8):
        for producer in (plain, idempotent):
            send(producer, "values", hour, [pair(chance, 12, 0.3) for _ in range(20)])
        codec = CODECS[hour % len(CODECS)]
        compressing = Producer({"bootstrap.servers": bootstrap, "linger.ms": 200, "compression.type": codec})
        send(compressing, "codecs", hour, [pair(chance, 25, 0.1) for _ in range(30)])
        for producer in transactional:
            producer.begin_transaction()
            send(producer, "transactions", hour, [pair(chance, 8, 0.2) for _ in range(5)])
        send(plain, "transactions", hour, [pair(chance, 8, 0.2) for _ in range(3)])
        for producer in transactional:
            (producer.commit_transaction if chance.random() < 0.5 else producer.abort_transaction)()


def pair(chance: random.Random, keys: int, tombstones: float) -> tuple[str, str | None]:
    key = f"key {chance.randrange(keys)}"
    return key, None if chance.random() < tombstones else f"{chance.random()} " + "x" * chance.randrange(60)


def transactions(bootstrap: str, name: str) -> Producer:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": name, "linger.ms": 0})
    producer.init_transactions(60)
    return producer


def send(producer: Producer, topic: str, hour: int, pairs: list[tuple[str, str | None]]) -> None:
    for number, (key, value) in enumerate(pairs):
        producer.produce(topic, key=key, value=value, partition=0, timestamp=START_MS + hour * HOUR_MS + number)
    assert producer.flush(60) == 0


def let_clean(kafka: Kafka) -> None:
    """Until its checkpoint says that all closed segments are clean."""
    configure(kafka, SOON)
    disk = LocalDisk(str(kafka.data))
    deadline = time.monotonic() + 120
    while any(clean_offset(disk, topic) < active_base(kafka.data, topic) for topic in TOPICS):
        if time.monotonic() > deadline:
            sys.exit("Kafka did not clean its logs")
        time.sleep(0.2)
    configure(kafka, NEVER)
    time.sleep(1)


def configure(kafka: Kafka, ratio: str) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    entry = ConfigEntry("min.cleanable.dirty.ratio", ratio, incremental_operation=AlterConfigOpType.SET)
    resources = [ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry]) for topic in TOPICS]
    for future in admin.incremental_alter_configs(resources).values():
        future.result()


def clean_offset(disk: LocalDisk, topic: str) -> int:
    return read_offsets(disk, CLEANED).get((topic, 0), 0)


def active_base(data: Path, topic: str) -> int:
    return max(int(path.stem) for path in (data / f"{topic}-0").glob("*.log"))


# ------------------------------------------------------------------------------------------------------------ comparing


def compare(theirs: Path, ours: Path, number: int) -> None:
    clean_all(ours)
    for topic in TOPICS:
        before, after = (what_is_left(opened(LocalDisk(str(folder)), topic)) for folder in (theirs, ours))
        kept = [len([entry for entry in left if entry[1] == "record"]) for left in (before, after)]
        markers = [len(left) - records for left, records in zip((before, after), kept, strict=True)]
        print(f"pass {number + 1}, {topic}: records {kept[0]} and {kept[1]}, markers {markers[0]} and {markers[1]}")
        for entry in before:
            if entry not in after:
                print("  only Kafka's:", entry)
        for entry in after:
            if entry not in before:
                print("  only ours:", entry)
        if before != after:
            sys.exit("they differ")


def what_is_left(log: Log) -> list[tuple[Any, ...]]:
    """Every record, and every marker that is not empty, with whether a time is set from which on it may go."""
    left: list[tuple[Any, ...]] = []
    for batch in batches_in(log):
        records = records_of(batch, 1 << 20).decode()
        kind = "marker" if batch.is_control else "record"
        codec = batch.compression.name if records else ""
        left += [(record.offset, kind, record.key, record.value, record.timestamp, codec) for record in records]
    return left


def batches_in(log: Log) -> Iterator[Batch]:
    for segment in log.segments:
        for position, header in headers(segment):
            batch = read_batch(segment, position, header.size_bytes)
            batch.verify()
            yield batch


def opened(disk: LocalDisk, topic: str) -> Log:
    partition = (topic, 0)
    saved = Saved(
        True,
        read_offsets(disk, RECOVERY_POINTS)[partition],
        read_offsets(disk, LOG_STARTS).get(partition, 0),
        read_offsets(disk, HIGH_WATERMARKS)[partition],
        read_offsets(disk, CLEANED).get(partition, 0),
    )
    place = Place(disk, f"{topic}-0", Handles(10), IndexCache(1 << 20))
    config = LogConfig(
        cleanup_policy=("compact",),
        min_cleanable_dirty_ratio=0.01,
        delete_retention_ms=DELETE_RETENTION_MS,
        index_interval_bytes=64,
    )
    return open_log(place, topic, 0, config, LogOptions(), DirectFlusher(disk), saved=saved, now_ms=now_ms())


def clean_all(folder: Path) -> None:
    disk = LocalDisk(str(folder))
    logs = [opened(disk, topic) for topic in TOPICS]
    workers = SteppedWorkers()
    later: list[Callable[[], None]] = []
    cleaner = Cleaner(
        lambda: logs,
        CleanerConfig(),
        InlineWork,
        [workers],
        now_ms=now_ms,
        call_later=lambda seconds, call: later.append(call) if not seconds else None,
        secret=lambda: os.urandom(16),
    )
    cleaner.poll()
    while len(workers) or later:
        workers.step() if len(workers) else later.pop(0)()
    assert not cleaner.set_aside, cleaner.set_aside
    for log in logs:
        assert log.clean_offset == log.segments.active.base_offset
        log.sweep()
        log.write_out()
        log.close()


def now_ms() -> int:
    return time.time_ns() // 1_000_000


if __name__ == "__main__":
    main()
