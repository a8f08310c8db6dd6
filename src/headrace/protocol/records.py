"""From a batch to its records: decompressed, bounded, and handed to the kernel."""

from __future__ import annotations

from headrace.protocol.batch import COMPRESSION_MASK, TIMESTAMP_TYPE_BIT, Batch
from headrace.protocol.compression import decompress
from headrace.protocol.kernel import Records

__all__ = ["records_of"]


def records_of(batch: Batch, size_bytes_max: int) -> Records:
    """The records of a whole batch. Decompressed they may take `size_bytes_max` bytes.

    Uncompressed records are not copied: what comes from them is valid as long as the batch's buffer.
    Raises ProtocolError when they can't be decompressed; `Records` raises it when they can't be read.
    """
    payload: bytes | bytearray | memoryview = batch.payload
    # Compaction leaves batches without records, whose codec has nothing to say.
    if batch.attributes & COMPRESSION_MASK and (batch.record_count or len(payload)):
        payload = decompress(batch.compression, payload, size_bytes_max)
    if batch.attributes & TIMESTAMP_TYPE_BIT:
        return Records(payload, batch.record_count, batch.base_offset, batch.max_timestamp, True)
    return Records(payload, batch.record_count, batch.base_offset, batch.base_timestamp)
