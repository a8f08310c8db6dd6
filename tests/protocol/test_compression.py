"""The codecs: ours and other people's frames, bounded, whatever the bytes say."""

from __future__ import annotations

import gzip
import tracemalloc
import zlib
from collections.abc import Callable
from random import Random
from typing import Any

import lz4.frame
import pytest
import snappy
import zstandard
from aiokafka import codec as aiokafka_codec
from hypothesis import given
from hypothesis import strategies as st
from kafka import codec as kafka_codec

from headrace.errors import ProtocolError
from headrace.protocol.compression import LEVELS, USUAL_LEVELS, Compression, compress, decompress

LIMIT = 1 << 20
PACKED = [codec for codec in Compression if codec]
TEXT = bytes(Random(1).choices(b"abcdefgh ", k=200_000))

contents = st.binary(max_size=300) | st.sampled_from([b"", b"x", bytes(70_000), TEXT, TEXT[:65_536], TEXT[:65_537]])


@given(contents, st.sampled_from(Compression))
def test_what_is_compressed_is_decompressed(content: bytes, codec: Compression) -> None:
    assert bytes(decompress(codec, memoryview(compress(codec, content)), LIMIT)) == content


@given(contents, st.sampled_from(Compression), st.data())
def test_the_limit_is_exact(content: bytes, codec: Compression, data: st.DataObject) -> None:
    packed = compress(codec, content)
    assert bytes(decompress(codec, packed, len(content))) == content
    if content:
        limit = data.draw(st.integers(0, len(content) - 1))
        with pytest.raises(ProtocolError, match=f"larger than {limit} bytes"):
            decompress(codec, packed, limit)


def test_no_compression_is_no_copy() -> None:
    assert compress(Compression.NONE, TEXT) is TEXT
    assert decompress(Compression.NONE, TEXT, LIMIT) is TEXT


@pytest.mark.parametrize("codec", LEVELS)
def test_every_level_can_be_read(codec: Compression) -> None:
    least, greatest = LEVELS[codec]
    sizes = []
    for level in (least, 1, 5, 9, greatest):
        packed = compress(codec, TEXT, level)
        assert bytes(decompress(codec, packed, LIMIT)) == TEXT
        sizes.append(len(packed))
    assert sizes[-1] < sizes[0]
    for level in (least - 1, greatest + 1):
        with pytest.raises(ValueError, match="no compression level"):
            compress(codec, TEXT, level)


@pytest.mark.parametrize("codec", USUAL_LEVELS)
def test_the_usual_level_is_no_level(codec: Compression) -> None:
    assert compress(codec, TEXT, USUAL_LEVELS[codec]) == compress(codec, TEXT)


def zstd_stream(content: bytes) -> bytes:
    stream = zstandard.ZstdCompressor().compressobj()
    return stream.compress(content) + stream.flush()


# What the clients' own libraries write, with the options that they use and those that they could use.
THEIRS: dict[str, tuple[Compression, Callable[[bytes], bytes]]] = {
    "gzip of the standard library": (Compression.GZIP, gzip.compress),
    "gzip of kafka-python": (Compression.GZIP, kafka_codec.gzip_encode),
    "gzip with a name and a comment": (
        Compression.GZIP,
        lambda content: b"\x1f\x8b\x08\x18" + bytes(6) + b"name\0comment\0" + gzip.compress(content)[10:],
    ),
    "snappy raw, as librdkafka": (Compression.SNAPPY, snappy.compress),
    "snappy of kafka-python": (Compression.SNAPPY, kafka_codec.snappy_encode),
    "snappy of aiokafka": (Compression.SNAPPY, aiokafka_codec.snappy_encode),
    "snappy in small blocks": (
        Compression.SNAPPY,
        lambda content: kafka_codec.snappy_encode(content, xerial_blocksize=1000),
    ),
    "lz4 of kafka-python": (Compression.LZ4, kafka_codec.lz4_encode),
    "lz4 of aiokafka": (Compression.LZ4, aiokafka_codec.lz4_encode),
    "lz4 with everything": (
        Compression.LZ4,
        lambda content: lz4.frame.compress(content, content_checksum=True, block_checksum=True, block_linked=True),
    ),
    "lz4 without a size, in large blocks": (
        Compression.LZ4,
        lambda content: lz4.frame.compress(content, store_size=False, block_size=lz4.frame.BLOCKSIZE_MAX4MB),
    ),
    "zstd of kafka-python": (Compression.ZSTD, kafka_codec.zstd_encode),
    "zstd of aiokafka": (Compression.ZSTD, aiokafka_codec.zstd_encode),
    "zstd without a size": (Compression.ZSTD, zstd_stream),
    "zstd with a checksum": (Compression.ZSTD, zstandard.ZstdCompressor(write_checksum=True).compress),
}


@pytest.mark.parametrize("content", [b"", b"x", TEXT, bytes(300_000)], ids=["empty", "one", "text", "zeros"])
@pytest.mark.parametrize("name", THEIRS)
def test_we_read_theirs(name: str, content: bytes) -> None:
    codec, theirs = THEIRS[name]
    assert bytes(decompress(codec, theirs(content), LIMIT)) == content


