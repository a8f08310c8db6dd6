"""`headrace protocol`: the shapes of messages, and what a captured frame says. For people who debug clients."""

import json
import re
import sys
from collections.abc import Iterator
from difflib import get_close_matches
from itertools import chain
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from headrace.cli.columns import Column, Columns, print_columns
from headrace.errors import HeadraceError, ProtocolError
from headrace.protocol import messages
from headrace.protocol.apis import Api, all_apis, find_api
from headrace.protocol.dissect import (
    Captured,
    dissect_message,
    dissect_request,
    dissect_response,
    request_api,
    split_frames,
)
from headrace.protocol.explain import Row
from headrace.protocol.message import Message
from headrace.protocol.shape import (
    ALWAYS,
    FRESH,
    KEYED_KINDS,
    NEVER,
    Field,
    Kind,
    Shape,
    Struct,
    Versions,
    files_and_blocks,
    message_names,
)
from headrace.protocol.shape import shape as find_shape

app = typer.Typer(
    help="Show the shape of any Kafka message, and explain a captured frame field by field.\n\n"
    "Examples:\n\n"
    "- `headrace protocol list`\n"
    "- `headrace protocol show Fetch --version 13`\n"
    "- `headrace protocol decode capture.bin`",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
)

Json = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
BYTES_SHOWN = 8
SUFFIXES = ("Request", "Response", "Key", "Value", "Record")


# --- list and show ----------------------------------------------------------------------------------------------------


@app.command("list")
def list_messages(as_json: Json = False) -> None:
    """List all APIs and records, with their keys and versions.

    Examples:

    - `headrace protocol list`
    """
    shapes = [find_shape(name) for name in message_names()]
    if as_json:
        print(json.dumps([_head_as_json(found) for found in shapes], indent=2))
        return
    order = list(Kind)
    rows = [
        (found.kind, "" if found.key is None else str(found.key), _block_name(found), str(_versions(found)), found.text)
        for found in sorted(shapes, key=lambda found: (order.index(found.kind), found.key or 0))
        if not _is_second(found)
    ]
    print_columns(rows, ("dim", "", "cyan", "", ""), ("kind", ">key", "name", "versions", "what it is"))


@app.command("show")
def show_shape(
    name: Annotated[str, typer.Argument(help="A message, an API or its key: `Fetch`, `FetchResponse`, `1`.")],
    version: Annotated[int | None, typer.Option("--version", "-v", help="Only what this version has.")] = None,
    as_json: Json = False,
) -> None:
    """Print the shape of a message: its fields, their types, versions and defaults.

    Examples:

    - `headrace protocol show Fetch`
    - `headrace protocol show MetadataResponse --version 12`
    """
    found = [find_shape(message) for message in _messages_named(name)]
    for item in found:
        # The key of a coordinator's record has one version, whatever its value has.
        if version is not None and version not in item.versions and not item.name.endswith("Key"):
            raise HeadraceError(f"{item.name} has versions {item.versions}, not {version}.")
    if as_json:
        print(json.dumps([_shape_as_json(item, version) for item in found], indent=2))
        return
    for position, item in enumerate(found):
        if position:
            print()
        _print_shape(item, version)


def _print_shape(item: Shape, version: int | None) -> None:
    head = Text(item.name, style="bold cyan")
    key = "" if item.key is None else f"{'API key' if item.kind is Kind.API else 'type'} {item.key}, "
    versions = f"version {version}" if version is not None else f"versions {item.versions}"
    flexible = "" if item.flexible == NEVER else f", flexible {item.flexible}"
    if version is not None:
        flexible = ", flexible" if item.is_flexible(version) else ""
    head.append(f"  {key}{versions}{flexible}", style="default")
    if item.text:
        head.append(f"  # {item.text}", style="dim")
    Console(highlight=False).print(head, soft_wrap=True)
    rows = [
        (
            "  " * (depth + 1) + field.name,
            _type(field, version),
            "" if version is not None or field.versions == ALWAYS else str(field.versions),
            _options(field),
        )
        for depth, field in _fields(item.body, version)
    ]
    print_columns(rows or [("  (no fields)",)], ("", "cyan", "", "dim"))


def _fields(struct: Struct, version: int | None, depth: int = 0) -> Iterator[tuple[int, Field]]:
    for field in struct.fields:
        if version is None or version in field.versions:
            yield depth, field
            if field.struct is not None:
                yield from _fields(field.struct, version, depth + 1)


