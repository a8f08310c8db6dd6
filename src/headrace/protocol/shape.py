"""The shapes of the protocol's messages, read from the text files in `shapes/`.

A block is one API, record or piece of data; `docs/protocol-shapes.md` describes the notation. Blocks are found by a
quick scan and parsed one by one, when they are first asked for.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import StrEnum
from functools import cache
from typing import Final

from headrace.plain import field, plain, plain_frozen

LAST_VERSION: Final = 0x7FFF

PRIMITIVES: Final = {
    "bool": False,
    "int8": 0,
    "int16": 0,
    "uint16": 0,
    "int32": 0,
    "int64": 0,
    "float64": 0.0,
    "error": 0,
    "uuid": bytes(16),
    "string": "",
    "bytes": b"",
    "records": b"",
}
"""The types that are not structs, and what a field of theirs holds when nothing else is said."""

FRESH: Final = type("Fresh", (), {"__repr__": lambda self: "FRESH"})()
"""A default that is made anew for every message: an empty list, or a struct of defaults."""


NOUNS: Final = (
    "records",
    "cluster",
    "topics",
    "configs",
    "groups",
    "offsets",
    "transactions",
    "security",
    "quotas",
    "quorum",
    "brokers",
    "logdirs",
    "telemetry",
    "share",
    "streams",
    "headers",
    "control",
    "embedded",
    "metadata_log",
    "group_state",
    "transaction_state",
    "share_state",
)
"""The files of `shapes/`."""


class Kind(StrEnum):
    """What a block is; for records the state topic they are kept in."""

    API = "api"
    DATA = "data"
    METADATA = "metadata"
    GROUP = "group"
    TRANSACTION = "transaction"
    SHARE = "share"


_KINDS: Final = {kind.value: kind for kind in Kind}
KEYED_KINDS: Final = (Kind.GROUP, Kind.TRANSACTION, Kind.SHARE)


class ShapeError(ValueError):
    """A shape file can't be read: the mistake is ours, and the message says in which line it is."""


@plain_frozen
class Versions:
    """A range of versions, both ends included."""

    first: int
    last: int

    def __contains__(self, version: int) -> bool:
        return self.first <= version <= self.last

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.first, self.last + 1))

    def __str__(self) -> str:
        if self.last == LAST_VERSION:
            return f"{self.first}+"
        return str(self.first) if self.first == self.last else f"{self.first}-{self.last}"


NEVER: Final = Versions(1, 0)
ALWAYS: Final = Versions(0, LAST_VERSION)


@plain
class Field:
    """One field: `type` is a primitive's name or, with `struct` set, a struct's."""

    name: str
    type: str
    versions: Versions
    is_array: bool = False
    nullable: Versions = NEVER
    default: object = None
    """None is null; FRESH is an empty list or a struct of defaults, made anew for every message."""
    tag: int | None = None
    is_key: bool = False
    ignorable: bool = False
    classic: bool = False
    """Never in the compact form, even in a flexible version (only the client id of a request's header)."""
    struct: Struct | None = None


@plain
class Struct:
    name: str
    fields: list[Field] = field(default_factory=list)


@plain_frozen
class Head:
    """The first line of a block: what a node must know of an API that nobody has asked for yet."""

    key: int | None
    versions: Versions
    flexible: Versions
    unstable: Versions
    listeners: tuple[str, ...]
    text: str


@plain
class Shape:
    """A message: a struct with versions. `key` is an API key or, for a record, its type."""

    name: str
    kind: Kind
    key: int | None
    versions: Versions
    flexible: Versions
    unstable: Versions
    """Versions that Apache Kafka does not call stable yet."""
    listeners: tuple[str, ...]
    text: str
    body: Struct
    structs: dict[str, Struct]

    @property
    def is_request(self) -> bool:
        return self.kind is Kind.API and self.name.endswith("Request")

    def is_flexible(self, version: int) -> bool:
        return version in self.flexible


def message_names() -> list[str]:
    """The names of all messages, in the order of the files."""
    return [name for block in _index().values() for name in _names_in(block)]


def blocks(kind: Kind) -> list[tuple[int, str]]:
    """Key and name of every block of a kind, by key."""
    found = [block for block in _index().values() if block.kind is kind]
    return sorted((int(block.text.split(None, 3)[2]), block.name) for block in found)


def files_and_blocks() -> dict[str, list[str]]:
    """Which file holds which blocks."""
    by_file: dict[str, list[str]] = {}
    for (_, name), block in _index().items():
        by_file.setdefault(block.file, []).append(name)
    return by_file


