"""How the bytes of keys, values and headers are shown, and the messages that they are in the state topics.

Text is quoted, so that null, an empty value and the word null are told apart. Nothing that controls a terminal gets to
it, whatever a producer has written.
"""

from __future__ import annotations

import json
from enum import StrEnum
from typing import Any, Final

from headrace.errors import HeadraceError, ProtocolError
from headrace.protocol.kernel_types import Record
from headrace.protocol.message import Message, show
from headrace.protocol.shape import Kind
from headrace.protocol.state import decode_key, decode_metadata_record, decode_value
from headrace.storage.names import parse_folder


class Format(StrEnum):
    """How keys, values and the values of headers are shown."""

    TEXT = "text"
    JSON = "json"
    HEX = "hex"


STATE_TOPICS: Final = {
    "__cluster_metadata": Kind.METADATA,
    "__consumer_offsets": Kind.GROUP,
    "__transaction_state": Kind.TRANSACTION,
    "__share_group_state": Kind.SHARE,
}
NO_TOPIC: Final = "none"


def state_kind(named: str | None, folder: str) -> Kind | None:
    """What records are to be decoded as: by the name that was given, else by that of the folder they lie in."""
    if named is None:
        found = parse_folder(folder)
        return STATE_TOPICS.get(found.topic) if found else None
    if named == NO_TOPIC:
        return None
    for topic, kind in STATE_TOPICS.items():
        if named.strip("_").replace("-", "_") == topic.strip("_"):
            return kind
    raise HeadraceError(f"records can't be read as {named}: choose one of {', '.join((*STATE_TOPICS, NO_TOPIC))}.")


# --- one line of a table ----------------------------------------------------------------------------------------------


def bytes_text(value: bytes | None, format: Format, bytes_max: int | None = None) -> str:
    if value is None:
        return "null"
    rest = ""
    if bytes_max is not None and len(value) > bytes_max:
        rest = f"… ({len(value):,} bytes)"
        value = value[:bytes_max]
    if format is Format.HEX:
        return f"0x{value.hex()}{rest}"
    try:
        text = value.decode()
    except UnicodeDecodeError as error:
        if not rest or error.start < len(value) - 3:
            return f"0x{value.hex()}{rest}"
        text = value[: error.start].decode()  # the cut went through a character
    if format is Format.JSON and not rest and (parsed := _parsed(text)) is not None:
        return json.dumps(parsed[0], ensure_ascii=False, separators=(",", ":"))
    return quoted(text) + rest


def quoted(text: str) -> str:
    """In quotes, with what can't be printed escaped; Python's way."""
    return repr(text)


def headers_text(record: Record, format: Format, bytes_max: int | None) -> str:
    return ", ".join(
        f"{name if name.isprintable() else quoted(name)}={bytes_text(value, format, bytes_max)}"
        for name, value in record.headers
    )


# --- JSON -------------------------------------------------------------------------------------------------------------


def bytes_json(value: bytes | None, format: Format) -> Any:
    """Text is a string; what is no text is an object with its hex digits."""
    if value is None:
        return None
    if format is not Format.HEX:
        try:
            text = value.decode()
        except UnicodeDecodeError:
            return {"hex": value.hex()}
        if format is Format.TEXT:
            return text
        parsed = _parsed(text)
        return {"text": text} if parsed is None else parsed[0]
    return value.hex()


def message_json(message: Message) -> dict[str, Any]:
    return {"message": type(message).__name__, "fields": _fields_json(message)}


def _fields_json(message: Message) -> dict[str, Any]:
    return {field.name: _value_json(getattr(message, field.name), field) for field in message.struct.fields}


def _value_json(value: Any, field: Any) -> Any:
    if isinstance(value, Message):
        return _fields_json(value)
    if isinstance(value, list):
        return [_value_json(item, field) for item in value]
    if isinstance(value, bytes | bytearray | memoryview):
        return show(field, value) if field.type == "uuid" else bytes(value).hex()
    return value


def _parsed(text: str) -> tuple[Any] | None:
    """What JSON text says; None when it is none."""
    try:
        return (json.loads(text),)
    except (ValueError, RecursionError):
        return None


# --- records of the state topics --------------------------------------------------------------------------------------

Shown = bytes | Message | None


def decoded(record: Record, kind: Kind | None) -> tuple[Shown, Shown, str]:
    """Key and value as messages where they are some, and what was wrong with them where they should be."""
    key, value = record.key, record.value
    if kind is None:
        return key, value, ""
    try:
        if kind is Kind.METADATA:
            return key, None if value is None else decode_metadata_record(value)[0], ""
        if key is None:
            raise ProtocolError("it has no key")
        message = decode_key(kind, key)
        if message is None:
            raise ProtocolError("its key has a type that is not known: was it written by a newer version?")
        return message, None if value is None else decode_value(kind, message, value), ""
    except ProtocolError as error:
        return key, value, str(error)


def shown_text(value: Shown, format: Format, bytes_max: int | None) -> str:
    return repr(value) if isinstance(value, Message) else bytes_text(value, format, bytes_max)


def shown_json(value: Shown, format: Format) -> Any:
    return message_json(value) if isinstance(value, Message) else bytes_json(value, format)


def control_text(message: Message | None) -> str:
    """Of a control record: all of its fields, whatever their values."""
    if message is None:
        return "of a type that is not known"
    return ", ".join(f"{field.name}={show(field, getattr(message, field.name))}" for field in message.struct.fields)
