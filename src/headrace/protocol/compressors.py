"""What `compression` calls when a batch is compressed, and not before."""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import Final

import cramjam

from headrace.errors import ProtocolError
from headrace.protocol.compression import Buffer, Compression, too_large

_GZIP_LEVEL: Final = 6
_ZSTD_LEVEL: Final = 3


def compressed(compression: Compression, data: Buffer, level: int | None) -> Buffer:
    match compression:
        case Compression.GZIP:
            return bytes(cramjam.gzip.compress(data, level=_GZIP_LEVEL if level is None else level))
        case Compression.ZSTD:
            return bytes(cramjam.zstd.compress(data, level=_ZSTD_LEVEL if level is None else level))
        case Compression.SNAPPY:
            return _compress_xerial(data)
        case Compression.LZ4:
            return _compress_lz4_fast(data) if level is None else _compress_lz4(data, level)
        case Compression.NONE:
            return data


def decompressed(compression: Compression, data: Buffer, size_bytes_max: int) -> Buffer:
    try:
        if compression is Compression.SNAPPY:
            return _decompress_snappy(data, size_bytes_max)
        return _decompress_growing(compression, data, size_bytes_max)
    except cramjam.DecompressionError as error:
        raise ProtocolError(f"Records compressed with {compression.text} can't be decompressed: {error}.") from error


# gzip, lz4, zstd

_INTO: Final = {
    Compression.GZIP: cramjam.gzip.decompress_into,
    Compression.LZ4: cramjam.lz4.decompress_into,
    Compression.ZSTD: cramjam.zstd.decompress_into,
}
_NO_ROOM: Final = "failed to write whole buffer"  # how cramjam says that the output did not fit
_SIZE_BYTES_MIN: Final = 1024
_GROWTH: Final = 4


def _decompress_growing(compression: Compression, data: Buffer, size_bytes_max: int) -> bytearray:
    """Try a likely size first, then larger ones: all tries together cost little more than the last."""
    decompress_into = _INTO[compression]
    size_bytes = min(max(_SIZE_BYTES_MIN, _likely_size(compression, data)), size_bytes_max)
    while True:
        out = bytearray(size_bytes)
        try:
            written: int = decompress_into(data, out)
        except cramjam.DecompressionError as error:
            if str(error) != _NO_ROOM:
                raise
            if size_bytes >= size_bytes_max:
                raise too_large(compression, size_bytes_max) from None
            size_bytes = min(size_bytes * _GROWTH, size_bytes_max)
        else:
            del out[written:]
            return out


_ZSTD_SIZE_FIELDS: Final = (Struct("<B"), Struct("<H"), Struct("<I"), Struct("<Q"))
_ZSTD_MAGIC: Final = b"\x28\xb5\x2f\xfd"
_LZ4_MAGIC: Final = b"\x04\x22\x4d\x18"
_LZ4_CONTENT_SIZE_BIT: Final = 0x08
_LITTLE_INT64: Final = Struct("<Q")
_LITTLE_INT32: Final = Struct("<I")
_RATIO_LIKELY_MAX: Final = 64


def _likely_size(compression: Compression, data: Buffer) -> int:
    """What the frame says about its size, if it says so and it sounds likely; else a guess."""
    guess = len(data) * _GROWTH
    said = 0
    if len(data) >= 18:
        if compression is Compression.GZIP:
            said = _LITTLE_INT32.unpack_from(data, len(data) - 4)[0]
        elif compression is Compression.ZSTD and data[:4] == _ZSTD_MAGIC:
            said = _zstd_content_size(data)
        elif compression is Compression.LZ4 and data[:4] == _LZ4_MAGIC and data[4] & _LZ4_CONTENT_SIZE_BIT:
            said = _LITTLE_INT64.unpack_from(data, 6)[0]
    return said if 0 < said <= len(data) * _RATIO_LIKELY_MAX else guess


def _zstd_content_size(data: Buffer) -> int:
    """The frame header's content size (RFC 8878, 3.1.1.1); 0 if it has none."""
    descriptor = data[4]
    single_segment = descriptor & 0x20
    size_flag = descriptor >> 6
    if not size_flag and not single_segment:
        return 0
    at = 5 + (0 if single_segment else 1) + (0, 1, 2, 4)[descriptor & 0x03]
    size: int = _ZSTD_SIZE_FIELDS[size_flag].unpack_from(data, at)[0]
    return size + 256 if size_flag == 1 else size


