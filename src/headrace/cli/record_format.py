"""A record as it is printed: its value as text, lines of JSON, hex, base64, in full, or by a template."""

from __future__ import annotations

import base64
import json
import re
import sys
from collections.abc import Callable
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from headrace.cli import Misused
from headrace.cli.expression import Expression, Seen, shown
from headrace.cli.quantities import time_text
from headrace.cli.texts import as_bytes, require_utf8

if TYPE_CHECKING:
    from headrace.client import ConsumedRecord

_PLACE: Final = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]|\\[nt0\\]")
_ESCAPES: Final = {"\\n": "\n", "\\t": "\t", "\\0": "\0", "\\\\": "\\", "{{": "{", "}}": "}"}
_CONTROLS: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_DIM, _NAME, _PLAIN = "\x1b[2m", "\x1b[36m", "\x1b[0m"

Format = Callable[["ConsumedRecord"], bytes]


class OutputFormat(StrEnum):
    TEXT = "text"
    FULL = "full"
    JSON = "json"
    HEX = "hex"
    BASE64 = "base64"
    RAW = "raw"


def formatter(how: OutputFormat, *, separator: str | None, null: str, nested: bool, is_terminal: bool) -> Format:
    """The bytes to write for a record, its end of line with them (raw has none)."""
    if separator is not None and how in (OutputFormat.JSON, OutputFormat.FULL, OutputFormat.RAW):
        raise Misused(f"--key-separator is for lines of a key and a value; --format {how.value} has keys of its own")
    if nested and how is not OutputFormat.JSON:
        raise Misused("--parse is for --format json")
    if how is OutputFormat.RAW:
        return lambda record: record.value or b""
    if how is OutputFormat.JSON:
        return lambda record: _json_line(record, nested=nested)
    if how is OutputFormat.FULL:
        return _full_in_colour if is_terminal and _has_colour() else _full
    between = None if separator is None else as_bytes(separator)
    return _line(how, between, as_bytes(null), is_terminal=is_terminal)


def _has_colour() -> bool:
    from rich.console import Console

    console = Console()
    return console.color_system is not None and not console.no_color


def _line(how: OutputFormat, separator: bytes | None, null: bytes, *, is_terminal: bool) -> Format:
    packed: Callable[[bytes], bytes] = {
        OutputFormat.HEX: lambda data: data.hex().encode(),
        OutputFormat.BASE64: base64.b64encode,
        OutputFormat.TEXT: _harmless if is_terminal else bytes,
    }[how]

    def line(record: ConsumedRecord) -> bytes:
        value = null if record.value is None else packed(record.value)
        if separator is None:
            return value + b"\n"
        return (null if record.key is None else packed(record.key)) + separator + value + b"\n"

    return line


def _harmless(data: bytes) -> bytes:
    """For a terminal, which would obey what others put into a record: control characters are shown, not sent."""
    text = data.decode(errors="backslashreplace")
    return _CONTROLS.sub(lambda found: f"\\x{ord(found[0]):02x}", text).encode()


# --- JSON -------------------------------------------------------------------------------------------------------------


def _json_line(record: ConsumedRecord, *, nested: bool) -> bytes:
    return json.dumps(record_json(record, nested=nested), ensure_ascii=False).encode() + b"\n"


def record_json(record: ConsumedRecord, *, nested: bool = False) -> dict[str, Any]:
    """What `headrace produce --format json` takes. Bytes that are no text have their name with `_base64`."""
    told: dict[str, Any] = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp_ms": record.timestamp_ms,
    }
    for name, data in (("key", record.key), ("value", record.value)):
        told |= _field(name, data, nested=nested)
    told["headers"] = [{"name": name, **_field("value", data, nested=False)} for name, data in record.headers]
    return told


def _field(name: str, data: bytes | None, *, nested: bool) -> dict[str, Any]:
    if data is None:
        return {name: None}
    if nested:
        try:
            return {name: json.loads(data)}
        except (ValueError, RecursionError):
            pass
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(data).decode()}


# --- in full ----------------------------------------------------------------------------------------------------------


def _full(record: ConsumedRecord) -> bytes:
    place, time, key, headers = _parts(record)
    return b"".join((f"{place}  {time}  {key}{headers}\n".encode(), _value(record)))


def _full_in_colour(record: ConsumedRecord) -> bytes:
    place, time, key, headers = _parts(record)
    head = f"{_NAME}{place}{_PLAIN}  {_DIM}{time}{_PLAIN}  {key}{_DIM}{headers}{_PLAIN}\n"
    return head.encode() + _value(record)


def _parts(record: ConsumedRecord) -> tuple[str, str, str, str]:
    key = "no key" if record.key is None else f"key {_text(record.key)}"
    headers = "".join(
        f"  {_text(name.encode())}={'null' if value is None else _text(value)}" for name, value in record.headers
    )
    return f"{record.topic}-{record.partition} @{record.offset}", time_text(record.timestamp_ms), key, headers


def _value(record: ConsumedRecord) -> bytes:
    text = "null" if record.value is None else _text(record.value)
    return b"".join(f"  {line}\n".encode() for line in text.split("\n"))


def _text(data: bytes) -> str:
    return _harmless(data).decode()


# --- templates --------------------------------------------------------------------------------------------------------


def template(source: str, *, is_terminal: bool) -> Format:
    """Text with {expressions} in it, as `{offset} {key}: {value.total}`. {{ is a brace; \\n, \\t and \\0 are known."""
    parts: list[bytes | Expression] = []
    at = 0
    for found in _PLACE.finditer(source):
        parts.append(as_bytes(source[at : found.start()]))
        at = found.end()
        if found[0] in _ESCAPES:
            parts.append(_ESCAPES[found[0]].encode())
        elif found[1] is None:
            raise Misused(f"The template {source!r} has a single '{found[0]}'; write it twice to have one printed")
        else:
            require_utf8(found[1], "A place of --template")
            parts.append(Expression(found[1]))
    parts.append(as_bytes(source[at:]))

    def filled(record: ConsumedRecord) -> bytes:
        seen = Seen(record)
        data = b"".join(
            part if isinstance(part, bytes) else shown(part.of(seen)).encode(errors="backslashreplace")
            for part in parts
        )
        return (_harmless(data) if is_terminal else data) + b"\n"

    return filled


# --- where it goes ----------------------------------------------------------------------------------------------------


class Printer:
    """Writes bytes to standard output, in few calls; whoever reads sees them when `flush` is called."""

    __slots__ = ("_binary", "_format", "_held", "printed")

    def __init__(self, format_: Format) -> None:
        self._format = format_
        self._held: list[bytes] = []
        self._binary: Any = getattr(sys.stdout, "buffer", None)
        self.printed = 0

    def add(self, record: ConsumedRecord) -> None:
        self._held.append(self._format(record))
        self.printed += 1

    def flush(self) -> None:
        if not self._held:
            return
        data, self._held = b"".join(self._held), []
        if self._binary is not None:
            self._binary.write(data)
        else:
            sys.stdout.write(data.decode(errors="backslashreplace"))
        sys.stdout.flush()
