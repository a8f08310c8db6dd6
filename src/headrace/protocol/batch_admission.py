# cython: language_level=3, annotation_typing=False, nonecheck=True
"""What a producer may send to a partition: exactly one sound batch of its own (Kafka 4's rules, Kafka's error codes).

Everything here is decided by the header and the CRC, per batch and never per record; `record_admission` has the rules
for records. Storage decides what needs the topic or the partition's state: the size limit, sequences and epochs.
"""

from __future__ import annotations

from typing import Final

from headrace.errors import Error, ProtocolError, Refused
from headrace.protocol.batch import (
    COMPRESSION_MASK,
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    HEADER_SIZE_BYTES,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    NO_PRODUCER,
    TIMESTAMP_TYPE_BIT,
    TRANSACTIONAL_BIT,
    Batch,
)
from headrace.protocol.compression import Compression

__all__ = ["RefusedBytes", "admit"]

_LENGTH_AT: Final = 8
_MAGIC_AT: Final = 16
_OLD_LENGTH_MIN: Final = 14  # of a message of format 0, the shortest that there was
RECORD_SIZE_BYTES_MIN: Final = 7
"""A byte each for length, attributes, timestamp, offset, key, value and headers."""
_ZSTD: Final = Compression.ZSTD
_ZSTD_SINCE_VERSION: Final = 7  # of Produce (KIP-110)
_FORBIDDEN_BITS: Final = CONTROL_BIT | DELETE_HORIZON_BIT | TIMESTAMP_TYPE_BIT


class RefusedBytes(Refused):
    """What came is not one whole batch of format 2, which Kafka finds before it asks any log."""


def admit(records: memoryview | None, version: int) -> Batch:
    """The one batch of a partition's produce in this version of Produce, checked; or Refused, with Kafka's error code.

    The batch is not changed: the log assigns its offsets.
    """
    if records is None or not records:
        raise RefusedBytes(
            Error.INVALID_RECORD, "A produce request must have a record batch for each of its partitions."
        )
    try:
        batch = Batch(records)
    except ProtocolError as error:
        raise _unreadable(records, error) from error
    attributes = batch.attributes
    compression = attributes & COMPRESSION_MASK
    if compression >= _ZSTD and (compression > _ZSTD or version < _ZSTD_SINCE_VERSION):
        raise Refused(
            Error.UNSUPPORTED_COMPRESSION_TYPE,
            f"Compression {compression} can't be used in version {version} of Produce; zstd needs version 7.",
        )
    if batch.size_bytes != len(records):
        raise _not_one_batch(batch, records)
    try:
        batch.verify()
    except ProtocolError as error:
        raise Refused(Error.CORRUPT_MESSAGE, str(error)) from error
    if attributes & _FORBIDDEN_BITS:
        raise _forbidden(attributes)
    if not compression and batch.record_count * RECORD_SIZE_BYTES_MIN > batch.size_bytes - HEADER_SIZE_BYTES:
        raise Refused(
            Error.INVALID_RECORD,
            f"A produced batch of {batch.size_bytes} bytes says that it has {batch.record_count} records, "
            "which it can't hold.",
        )
    if batch.record_count <= 0 or batch.last_offset_delta != batch.record_count - 1 or batch.base_offset:
        raise Refused(
            Error.INVALID_RECORD,
            f"A produced batch says that it has {batch.record_count} records and offsets from {batch.base_offset} to "
            f"{batch.last_offset}; offsets must count the records from 0.",
        )
    if batch.producer_id > NO_PRODUCER:
        if batch.base_sequence < 0 or batch.producer_epoch < 0:
            raise _without_place(batch)
    elif attributes & TRANSACTIONAL_BIT:
        raise Refused(Error.INVALID_RECORD, "A batch of a transaction needs a producer id, and has none.")
    return batch


def _unreadable(records: memoryview, error: ProtocolError) -> Refused:
    """Kafka takes what may be the beginning of a batch for none at all, and what can be of none for a damaged one."""
    size_bytes = len(records)
    if size_bytes < LOG_OVERHEAD_BYTES:
        return RefusedBytes(Error.INVALID_RECORD, str(error))
    length = int.from_bytes(records[_LENGTH_AT:LOG_OVERHEAD_BYTES], signed=True)
    if length < _OLD_LENGTH_MIN:
        return RefusedBytes(Error.CORRUPT_MESSAGE, str(error))
    if size_bytes > _MAGIC_AT:
        magic = records[_MAGIC_AT]
        if magic in (0, 1):
            return RefusedBytes(
                Error.INVALID_RECORD, f"Records of format {magic} can't be produced; only format 2 is accepted."
            )
        if magic != MAGIC or LOG_OVERHEAD_BYTES + length <= size_bytes:
            return RefusedBytes(Error.CORRUPT_MESSAGE, str(error))
    return RefusedBytes(Error.INVALID_RECORD, str(error))


def _not_one_batch(batch: Batch, records: memoryview) -> Refused:
    """The length says another end than the bytes: a batch is missing in part, others follow, or the length lies."""
    if not batch.is_whole:
        return RefusedBytes(
            Error.INVALID_RECORD, f"The batch says that it is {batch.size_bytes} bytes long, and {len(records)} came."
        )
    try:
        follows = Batch(records, batch.end).is_whole
    except ProtocolError:
        follows = False
    if follows:
        return RefusedBytes(
            Error.INVALID_RECORD, "A produce request has one batch a partition, and more than one came."
        )
    return RefusedBytes(
        Error.CORRUPT_MESSAGE,
        f"The batch says that it is {batch.size_bytes} bytes long, and {len(records)} bytes came that are no batches.",
    )


def _without_place(batch: Batch) -> Refused:
    """Kafka asks for the sequence first, and finds the epoch to be older than the one that it knows."""
    return Refused(
        Error.INVALID_RECORD if batch.base_sequence < 0 else Error.INVALID_PRODUCER_EPOCH,
        f"The batch of producer {batch.producer_id} needs a sequence and an epoch from 0 on, and has "
        f"{batch.base_sequence} and {batch.producer_epoch}.",
    )


def _forbidden(attributes: int) -> Refused:
    if attributes & CONTROL_BIT:
        return Refused(Error.INVALID_RECORD, "Only brokers write control batches, and a producer sent one.")
    if attributes & TIMESTAMP_TYPE_BIT:
        return Refused(Error.INVALID_TIMESTAMP, "Only brokers set LogAppendTime, and a producer sent a batch with it.")
    return Refused(Error.INVALID_RECORD, "Only compaction sets a delete horizon, and a producer sent a batch with one.")
