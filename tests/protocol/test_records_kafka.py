"""Batches that a real Apache Kafka wrote: read, and built again to the same bytes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headrace.protocol.batch import Batch, TimestampType, scan
from headrace.protocol.batch_builder import build, rewrite
from headrace.protocol.compression import Compression, decompress
from headrace.protocol.control import ControlType, build_marker, build_quorum_batch, read_control
from headrace.protocol.messages import EndTxnMarker
from headrace.protocol.records import records_of

FOLDER = Path(__file__).parents[1] / "fixtures" / "kafka"
FILES = sorted([*FOLDER.glob("*/*.log"), FOLDER / "bootstrap.checkpoint"])
LIMIT = 1 << 24


def batches() -> list[Batch]:
    return [batch for file in FILES for batch in scan(file.read_bytes())]


def again(batch: Batch) -> bytearray:
    """The batch, built from its records and its header's fields."""
    records = records_of(batch, LIMIT).decode()
    return build(
        [(record.key, record.value, record.headers, record.timestamp) for record in records],
        compression=batch.compression,
        base_offset=batch.base_offset,
        offset_deltas=[record.offset - batch.base_offset for record in records],
        partition_leader_epoch=batch.partition_leader_epoch,
        producer_id=batch.producer_id,
        producer_epoch=batch.producer_epoch,
        base_sequence=batch.base_sequence,
        transactional=batch.is_transactional,
        control=batch.is_control,
    )


def test_every_batch_passes_its_checksum() -> None:
    for batch in batches():
        batch.verify()


def test_uncompressed_batches_are_built_to_the_same_bytes() -> None:
    same = 0
    for batch in batches():
        if batch.is_compressed or batch.has_delete_horizon or batch.timestamp_type is TimestampType.LOG_APPEND_TIME:
            continue
        assert again(batch) == batch.view
        same += 1
    assert same > 150


def test_compressed_batches_are_built_to_the_same_records_and_header() -> None:
    seen = set()
    for batch in batches():
        if not batch.is_compressed:
            continue
        built = Batch(memoryview(again(batch)))
        built.verify()
        for name in (
            "record_count",
            "last_offset_delta",
            "base_timestamp",
            "max_timestamp",
            "attributes",
            "producer_id",
        ):
            assert getattr(built, name) == getattr(batch, name)
        assert decompress(built.compression, built.payload, LIMIT) == decompress(
            batch.compression, batch.payload, LIMIT
        )
        seen.add(batch.compression)
    assert seen == set(Compression) - {Compression.NONE}


def test_control_batches_are_built_to_the_same_bytes() -> None:
    seen: set[ControlType] = set()
    for batch in batches():
        if not batch.is_control:
            continue
        records = read_control(batch)
        place = {"base_offset": batch.base_offset, "partition_leader_epoch": batch.partition_leader_epoch}
        messages = [record.message for record in records if not isinstance(record.message, EndTxnMarker)]
        if messages:
            built = build_quorum_batch(
                [message for message in messages if message is not None], timestamp_ms=batch.base_timestamp, **place
            )
        else:
            (record,) = records
            assert isinstance(record.message, EndTxnMarker)
            built = build_marker(
                committed=record.type is ControlType.COMMIT,
                producer_id=batch.producer_id,
                producer_epoch=batch.producer_epoch,
                coordinator_epoch=record.message.coordinator_epoch,
                timestamp_ms=batch.base_timestamp,
                **place,
            )
        assert built == batch.view
        seen.update(record.type for record in records)
    assert seen >= {ControlType.ABORT, ControlType.COMMIT, ControlType.LEADER_CHANGE, ControlType.SNAPSHOT_HEADER}


def test_a_batch_that_kafka_compacted_is_rewritten_to_the_same_bytes() -> None:
    """Kafka set the delete horizon of tombstones: we set the same on the batch as it was before."""
    (batch,) = [batch for batch in batches() if batch.has_delete_horizon]
    records = records_of(batch, LIMIT)
    before = build(
        [(record.key, record.value, record.headers, record.timestamp) for record in records.decode()],
        base_offset=batch.base_offset,
        offset_deltas=[record.offset - batch.base_offset for record in records.decode()],
        partition_leader_epoch=batch.partition_leader_epoch,
        producer_id=batch.producer_id,
        producer_epoch=batch.producer_epoch,
        base_sequence=batch.base_sequence,
    )
    old = Batch(memoryview(before))
    # The last offset is that of the batch before compaction, which a builder of records can't know.
    old.last_offset_delta = batch.last_offset_delta
    keep_all = b"\1" * batch.record_count
    rewritten = rewrite(old, records_of(old, LIMIT), keep_all, delete_horizon_ms=batch.delete_horizon_ms)
    assert rewritten == batch.view


@pytest.mark.parametrize("topic", ["plain", "codecs", "segments", "idempotent", "compacted", "append-time"])
def test_the_records_are_those_that_a_client_read(topic: str) -> None:
    expected = json.loads((FOLDER / "expected.json").read_text())["topics"][topic]["read_uncommitted"]
    found = [
        {
            "offset": record.offset,
            "timestamp": record.timestamp,
            "append_time": batch.timestamp_type is TimestampType.LOG_APPEND_TIME,
            "key": text(record.key),
            "value": text(record.value),
            "headers": [[name, text(value)] for name, value in record.headers],
        }
        for file in sorted((FOLDER / f"{topic}-0").glob("*.log"))
        for batch in scan(file.read_bytes())
        for record in records_of(batch, LIMIT).decode()
    ]
    assert found == expected


def text(content: bytes | None) -> str | None:
    return None if content is None else content.decode()
