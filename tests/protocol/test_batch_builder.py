"""New batches: as producers make them, as compaction leaves them, in another codec."""

from __future__ import annotations

from itertools import compress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import ProtocolError
from headrace.protocol.batch import Batch
from headrace.protocol.batch_builder import build, build_encoded, build_rows, empty, recompress, rewrite
from headrace.protocol.compression import LEVELS, Compression, decompress
from headrace.protocol.kernel_types import Fields, Row
from headrace.protocol.kernel_writer import encode
from headrace.protocol.records import records_of
from tests.protocol.record_strategies import batches_of_fields, content, times

codecs = st.sampled_from(Compression)
LIMIT = 1 << 20


def read(data: bytearray) -> Batch:
    batch = Batch(memoryview(data))
    batch.verify()
    assert batch.size_bytes == len(data)
    return batch


@given(st.lists(st.tuples(st.binary(max_size=300), content, st.just(()), times), min_size=1, max_size=12))
def test_a_batch_of_rows_is_the_one_that_is_built_of_them(rows: list[Row]) -> None:
    assert build_rows(rows) == build(rows)


def test_the_bytes_of_a_batch() -> None:
    """Worked out by hand from the format; the checksum by another implementation of CRC32C."""
    data = build(
        [(b"key", b"value", [("h", b"1")], 1_000), (None, None, (), 999)],
        producer_id=5,
        producer_epoch=1,
        base_sequence=3,
        transactional=True,
    )
    assert (
        data.hex(" ")
        == (
            "00 00 00 00 00 00 00 00 "  # base offset
            "00 00 00 4b "  # length
            "ff ff ff ff 02 "  # leader epoch, magic
            f"{data[17:21].hex(' ')} "  # checksum
            "00 10 "  # attributes: transactional
            "00 00 00 01 "  # last offset delta
            "00 00 00 00 00 00 03 e8 "  # base timestamp
            "00 00 00 00 00 00 03 e8 "  # max timestamp
            "00 00 00 00 00 00 00 05 00 01 "  # producer id and epoch
            "00 00 00 03 00 00 00 02 "  # base sequence, record count
            "24 00 00 00 06 6b 65 79 0a 76 61 6c 75 65 02 02 68 02 31 "  # a record with key, value and header
            "0c 00 01 02 01 01 00"  # a record with a timestamp delta of -1, and nulls
        )
    )
    assert slow_crc32c(bytes(data[21:])) == Batch(memoryview(data)).crc


def slow_crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


@given(batches_of_fields, codecs)
def test_a_built_batch_holds_its_records(fields: list[Fields], compression: Compression) -> None:
    batch = read(build(fields, compression=compression, base_offset=100, partition_leader_epoch=3))
    found = records_of(batch, LIMIT).decode()
    assert [(record.key, record.value, tuple(record.headers), record.timestamp) for record in found] == [
        (key, value, tuple(headers), timestamp) for key, value, headers, timestamp in fields
    ]
    assert [record.offset for record in found] == list(range(100, batch.next_offset))
    assert (batch.base_timestamp, batch.partition_leader_epoch) == (fields[0][3], 3)
    assert batch.compression is compression


@pytest.mark.parametrize("compression", LEVELS)
def test_levels_reach_the_codec(compression: Compression) -> None:
    fields: list[Fields] = [(None, bytes(range(256)) * 200, (), 1)]
    for level in LEVELS[compression]:
        batch = read(build(fields, compression=compression, level=level))
        assert records_of(batch, LIMIT).decode()[0].value == fields[0][1]


def test_a_batch_without_records_is_not_built() -> None:
    with pytest.raises(ValueError, match="at least one record"):
        build([])


def test_a_batch_around_encoded_records_is_the_same_batch() -> None:
    fields: list[Fields] = [(b"k", b"v", (), 1), (b"k", b"w", (), 2)]
    assert build_encoded(encode(fields), producer_id=4) == build(fields, producer_id=4)


@given(batches_of_fields, codecs, st.data(), st.none() | st.integers(0, 2**42), st.booleans())
def test_a_rewritten_batch_is_the_old_one_with_fewer_records(
    fields: list[Fields], compression: Compression, data: st.DataObject, horizon: int | None, append_time: bool
) -> None:
    mask = bytes(data.draw(st.lists(st.integers(0, 1), min_size=len(fields), max_size=len(fields))))
    old = read(
        build(
            fields,
            compression=compression,
            base_offset=50,
            partition_leader_epoch=6,
            producer_id=1,
            producer_epoch=2,
            base_sequence=2**31 - 1,
            transactional=True,
            log_append_time=777 if append_time else None,
        )
    )
    records = records_of(old, LIMIT)
    new = read(rewrite(old, records, mask, delete_horizon_ms=horizon))
    kept = list(compress(records.decode(), mask))
    assert records_of(new, LIMIT).decode() == kept
    assert (new.base_offset, new.last_offset, new.last_sequence) == (
        old.base_offset,
        old.last_offset,
        old.last_sequence,
    )
    assert (new.producer_id, new.producer_epoch, new.partition_leader_epoch) == (1, 2, 6)
    assert new.is_transactional
    assert new.timestamp_type is old.timestamp_type
    if kept:
        assert new.compression is compression
        assert new.delete_horizon_ms == horizon
        assert new.max_timestamp == max(-1, *(record.timestamp for record in kept))
    else:
        assert (new.size_bytes, new.max_timestamp, new.delete_horizon_ms) == (61, old.max_timestamp, None)


def test_a_delete_horizon_is_set_once() -> None:
    old = read(build([(b"k", None, (), 500), (b"l", None, (), 600)]))
    once = read(rewrite(old, records_of(old, LIMIT), b"\1\1", delete_horizon_ms=9_000))
    twice = read(rewrite(once, records_of(once, LIMIT), b"\0\1", delete_horizon_ms=10_000))
    assert twice.delete_horizon_ms == 9_000
    assert [(record.offset, record.timestamp) for record in records_of(twice, LIMIT).decode()] == [(1, 600)]


def test_an_empty_batch_remembers_its_producer() -> None:
    old = read(
        build(
            [(b"k", b"v", (), 5), (b"k", b"v", (), 9)],
            compression=Compression.LZ4,
            producer_id=8,
            producer_epoch=3,
            base_sequence=40,
            base_offset=1000,
        )
    )
    new = read(empty(old))
    assert (new.size_bytes, new.record_count, new.is_compressed) == (61, 0, False)
    assert (new.last_offset, new.producer_id, new.producer_epoch, new.last_sequence) == (1001, 8, 3, 41)
    assert (new.base_timestamp, new.max_timestamp) == (-1, 9)
    assert records_of(new, 0).decode() == []


@given(batches_of_fields, codecs, codecs)
def test_another_codec_changes_nothing_else(fields: list[Fields], before: Compression, after: Compression) -> None:
    old = read(build(fields, compression=before, producer_id=3, producer_epoch=0, base_sequence=5))
    new = read(recompress(old, decompress(old.compression, old.payload, LIMIT), after))
    assert new.compression is after
    assert records_of(new, LIMIT).decode() == records_of(old, LIMIT).decode()
    for name in ("base_offset", "last_offset_delta", "base_timestamp", "max_timestamp", "producer_id", "base_sequence"):
        assert getattr(new, name) == getattr(old, name)


def test_records_larger_than_the_reader_allows_are_an_error_before_they_are_read() -> None:
    batch = read(build([(None, bytes(10_000), (), 1)], compression=Compression.ZSTD))
    with pytest.raises(ProtocolError, match="larger than 9999 bytes"):
        records_of(batch, 9_999)
