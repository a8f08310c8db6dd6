"""The codecs of record batches."""

from __future__ import annotations

from enum import IntEnum

__all__ = ["Compression"]


class Compression(IntEnum):
    """The codec of a batch's records, by its number in the batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4
