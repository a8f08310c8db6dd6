"""Takes whole frames apart for a person: header, message, and the record batches inside it, row by row."""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct, unpack_from
from typing import Final

from headrace.errors import ProtocolError
from headrace.named_tuple import NamedTuple
from headrace.protocol.apis import Api, find_api
from headrace.protocol.batch import Batch, scan
from headrace.protocol.codec import ELEMENTS_MAX
from headrace.protocol.explain import Row, explain
from headrace.protocol.frame import SIZE_BYTES
from headrace.protocol.message import LONGEST_BYTES_SHOWN, Message
from headrace.protocol.messages import RequestHeader, ResponseHeader
from headrace.protocol.records import records_of

RECORDS_SHOWN: Final = 10
RECORDS_BYTES_MAX: Final = 64 << 20
_HEAD: Final = Struct(">hh")

BATCH_FIELDS: Final = (
    ("base_offset", 0, "q"),
    ("batch_length", 8, "i"),
    ("partition_leader_epoch", 12, "i"),
    ("magic", 16, "b"),
    ("crc", 17, "I"),
    ("attributes", 21, "h"),
    ("last_offset_delta", 23, "i"),
    ("base_timestamp", 27, "q"),
    ("max_timestamp", 35, "q"),
    ("producer_id", 43, "q"),
    ("producer_epoch", 51, "h"),
    ("base_sequence", 53, "i"),
    ("record_count", 57, "i"),
)
BATCH_HEADER_BYTES: Final = 61
_TYPES: Final = {"q": ("int64", 8), "i": ("int32", 4), "I": ("uint32", 4), "h": ("int16", 2), "b": ("int8", 1)}


class Captured(NamedTuple):
    """A frame in what was captured from a socket: without its length, and cut when `missing_bytes` is not 0."""

    position: int
    frame: bytes
    missing_bytes: int = 0


def split_frames(data: bytes, is_request: bool) -> list[Captured]:
    """The frames of a capture, with lengths before them; or the one frame that it is, without."""
    found: list[Captured] = []
    position = 0
    while position < len(data):
        size = int.from_bytes(data[position : position + SIZE_BYTES], signed=True)
        frame = data[position + SIZE_BYTES : position + SIZE_BYTES + max(size, 0)]
        if len(frame) < size and not found and not (is_request and _is_request(frame)):
            return [Captured(0, data)]
        if size <= 0 or (len(frame) < _HEAD.size and not found):
            return found or [Captured(0, data)]
        found.append(Captured(position + SIZE_BYTES, frame, size - len(frame)))
        position += SIZE_BYTES + size
    return found or [Captured(0, data)]


def _is_request(frame: bytes) -> bool:
    if len(frame) < _HEAD.size:
        return False
    key, version = _HEAD.unpack_from(frame)
    api = find_api(key)
    return api is not None and version in api.versions


def request_api(frame: bytes) -> tuple[Api, int]:
    """Which API and version a request is of."""
    if len(frame) < 8:
        raise ProtocolError(f"a request has a header of at least 8 bytes, and these are {len(frame)}")
    key, version = _HEAD.unpack_from(frame)
    api = find_api(key)
    if api is None:
        raise ProtocolError(
            f"it starts with API key {key}, which is not known: for a response say --response and its API"
        )
    if version not in api.versions:
        raise ProtocolError(f"{api.name} has versions {api.versions}, not {version}: is this a response?")
    return api, version


def dissect_request(frame: bytes) -> Iterator[Row]:
    api, version = request_api(frame)
    yield from _dissect(RequestHeader, api.request_header_version(version), api.request, version, frame)


def dissect_response(frame: bytes, api: Api, version: int) -> Iterator[Row]:
    if version not in api.versions:
        raise ProtocolError(f"{api.name} has versions {api.versions}, not {version}")
    yield from _dissect(ResponseHeader, api.response_header_version(version), api.response, version, frame)


def _dissect(
    header: type[Message], header_version: int, body: type[Message], version: int, frame: bytes
) -> Iterator[Row]:
    yield Row(0, 0, 0, header.__name__, f"v{header_version}", "")
    position = 0
    for row in _indented(explain(header, header_version, frame, 0, ELEMENTS_MAX)):
        position = row.position + row.size
        yield row
    yield from dissect_message(frame, body, version, position)


def dissect_message(frame: bytes, message: type[Message], version: int, position: int = 0) -> Iterator[Row]:
    """A message, the batches in its records, and what is left behind it."""
    yield Row(position, 0, 0, message.__name__, f"v{version}", "")
    for row in _indented(explain(message, version, frame, position, ELEMENTS_MAX)):
        position = row.position + row.size
        yield row
        if row.type == "records" and row.value != "null":
            yield from dissect_records(frame, position - row.content_size, position, row.depth + 1)
    if position < len(frame):
        yield Row(position, len(frame) - position, 0, "trailing bytes", "", f"{len(frame) - position} bytes")


def dissect_records(frame: bytes, start: int, end: int, depth: int) -> Iterator[Row]:
    """The record batches between two positions; one that can't be read is a row that says so."""
    try:
        for number, batch in enumerate(scan(memoryview(frame)[:end], start)):
            yield Row(batch.position, 0, depth, f"batch {number}", "batch", _attributes(batch))
            for name, at, code in BATCH_FIELDS:
                type_name, size = _TYPES[code]
                (value,) = unpack_from(">" + code, frame, batch.position + at)
                yield Row(
                    batch.position + at,
                    size,
                    depth + 1,
                    name,
                    type_name,
                    f"{value:#010x}" if name == "crc" else str(value),
                )
            records_at = batch.position + BATCH_HEADER_BYTES
            yield Row(records_at, batch.end - records_at, depth + 1, "records", "records", _sum_up(batch))
            yield from _records(batch, records_at, depth + 2)
    except ProtocolError as error:
        yield Row(start, 0, depth, "batch", "", f"can't be read: {error}")


def _attributes(batch: Batch) -> str:
    words = [batch.compression.name.lower() if batch.is_compressed else "uncompressed"]
    words += [
        word
        for word, there in (
            ("transactional", batch.is_transactional),
            ("control", batch.is_control),
            ("log append time", batch.timestamp_type == 1),
        )
        if there
    ]
    return ", ".join(words)


def _sum_up(batch: Batch) -> str:
    try:
        batch.verify()
    except ProtocolError as error:
        return f"damaged: {error}"
    return f"{batch.record_count} records, checksum right"


def _records(batch: Batch, position: int, depth: int) -> Iterator[Row]:
    records = records_of(batch, RECORDS_BYTES_MAX).decode()
    for record in records[:RECORDS_SHOWN]:
        headers = "".join(f", {name}={_short(value)}" for name, value in record.headers)
        shown = f"{_short(record.key)} → {_short(record.value)}{headers}"
        yield Row(position, 0, depth, f"offset {record.offset}", "record", shown)
    if len(records) > RECORDS_SHOWN:
        yield Row(position, 0, depth, "…", "", f"{len(records) - RECORDS_SHOWN} more records")


def _short(value: bytes | memoryview | None) -> str:
    if value is None:
        return "null"
    shown = bytes(value[:LONGEST_BYTES_SHOWN])
    rest = f"… ({len(value)} bytes)" if len(value) > LONGEST_BYTES_SHOWN else ""
    return (repr(shown.decode()) if shown.isascii() else f"0x{shown.hex()}") + rest


def _indented(rows: Iterator[Row]) -> Iterator[Row]:
    for row in rows:
        row.depth += 1
        yield row
