"""Reads a message slowly, field by field, and says what it finds: for people who debug clients, and for errors.

It is a second, independent reading of the shapes; tests hold it and the compiled code to the same result.
"""

import struct as struct_module
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Final, NoReturn

from headrace.errors import ProtocolError
from headrace.protocol.compiler import FORMATS, field_size_min, size_min
from headrace.protocol.message import Message, show
from headrace.protocol.shape import NEVER, Field, Shape, Struct
from headrace.protocol.wire import Malformed, read_replacing, read_uvarint


@dataclass(slots=True)
class Row:
    """A piece of a message: where it lies, what it is called, and what it says. Structs and arrays have rows too."""

    position: int
    size: int
    depth: int
    name: str
    type: str
    value: str
    content_size: int = 0
    """Of bytes and records: how many there are behind their length."""


def explain(
    message: type[Message], version: int, data: bytes | memoryview, position: int, elements_max: int
) -> Iterator[Row]:
    """The rows of the message at a position. ProtocolError names the field and the position where it can't go on."""
    if version not in message.shape.versions:
        raise ProtocolError(f"{message.__name__} has versions {message.shape.versions}, not {version}")
    reader = _Reader(message.shape, version, data, position, elements_max)
    yield from reader.struct(message.shape.body, 0)


def decode_error(
    message: type[Message],
    version: int,
    data: bytes | memoryview,
    position: int,
    elements_max: int,
    fault: Exception,
) -> ProtocolError:
    """What is wrong with bytes that compiled code could not read.

    Reading again is slow, and a hostile frame must not stop a node for seconds: only so many rows are read. Behind
    them, where compiled code gave up is all that is said.
    """
    name = ""
    try:
        for row in islice(explain(message, version, data, position, elements_max), ROWS_MAX):
            name = row.name if row.depth == 0 else name
    except ProtocolError as found:
        return found
    return ProtocolError(
        f"{message.__name__} v{version}: {name or 'the message'} at byte {_gave_up_at(fault)}: {_WRONG}"
    )


ROWS_MAX: Final = 5_000
_WRONG: Final = "what is there can't be read"


def _gave_up_at(fault: Exception) -> int:
    """The position of the compiled code that raised: the local `p` of its frame."""
    place = fault.__traceback__
    found = 0
    while place is not None:
        if place.tb_frame.f_code.co_name == "decode":
            found = place.tb_frame.f_locals.get("p", found)
        place = place.tb_next
    return found