def _type(field: Field, version: int | None) -> str:
    name = f"[{field.type}]" if field.is_array else field.type
    if version is not None:
        return f"{name}?" if version in field.nullable else name
    return name + {NEVER: "", ALWAYS: "?"}.get(field.nullable, f"?{field.nullable}")


def _options(field: Field) -> str:
    options = []
    if field.tag is not None:
        options.append(f"tag {field.tag}")
    if field.default is None and field.nullable != NEVER:
        options.append("= null")
    elif field.default not in (FRESH, None, 0, "", b"", bytes(16)):
        options.append(f"= {field.default}")
    options += [word for word, there in _words(field) if there]
    return "  ".join(options)


def _words(field: Field) -> tuple[tuple[str, bool], ...]:
    return ("key", field.is_key), ("ignorable", field.ignorable), ("classic", field.classic)


def _head_as_json(item: Shape) -> dict[str, Any]:
    return {
        "name": item.name,
        "kind": item.kind,
        "key": item.key,
        "versions": str(item.versions),
        "flexible": None if item.flexible == NEVER else str(item.flexible),
        "unstable": None if item.unstable == NEVER else str(item.unstable),
        "listeners": list(item.listeners),
        "text": item.text,
    }


def _shape_as_json(item: Shape, version: int | None) -> dict[str, Any]:
    return {**_head_as_json(item), "fields": _fields_as_json(item.body, version)}


def _fields_as_json(struct: Struct, version: int | None) -> list[dict[str, Any]]:
    return [
        {
            "name": field.name,
            "type": _type(field, version),
            "versions": str(field.versions),
            "tag": field.tag,
            "default": _default_as_json(field),
            "ignorable": field.ignorable,
            "key": field.is_key,
            **({"fields": _fields_as_json(field.struct, version)} if field.struct is not None else {}),
        }
        for field in struct.fields
        if version is None or version in field.versions
    ]


def _default_as_json(field: Field) -> Any:
    if field.default is FRESH:
        return [] if field.is_array else {}
    return field.default.hex() if isinstance(field.default, bytes) else field.default


# --- decode -----------------------------------------------------------------------------------------------------------