# And what they make of ours. Java has no place here; what it needs of lz4 is tested below.
READERS: dict[str, tuple[Compression, Callable[[Any], bytes]]] = {
    "zlib": (Compression.GZIP, lambda packed: zlib.decompress(packed, 31)),
    "gzip by kafka-python": (Compression.GZIP, kafka_codec.gzip_decode),
    "snappy by kafka-python": (Compression.SNAPPY, kafka_codec.snappy_decode),
    "snappy by aiokafka": (Compression.SNAPPY, aiokafka_codec.snappy_decode),
    "lz4": (Compression.LZ4, lz4.frame.decompress),
    "lz4 by kafka-python": (Compression.LZ4, kafka_codec.lz4_decode),
    "lz4 by aiokafka": (Compression.LZ4, aiokafka_codec.lz4_decode),
    "zstd": (Compression.ZSTD, lambda packed: zstandard.ZstdDecompressor().decompress(packed, LIMIT)),
    "zstd by kafka-python": (Compression.ZSTD, kafka_codec.zstd_decode),
    "zstd by aiokafka": (Compression.ZSTD, aiokafka_codec.zstd_decode),
}


@pytest.mark.parametrize("content", [b"x", TEXT, bytes(300_000)], ids=["one", "text", "zeros"])
@pytest.mark.parametrize("name", READERS)
def test_they_read_ours(name: str, content: bytes) -> None:
    codec, read = READERS[name]
    assert bytes(read(bytes(compress(codec, content)))) == content


def test_lz4_frames_have_the_independent_blocks_that_javas_client_insists_on() -> None:
    noise = Random(2).randbytes(100_000)
    for level in (None, 1, 8):
        packed = compress(Compression.LZ4, noise + TEXT, level)
        info = lz4.frame.get_frame_info(packed)
        assert not info["block_linked"]
        assert info["block_size"] == 64 * 1024
        assert not info["content_checksum"]
    packed = compress(Compression.LZ4, noise + TEXT)
    assert packed[:7] == bytes.fromhex("04224d18604082")  # the very bytes that Java's client begins with


@pytest.mark.parametrize("codec", PACKED)
def test_frames_one_after_another_are_one_stream(codec: Compression) -> None:
    packed = bytes(compress(codec, TEXT)) + bytes(compress(codec, b"the end"))
    assert bytes(decompress(codec, packed, LIMIT)) == TEXT + b"the end"


@pytest.mark.parametrize("codec", PACKED)
def test_cut_at_any_byte_is_an_error_or_a_part(codec: Compression) -> None:
    content = TEXT[:2_000]
    packed = bytes(compress(codec, content))
    for end in range(len(packed)):
        try:
            part = bytes(decompress(codec, packed[:end], LIMIT))
        except ProtocolError:
            continue
        assert content.startswith(part)


@pytest.mark.parametrize("codec", PACKED)
def test_noise_is_an_error(codec: Compression) -> None:
    random = Random(3)
    for size in range(200):
        with pytest.raises(ProtocolError):
            decompress(codec, b"\xf7" + random.randbytes(size), LIMIT)


def bomb(codec: Compression) -> bytes:
    """A gigabyte of zeros, or what claims to be one, in as few bytes as the codec allows."""
    size = 1 << 30
    if codec is Compression.ZSTD:
        frames = zstandard.ZstdCompressor(write_content_size=False).compressobj()
        return frames.compress(bytes(1 << 24)) + frames.flush() + zstd_stream(bytes(1 << 24)) * 63
    if codec is Compression.GZIP:
        return gzip.compress(bytes(1 << 24)) * 64
    if codec is Compression.LZ4:
        return bytes(lz4.frame.compress(bytes(1 << 24), store_size=False)) * 64
    claim = bytearray()
    while size >= 0x80:
        claim.append(size & 0x7F | 0x80)
        size >>= 7
    return bytes(claim) + bytes([size]) + bytes(1000)


@pytest.mark.parametrize("codec", PACKED)
def test_a_bomb_is_an_error_in_bounded_memory(codec: Compression) -> None:
    packed = bomb(codec)
    tracemalloc.start()
    try:
        with pytest.raises(ProtocolError, match="larger than 1048576 bytes"):
            decompress(codec, packed, LIMIT)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 3 * LIMIT


@pytest.mark.parametrize("said", [1 << 62, 0xFFFFFFFF, LIMIT - 1])
def test_a_size_that_a_frame_only_claims_costs_nothing(said: int) -> None:
    """zstd, lz4 and gzip say their size: it is a hint, and never an allocation."""
    content = b"some text " * 5
    zstd = bytearray(zstd_stream(content))
    frames = {
        Compression.LZ4: bytearray(lz4.frame.compress(content, store_size=True)),
        Compression.GZIP: bytearray(gzip.compress(content)),
        Compression.ZSTD: bytearray(b"\x28\xb5\x2f\xfd\xe0" + said.to_bytes(8, "little") + zstd[6:]),
    }
    frames[Compression.LZ4][6:14] = said.to_bytes(8, "little")
    frames[Compression.GZIP][-4:] = (said & 0xFFFFFFFF).to_bytes(4, "little")
    for codec, packed in frames.items():
        tracemalloc.start()
        try:
            with pytest.raises(ProtocolError):
                decompress(codec, packed, LIMIT)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak < 64 * 1024


@pytest.mark.parametrize(
    "blocks",
    [
        b"\x00\x00\x00",
        b"\x00\x00\x00\x00",
        b"\xff\xff\xff\xff",
        b"\x7f\xff\xff\xff\x00",
        b"\x00\x00\x00\x02\x00",
        b"\x82SNAPP",
        b"\x82SNAPPY\x00\x00",
    ],
)
def test_xerial_blocks_that_lie(blocks: bytes) -> None:
    header = bytes(compress(Compression.SNAPPY, b""))
    assert len(header) == 16
    with pytest.raises(ProtocolError):
        decompress(Compression.SNAPPY, header + blocks, LIMIT)
