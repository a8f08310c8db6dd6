"""Encode and decode messages: the only code that knows versions."""

import struct
from typing import Any, Final, TypeVar, cast

from headrace.errors import ProtocolError
from headrace.protocol.message import Message
from headrace.protocol.wire import Malformed

M = TypeVar("M", bound=Message)

ELEMENTS_MAX: Final = 1_000_000
"""How many array elements and tagged fields a frame may hold, unless the caller says otherwise."""

_ENCODE_FAULTS = (struct.error, Malformed, ProtocolError, AttributeError, TypeError, ValueError, OverflowError)
_DECODE_FAULTS = (struct.error, Malformed, IndexError, UnicodeDecodeError)


def encode_into(message: Message, version: int, out: bytearray, buffers: list[Any]) -> bytearray:
    """Append a message to `out`, and to `buffers` from its first records on; returns the buffer that is still open."""
    encoder = message.encoders.get(version) or _new_encoder(message.__class__, version)
    try:
        still_open: bytearray = encoder(message, out, buffers)
    except _ENCODE_FAULTS as fault:
        from headrace.protocol.explain import encode_error

        raise encode_error(message, version, fault) from None
    return still_open


def encode(message: Message, version: int) -> list[Any]:
    """The buffers of a message; record batches are among them as they are, never copied.

    Unknown tagged fields that it carries go along in flexible versions, and are left out in others.
    """
    buffers: list[Any] = []
    buffers.append(encode_into(message, version, bytearray(), buffers))
    return buffers


def encode_bytes(message: Message, version: int) -> bytes:
    """A message in one piece, for what is small."""
    return b"".join(encode(message, version))


def decode_at(
    message: type[M],
    version: int,
    data: bytes | bytearray | memoryview,
    position: int,
    elements_max: int = ELEMENTS_MAX,
) -> tuple[M, int]:
    """The message at a position of the data, and where it ends. Its records, if any, are views into the data."""
    decoder, reads = message.decoders.get(version) or _new_decoder(message, version)
    if data.__class__ is not reads:
        data = reads(data)
    try:
        decoded: tuple[M, int] = decoder(data, position, len(data), elements_max)
    except _DECODE_FAULTS as fault:
        return _decode_again(message, version, data, position, elements_max, fault)
    return decoded


def decode(message: type[M], version: int, data: bytes | bytearray | memoryview, elements_max: int = ELEMENTS_MAX) -> M:
    """A message that fills the data to its end."""
    # As decode_at: a call more would be a tenth of a small message.
    decoder, reads = message.decoders.get(version) or _new_decoder(message, version)
    if data.__class__ is not reads:
        data = reads(data)
    size = len(data)
    try:
        decoded, end = decoder(data, 0, size, elements_max)
    except _DECODE_FAULTS as fault:
        decoded, end = _decode_again(message, version, data, 0, elements_max, fault)
    if end != size:
        raise ProtocolError(f"{message.__name__} v{version} ends at byte {end}, but {size - end} bytes follow it")
    return cast("M", decoded)


_replacing_decoders: Final[dict[tuple[type[Message], int], Any]] = {}


def _decode_again(
    message: type[M],
    version: int,
    data: bytes | bytearray | memoryview,
    position: int,
    elements_max: int,
    fault: Exception,
) -> tuple[M, int]:
    """A request may have strings that are not UTF-8, which are rare enough to be read twice. Else, what is wrong."""
    if fault.__class__ is UnicodeDecodeError and message.shape.is_request:
        decoder = _replacing_decoders.get((message, version)) or _new_replacing_decoder(message, version)
        try:
            decoded: tuple[M, int] = decoder(data, position, len(data), elements_max)
            return decoded
        except _DECODE_FAULTS as found:
            fault = found
    from headrace.protocol.explain import decode_error

    raise decode_error(message, version, memoryview(data), position, elements_max, fault) from None


# The compiler is loaded with the first message that needs it: a process that only imports us must start at once.


def _new_encoder(message: type[Message], version: int) -> Any:
    from headrace.protocol.compiler import compile_encoder

    _check_version(message, version)
    encoder = message.encoders[version] = compile_encoder(message, version)
    return encoder


def _new_decoder(message: type[Message], version: int) -> tuple[Any, Any]:
    from headrace.protocol.compiler import compile_decoder, has_records

    _check_version(message, version)
    # Bytes are quicker to read than a view, and a copy is cheap where no records are in it.
    reads = memoryview if has_records(message.shape.body, version) else bytes
    made = message.decoders[version] = compile_decoder(message, version), reads
    return made


def _new_replacing_decoder(message: type[Message], version: int) -> Any:
    from headrace.protocol.compiler import compile_replacing_decoder

    decoder = _replacing_decoders[message, version] = compile_replacing_decoder(message, version)
    return decoder


def _check_version(message: type[Message], version: int) -> None:
    if message.struct is not message.shape.body:
        raise ProtocolError(f"{message.__qualname__} is a part of a message and has no versions of its own")
    if version not in message.shape.versions:
        raise ProtocolError(f"{message.__name__} has versions {message.shape.versions}, not {version}")
