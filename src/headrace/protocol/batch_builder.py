"""New batches: from records, from columns, and from batches that compaction or recompression writes again."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from struct import Struct
from typing import Final

from headrace.protocol.batch import (
    COMPRESSION_MASK,
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    HEADER,
    HEADER_SIZE_BYTES,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    NO_EPOCH,
    NO_PRODUCER,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    TIMESTAMP_TYPE_BIT,
    TRANSACTIONAL_BIT,
    Batch,
)
from headrace.protocol.batch_crc import crc32c
from headrace.protocol.compression import Compression, compress
from headrace.protocol.kernel import Records
from headrace.protocol.kernel_types import Buffer, Encoded, Fields, Row
from headrace.protocol.kernel_writer import encode, encode_rows

__all__ = ["build", "build_encoded", "build_rows", "empty", "recompress", "rewrite"]

_CRC_AT: Final = 17
_CRC_FROM: Final = 21
_pack_crc: Final = Struct(">I").pack_into


def build(
    records: Iterable[Fields],
    *,
    compression: Compression = Compression.NONE,
    level: int | None = None,
    base_offset: int = 0,
    offset_deltas: Sequence[int] | None = None,
    partition_leader_epoch: int = NO_EPOCH,
    producer_id: int = NO_PRODUCER,
    producer_epoch: int = NO_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    transactional: bool = False,
    control: bool = False,
    log_append_time: int | None = None,
) -> bytearray:
    """A batch of (key, value, headers, timestamp)s, as producers make them: the first timestamp is the base.

    `offset_deltas` leave gaps, as compaction does. `log_append_time` stands for the timestamps of all records.
    """
    return build_encoded(
        encode(records, None, offset_deltas),
        compression=compression,
        level=level,
        base_offset=base_offset,
        partition_leader_epoch=partition_leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        transactional=transactional,
        control=control,
        log_append_time=log_append_time,
    )


def build_encoded(
    encoded: Encoded,
    *,
    compression: Compression = Compression.NONE,
    level: int | None = None,
    base_offset: int = 0,
    partition_leader_epoch: int = NO_EPOCH,
    producer_id: int = NO_PRODUCER,
    producer_epoch: int = NO_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    transactional: bool = False,
    control: bool = False,
    log_append_time: int | None = None,
) -> bytearray:
    """A batch around a records section of the kernel (`encode` and `encode_columns`)."""
    if not encoded.record_count:
        raise ValueError("a batch needs at least one record")
    attributes = (
        int(compression)
        | (TRANSACTIONAL_BIT if transactional else 0)
        | (CONTROL_BIT if control else 0)
        | (0 if log_append_time is None else TIMESTAMP_TYPE_BIT)
    )
    return _assemble(
        compress(compression, encoded.data, level),
        base_offset,
        partition_leader_epoch,
        attributes,
        encoded.last_offset_delta,
        encoded.base_timestamp,
        encoded.max_timestamp if log_append_time is None else log_append_time,
        producer_id,
        producer_epoch,
        base_sequence,
        encoded.record_count,
    )


def build_rows(rows: list[Row]) -> memoryview:
    """As `build` without options, of records without headers, in half of the time."""
    view = memoryview(encode_rows(rows))
    _pack_crc(view, _CRC_AT, crc32c(view[_CRC_FROM:]))
    return view


def rewrite(
    batch: Batch, records: Records, mask: Buffer, *, delete_horizon_ms: int | None = None, level: int | None = None
) -> bytearray:
    """The batch with only those of its `records` whose byte in `mask` is not zero, as compaction leaves it.

    Offsets and timestamps stay, also the last offset, which carries the last sequence of the producer. A delete
    horizon (KIP-534) is set, once, in place of the base timestamp. With no record left this is `empty`.
    """
    if batch.has_delete_horizon:
        delete_horizon_ms = None
    retained = records.retain(mask, delete_horizon_ms)
    if not retained.record_count:
        return empty(batch)
    is_append_time = batch.attributes & TIMESTAMP_TYPE_BIT
    return _assemble(
        compress(batch.compression, retained.data, level),
        batch.base_offset,
        batch.partition_leader_epoch,
        batch.attributes if delete_horizon_ms is None else batch.attributes | DELETE_HORIZON_BIT,
        batch.last_offset_delta,
        batch.base_timestamp if delete_horizon_ms is None else delete_horizon_ms,
        batch.max_timestamp if is_append_time else retained.max_timestamp,
        batch.producer_id,
        batch.producer_epoch,
        batch.base_sequence,
        retained.record_count,
    )


def empty(batch: Batch) -> bytearray:
    """The header alone: what is left of a compacted batch while its producer's last sequence must be remembered."""
    return _assemble(
        b"",
        batch.base_offset,
        batch.partition_leader_epoch,
        batch.attributes & (TIMESTAMP_TYPE_BIT | TRANSACTIONAL_BIT | CONTROL_BIT),
        batch.last_offset_delta,
        NO_TIMESTAMP,
        batch.max_timestamp,
        batch.producer_id,
        batch.producer_epoch,
        batch.base_sequence,
        0,
    )


def recompress(batch: Batch, data: Buffer, compression: Compression, level: int | None = None) -> bytearray:
    """The batch with its decompressed records section `data` in another codec (a topic's `compression.type`)."""
    return _assemble(
        compress(compression, data, level),
        batch.base_offset,
        batch.partition_leader_epoch,
        (batch.attributes & ~COMPRESSION_MASK) | compression,
        batch.last_offset_delta,
        batch.base_timestamp,
        batch.max_timestamp,
        batch.producer_id,
        batch.producer_epoch,
        batch.base_sequence,
        batch.record_count,
    )


def _assemble(payload: Buffer, base_offset: int, partition_leader_epoch: int, *under_the_crc: int) -> bytearray:
    length = HEADER_SIZE_BYTES - LOG_OVERHEAD_BYTES + len(payload)
    out = bytearray(HEADER.pack(base_offset, length, partition_leader_epoch, MAGIC, 0, *under_the_crc))
    out += payload
    _pack_crc(out, _CRC_AT, crc32c(memoryview(out)[_CRC_FROM:]))
    return out
