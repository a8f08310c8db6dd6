"""The folders of a real Apache Kafka: what our log reads in them is what Kafka's own client and tools read.

tests/fixtures/make_kafka_folders.py made them and wrote down what is expected.
"""

from __future__ import annotations

import json
import logging
import shutil
from pathlib import Path
from typing import Any, Final

import pytest

from headrace.config import LogConfig
from headrace.protocol.batch import TimestampType, scan
from headrace.protocol.records import records_of
from headrace.storage import names
from headrace.storage.checkpoint import HIGH_WATERMARKS, LOG_STARTS, RECOVERY_POINTS, read_offsets
from headrace.storage.clean_shutdown import take_clean_shutdown
from headrace.storage.epochs import LeaderEpochs
from headrace.storage.flush import DirectFlusher
from headrace.storage.handles import Handles
from headrace.storage.identity import MetaProperties, read_topic_id
from headrace.storage.index import IndexCache
from headrace.storage.local_disk import LocalDisk
from headrace.storage.log import Log
from headrace.storage.log_options import LogOptions
from headrace.storage.offset_index import OffsetIndex
from headrace.storage.place import Place
from headrace.storage.recovery import Saved, open_log
from headrace.storage.time_index import TimeIndex
from tests.storage import batches

KAFKA: Final = Path(__file__).parents[1] / "fixtures" / "kafka"
EXPECTED: Final[dict[str, Any]] = json.loads((KAFKA / "expected.json").read_text())
TOPICS: Final = sorted(EXPECTED["topics"])
START_MS: Final = 1_700_000_000_000


@pytest.fixture
def disk(tmp_path: Path) -> LocalDisk:
    shutil.copytree(KAFKA, tmp_path / "data")
    return LocalDisk(str(tmp_path / "data"))


def opened(disk: LocalDisk, topic: str, *, clean: bool = True, config: LogConfig | None = None) -> Log:
    partition = (topic, 0)
    recovery_point = read_offsets(disk, RECOVERY_POINTS)[partition] if clean else 0
    saved = Saved(
        clean,
        recovery_point,
        read_offsets(disk, LOG_STARTS).get(partition, 0),
        read_offsets(disk, HIGH_WATERMARKS)[partition],
    )
    place = Place(disk, f"{topic}-0", Handles(10), IndexCache(1 << 20))
    config = config or LogConfig(index_interval_bytes=64)  # what the maker set
    return open_log(place, topic, 0, config, LogOptions(), DirectFlusher(disk), saved=saved, now_ms=START_MS)


def read(log: Log, end_offset: int, *, committed: bool) -> list[dict[str, Any]]:
    """As a consumer does it: control batches skipped, and those of aborted transactions with `committed`."""
    found = []
    fetched = log.read(log.log_start_offset, 1 << 20, end_offset)
    aborted = sorted(log.aborted_in(log.log_start_offset, fetched.end_offset), key=lambda entry: entry.first_offset)
    undone: set[int] = set()
    for batch in scan(fetched.take()):
        batch.verify()
        while committed and aborted and aborted[0].first_offset <= batch.last_offset:
            undone.add(aborted.pop(0).producer_id)
        if batch.is_control:
            undone.discard(batch.producer_id)
            continue
        if batch.is_transactional and batch.producer_id in undone:
            continue
        found += [
            {
                "offset": record.offset,
                "timestamp": record.timestamp,
                "append_time": batch.timestamp_type is TimestampType.LOG_APPEND_TIME,
                "key": text(record.key),
                "value": text(record.value),
                "headers": [[name, text(value)] for name, value in record.headers],
            }
            for record in records_of(batch, 1 << 20).decode()
        ]
    return found


def text(value: bytes | None) -> str | None:
    return None if value is None else value.decode()


@pytest.mark.parametrize("topic", TOPICS)
@pytest.mark.parametrize("clean", [True, False], ids=["clean", "recovered"])
def test_every_record_is_read_as_kafkas_client_reads_it(disk: LocalDisk, topic: str, clean: bool) -> None:
    log = opened(disk, topic, clean=clean)
    expected = EXPECTED["topics"][topic]
    assert read(log, log.log_end_offset, committed=False) == expected["read_uncommitted"]
    assert read(log, log.last_stable_offset, committed=True) == expected["read_committed"]


@pytest.mark.parametrize("topic", TOPICS)
def test_indexes_and_snapshots_say_what_kafkas_tool_says(disk: LocalDisk, topic: str) -> None:
    log = opened(disk, topic)
    for file_name, entries in EXPECTED["files"][topic].items():
        found = names.parse_segment_file(file_name)
        assert found is not None
        if found.suffix == names.SNAPSHOT:
            if found.base_offset == log.log_end_offset:
                assert producers_of(log) == entries
            continue
        segment = log.segments[log.segments.number_at(found.base_offset)]
        assert segment.base_offset == found.base_offset
        if found.suffix == names.INDEX:
            assert entries_of(segment.offset_index) == [(entry["offset"], entry["position"]) for entry in entries]
        elif found.suffix == names.TIME_INDEX:
            assert entries_of(segment.time_index) == [(entry["timestamp"], entry["offset"]) for entry in entries]
        else:
            assert [
                {
                    "version": 0,
                    "producerId": aborted.producer_id,
                    "firstOffset": aborted.first_offset,
                    "lastOffset": aborted.last_offset,
                    "lastStableOffset": aborted.last_stable_offset,
                }
                for aborted in segment.transaction_index
            ] == entries


