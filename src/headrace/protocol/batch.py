# cython: language_level=3, annotation_typing=False, nonecheck=True
"""The record batch (format v2): its 61-byte header, read and patched where it lies, without a look at the records.

A `Batch` is a parsed header and the place of its bytes in a buffer. `scan` is the one way to walk the batches of a
buffer: a produce request, a segment, a fetch reply. What is inside a batch is the business of `records` and `kernel`.

The CRC covers everything from the attributes on. Base offset, length, leader epoch and magic lie before it, so a
leader assigns offsets without touching the checksum; all other changes here compute it again.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from struct import Struct
from struct import error as StructError
from typing import Final

from headrace.errors import ProtocolError
from headrace.protocol.batch_crc import crc32c
from headrace.protocol.compression import Compression

__all__ = [
    "COMPRESSION_MASK",
    "CONTROL_BIT",
    "DELETE_HORIZON_BIT",
    "HEADER_SIZE_BYTES",
    "MAGIC",
    "NO_EPOCH",
    "NO_PRODUCER",
    "NO_SEQUENCE",
    "NO_TIMESTAMP",
    "TIMESTAMP_TYPE_BIT",
    "TRANSACTIONAL_BIT",
    "Batch",
    "TimestampType",
    "scan",
]

HEADER_SIZE_BYTES: Final = 61
LOG_OVERHEAD_BYTES: Final = 12  # base offset and length, which the length does not count
MAGIC: Final = 2
NO_PRODUCER: Final = -1
NO_EPOCH: Final = -1
NO_SEQUENCE: Final = -1
NO_TIMESTAMP: Final = -1

COMPRESSION_MASK: Final = 0x07
TIMESTAMP_TYPE_BIT: Final = 0x08
TRANSACTIONAL_BIT: Final = 0x10
CONTROL_BIT: Final = 0x20
DELETE_HORIZON_BIT: Final = 0x40

HEADER: Final = Struct(">qiibIhiqqqhii")
_CRC_AT: Final = 17
ATTRIBUTES_AT: Final = 22
"""Of a batch, where the lower byte of its attributes is."""
_CRC_FROM: Final = 21
_MAX_TIMESTAMP_AT: Final = 35
_SEQUENCE_MASK: Final = 0x7FFFFFFF

_unpack_header = HEADER.unpack_from
_pack_assigned = Struct(">qii").pack_into
_pack_crc = Struct(">I").pack_into
_pack_attributes = Struct(">h").pack_into
_pack_timestamp = Struct(">q").pack_into


class TimestampType(IntEnum):
    """What a record's timestamp means: when the producer made it, or when the leader appended it."""

    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