@app.command("decode")
def decode_frame(
    source: Annotated[
        str, typer.Argument(help="Hex digits (spaces and colons don't matter), a file of bytes or of hex, or `-`.")
    ],
    response: Annotated[
        str | None, typer.Option("--response", "-r", help="It is a response of this API: a name or a key.")
    ] = None,
    message: Annotated[
        str | None, typer.Option("--message", "-m", help="It is this message alone, without a header.")
    ] = None,
    version: Annotated[
        int | None, typer.Option("--version", "-v", help="The version of the response or message.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Explain a frame field by field: header, message, record batches.

    A request says itself what it is. A response does not: give its API and version. Frames captured from a socket may
    come one after another, with the four bytes of length before each.

    Examples:

    - `headrace protocol decode 0012000300000001ffff00…`
    - `headrace protocol decode capture.bin`
    - `headrace protocol decode answer.bin --response Metadata --version 12`
    """
    if (response or message) and version is None:
        raise HeadraceError("say which version it is, with --version: a response or a bare message does not tell.")
    data = _read(source)
    frames = [Captured(0, data)] if message else split_frames(data, is_request=response is None)
    for number, captured in enumerate(frames):
        rows: list[Row] = []
        error = None
        try:
            rows.extend(_dissect(captured.frame, response, message, version))  # keeps what came before an error
        except ProtocolError as caught:
            error = str(caught)
        if as_json:
            print(json.dumps([{"frame": number, **_row_as_json(row)} for row in rows]))
        elif rows:
            if len(frames) > 1:
                print(f"{'' if number == 0 else chr(10)}frame {number}, at byte {captured.position} of the input:")
            _print_rows(captured.frame, rows)
        if captured.missing_bytes:
            there = len(captured.frame)
            said = f"the frame says that it is {there + captured.missing_bytes} bytes long, and {there} are there"
            error = f"{said}; {error}" if error else said
        if error is not None:
            raise HeadraceError(error if error.endswith("?") else f"{error}.")


def _dissect(frame: bytes, response: str | None, message: str | None, version: int | None) -> Iterator[Row]:
    if message is not None:
        (name, *more) = _messages_named(message)
        if more:
            raise HeadraceError(f"{message} is more than one message: say {' or '.join((name, *more))}.")
        cls: type[Message] = getattr(messages, name)
        assert version is not None
        return dissect_message(frame, cls, version)
    if response is not None:
        assert version is not None
        return dissect_response(frame, _api_named(response), version)
    request_api(frame)
    return dissect_request(frame)


def _read(source: str) -> bytes:
    if source == "-":
        return _from_text(sys.stdin.buffer.read())
    compact = re.sub(r"[\s:]|^0x", "", source)
    if not compact:
        raise HeadraceError("there is nothing to decode: give hex digits, a file, or - for the standard input.")
    if re.fullmatch(r"[0-9a-fA-F]+", compact) and not Path(source).exists():
        return _from_hex(compact)
    try:
        return _from_text(Path(source).read_bytes())
    except FileNotFoundError:
        raise HeadraceError(f"{source} is neither hex digits nor a file.") from None


def _from_text(data: bytes) -> bytes:
    """A file is bytes as they were captured, or text with their hex digits."""
    compact = re.sub(rb"[\s:]|^0x", b"", data)
    if compact and re.fullmatch(rb"[0-9a-fA-F]+", compact):
        return _from_hex(compact.decode())
    return data


def _from_hex(digits: str) -> bytes:
    if len(digits) % 2:
        raise HeadraceError(f"{len(digits)} hex digits are not whole bytes: one is missing, or one too many.")
    return bytes.fromhex(digits)


def _print_rows(frame: bytes, rows: list[Row]) -> None:
    """Bytes are counted from the start of the frame, behind its length, as errors count them."""
    titles = (Column(">byte", "dim"), Column("field", "cyan"), Column("value", "bold"), Column("type", "", 1))
    with Columns((*titles, Column("bytes", "dim", 2)), page_rows=len(rows) + 1) as printed:
        for row in rows:
            taken = frame[row.position : row.position + row.size]
            shown = taken[:BYTES_SHOWN].hex(" ") + (" …" if len(taken) > BYTES_SHOWN else "")
            printed.row((str(row.position), "  " * row.depth + row.name, row.value, row.type, shown))


def _row_as_json(row: Row) -> dict[str, Any]:
    return {
        "byte": row.position,
        "size": row.size,
        "depth": row.depth,
        "field": row.name,
        "type": row.type,
        "value": row.value,
    }


# --- names ------------------------------------------------------------------------------------------------------------


def _messages_named(name: str) -> list[str]:
    """The messages that a person means by a name or key."""
    if name.isdecimal():
        api = find_api(int(name))
        if api is None:
            raise HeadraceError(f"there is no API with key {name}. See: headrace protocol list")
        name = api.name
    by_lower = {known.lower(): known for known in message_names()}
    if name.lower() in by_lower:
        return [by_lower[name.lower()]]
    found = [
        by_lower[name.lower() + suffix.lower()] for suffix in SUFFIXES if name.lower() + suffix.lower() in by_lower
    ]
    if not found:
        known = [*message_names(), *chain.from_iterable(files_and_blocks().values())]
        near = get_close_matches(name, known, n=1, cutoff=0.5)
        hint = f"Did you mean {near[0]}?" if near else "See: headrace protocol list"
        raise HeadraceError(f"there is no message {name}. {hint}")
    return found


def _api_named(name: str) -> Api:
    wanted = name.lower().removesuffix("response")
    for api in all_apis():
        if wanted in (api.name.lower(), str(api.key)):
            return api
    near = get_close_matches(name, [api.name for api in all_apis()], n=1, cutoff=0.5)
    raise HeadraceError(
        f"there is no API {name}. {f'Did you mean {near[0]}?' if near else 'See: headrace protocol list'}"
    )


def _block_name(found: Shape) -> str:
    if found.kind is Kind.API:
        return found.name.removesuffix("Request")
    return found.name.removesuffix("Key") if found.kind in KEYED_KINDS else found.name


def _is_second(found: Shape) -> bool:
    """The second message of its block: a response, or the value of a coordinator's record."""
    return found.kind not in (Kind.DATA, Kind.METADATA) and found.name.endswith(("Response", "Value"))


def _versions(found: Shape) -> Versions:
    if found.kind in KEYED_KINDS:
        return find_shape(_block_name(found) + "Value").versions
    return found.versions
