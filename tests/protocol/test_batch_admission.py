"""What Kafka 4 refuses of a producer, we refuse, with Kafka's error codes."""

from __future__ import annotations

import struct

import pytest

from headrace.errors import Error, Refused
from headrace.protocol.batch import HEADER_SIZE_BYTES
from headrace.protocol.batch_admission import admit
from headrace.protocol.batch_builder import build
from headrace.protocol.batch_crc import crc32c
from headrace.protocol.compression import Compression
from headrace.protocol.control import build_marker
from headrace.protocol.kernel_types import Fields

NOW_MS = 1_700_000_000_000
FIELDS: list[Fields] = [(b"k", b"v", (), NOW_MS), (None, b"w", (), NOW_MS - 5)]


def produced(**options: object) -> bytearray:
    return build(FIELDS, **options)  # type: ignore[arg-type]


def patched(form: str, at: int, value: int, **options: object) -> bytearray:
    """A batch with one field changed and its checksum right."""
    data = produced(**options)
    struct.pack_into(form, data, at, value)
    struct.pack_into(">I", data, 17, crc32c(memoryview(data)[21:]))
    return data


def refusal(data: bytes | bytearray | None, version: int = 9) -> Error:
    with pytest.raises(Refused) as refused:
        admit(None if data is None else memoryview(data), version)
    assert refused.value.text.endswith(".")
    return refused.value.error


@pytest.mark.parametrize("compression", Compression)
def test_what_clients_send_is_admitted_as_it_is(compression: Compression) -> None:
    for options in (
        {},
        {"producer_id": 0, "producer_epoch": 0, "base_sequence": 0},
        {"producer_id": 7, "producer_epoch": 3, "base_sequence": 2**31 - 1, "transactional": True},
    ):
        data = produced(compression=compression, **options)
        before = bytes(data)
        assert admit(memoryview(data), 7).record_count == 2
        assert data == before


@pytest.mark.parametrize("data", [None, b""])
def test_a_partition_without_a_batch(data: bytes | None) -> None:
    assert refusal(data) is Error.INVALID_RECORD


@pytest.mark.parametrize(
    ("came_bytes", "length", "magic", "error"),
    [
        (11, 0, 2, Error.INVALID_RECORD),
        (12, 13, 2, Error.CORRUPT_MESSAGE),
        (12, 14, 2, Error.INVALID_RECORD),
        (16, 49, 3, Error.INVALID_RECORD),
        (17, 49, 3, Error.CORRUPT_MESSAGE),
        (17, 49, 2, Error.INVALID_RECORD),
        (60, 49, 2, Error.INVALID_RECORD),
        (60, 48, 2, Error.CORRUPT_MESSAGE),
        (60, 49, 255, Error.CORRUPT_MESSAGE),
        (60, -1, 2, Error.CORRUPT_MESSAGE),
        (60, 49, 1, Error.INVALID_RECORD),
        (61, 13, 1, Error.CORRUPT_MESSAGE),
    ],
)
def test_less_than_a_header_is_damaged_where_no_batch_begins_so(
    came_bytes: int, length: int, magic: int, error: Error
) -> None:
    start = struct.pack(">qiiB", 0, length, 0, magic) + bytes(HEADER_SIZE_BYTES)
    assert refusal(start[:came_bytes]) is error


@pytest.mark.parametrize("magic", [0, 1])
def test_formats_v0_and_v1(magic: int) -> None:
    assert refusal(patched("b", 16, magic)) is Error.INVALID_RECORD
    old_message = struct.pack(">qiib", 0, 14, 0, magic) + bytes(9)
    assert refusal(old_message) is Error.INVALID_RECORD


@pytest.mark.parametrize("magic", [3, -1])
def test_formats_that_nobody_knows(magic: int) -> None:
    assert refusal(patched("b", 16, magic)) is Error.CORRUPT_MESSAGE


def test_more_than_one_batch() -> None:
    assert refusal(produced() + produced()) is Error.INVALID_RECORD