# lz4 frames of independent blocks

_LZ4_BLOCK_SIZE_BYTES: Final = 64 * 1024
# magic; version 1 with independent blocks and no checksums; blocks of 64 KB; the header's checksum
_LZ4_HEADER: Final = _LZ4_MAGIC + b"\x60\x40\x82"
_LZ4_END: Final = bytes(4)
_LZ4_STORED: Final = 0x80000000


def _compress_lz4(data: Buffer, level: int) -> bytes:
    compressor = cramjam.lz4.Compressor(level=level, content_checksum=False, block_linked=False)
    compressor.compress(bytes(data))
    return bytes(compressor.finish())


def _compress_lz4_fast(data: Buffer) -> bytearray:
    """The fast compressor, which cramjam has for blocks only; and a frame around them costs less than its own."""
    view = memoryview(data)
    out = bytearray(_LZ4_HEADER)
    for at in range(0, len(view), _LZ4_BLOCK_SIZE_BYTES):
        block = view[at : at + _LZ4_BLOCK_SIZE_BYTES]
        small = cramjam.lz4.compress_block(block, store_size=False)
        if len(small) < len(block):
            out += _LITTLE_INT32.pack(len(small))
            out += bytes(small)
        else:
            out += _LITTLE_INT32.pack(len(block) | _LZ4_STORED)
            out += block
    out += _LZ4_END
    return out


# snappy

_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = _XERIAL_MAGIC + b"\x00\x00\x00\x01\x00\x00\x00\x01"  # version 1, readable by version 1
_SNAPPY_RATIO_MAX: Final = 22
"""Three bytes copy at most 64: a size beyond that is a lie, and no memory is taken for it."""
_XERIAL_BLOCK_SIZE_BYTES: Final = 32 * 1024
_BIG_INT32: Final = Struct(">I")


def _compress_xerial(data: Buffer) -> bytearray:
    view = memoryview(data)
    out = bytearray(_XERIAL_HEADER)
    for at in range(0, len(view), _XERIAL_BLOCK_SIZE_BYTES):
        block = cramjam.snappy.compress_raw(view[at : at + _XERIAL_BLOCK_SIZE_BYTES])
        out += _BIG_INT32.pack(len(block))
        out += bytes(block)
    return out


def _decompress_snappy(data: Buffer, size_bytes_max: int) -> bytearray:
    view = memoryview(data)
    # Each block begins with its size, so the whole size is known, and bounded, before there is any output.
    blocks = list(_xerial_blocks(view)) if bytes(view[:8]) == _XERIAL_MAGIC else [view]
    sizes = [cramjam.snappy.decompress_raw_len(block) for block in blocks]
    if sum(sizes) > size_bytes_max:
        raise too_large(Compression.SNAPPY, size_bytes_max)
    if sum(sizes) > len(view) * _SNAPPY_RATIO_MAX:
        raise ProtocolError(f"{len(view)} bytes of snappy say that they were {sum(sizes)}, which can't be.")
    out = bytearray(sum(sizes))
    target = memoryview(out)
    at = 0
    for block, size_bytes in zip(blocks, sizes, strict=True):
        cramjam.snappy.decompress_raw_into(block, target[at : at + size_bytes])
        at += size_bytes
    return out


def _xerial_blocks(view: memoryview) -> Iterator[memoryview]:
    at = 0
    while at < len(view):
        if bytes(view[at : at + 8]) == _XERIAL_MAGIC:  # at the start, and wherever streams were put one after another
            at += len(_XERIAL_HEADER)
            if at > len(view):
                raise ProtocolError("Records compressed with snappy end in the middle of a header.")
            continue
        if len(view) - at < 4:
            raise ProtocolError("Records compressed with snappy end in the middle of a block's length.")
        (size_bytes,) = _BIG_INT32.unpack_from(view, at)
        at += 4
        if not 0 < size_bytes <= len(view) - at:
            raise ProtocolError(f"Records compressed with snappy have a block of {size_bytes} bytes that is not there.")
        yield view[at : at + size_bytes]
        at += size_bytes