class _Reader:
    def __init__(self, shape: Shape, version: int, data: bytes | memoryview, position: int, elements: int) -> None:
        self.shape = shape
        self.version = version
        self.flexible = shape.is_flexible(version)
        self.data = data
        self.position = position
        self.end = len(data)
        self.elements = elements
        self.path: list[str] = []

    def fail(self, what: str) -> NoReturn:
        path = "".join(self.path).lstrip(".") or "the message"
        raise ProtocolError(f"{self.shape.name} v{self.version}: {path} at byte {self.position}: {what}")

    def struct(self, struct: Struct, depth: int) -> Iterator[Row]:
        tagged = {}
        for field in struct.fields:
            if self.version not in field.versions:
                continue
            if field.tag is not None and self.flexible:
                tagged[field.tag] = field
                continue
            self.path.append("." + field.name)
            yield from self.field(field, depth, self.flexible and not field.classic)
            self.path.pop()
        if self.flexible:
            yield from self.tags(tagged, depth)

    def field(self, field: Field, depth: int, compact: bool) -> Iterator[Row]:
        if field.is_array:
            yield from self.array(field, depth, compact)
        elif field.struct is not None:
            yield from self.nested(field, field.struct, depth)
        else:
            yield self.primitive(field, field.name, depth, compact, self.version in field.nullable)

    def nested(self, field: Field, struct: Struct, depth: int) -> Iterator[Row]:
        start = self.position
        null = 0 if field.tag is not None and self.flexible else -1
        if self.version in field.nullable and int.from_bytes(self.take(1), signed=True) <= null:
            yield Row(start, 1, depth, field.name, field.type, "null")
            return
        yield Row(start, self.position - start, depth, field.name, field.type, "")
        yield from self.struct(struct, depth + 1)

    def primitive(self, field: Field, name: str, depth: int, compact: bool, nullable: bool) -> Row:
        start = self.position
        if field.type in FORMATS:
            code = ">" + FORMATS[field.type]
            (value,) = struct_module.unpack(code, self.take(struct_module.calcsize(code)))
        else:
            value = self.variable(field.type, compact, nullable)
        shown = "null" if value is None else show(field, value)
        content_size = len(value) if isinstance(value, bytes | memoryview) else 0
        return Row(start, self.position - start, depth, name, field.type, shown, content_size)

    def variable(self, type_name: str, compact: bool, nullable: bool) -> object:
        length = self.length(compact, 2 if type_name == "string" else 4)
        if length < 0:
            if not nullable:
                self.fail(f"null, but this {type_name} can't be")
            return None
        taken = self.take(length)
        if type_name != "string":
            return taken
        try:
            return read_replacing(taken) if self.shape.is_request else bytes(taken).decode()
        except UnicodeDecodeError as error:
            self.position -= length
            self.fail(f"a string that is not UTF-8 ({error.reason})")
        except Malformed:
            self.position -= length
            self.fail("a string that is not UTF-8, and too long with replacement characters")

    def array(self, field: Field, depth: int, compact: bool) -> Iterator[Row]:
        start = self.position
        count = self.length(compact, 4)
        if count < 0:
            if self.version not in field.nullable:
                self.fail("null, but this array can't be")
            yield Row(start, self.position - start, depth, field.name, f"[{field.type}]", "null")
            return
        self.count(count, self.least(field))
        yield Row(start, self.position - start, depth, field.name, f"[{field.type}]", f"{count} elements")
        for index in range(count):
            self.path.append(f"[{index}]")
            if field.struct is None:
                yield self.primitive(field, f"[{index}]", depth + 1, compact, nullable=False)
            else:
                yield Row(self.position, 0, depth + 1, f"[{index}]", field.type, "")
                yield from self.struct(field.struct, depth + 2)
            self.path.pop()

    def least(self, field: Field) -> int:
        """The fewest bytes that an element can take."""
        if field.struct is not None:
            return max(1, size_min(field.struct, self.version, self.flexible))
        return field_size_min(Field(field.name, field.type, field.versions), self.version, self.flexible)

    def count(self, count: int, least: int) -> None:
        self.elements -= count
        if self.elements < 0:
            self.fail(f"{count} elements are more than a frame may hold")
        if count * least > self.end - self.position:
            self.fail(f"{count} elements need {count * least} bytes, and {self.end - self.position} are left")

    def tags(self, tagged: dict[int, Field], depth: int) -> Iterator[Row]:
        start = self.position
        self.path.append(".tags")
        count = self.uvarint()
        self.count(count, 2)
        yield Row(start, self.position - start, depth, "tags", "uvarint", str(count))
        for _ in range(count):
            start = self.position
            tag, size = self.uvarint(), self.uvarint()
            stop = self.position + size
            if stop > self.end:
                self.fail(f"tag {tag} says {size} bytes, and {self.end - self.position} are left")
            self.path.append(f"[{tag}]")
            field = tagged.get(tag)
            if field is None:
                taken = self.take(size)
                shown = show(Field("", "bytes", NEVER), bytes(taken))
                yield Row(start, self.position - start, depth + 1, f"tag {tag}", "unknown", shown)
            else:
                yield Row(start, self.position - start, depth + 1, f"tag {tag}", "tag", f"{size} bytes")
                yield from self.field(field, depth + 1, compact=True)
                if self.position != stop:
                    self.fail(f"{field.name} says {size} bytes and ends {abs(self.position - stop)} bytes off")
            self.path.pop()
        self.path.pop()

    def length(self, compact: bool, size: int) -> int:
        """-1 is null."""
        if compact:
            return self.uvarint() - 1
        length = int.from_bytes(self.take(size), signed=True)
        return max(length, -1)

    def uvarint(self) -> int:
        try:
            value, self.position = read_uvarint(self.data, self.position)
        except Malformed:
            self.fail("a varint that is longer than 32 bits")
        except IndexError:
            self.fail("the bytes end inside a varint")
        return value

    def take(self, size: int) -> bytes | memoryview:
        if self.position + size > self.end:
            self.fail(f"{size} bytes are needed, and {self.end - self.position} are left")
        taken = self.data[self.position : self.position + size]
        self.position += size
        return taken