def test_a_length_that_lies() -> None:
    data = produced()
    for length, error in (
        (len(data) - 12 + 1, Error.INVALID_RECORD),
        (2**31 - 1, Error.INVALID_RECORD),
        (len(data) - 12 - 1, Error.CORRUPT_MESSAGE),
        (48, Error.CORRUPT_MESSAGE),
        (-1, Error.CORRUPT_MESSAGE),
    ):
        struct.pack_into(">i", data, 8, length)
        assert refusal(data) is error


def test_a_batch_cut_at_any_byte() -> None:
    data = produced()
    for end in range(len(data)):
        assert refusal(data[:end]) is Error.INVALID_RECORD


def test_bytes_after_the_batch() -> None:
    assert refusal(produced() + b"\0") is Error.CORRUPT_MESSAGE
    assert refusal(produced() + produced()[:-1]) is Error.CORRUPT_MESSAGE


def test_a_damaged_batch() -> None:
    data = produced()
    for at in range(17, len(data)):
        if at in (21, 22):  # attributes have answers of their own
            continue
        data[at] ^= 0x40
        assert refusal(data) is Error.CORRUPT_MESSAGE
        data[at] ^= 0x40


@pytest.mark.parametrize("count", [0, -1, 1, 3, 2**31 - 1, -(2**31)])
def test_counts_that_are_not_the_number_of_offsets(count: int) -> None:
    assert refusal(patched(">i", 57, count)) is Error.INVALID_RECORD


def test_more_records_than_the_bytes_can_hold() -> None:
    data = produced()
    struct.pack_into(">i", data, 23, 2**31 - 2)
    struct.pack_into(">i", data, 57, 2**31 - 1)
    struct.pack_into(">I", data, 17, crc32c(memoryview(data)[21:]))
    assert refusal(data) is Error.INVALID_RECORD


@pytest.mark.parametrize("delta", [0, -1, 2, 2**31 - 1, -(2**31)])
def test_offsets_that_are_not_dense(delta: int) -> None:
    assert refusal(patched(">i", 23, delta)) is Error.INVALID_RECORD


@pytest.mark.parametrize("base_offset", [1, -1, 2**62, -(2**63)])
def test_offsets_that_do_not_begin_at_0(base_offset: int) -> None:
    assert refusal(patched(">q", 0, base_offset)) is Error.INVALID_RECORD


def test_zstd_needs_version_7_of_produce() -> None:
    data = memoryview(produced(compression=Compression.ZSTD))
    for version in (3, 6):
        assert refusal(bytes(data), version) is Error.UNSUPPORTED_COMPRESSION_TYPE
    admit(data, 7)
    admit(memoryview(produced(compression=Compression.LZ4)), 3)


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_codecs_that_nobody_knows(codec: int) -> None:
    assert refusal(patched(">h", 21, codec)) is Error.UNSUPPORTED_COMPRESSION_TYPE


def test_control_batches() -> None:
    marker = build_marker(committed=True, producer_id=1, producer_epoch=0, coordinator_epoch=1, timestamp_ms=5)
    assert refusal(marker) is Error.INVALID_RECORD
    assert refusal(produced(control=True)) is Error.INVALID_RECORD


def test_what_only_brokers_set() -> None:
    assert refusal(produced(log_append_time=5)) is Error.INVALID_TIMESTAMP
    assert refusal(patched(">h", 21, 0x40)) is Error.INVALID_RECORD


def test_a_producer_id_needs_sequence_and_epoch() -> None:
    assert refusal(produced(producer_id=1, producer_epoch=0)) is Error.INVALID_RECORD
    assert refusal(produced(producer_id=1, base_sequence=0)) is Error.INVALID_PRODUCER_EPOCH
    assert refusal(produced(producer_id=1, producer_epoch=0, base_sequence=-2)) is Error.INVALID_RECORD


def test_a_transaction_needs_a_producer_id() -> None:
    assert refusal(produced(transactional=True)) is Error.INVALID_RECORD


def test_the_header_is_61_bytes() -> None:
    assert HEADER_SIZE_BYTES == 61