def producers_of(log: Log) -> list[dict[str, Any]]:
    found = []
    for producer_id, producer in log.producers:
        entry = {
            "producerId": producer_id,
            "producerEpoch": producer.epoch,
            "coordinatorEpoch": producer.coordinator_epoch,
            "currentTxnFirstOffset": log.producers.transaction_offset(producer_id),
            "lastTimestamp": producer.last_timestamp_ms,
        }
        if recent := producer.recent():
            last = recent[-1]
            entry |= {
                "firstSequence": last.first_sequence,
                "lastSequence": last.last_sequence,
                "lastOffset": last.last_offset,
                "offsetDelta": last.last_offset - last.first_offset,
                "timestamp": last.timestamp_ms,
            }
        found.append(entry)
    return found


@pytest.mark.parametrize("topic", TOPICS)
def test_what_recovery_rebuilds_is_what_kafka_wrote(disk: LocalDisk, topic: str) -> None:
    clean = opened(disk, topic)
    known = {entry["producerId"]: without_timestamp(entry) for entry in producers_of(clean)}
    offsets = [record["offset"] for record in EXPECTED["topics"][topic]["read_uncommitted"]]
    epochs = [clean.epochs.epoch_for_offset(offset) for offset in offsets]
    clean.close()
    for path in Path(disk.root, f"{topic}-0").iterdir():
        if path.suffix != names.LOG:
            path.unlink()
    log = opened(disk, topic, clean=False)
    assert log.log_end_offset == clean.log_end_offset
    assert [log.epochs.epoch_for_offset(offset) for offset in offsets] == epochs
    # Kafka has forgotten producers that were silent for a day, and knows of a last batch only when its producer ended.
    rebuilt = {entry["producerId"]: without_timestamp(entry) for entry in producers_of(log)}
    assert known.items() <= rebuilt.items()
    for file_name, entries in EXPECTED["files"][topic].items():
        found = names.parse_segment_file(file_name)
        assert found is not None
        segment = log.segments[log.segments.number_at(found.base_offset)]
        if found.suffix == names.TXN_INDEX:
            assert len(segment.transaction_index) == len(entries)
        elif found.suffix == names.INDEX:
            # A start of Kafka's counts the bytes to the next entry from 0.
            assert {entry["position"] for entry in entries} <= {
                position for _, position in entries_of(segment.offset_index)
            }


def without_timestamp(entry: dict[str, Any]) -> tuple[tuple[str, Any], ...]:
    return tuple((key, value) for key, value in entry.items() if key != "timestamp")


def entries_of(index: OffsetIndex | TimeIndex) -> list[tuple[int, int]]:
    return [index[number] for number in range(len(index))]


@pytest.mark.parametrize("topic", TOPICS)
def test_offsets_by_time_are_those_of_the_records(disk: LocalDisk, topic: str) -> None:
    log = opened(disk, topic)
    records = read(log, log.log_end_offset, committed=False)
    for wanted in {record["timestamp"] for record in records}:
        first = next(record for record in records if record["timestamp"] >= wanted)
        found = log.by_timestamp(wanted)
        assert found is not None
        assert (found.offset, found.timestamp) <= (first["offset"], first["timestamp"])  # a marker may come before it


def test_a_clean_stop_is_seen_and_nothing_is_warned_of(disk: LocalDisk, caplog: pytest.LogCaptureFixture) -> None:
    assert take_clean_shutdown(disk) is not None
    with caplog.at_level(logging.WARNING):
        for topic in TOPICS:
            log = opened(disk, topic)
            assert log.log_end_offset == read_offsets(disk, RECOVERY_POINTS)[topic, 0]
            assert not any(segment.is_open for segment in log.segments)
    assert not caplog.records


def test_whose_folders_they_are(disk: LocalDisk) -> None:
    properties = MetaProperties.read(disk)
    assert properties is not None
    assert properties.node_id == 1
    for topic in TOPICS:
        assert read_topic_id(disk, f"{topic}-0") is not None
    assert len(LeaderEpochs.load(disk, "plain-0/leader-epoch-checkpoint")) == 2


def test_a_log_of_kafkas_goes_on(disk: LocalDisk) -> None:
    log = opened(disk, "idempotent")
    end = log.log_end_offset
    again = batches.batch(b"1", timestamps=[START_MS], producer_id=4711, producer_epoch=0, base_sequence=0)
    assert log.append_as_leader(memoryview(again), 9, START_MS).first_offset == end
    log.write_out()
    assert read(log, log.log_end_offset, committed=True)[:-1] == EXPECTED["topics"]["idempotent"]["read_committed"]