def head(kind: Kind, name: str) -> Head:
    """Of a block. Raises KeyError for a name that there is not."""
    return _head(_index()[kind, name])


@cache
def shape(message: str) -> Shape:
    """The shape of a message by its name, such as `FetchRequest`. Raises KeyError for a name that there is not."""
    for kind, name in _candidates(message):
        block = _index().get((kind, name))
        if block is not None and message in _names_in(block):
            if not block.shapes:
                block.shapes = _parse(block)
            return block.shapes[message]
    raise KeyError(message)


# --- finding blocks ---------------------------------------------------------------------------------------------------


@plain
class _Block:
    kind: Kind
    name: str
    file: str
    line: int
    text: str
    shapes: dict[str, Shape] = field(default_factory=dict)
    """Request and response, or key and value, when one of them was asked for."""


_SECTIONS: Final = {">": "Request", "<": "Response", "key": "Key", "value": "Value"}


def _names_in(block: _Block) -> list[str]:
    if block.kind is Kind.API:
        return [block.name + "Request", block.name + "Response"]
    if block.kind in KEYED_KINDS:
        return [block.name + "Key", block.name + "Value"]
    return [block.name]


def _candidates(message: str) -> Iterator[tuple[Kind, str]]:
    for suffix in ("Request", "Response"):
        if message.endswith(suffix):
            yield Kind.API, message.removesuffix(suffix)
    for suffix in ("Key", "Value"):
        if message.endswith(suffix):
            for kind in KEYED_KINDS:
                yield kind, message.removesuffix(suffix)
    yield Kind.METADATA, message
    yield Kind.DATA, message


@cache
def _index() -> dict[tuple[Kind, str], _Block]:
    found: dict[tuple[Kind, str], _Block] = {}
    for noun in NOUNS:
        for block in scan(_text(noun), f"{noun}.shape"):
            if (block.kind, block.name) in found:
                raise ShapeError(f"{block.file}:{block.line}: {block.name} is there twice")
            found[block.kind, block.name] = block
    return found


def _text(noun: str) -> str:
    """The text of a shape file. By the module's loader: `importlib.resources` would take 20 ms to import."""
    folder = __file__.removesuffix("shape.py").removesuffix("shape.pyc")
    return str(__loader__.get_data(f"{folder}shapes/{noun}.shape"), "utf-8")  # type: ignore[name-defined]


def scan(text: str, file: str) -> Iterator[_Block]:
    """The blocks of a file: each starts in the first column and runs to the next one."""
    # By the end of the line before: that is found five times as fast as the start of one.
    starts = [match.end() - 1 for match in re.finditer(r"\n[a-z]", text)]
    if text[:1].islower():
        starts.insert(0, 0)
    line, position = 1, 0
    for start, end in zip(starts, [*starts[1:], len(text)], strict=True):
        line += text.count("\n", position, start)
        position = start
        words = text[start:end].split(None, 2)
        kind = _KINDS.get(words[0])
        if kind is None or len(words) < 3:
            raise ShapeError(f"{file}:{line}: a block starts with {', '.join(Kind)}, then its name and versions")
        yield _Block(kind, words[1], file, line, text[start:end])


# --- parsing a block --------------------------------------------------------------------------------------------------


def parse(text: str, file: str = "text") -> dict[str, Shape]:
    """All messages of a text in our notation."""
    return {name: shape for block in scan(text, file) for name, shape in _parse(block).items()}


def _parse(block: _Block) -> dict[str, Shape]:
    lines = block.text.rstrip().split("\n")
    head = _head(block)
    shapes: dict[str, Shape] = {}
    for name in _names_in(block):
        is_key = block.kind in KEYED_KINDS and name.endswith("Key")
        shapes[name] = Shape(
            name=name,
            kind=block.kind,
            key=head.key,
            versions=Versions(0, 0) if is_key else head.versions,
            flexible=NEVER if is_key else head.flexible,
            unstable=head.unstable,
            listeners=head.listeners,
            text=head.text,
            body=Struct(name),
            structs={},
        )
    _parse_sections(block, lines[1:], shapes)
    for made in shapes.values():
        _resolve(block, made)
    return shapes


def _head(block: _Block) -> Head:
    line, _, text = block.text.partition("\n")[0].partition("#")
    words = line.split()[2:]
    try:
        key = None if block.kind is Kind.DATA else int(words.pop(0))
        versions = _versions(words.pop(0))
        options = _options(words)
        return Head(
            key,
            versions,
            _versions(*options.get("flexible", ())),
            _versions(*options.get("unstable", ())),
            tuple(options.get("on", ())),
            text.strip(),
        )
    except (ValueError, IndexError) as error:
        raise ShapeError(f"{block.file}:{block.line}: {error}") from None


