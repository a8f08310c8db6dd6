"""The batch header: read where it lies, checked, and patched in place."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import ProtocolError
from headrace.protocol.batch import HEADER, Batch, TimestampType, scan
from headrace.protocol.batch_builder import build
from headrace.protocol.batch_crc import crc32c
from headrace.protocol.compression import Compression
from headrace.protocol.records import records_of

int16s = st.integers(-(2**15), 2**15 - 1)
int32s = st.integers(-(2**31), 2**31 - 1)
int64s = st.integers(-(2**63), 2**63 - 1)


def one(base_offset: int = 0, **options: object) -> Batch:
    batch = Batch(memoryview(build([(b"k", b"v", (), 1000), (None, b"w", (), 2000)], **options)))  # type: ignore[arg-type]
    batch.assign(base_offset, -1)
    return batch


@given(st.tuples(int64s, int32s, int16s, int32s, int64s, int64s, int64s, int16s, int32s, int32s), st.integers(0, 50))
def test_every_field_is_read_from_its_place(values: tuple[int, ...], position: int) -> None:
    base_offset, epoch, attributes, last_delta, base_time, max_time, producer, producer_epoch, sequence, count = values
    header = HEADER.pack(
        base_offset, 49, epoch, 2, 0xFFFFFFFF, attributes, last_delta, base_time, max_time, producer, producer_epoch,
        sequence, count,
    )  # fmt: skip
    batch = Batch(memoryview(bytes(position) + header), position)
    assert (batch.base_offset, batch.partition_leader_epoch, batch.attributes) == (base_offset, epoch, attributes)
    assert (batch.last_offset_delta, batch.base_timestamp, batch.max_timestamp) == (last_delta, base_time, max_time)
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (producer, producer_epoch, sequence)
    assert (batch.record_count, batch.size_bytes, batch.crc, batch.magic) == (count, 61, 0xFFFFFFFF, 2)
    assert (batch.position, batch.end, batch.is_whole) == (position, position + 61, True)
    assert (batch.last_offset, batch.next_offset) == (base_offset + last_delta, base_offset + last_delta + 1)
    assert repr(batch).startswith("<Batch ")


def test_the_attributes_say_what_a_batch_is() -> None:
    plain = one()
    assert (plain.compression, plain.timestamp_type) == (Compression.NONE, TimestampType.CREATE_TIME)
    assert not any((plain.is_transactional, plain.is_control, plain.has_delete_horizon, plain.is_compressed))
    assert plain.delete_horizon_ms is None
    assert not plain.has_producer
    full = one(compression=Compression.ZSTD, transactional=True, control=True, log_append_time=5, producer_id=0)
    assert (full.compression, full.timestamp_type) == (Compression.ZSTD, TimestampType.LOG_APPEND_TIME)
    assert full.is_transactional
    assert full.is_control
    assert full.is_compressed
    assert full.has_producer
    assert "transactional" in repr(full)


def test_a_codec_that_nobody_defined_is_an_error_and_not_a_guess() -> None:
    batch = one()
    batch.attributes |= 7
    with pytest.raises(ProtocolError, match="compression 7"):
        _ = batch.compression


@pytest.mark.parametrize(("base_sequence", "last"), [(-1, -1), (0, 1), (2**31 - 2, 2**31 - 1), (2**31 - 1, 0)], ids=str)
def test_sequences_wrap_around_at_2_to_the_31(base_sequence: int, last: int) -> None:
    assert one(producer_id=1, producer_epoch=0, base_sequence=base_sequence).last_sequence == last


@pytest.mark.parametrize("writable", [True, False])
def test_the_crc_is_checked_on_writable_and_read_only_views(writable: bool) -> None:
    data = build([(b"k", b"v", (), 1)])
    view = memoryview(data) if writable else memoryview(bytes(data))
    Batch(view).verify()


def test_the_checksum_is_that_of_the_package() -> None:
    import crc32c as package

    for data in (b"", b"123456789", bytearray(1000), memoryview(bytes(range(256)))[7:]):
        assert crc32c(data) == package.crc32c(data)
    assert crc32c(b"123456789") == 0xE3069283


def test_every_flipped_bit_under_the_crc_is_found() -> None:
    data = build([(b"k", b"v", (), 1)])
    for bit in range(17 * 8, len(data) * 8):
        data[bit >> 3] ^= 1 << (bit & 7)
        with pytest.raises(ProtocolError, match="damaged"):
            Batch(memoryview(data)).verify()
        data[bit >> 3] ^= 1 << (bit & 7)


def test_assigning_offset_and_epoch_leaves_the_crc_right() -> None:
    batch = one()
    batch.assign(2**62, 77)
    batch.verify()
    again = Batch(batch.view)
    assert (again.base_offset, again.partition_leader_epoch, again.size_bytes) == (2**62, 77, batch.size_bytes)
    assert (batch.base_offset, batch.partition_leader_epoch) == (2**62, 77)


def test_assigning_needs_only_the_header_and_leaves_the_neighbours_alone() -> None:
    data = build([(b"k", b"v", (), 1)])
    buffer = bytearray(b"before") + data[:61]
    Batch(memoryview(buffer), 6).assign(5, 6)
    assert buffer[:6] == b"before"
    assert buffer[6:] == struct.pack(">qii", 5, len(data) - 12, 6) + data[16:61]


@pytest.mark.parametrize("compression", Compression)
def test_log_append_time_is_the_time_of_every_record(compression: Compression) -> None:
    batch = one(compression=compression)
    batch.set_log_append_time(123456)
    again = Batch(batch.view)
    again.verify()
    assert again.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert (again.max_timestamp, again.crc) == (123456, batch.crc)
    assert [record.timestamp for record in records_of(again, 1000).decode()] == [123456, 123456]


def test_scanning_finds_batch_after_batch() -> None:
    first, second = one(), one(2, compression=Compression.GZIP)
    data = bytes(first.view) + bytes(second.view)
    for buffer in (data, bytearray(data), memoryview(data)):
        assert [batch.base_offset for batch in scan(buffer)] == [0, 2]
    assert [batch.position for batch in scan(data, first.size_bytes)] == [first.size_bytes]
    assert list(scan(b"")) == []


def test_a_batch_cut_at_any_byte_ends_a_scan() -> None:
    data = bytes(one().view) + bytes(one(2).view)
    whole = len(data) // 2
    for end in range(whole + 1, len(data)):
        assert [batch.end for batch in scan(data[:end], partial=True)] == [whole]
        with pytest.raises(ProtocolError, match=f"byte {whole} "):
            list(scan(data[:end]))


@pytest.mark.parametrize("magic", [0, 1, 3, -1])
def test_other_formats_are_not_read(magic: int) -> None:
    data = build([(b"k", b"v", (), 1)])
    struct.pack_into("b", data, 16, magic)
    with pytest.raises(ProtocolError, match=f"version {magic}"):
        list(scan(data, partial=True))


@pytest.mark.parametrize("length", [48, 0, -1, -(2**31)])
def test_a_length_less_than_the_header_can_not_hold_up_a_scan(length: int) -> None:
    data = build([(b"k", b"v", (), 1)])
    struct.pack_into(">i", data, 8, length)
    with pytest.raises(ProtocolError, match="less than its own header"):
        list(scan(data, partial=True))


def test_a_length_of_2_gb_is_a_cut_batch() -> None:
    data = build([(b"k", b"v", (), 1)])
    struct.pack_into(">i", data, 8, 2**31 - 1)
    assert list(scan(data, partial=True)) == []
    batch = Batch(memoryview(data))
    assert not batch.is_whole
    with pytest.raises(ProtocolError, match="2147483659 bytes long"):
        batch.verify()


def test_a_header_alone_can_be_read_but_not_verified() -> None:
    data = build([(b"k", b"v", (), 1)])
    batch = Batch(memoryview(data)[:61])
    assert batch.record_count == 1
    assert not batch.is_whole
    with pytest.raises(ProtocolError, match="61 are there"):
        batch.verify()
