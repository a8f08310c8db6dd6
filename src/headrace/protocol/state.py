"""Records of the state topics: how a message becomes the key or value of a record, and back.

In `__cluster_metadata` a record's value says what it is: frame version, type, version, message. In the coordinators'
topics the key says it: type and key, and the value starts with its version.
"""

from functools import cache
from struct import Struct
from typing import Final

from headrace.errors import ProtocolError
from headrace.protocol import messages
from headrace.protocol.codec import decode, decode_at, encode_bytes
from headrace.protocol.message import Message
from headrace.protocol.shape import Kind, blocks
from headrace.protocol.wire import Malformed, read_uvarint, uvarint

METADATA_FRAME_VERSION: Final = 1
_INT16: Final = Struct(">h")


def encode_metadata_record(message: Message, version: int) -> bytes:
    """The value of a record of `__cluster_metadata`."""
    key = _key_of(message, Kind.METADATA)
    return uvarint(METADATA_FRAME_VERSION) + uvarint(key) + uvarint(version) + encode_bytes(message, version)


def decode_metadata_record(value: bytes | memoryview) -> tuple[Message, int]:
    """The message in a record of `__cluster_metadata`, and its version."""
    try:
        frame_version, position = read_uvarint(value, 0)
        key, position = read_uvarint(value, position)
        version, position = read_uvarint(value, position)
    except (IndexError, Malformed):
        raise ProtocolError("a metadata record ends before its type and version") from None
    if frame_version != METADATA_FRAME_VERSION:
        raise ProtocolError(f"a metadata record has frame version {frame_version}, and only 1 is known")
    name = _names(Kind.METADATA).get(key)
    if name is None:
        raise ProtocolError(f"a metadata record has type {key}, which is not known: was it written by a newer version?")
    message, end = decode_at(getattr(messages, name), version, value, position)
    if end != len(value):
        raise ProtocolError(f"{name} v{version} ends at byte {end}, but {len(value) - end} bytes follow it")
    return message, version


def encode_key(message: Message) -> bytes:
    """The key of a record of a coordinator's topic."""
    return _INT16.pack(_key_of(message, message.shape.kind)) + encode_bytes(message, 0)


def encode_value(message: Message, version: int) -> bytes:
    """The value of a record of a coordinator's topic."""
    return _INT16.pack(version) + encode_bytes(message, version)


def decode_key(kind: Kind, key: bytes | memoryview) -> Message | None:
    """The key of a record of the state topic of a kind; None for a type that a newer version may have written."""
    name = _names(kind).get(_int16(key, "key"))
    return None if name is None else decode(getattr(messages, name + "Key"), 0, key[2:])


def decode_value(kind: Kind, key: Message, value: bytes | memoryview) -> Message:
    """The value that belongs to a decoded key."""
    name = _names(kind)[_key_of(key, kind)]
    message: type[Message] = getattr(messages, name + "Value")
    return decode(message, _int16(value, "value"), value[2:])


def _key_of(message: Message, kind: Kind) -> int:
    if message.shape.kind is not kind or message.shape.key is None:
        raise ProtocolError(f"{message.shape.name} is not a record of the {kind} topic")
    return message.shape.key


@cache
def _names(kind: Kind) -> dict[int, str]:
    return dict(blocks(kind))


def _int16(data: bytes | memoryview, what: str) -> int:
    if len(data) < 2:
        raise ProtocolError(f"the {what} of a coordinator's record is {len(data)} bytes long, and 2 say what it is")
    (value,) = _INT16.unpack_from(data)
    return int(value)
