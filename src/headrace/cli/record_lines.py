"""Lines of input as records: text, JSON, hex, base64; with keys, headers, partitions and times where they say so."""

from __future__ import annotations

import base64
import binascii
import json
import time
from collections.abc import Callable, Iterable
from enum import StrEnum
from typing import Any, Final, NamedTuple

from headrace.cli import Misused
from headrace.cli.amounts import moment_ms
from headrace.cli.texts import as_bytes, require_utf8
from headrace.errors import HeadraceError

Header = tuple[str, bytes | None]
SHOWN_MAX: Final = 60
_FIELDS: Final = frozenset(
    {"key", "key_base64", "value", "value_base64", "headers", "partition", "timestamp", "timestamp_ms"}
)
_TOLD_BY_CONSUME: Final = frozenset({"topic", "offset", "leader_epoch"})
_TIMESTAMP_MAX_MS: Final = 2**63 - 1
_PARTITION_MAX: Final = 2**31 - 1


class InputFormat(StrEnum):
    TEXT = "text"
    JSON = "json"
    HEX = "hex"
    BASE64 = "base64"
    WHOLE = "whole"


class NewRecord(NamedTuple):
    value: bytes | None
    key: bytes | None = None
    headers: tuple[Header, ...] = ()
    partition: int | None = None
    timestamp_ms: int | None = None

    @property
    def size_bytes(self) -> int:
        return len(self.value or b"") + len(self.key or b"")


class BadLine(ValueError):
    """What is wrong with a line, without where it stands."""


def _refuse_constant(name: str) -> Any:
    raise BadLine(f"{name} is no JSON, though Python takes it for a number")


_ENCODER: Final = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
_DECODER: Final = json.JSONDecoder(parse_constant=_refuse_constant)