def _options(words: list[str]) -> dict[str, list[str]]:
    options: dict[str, list[str]] = {}
    for word in words:
        if word in ("flexible", "unstable", "on"):
            options[word] = current = []
        else:
            current.append(word)
    return options


def _versions(text: str | None = None) -> Versions:
    if text is None:
        return NEVER
    if text.endswith("+"):
        return Versions(int(text[:-1]), LAST_VERSION)
    first, _, last = text.partition("-")
    return Versions(int(first), int(last or first))


def _parse_sections(block: _Block, lines: list[str], shapes: dict[str, Shape]) -> None:
    """Lines nest by their indentation, as in Python; a section's mark stands before its first field."""
    current = next(iter(shapes.values()))
    open_structs: list[tuple[int, Struct]] = [(0, current.body)]
    for number, raw in enumerate(lines, block.line + 1):
        line = raw.partition("#")[0].rstrip()
        if not line:
            continue
        mark = line.split(None, 1)[0]
        if mark in _SECTIONS and (block.name + _SECTIONS[mark]) in shapes and _is_mark(line, mark):
            current = shapes[block.name + _SECTIONS[mark]]
            open_structs = [(0, current.body)]
            line = line.replace(mark, " " * len(mark), 1)
            if not line.strip():
                continue
        indent = len(line) - len(line.lstrip())
        while len(open_structs) > 1 and open_structs[-1][0] >= indent:
            open_structs.pop()
        words = line.split()
        if words[0] == "struct" and len(words) == 2:
            shared = current.structs[words[1]] = Struct(words[1])
            open_structs = [(0, current.body), (indent, shared)]
            continue
        try:
            made = _field(words)
        except (ValueError, IndexError) as error:
            raise ShapeError(f"{block.file}:{number}: {error}") from None
        open_structs[-1][1].fields.append(made)
        if made.type not in PRIMITIVES:
            open_structs.append((indent, Struct(made.type)))
            made.struct = open_structs[-1][1]


def _is_mark(line: str, mark: str) -> bool:
    """`key` and `value` are names of fields too: a mark stands in the third column."""
    return line.index(mark) == 2


_FIELD_TYPE: Final = re.compile(r"(\[?)(\w+)(\]?)(\??)([\d+-]*)")


def _field(words: list[str]) -> Field:
    name, type_text, *rest = words
    match = _FIELD_TYPE.fullmatch(type_text)
    if match is None or bool(match[1]) != bool(match[3]):
        raise ValueError(f"{type_text} is not a type")
    nullable = NEVER if not match[4] else _versions(match[5]) if match[5] else ALWAYS
    made = Field(name, match[2], ALWAYS, is_array=bool(match[1]), nullable=nullable)
    has_default = False
    while rest:
        word = rest.pop(0)
        if word == "=":
            made.default, has_default = _default(made, rest.pop(0)), True
        elif word == "tag":
            made.tag = int(rest.pop(0))
        elif word == "key":
            made.is_key = True
        elif word == "ignorable":
            made.ignorable = True
        elif word == "classic":
            made.classic = True
        elif word[0].isdigit():
            made.versions = _versions(word)
        else:
            raise ValueError(f"{word} is neither versions nor one of: = tag key ignorable classic")
    if not has_default:
        made.default = _empty(made)
    return made


def _default(made: Field, text: str) -> object:
    if text == "null":
        if made.nullable == NEVER:
            raise ValueError(f"{made.name} is null by default but not nullable")
        return None
    if made.type == "bool":
        return {"true": True, "false": False}[text]
    return text if made.type == "string" else int(text)


def _empty(made: Field) -> object:
    if made.is_array:
        return FRESH
    if made.type in PRIMITIVES:
        return PRIMITIVES[made.type]
    # A tagged struct is there or it is not: None is what is not on the wire. Where null is a value of its own, what is
    # not there is a struct of defaults, as Kafka reads it.
    return None if made.tag is not None and made.nullable == NEVER else FRESH


def _resolve(block: _Block, made: Shape) -> None:
    """Give fields without lines below them the shared struct of their type."""

    def visit(struct: Struct) -> None:
        for item in struct.fields:
            if item.struct is None:
                continue
            if item.struct.fields:
                made.structs[item.type] = item.struct
                visit(item.struct)
            elif item.type in made.structs:
                item.struct = made.structs[item.type]
            else:
                raise ShapeError(f"{block.file}:{block.line}: {made.name} has no struct {item.type}")

    for struct in (made.body, *list(made.structs.values())):
        visit(struct)