class Batch:
    """One batch: the fields of its header, and where its bytes are (`buffer`, from `position` to `end`).

    Only the header must be in the buffer to parse it. The properties and `assign` need no more; `view`, `verify` and
    what changes bytes under the CRC need the whole batch.
    """

    __slots__ = (
        "attributes",
        "base_offset",
        "base_sequence",
        "base_timestamp",
        "buffer",
        "crc",
        "last_offset_delta",
        "magic",
        "max_timestamp",
        "partition_leader_epoch",
        "position",
        "producer_epoch",
        "producer_id",
        "record_count",
        "size_bytes",
    )

    base_offset: int
    size_bytes: int  # of the whole batch: Kafka's length and the 12 bytes that it leaves out
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int
    buffer: memoryview
    position: int

    def __init__(self, buffer: memoryview, position: int = 0) -> None:
        """Parse the header at `position`. Raises ProtocolError when it is cut, not v2, or shorter than a header."""
        try:
            (
                self.base_offset,
                length,
                self.partition_leader_epoch,
                self.magic,
                self.crc,
                self.attributes,
                self.last_offset_delta,
                self.base_timestamp,
                self.max_timestamp,
                self.producer_id,
                self.producer_epoch,
                self.base_sequence,
                self.record_count,
            ) = _unpack_header(buffer, position)
        except StructError as error:
            raise ProtocolError(
                f"A record batch header at byte {position} needs {HEADER_SIZE_BYTES} bytes, "
                f"and {max(0, len(buffer) - position)} are there."
            ) from error
        if self.magic != MAGIC:
            raise ProtocolError(
                f"The record batch at byte {position} has format version {self.magic}, and only {MAGIC} can be read."
            )
        self.size_bytes = length + LOG_OVERHEAD_BYTES
        if length < HEADER_SIZE_BYTES - LOG_OVERHEAD_BYTES:
            raise ProtocolError(
                f"The record batch at byte {position} says that it is {length} bytes long, less than its own header."
            )
        self.buffer = buffer
        self.position = position

    # What the attributes say

    @property
    def compression(self) -> Compression:
        """The codec of the records. Codes that nobody defined raise ProtocolError."""
        code = self.attributes & COMPRESSION_MASK
        try:
            return Compression(code)
        except ValueError:
            raise ProtocolError(f"The record batch at byte {self.position} has unknown compression {code}.") from None

    @property
    def is_compressed(self) -> bool:
        return self.attributes & COMPRESSION_MASK != 0

    @property
    def timestamp_type(self) -> TimestampType:
        return TimestampType.LOG_APPEND_TIME if self.attributes & TIMESTAMP_TYPE_BIT else TimestampType.CREATE_TIME

    @property
    def is_transactional(self) -> bool:
        return self.attributes & TRANSACTIONAL_BIT != 0

    @property
    def is_control(self) -> bool:
        return self.attributes & CONTROL_BIT != 0

    @property
    def has_delete_horizon(self) -> bool:
        return self.attributes & DELETE_HORIZON_BIT != 0

    @property
    def delete_horizon_ms(self) -> int | None:
        """When tombstones and markers of this batch may go (KIP-534), which the cleaner keeps in the base timestamp."""
        return self.base_timestamp if self.attributes & DELETE_HORIZON_BIT else None

    # Offsets and sequences

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def has_producer(self) -> bool:
        return self.producer_id > NO_PRODUCER

    @property
    def last_sequence(self) -> int:
        """By the offset range and not the count, which compaction lowers. Sequences go from 2^31-1 to 0."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset_delta) & _SEQUENCE_MASK

    # The bytes

    @property
    def end(self) -> int:
        """The position in the buffer right after this batch."""
        return self.position + self.size_bytes

    @property
    def is_whole(self) -> bool:
        """All bytes of the batch are in the buffer."""
        return self.position + self.size_bytes <= len(self.buffer)

    @property
    def view(self) -> memoryview:
        """The bytes of the batch, not copied."""
        return self.buffer[self.position : self.position + self.size_bytes]

    @property
    def payload(self) -> memoryview:
        """The bytes of the records as they lie, compressed or not; not copied."""
        return self.buffer[self.position + HEADER_SIZE_BYTES : self.position + self.size_bytes]

    def verify(self) -> None:
        """Raises ProtocolError unless the whole batch is there and its CRC32C is right."""
        position = self.position
        end = position + self.size_bytes
        buffer = self.buffer
        if end > len(buffer):
            raise ProtocolError(
                f"The record batch at byte {position} is {self.size_bytes} bytes long, "
                f"and {len(buffer) - position} are there."
            )
        actual = crc32c(buffer[position + _CRC_FROM : end])
        if actual != self.crc:
            raise ProtocolError(
                f"The record batch at byte {position} with base offset {self.base_offset} is damaged: "
                f"its CRC32C is {actual:#010x} and it says {self.crc:#010x}."
            )

    # Changes in place, in a writable buffer

    def assign(self, base_offset: int, partition_leader_epoch: int) -> None:
        """Give the batch its place in the log. The CRC does not cover these fields and stays."""
        self.base_offset = base_offset
        self.partition_leader_epoch = partition_leader_epoch
        _pack_assigned(
            self.buffer, self.position, base_offset, self.size_bytes - LOG_OVERHEAD_BYTES, partition_leader_epoch
        )

    def set_log_append_time(self, timestamp_ms: int) -> None:
        """Make `timestamp_ms` the timestamp of all records. The bit and the maximum lie under the CRC."""
        self.max_timestamp = timestamp_ms
        _pack_timestamp(self.buffer, self.position + _MAX_TIMESTAMP_AT, timestamp_ms)
        self._set_attributes(self.attributes | TIMESTAMP_TYPE_BIT)

    def _set_attributes(self, attributes: int) -> None:
        self.attributes = attributes
        position = self.position
        _pack_attributes(self.buffer, position + _CRC_FROM, attributes)
        self.crc = crc32c(self.buffer[position + _CRC_FROM : position + self.size_bytes])
        _pack_crc(self.buffer, position + _CRC_AT, self.crc)

    def __repr__(self) -> str:
        flags = [
            word
            for bit, word in (
                (TIMESTAMP_TYPE_BIT, "log-append-time"),
                (TRANSACTIONAL_BIT, "transactional"),
                (CONTROL_BIT, "control"),
                (DELETE_HORIZON_BIT, "delete-horizon"),
            )
            if self.attributes & bit
        ]
        producer = (
            f" producer={self.producer_id}:{self.producer_epoch} sequence={self.base_sequence}..{self.last_sequence}"
            if self.has_producer
            else ""
        )
        return (
            f"<Batch offsets={self.base_offset}..{self.last_offset} records={self.record_count} "
            f"bytes={self.size_bytes} epoch={self.partition_leader_epoch}{producer} "
            f"compression={self.attributes & COMPRESSION_MASK}{''.join(' ' + flag for flag in flags)}>"
        )


def scan(buffer: bytes | bytearray | memoryview, position: int = 0, *, partial: bool = False) -> Iterator[Batch]:
    """Walk the batches of a buffer from `position` on. Each is whole; its CRC is not checked (`verify` does that).

    What is no batch raises ProtocolError, and so does a batch that is cut at the end, unless `partial` allows it
    (a fetch reply may end so); the `end` of the last batch says how far the walk came.
    """
    view = buffer if isinstance(buffer, memoryview) else memoryview(buffer)
    size_bytes = len(view)
    while position < size_bytes:
        if partial and size_bytes - position < HEADER_SIZE_BYTES:
            return
        batch = Batch(view, position)
        end = position + batch.size_bytes
        if end > size_bytes:
            if partial:
                return
            raise ProtocolError(
                f"The record batch at byte {position} is {batch.size_bytes} bytes long, "
                f"and {size_bytes - position} are there."
            )
        yield batch
        position = end