# --- what can't be encoded --------------------------------------------------------------------------------------------


def encode_error(message: Message, version: int, fault: Exception) -> ProtocolError:
    """Why compiled code could not encode a message."""
    shape = message.shape
    for problem in _problems(message, shape, version, ""):
        return ProtocolError(f"{shape.name} v{version}: {problem}")
    return ProtocolError(f"{shape.name} v{version} can't be encoded: {fault}")


_PYTHON_TYPES: dict[str, tuple[type, ...]] = {
    "bool": (bool, int),
    "float64": (float, int),
    "uuid": (bytes,),
    "string": (str,),
    "bytes": (bytes, bytearray, memoryview),
}
_INTEGERS = {"int8": (-1 << 7, 8), "int16": (-1 << 15, 16), "error": (-1 << 15, 16), "uint16": (0, 16)}
_INTEGERS |= {"int32": (-1 << 31, 32), "int64": (-1 << 63, 64)}


def _problems(message: Message, shape: Shape, version: int, path: str) -> Iterator[str]:
    for field in message.struct.fields:
        name = f"{path}{field.name}"
        value = getattr(message, field.name, Ellipsis)
        if value is Ellipsis:
            yield f"{name} is not set"
        elif version not in field.versions:
            if not field.ignorable and value != getattr(type(message)(), field.name):
                yield f"{name} is set, but this version can't carry it (it has versions {field.versions})"
        elif value is None:
            if version not in field.nullable and not (field.tag is not None and field.struct is not None):
                yield f"{name} can't be null"
        elif field.is_array:
            if not isinstance(value, list | tuple):
                yield f"{name} is a {type(value).__name__}, not a list"
                continue
            for index, item in enumerate(value):
                yield from _value_problems(item, field, shape, version, f"{name}[{index}]")
        else:
            yield from _value_problems(value, field, shape, version, name)


def _value_problems(value: object, field: Field, shape: Shape, version: int, name: str) -> Iterator[str]:
    if field.struct is not None:
        if isinstance(value, Message) and value.struct is field.struct:
            yield from _problems(value, shape, version, name + ".")
        else:
            yield f"{name} is a {type(value).__name__}, not a {shape.name}.{field.type}"
    elif field.type in _INTEGERS:
        least, bits = _INTEGERS[field.type]
        if not isinstance(value, int):
            yield f"{name} is a {type(value).__name__}, not an integer"
        elif not least <= value < least + (1 << bits):
            yield f"{name} is {value}, which does not fit {field.type}"
    elif field.type != "records" and not isinstance(value, _PYTHON_TYPES[field.type]):
        yield f"{name} is a {type(value).__name__}, not a {field.type}"
    elif field.type == "uuid" and isinstance(value, bytes) and len(value) != 16:
        yield f"{name} is {len(value)} bytes, and a uuid is 16"
    elif isinstance(value, str):
        try:
            size = len(value.encode())
        except UnicodeEncodeError:
            yield f"{name} holds characters that UTF-8 can't carry"
            return
        if size > 0x7FFF and not (shape.is_flexible(version) and not field.classic):
            yield f"{name} is {size} bytes long, and this version can carry 32767"
