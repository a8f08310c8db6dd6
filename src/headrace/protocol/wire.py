"""The few pieces of the wire format that compiled code calls instead of spelling out."""

from collections.abc import Callable, Iterable
from struct import Struct
from typing import Final

from headrace.errors import ProtocolError

UVARINT: Final = tuple(bytes([value]) for value in range(128))
"""The varints of one byte: lengths of nearly everything."""


class Malformed(Exception):
    """Compiled code found bytes that can't be right. Never leaves the codec, which then finds out where and what."""


STRING_BYTES_MAX: Final = 0x7FFF
"""As long as a string of the old encoding can be."""


def read_replacing(taken: bytes | memoryview) -> str:
    """A string of a request that is not UTF-8: Kafka answers it too, and some clients send Latin-1.

    A replacement character takes three bytes for one. What could not be written again with them is not read.
    """
    text = str(taken, "utf-8", "replace")
    if len(text.encode()) > max(STRING_BYTES_MAX, len(taken)):
        raise Malformed
    return text


def uvarint(value: int) -> bytes:
    """An unsigned varint of at most 32 bits."""
    if value < 128:
        return UVARINT[value]
    if value < 16384:
        return bytes((value & 127 | 128, value >> 7))
    encoded = bytearray()
    while value > 127:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def read_uvarint(data: bytes | memoryview, position: int) -> tuple[int, int]:
    """The unsigned varint at a position, and where it ends. IndexError at the end of the data."""
    byte = data[position]
    if byte < 128:
        return byte, position + 1
    return read_uvarint_rest(data, position + 1, byte)


def read_uvarint_rest(data: bytes | memoryview, position: int, first: int) -> tuple[int, int]:
    """As `read_uvarint`, when the first byte was read already and says that more follow."""
    value, shift = first & 0x7F, 7
    while shift < 35:
        byte = data[position]
        position += 1
        if byte < 128:
            value |= byte << shift
            if value > 0xFFFFFFFF:
                break
            return value, position
        value |= (byte & 0x7F) << shift
        shift += 7
    raise Malformed


def write_tags(out: bytearray, known: list[tuple[int, bytearray]], unknown: bytes | None) -> None:
    """The tagged fields of a struct: the known ones that are not at their default, and those carried along."""
    tags: dict[int, bytes | bytearray] = {**split_tags(unknown or b""), **dict(known)}
    out += uvarint(len(tags))
    for tag in sorted(tags):
        out += uvarint(tag)
        out += uvarint(len(tags[tag]))
        out += tags[tag]


def read_tag_count(
    data: bytes | memoryview, position: int, end: int, first: int, elements: int
) -> tuple[int, int, int]:
    """How many tagged fields there are, by a varint whose first byte was read already, where they begin, and how many
    more elements a frame may hold."""
    count = first
    if first > 127:
        count, position = read_uvarint_rest(data, position, first)
    elements -= count
    if elements < 0 or count * 2 > end - position:
        raise Malformed
    return count, position, elements


def read_unknown_tags(
    data: bytes | memoryview, position: int, end: int, first: int, elements: int
) -> tuple[bytes, int, int]:
    """The tagged fields of a struct that knows none, as they came, and where they end; else as `read_tag_count`."""
    count, position, elements = read_tag_count(data, position, end, first, elements)
    stop = skip_tags(data, position, end, count)
    return bytes(data[position:stop]), stop, elements


def skip_tags(data: bytes | memoryview, position: int, end: int, count: int) -> int:
    """Where a number of tagged fields ends."""
    for _ in range(count):
        _, position = read_uvarint(data, position)
        size, position = read_uvarint(data, position)
        position += size
        if position > end:
            raise Malformed
    return position


def join_tags(tags: dict[int, bytes]) -> bytes:
    """Tagged fields as a message carries those that it does not know: one after the other, as on the wire."""
    return b"".join(uvarint(tag) + uvarint(len(value)) + value for tag, value in sorted(tags.items()))


def split_tags(joined: bytes) -> dict[int, bytes]:
    """The tagged fields that a message carries, by tag."""
    tags, position = {}, 0
    while position < len(joined):
        tag, position = read_uvarint(joined, position)
        size, position = read_uvarint(joined, position)
        tags[tag] = joined[position : position + size]
        position += size
    return tags


ARRAYS_KEPT: Final = 17


def array_packer(code: str) -> Callable[[list[int]], bytes]:
    """Packs the elements of an array of numbers at once."""
    kept = tuple(Struct(f">{length}{code}").pack for length in range(ARRAYS_KEPT))

    def pack(values: list[int]) -> bytes:
        length = len(values)
        return kept[length](*values) if length < ARRAYS_KEPT else Struct(f">{length}{code}").pack(*values)

    return pack


def array_unpacker(code: str) -> Callable[[bytes | memoryview, int, int], list[int]]:
    """Unpacks a number of elements of an array of numbers at once."""
    kept = tuple(Struct(f">{length}{code}").unpack_from for length in range(ARRAYS_KEPT))

    def unpack(data: bytes | memoryview, position: int, length: int) -> list[int]:
        if length < ARRAYS_KEPT:
            return list(kept[length](data, position))
        return list(Struct(f">{length}{code}").unpack_from(data, position))

    return unpack


def pack_uuids(values: Iterable[bytes]) -> bytes:
    packed = bytearray()
    for value in values:
        if len(value) != 16:
            raise ProtocolError("a uuid is not 16 bytes")
        packed += value
    return bytes(packed)


def unpack_uuids(data: bytes | memoryview, position: int, length: int) -> list[bytes]:
    return [bytes(data[start : start + 16]) for start in range(position, position + 16 * length, 16)]