class LineReader:
    """How a line becomes a record, as the options say. What a line says itself counts before what they say."""

    __slots__ = ("_headers", "_key", "_null", "_parse", "_partition", "_separator", "_timestamp_ms", "_unpack")

    def __init__(
        self,
        how: InputFormat,
        *,
        separator: str | None = None,
        null: str | None = None,
        key: bytes | None = None,
        headers: tuple[Header, ...] = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> None:
        if separator is not None and how is InputFormat.JSON:
            raise Misused('--key-separator is for lines of text; in JSON a line has a "key"')
        if separator == "":
            raise Misused("--key-separator can't be empty")
        if null is not None and how is InputFormat.JSON:
            raise Misused('--null is for lines of text; in JSON, "value": null is null')
        self._separator = None if separator is None else as_bytes(separator)
        self._null = None if null is None else as_bytes(null)
        self._key = key
        self._headers = headers
        self._partition = partition
        self._timestamp_ms = timestamp_ms
        self._parse: Callable[[bytes], NewRecord] = self._json if how is InputFormat.JSON else self._text
        self._unpack: Callable[[bytes], bytes] = _UNPACKED.get(how, bytes)

    def record(self, line: bytes) -> NewRecord:
        """BadLine when it is none."""
        return self._parse(line)

    def _text(self, line: bytes) -> NewRecord:
        key, value = self._key, line
        if self._separator is not None:
            before, found, value = line.partition(self._separator)
            if not found:
                between = self._separator.decode(errors="backslashreplace")
                raise BadLine(f"it has no '{between}' between a key and a value")
            key = None if before == self._null else self._unpack(before)
        return NewRecord(
            None if value == self._null else self._unpack(value),
            key,
            self._headers,
            self._partition,
            self._timestamp_ms,
        )

    def _json(self, line: bytes) -> NewRecord:
        try:
            given = _DECODER.decode(line.decode(json.detect_encoding(line), "surrogatepass"))
        except json.JSONDecodeError as error:
            raise BadLine(f"it is no JSON ({error.msg.lower()} at character {error.pos + 1})") from None
        except (UnicodeDecodeError, RecursionError):
            raise BadLine("it is no JSON that can be read") from None
        if not isinstance(given, dict):
            raise BadLine('it must be an object such as {"key": "a", "value": "b"}')
        unknown = given.keys() - _FIELDS - _TOLD_BY_CONSUME
        if unknown:
            raise BadLine(f"there is no field '{min(unknown)}' in a record; it has {', '.join(sorted(_FIELDS))}")
        if "value" not in given and "value_base64" not in given:
            raise BadLine('it has no "value"; say "value": null if it is to have none')
        has_key = "key" in given or "key_base64" in given
        return NewRecord(
            _content(given, "value"),
            _content(given, "key") if has_key else self._key,
            self._headers + _headers(given.get("headers")),
            self._partition
            if given.get("partition") is None
            else _whole(given["partition"], "partition", _PARTITION_MAX),
            _time(given, self._timestamp_ms),
        )


def _hex(text: bytes) -> bytes:
    try:
        return bytes.fromhex(text.decode())
    except ValueError:
        raise BadLine("it is no hex: write two digits a byte, as in 0aff") from None


def _base64(text: bytes | str, what: str = "it") -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise BadLine(f"{what} is no base64") from None


_UNPACKED: Final[dict[InputFormat, Callable[[bytes], bytes]]] = {InputFormat.HEX: _hex, InputFormat.BASE64: _base64}


def _content(given: dict[str, Any], name: str) -> bytes | None:
    packed = f"{name}_base64"
    if packed in given:
        if given.get(name) is not None:
            raise BadLine(f'it has a "{name}" and a "{packed}"; leave one out')
        if given[packed] is None:
            return None
        if not isinstance(given[packed], str):
            raise BadLine(f'"{packed}" must be a text')
        return _base64(given[packed], f'"{packed}"')
    return _bytes(given[name])


def _bytes(found: Any) -> bytes | None:
    """A text as it is, null as none, anything else as JSON."""
    if found is None:
        return None
    try:
        return (found if isinstance(found, str) else _ENCODER.encode(found)).encode()
    except UnicodeEncodeError:
        raise BadLine("it has half a character (a lone surrogate), which is no UTF-8") from None
    except ValueError:
        raise BadLine("it has a number beyond 1.8e308, for which there is no JSON") from None


def _headers(given: Any) -> tuple[Header, ...]:
    """{"name": "value"}, or [{"name": …, "value": …}] where a name may come again."""
    if given is None:
        return ()
    if isinstance(given, dict):
        return tuple((name, _bytes(value)) for name, value in given.items())
    if not isinstance(given, list):
        raise BadLine('"headers" must be {"name": "value"} or [{"name": "a", "value": "b"}]')
    found: list[Header] = []
    for one in given:
        if not isinstance(one, dict) or not isinstance(one.get("name"), str):
            raise BadLine('a header in a list must be {"name": "a", "value": "b"}')
        found.append((one["name"], _content({"value": None, **one}, "value")))
    return tuple(found)


def _whole(found: Any, name: str, most: int) -> int:
    if not isinstance(found, int) or isinstance(found, bool) or not 0 <= found <= most:
        raise BadLine(f'"{name}" must be a whole number from 0 on, not {json.dumps(found)}')
    return found


def _time(given: dict[str, Any], otherwise: int | None) -> int | None:
    found = given.get("timestamp_ms", given.get("timestamp"))
    if found is None:
        return otherwise
    if isinstance(found, str):
        try:
            return moment_ms(found, time.time_ns() // 1_000_000)
        except Misused as error:
            raise BadLine(str(error)) from None
    return _whole(found, "timestamp", _TIMESTAMP_MAX_MS)


def header(text: str) -> Header:
    """NAME=TEXT of an option; NAME alone is a header without a value."""
    name, is_given, value = text.partition("=")
    if not name:
        raise Misused(f"--header {text}: write NAME=TEXT")
    require_utf8(name, "The name of a --header")
    return name, as_bytes(value) if is_given else None


def headers_of(texts: Iterable[str]) -> tuple[Header, ...]:
    return tuple(header(text) for text in texts)


def at_line(where: str, number: int, line: bytes, error: BadLine) -> HeadraceError:
    """The sentence for a line that is no record."""
    return HeadraceError(f"{where}, line {number}: {error}. The line is {_cut(line)}.")


def _cut(text: bytes) -> str:
    decoded = text.decode(errors="backslashreplace")
    return repr(decoded if len(decoded) <= SHOWN_MAX else decoded[:SHOWN_MAX] + "…")
