"""The codecs of record batches, in the framings that Kafka's clients write and read.

gzip and zstd are one or more of their own frames. lz4 is the frame format, written with independent blocks: Java's
client reads no others. snappy comes raw (librdkafka) and in xerial's framing (Java,
kafka-python, aiokafka); we read both and write xerial's, which all of them read.

Decompression is bounded by its caller: the output grows in steps up to the limit and never past it.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from headrace.errors import ProtocolError

__all__ = ["LEVELS", "USUAL_LEVELS", "Compression", "compress", "decompress"]

Buffer = bytes | bytearray | memoryview


class Compression(IntEnum):
    """The codec of a batch's records, by its number in the batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4

    @property
    def text(self) -> str:
        """Its name in settings and in what people read."""
        return self.name.lower()


# The least and the greatest level of the codecs that have levels (KIP-390). No level means the codec's usual one.
LEVELS: Final = {Compression.GZIP: (1, 9), Compression.LZ4: (1, 17), Compression.ZSTD: (-131072, 22)}
# The usual one as settings say it: lz4's is a number that means another compressor, the fast one, as in Kafka.
USUAL_LEVELS: Final = {Compression.GZIP: -1, Compression.LZ4: 9, Compression.ZSTD: 3}


def compress(compression: Compression, data: Buffer, level: int | None = None) -> Buffer:
    """Compress a records section. With no compression the answer is `data` itself."""
    if compression is Compression.NONE:
        return data
    if level is not None and level == USUAL_LEVELS.get(compression):
        level = None
    if level is not None:
        least, greatest = LEVELS.get(compression, (1, 0))
        if not least <= level <= greatest:
            raise ValueError(f"{compression.text} has no compression level {level}")
    from headrace.protocol.compressors import compressed  # whose library takes a millisecond to load

    return compressed(compression, data, level)


def decompress(compression: Compression, data: Buffer, size_bytes_max: int) -> Buffer:
    """Decompress a records section. More than `size_bytes_max` bytes, or bytes that are wrong, raise ProtocolError.

    With no compression the answer is `data` itself.
    """
    if compression is Compression.NONE:
        if len(data) > size_bytes_max:
            raise too_large(compression, size_bytes_max)
        return data
    from headrace.protocol.compressors import decompressed

    return decompressed(compression, data, size_bytes_max)


def too_large(compression: Compression, size_bytes_max: int) -> ProtocolError:
    return ProtocolError(
        f"Records compressed with {compression.text} are larger than {size_bytes_max} bytes, the most that is accepted."
    )
