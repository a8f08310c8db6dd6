# cython: language_level=3, annotation_typing=False, nonecheck=True
"""Frames: what travels on a connection. Four bytes of length, a header, a message.

A request comes in as a `Request`, or as an `Unsupported` when nobody knows its API or version: what to answer is the
caller's to decide. Bytes that can't be read raise ProtocolError, and the connection is of no use any more.
"""

from __future__ import annotations

from struct import Struct
from struct import error as StructError
from typing import Any, Final, TypeAlias

from headrace.errors import ProtocolError
from headrace.plain import plain
from headrace.protocol.apis import API_VERSIONS_KEY, Api, find_api
from headrace.protocol.codec import ELEMENTS_MAX, decode_at, encode_into
from headrace.protocol.message import Message
from headrace.protocol.wire import Malformed, read_replacing, read_uvarint, skip_tags

Frame: TypeAlias = bytes | bytearray | memoryview
Buffers: TypeAlias = list[Any]
"""What to send, in order: bytearrays of ours, and record batches as they are."""

SIZE_BYTES: Final = 4
_REQUEST_HEAD: Final = Struct(">hhih")
_REQUEST_START: Final = Struct(">ihhih")
_RESPONSE_START: Final = Struct(">ii")
_SIZE: Final = Struct(">i")
_CORRELATION: Final = Struct(">i")
_KEY_VERSION_CORRELATION: Final = Struct(">hhi")


@plain
class Request:
    api: Api
    version: int
    correlation_id: int
    client_id: str | None
    body: Any
    """The message; its class is `api.request`."""


@plain
class Unsupported:
    """A request for an API or a version that there is no shape for."""

    api_key: int
    version: int
    correlation_id: int
    api: Api | None
    """The API, when only the version is unknown."""

    @property
    def text(self) -> str:
        if self.api is None:
            return f"API key {self.api_key} is not known"
        return f"{self.api.name} has versions {self.api.versions}, not {self.version}"


def read_size(data: Frame, position: int, size_max: int) -> int:
    """The length of the frame whose four bytes of length stand at a position."""
    (size,) = _SIZE.unpack_from(data, position)
    if 0 <= size <= size_max:
        return int(size)
    start = bytes(data[position : position + SIZE_BYTES])
    if start[:2] == b"\x16\x03":
        raise ProtocolError("a frame starts with a TLS handshake: this listener does not speak TLS")
    if start in (b"GET ", b"POST", b"HEAD", b"PUT ", b"OPTI", b"HTTP"):
        raise ProtocolError("a frame starts with HTTP: this port speaks the Kafka protocol")
    if size < 0:
        raise ProtocolError(f"a frame says that it is {size} bytes long")
    raise ProtocolError(f"a frame says that it is {size} bytes long, and the limit is {size_max}")


def read_request(frame: Frame, elements_max: int = ELEMENTS_MAX) -> Request | Unsupported:
    """The request in a frame (without its four bytes of length). Its records are views into the frame."""
    try:
        key, version, correlation_id, client_id_length = _REQUEST_HEAD.unpack_from(frame, 0)
    except StructError:
        return _read_short_request(frame)
    api = find_api(key)
    if api is None or version not in api.versions:
        return Unsupported(key, version, correlation_id, api)
    position = _REQUEST_HEAD.size
    client_id = None
    if client_id_length >= 0:
        end = position + client_id_length
        if end > len(frame):
            raise ProtocolError(_header_error(api, version, position, "the client id is longer than the frame"))
        try:
            client_id = str(frame[position:end], "utf-8")
        except UnicodeDecodeError:
            client_id = _replacing(api, version, frame, position, end)
        position = end
    if version in api.request.shape.flexible:
        position = _skip_tags(api, version, frame, position)
    body, _ = decode_at(api.request, version, frame, position, elements_max)
    return Request(api, version, correlation_id, client_id, body)


def _replacing(api: Api, version: int, frame: Frame, position: int, end: int) -> str:
    """A client id that is not UTF-8, as in Latin-1: that is no reason to turn a client away."""
    try:
        return read_replacing(memoryview(frame)[position:end])
    except Malformed:
        raise ProtocolError(_header_error(api, version, position, "the client id is not UTF-8, and too long")) from None


def _read_short_request(frame: Frame) -> Unsupported:
    """A header without a client id is known from Kafka's first days only, and no API has it now."""
    if len(frame) < _KEY_VERSION_CORRELATION.size:
        raise ProtocolError(f"RequestHeader: a request of {len(frame)} bytes is shorter than any header")
    key, version, correlation_id = _KEY_VERSION_CORRELATION.unpack_from(frame, 0)
    api = find_api(key)
    if api is None or version not in api.versions:
        return Unsupported(key, version, correlation_id, api)
    raise ProtocolError(_header_error(api, version, len(frame), "the request ends before the client id"))


def read_response(api: Api, version: int, frame: Frame, elements_max: int = ELEMENTS_MAX) -> tuple[int, Any]:
    """Correlation id and message of a response to a request of this version."""
    correlation_id = read_correlation_id(frame)
    position = _CORRELATION.size
    if api.response_header_version(version) == 1:
        position = _skip_tags(api, version, frame, position)
    body, _ = decode_at(api.response, version, frame, position, elements_max)
    return correlation_id, body


def read_correlation_id(frame: Frame) -> int:
    """Which request a response answers: it must be known before the rest can be read."""
    try:
        (correlation_id,) = _CORRELATION.unpack_from(frame, 0)
    except StructError:
        raise ProtocolError(f"ResponseHeader: a response of {len(frame)} bytes has no correlation id") from None
    return int(correlation_id)


def write_request(message: Message, version: int, correlation_id: int, client_id: str | None) -> Buffers:
    """A whole frame, length included."""
    shape = message.shape
    text = b"" if client_id is None else client_id.encode()
    length = -1 if client_id is None else len(text)
    out = bytearray(_REQUEST_START.pack(0, shape.key, version, correlation_id, length))
    out += text
    if version in shape.flexible:
        out += b"\x00"
    return _finish(message, version, out)


def write_response(message: Message, version: int, correlation_id: int) -> Buffers:
    """A whole frame, length included."""
    shape = message.shape
    out = bytearray(_RESPONSE_START.pack(0, correlation_id))
    if version in shape.flexible and shape.key != API_VERSIONS_KEY:
        out += b"\x00"
    return _finish(message, version, out)


def _finish(message: Message, version: int, first: bytearray) -> Buffers:
    buffers: Buffers = []
    last = encode_into(message, version, first, buffers)
    buffers.append(last)
    size = len(first) if last is first else sum(map(len, buffers))
    _SIZE.pack_into(first, 0, size - SIZE_BYTES)
    return buffers


def _skip_tags(api: Api, version: int, frame: Frame, position: int) -> int:
    """Tagged fields of a header: nobody has defined any, so they are skipped."""
    data = frame if isinstance(frame, bytes | memoryview) else memoryview(frame)
    try:
        if data[position] == 0:
            return position + 1
        count, position = read_uvarint(data, position)
        if count * 2 > len(data) - position:
            raise Malformed
        return skip_tags(data, position, len(data), count)
    except (IndexError, Malformed):
        raise ProtocolError(_header_error(api, version, position, "the tagged fields can't be read")) from None


def _header_error(api: Api, version: int, position: int, what: str) -> str:
    return f"header of {api.name} v{version} at byte {position}: {what}"
