"""Turns (message, version) into Python functions that encode and decode just that.

The functions are straight-line code: structs are inlined, neighbouring fields of fixed size go through one `struct`
call, together with the length of the string or array behind them. Nothing is checked twice, and what went wrong is
found out afterwards, by `explain`.

    encode(message, out, buffers) -> out     appends to `out`; records go to `buffers` as they are, after what stands
                                             before them, and what comes after them goes to the `out` that is returned
    decode(data, position, end, elements) -> (message, position)
"""

from __future__ import annotations

import struct as struct_module
from binascii import crc32
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FunctionType
from typing import Any, ClassVar, Final, TypeAlias

from headrace.protocol import wire
from headrace.protocol.kept_codecs import KEPT
from headrace.protocol.message import Message
from headrace.protocol.shape import FRESH, NEVER, Field, Shape, Struct

Encoder: TypeAlias = Callable[[Message, bytearray, list[Any]], bytearray]
Decoder: TypeAlias = Callable[[bytes | memoryview, int, int, int], tuple[Message, int]]

FORMATS: Final = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "error": "h",
    "uint16": "H",
    "int32": "i",
    "int64": "q",
    "float64": "d",
    "uuid": "16s",
}
"""Types of fixed size, as the struct module writes them."""


def compile_encoder(message: type[Message], version: int) -> Encoder:
    encoder: Encoder = _EncoderSource(message, version).compile()
    return encoder


def compile_decoder(message: type[Message], version: int) -> Decoder:
    decoder: Decoder = _DecoderSource(message, version).compile()
    return decoder


def compile_replacing_decoder(message: type[Message], version: int) -> Decoder:
    """One that puts replacement characters where a string is not UTF-8, and is slower for it."""
    decoder: Decoder = _DecoderSource(message, version, is_replacing=True).compile()
    return decoder


def sources(message: type[Message], version: int) -> tuple[Source, Source]:
    """What its encoder and its decoder are compiled from."""
    return _EncoderSource(message, version), _DecoderSource(message, version)


def has_records(struct: Struct, version: int) -> bool:
    """Whether a frame may hold record batches, which stay where they are in it."""
    return any(
        field.type == "records" or (field.struct is not None and has_records(field.struct, version))
        for field in struct.fields
        if version in field.versions
    )


def size_min(struct: Struct, version: int, flexible: bool) -> int:
    """The fewest bytes that a struct can take on the wire."""
    total = 1 if flexible else 0
    for field in struct.fields:
        if version in field.versions and not (flexible and field.tag is not None):
            total += field_size_min(field, version, flexible)
    return total


def field_size_min(field: Field, version: int, flexible: bool) -> int:
    flexible = flexible and not field.classic
    if field.is_array:
        return 1 if flexible else 4
    if field.struct is not None:
        return 1 if version in field.nullable else size_min(field.struct, version, flexible)
    if field.type in FORMATS:
        return struct_module.calcsize(">" + FORMATS[field.type])
    return 1 if flexible else 2 if field.type == "string" else 4


class Source:
    """Lines of a function in the making, and the objects that it names."""

    function: ClassVar[str]

    def __init__(self, message: type[Message], version: int) -> None:
        self.message = message
        self.shape: Shape = message.shape
        self.version = version
        self.flexible = self.shape.is_flexible(version)
        self.lines: list[str] = []
        self.scope: dict[str, Any] = {"uvarint": wire.uvarint, "UVARINT": wire.UVARINT, "Malformed": wire.Malformed}
        self.depth = 1
        self.names = 0

    @property
    def source(self) -> str:
        return "\n".join(self.lines)

    @property
    def title(self) -> str:
        return f"{self.function}_{self.shape.name}_v{self.version}"

    @property
    def checksum(self) -> int:
        return crc32(self.source.encode())

    def compile(self) -> Any:
        checksum, kept = KEPT.get(self.title, (0, None))
        if kept is not None and checksum == self.checksum:
            return FunctionType(kept.__code__, self.scope)
        exec(compile(self.source, f"<{self.title}>", "exec"), self.scope)
        return self.scope[self.function]

    def line(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        self.line(head)
        self.depth += 1
        yield
        self.depth -= 1

    def name(self, prefix: str) -> str:
        self.names += 1
        return f"{prefix}{self.names}"

    def constant(self, name: str, value: object) -> str:
        self.scope.setdefault(name, value)
        return name

    def struct_class(self, struct: Struct) -> type[Message]:
        if struct is self.shape.body:
            return self.message
        found: type[Message] = getattr(self.message, struct.name)
        return found

    def split(self, struct: Struct) -> tuple[list[Field], list[Field], list[Field]]:
        """The fields of a struct that stand in a row, those that are tagged, and those that this version has not."""
        row, tagged, absent = [], [], []
        for field in struct.fields:
            if self.version not in field.versions:
                absent.append(field)
            elif field.tag is not None and self.flexible:
                tagged.append(field)
            else:
                row.append(field)
        return row, sorted(tagged, key=lambda field: field.tag or 0), absent


class _EncoderSource(Source):
    function = "encode"

    def __init__(self, message: type[Message], version: int) -> None:
        super().__init__(message, version)
        self.scope["write_tags"] = wire.write_tags
        self.run: list[tuple[str, str]] = []
        self.out = "o"
        self.lines.append("def encode(m, o, buffers):")
        self.struct_fields(self.shape.body, "m")
        self.flush()
        self.line("return o")

    def flush(self) -> None:
        """Write the pending fields of fixed size in one call."""
        if not self.run:
            return
        formats = "".join(code for code, _ in self.run)
        values = ", ".join(value for _, value in self.run if value)
        self.run = []
        if not values:
            self.line(f"{self.out} += {bytes(len(formats))!r}")
            return
        packer = self.constant("pack_" + formats.replace("?", "t"), struct_module.Struct(">" + formats).pack)
        self.line(f"{self.out} += {packer}({values})")

    def struct_fields(self, struct: Struct, var: str) -> None:
        row, tagged, absent = self.split(struct)
        self.check_absent(absent, var)
        for field in row:
            self.field(field, f"{var}.{field.name}", self.flexible and not field.classic)
        if self.flexible:
            self.tags(tagged, var)

    def check_absent(self, absent: list[Field], var: str) -> None:
        """A field that this version can't carry must be at its default, unless it is ignorable."""
        checks = [self.differs(field, f"{var}.{field.name}") for field in absent if not field.ignorable]
        if checks:
            with self.block(f"if {' or '.join(checks)}:"):
                self.line("raise Malformed")

    def differs(self, field: Field, value: str) -> str:
        """An expression: the value is not the default."""
        if field.default is FRESH and not field.is_array:
            struct = field.struct
            assert struct is not None
            default = self.constant(f"default_{struct.name}", self.struct_class(struct)())
            return f"{value} != {default}"
        if field.default is FRESH or field.default in ("", b""):
            return f"({value} is None or {value})" if field.nullable != NEVER else value
        if field.default is None:
            return f"{value} is not None"
        if isinstance(field.default, bool):
            return f"not {value}" if field.default else value
        return f"{value} != {field.default!r}"

    def may_be_null(self, field: Field) -> bool:
        return self.version in field.nullable

    def field(self, field: Field, value: str, compact: bool) -> None:
        if field.is_array:
            self.array(field, value, compact)
        elif field.struct is not None:
            self.nested(field, value)
        else:
            self.primitive(field.type, value, compact, self.may_be_null(field))

    def nested(self, field: Field, value: str) -> None:
        assert field.struct is not None
        var = self.name("s")
        if self.may_be_null(field):
            self.flush()
            self.line(f"{var} = {value}")
            with self.block(f"if {var} is None:"):
                # Null is -1 in a row of fields, and 0 in a tagged one.
                null = 0 if field.tag is not None and self.flexible else 255
                self.line(f"{self.out}.append({null})")
            with self.block("else:"):
                self.line(f"{self.out} += b'\\x01'")
                self.struct_fields(field.struct, var)
                self.flush()
        else:
            self.line(f"{var} = {value}")
            self.struct_fields(field.struct, var)

    def primitive(self, type_name: str, value: str, compact: bool, nullable: bool) -> None:
        if type_name in FORMATS:
            if type_name == "uuid":
                with self.block(f"if len({value}) != 16:"):
                    self.line("raise Malformed")
            self.run.append((FORMATS[type_name], value))
            return
        text, length = self.name("v"), self.name("n")
        encoded = f"{value}.encode()" if type_name == "string" else value
        extra = " + 1" if compact else ""
        if nullable:
            self.line(f"{text} = {value}")
            with self.block(f"if {text} is None:"):
                self.line(f"{length} = {0 if compact else -1}")
                self.line(f"{text} = b''")
            with self.block("else:"):
                if type_name == "string":
                    self.line(f"{text} = {text}.encode()")
                self.line(f"{length} = len({text}){extra}")
        else:
            self.line(f"{text} = {encoded}")
            self.line(f"{length} = len({text}){extra}")
        self.length(length, compact, "h" if type_name == "string" else "i", is_often_long=type_name != "string")
        if type_name == "records":
            assert self.out == "o", "records in a tagged field"
            self.line(f"buffers += (o, {text})")
            self.line("o = bytearray()")
        else:
            self.line(f"{self.out} += {text}")

    def length(self, length: str, compact: bool, code: str, *, is_often_long: bool = False) -> None:
        """What is often long has varints of two bytes spelled out. Elsewhere that is code to compile for nobody."""
        if compact and is_often_long:
            self.flush()
            with self.block(f"if {length} < 128:"):
                self.line(f"{self.out} += UVARINT[{length}]")
            with self.block(f"elif {length} < 16384:"):
                self.line(f"{self.out} += bytes(({length} & 127 | 128, {length} >> 7))")
            with self.block("else:"):
                self.line(f"{self.out} += uvarint({length})")
        elif compact:
            self.flush()
            self.line(f"{self.out} += UVARINT[{length}] if {length} < 128 else uvarint({length})")
        else:
            self.run.append((code, length))
            self.flush()

    def array(self, field: Field, value: str, compact: bool) -> None:
        items, length = self.name("a"), self.name("n")
        self.line(f"{items} = {value}")
        extra = " + 1" if compact else ""
        if self.may_be_null(field):
            self.line(f"{length} = {0 if compact else -1} if {items} is None else len({items}){extra}")
            items = f"{items} or ()"
        else:
            self.line(f"{length} = len({items}){extra}")
        self.length(length, compact, "i")
        if field.struct is None and field.type in FORMATS:
            packer = wire.pack_uuids if field.type == "uuid" else wire.array_packer(FORMATS[field.type])
            self.line(f"{self.out} += {self.constant('pack_array_' + field.type, packer)}({items})")
            return
        item = self.name("e")
        with self.block(f"for {item} in {items}:"):
            if field.struct is None:
                self.primitive(field.type, item, compact, nullable=False)
            else:
                self.struct_fields(field.struct, item)
            self.flush()
            if self.lines[-1].endswith(":"):
                self.line("pass")

    def tags(self, tagged: list[Field], var: str) -> None:
        present = [self.differs(field, f"{var}.{field.name}") for field in tagged]
        pending = list(self.run)
        with self.block(f"if {' or '.join([*present, f'{var}.unknown_tags'])}:"):
            self.flush()
            known = self.name("t")
            self.line(f"{known} = []")
            for field, differs in zip(tagged, present, strict=True):
                with self.block(f"if {differs}:"):
                    self.tagged(field, f"{var}.{field.name}", known)
            self.line(f"write_tags({self.out}, {known}, {var}.unknown_tags)")
        with self.block("else:"):
            self.run = [*pending, ("x", "")]
            self.flush()

    def tagged(self, field: Field, value: str, known: str) -> None:
        outer, self.out = self.out, self.name("o")
        self.line(f"{self.out} = bytearray()")
        self.field(field, value, compact=True)
        self.flush()
        self.line(f"{known}.append(({field.tag}, {self.out}))")
        self.out = outer


class _DecoderSource(Source):
    function = "decode"

    def __init__(self, message: type[Message], version: int, *, is_replacing: bool = False) -> None:
        super().__init__(message, version)
        self.is_replacing = is_replacing
        self.scope |= {
            "replacing": wire.read_replacing,
            "new": object.__new__,
            "uvarint": wire.read_uvarint,
            "uvarint_rest": wire.read_uvarint_rest,
            "tag_count": wire.read_tag_count,
            "unknown_tags": wire.read_unknown_tags,
        }
        self.run: list[tuple[str, str]] = []
        self.in_view = has_records(self.shape.body, version)
        self.lines.append("def decode(b, p, end, elements):")
        self.struct_fields(self.shape.body, "m")
        self.line("return m, p")

    def flush(self) -> None:
        """Read the pending fields of fixed size in one call."""
        if not self.run:
            return
        formats = "".join(code for code, _ in self.run)
        targets = [target for _, target in self.run]
        self.run = []
        if formats == "B":
            self.line(f"{targets[0]} = b[p]")
            self.line("p += 1")
            return
        unpacker = struct_module.Struct(">" + formats)
        call = self.constant("unpack_" + formats.replace("?", "t"), unpacker.unpack_from)
        self.line(f"{', '.join(targets)}{',' if len(targets) == 1 else ''} = {call}(b, p)")
        self.line(f"p += {unpacker.size}")

    def struct_fields(self, struct: Struct, var: str) -> None:
        """Read the fields of a struct; nothing is pending afterwards."""
        row, tagged, absent = self.split(struct)
        self.line(f"{var} = new({self.constant('c_' + struct.name, self.struct_class(struct))})")
        self.line(f"{var}.unknown_tags = None")
        for field in (*absent, *tagged):
            self.line(f"{var}.{field.name} = {self.default(field)}")
        for field in row:
            self.field(field, f"{var}.{field.name}", self.flexible and not field.classic)
        if self.flexible:
            self.tags(tagged, var)
        self.flush()

    def default(self, field: Field) -> str:
        if field.default is FRESH and field.is_array:
            return "[]"
        if field.default is FRESH:
            assert field.struct is not None
            return self.constant("c_" + field.type, self.struct_class(field.struct)) + "()"
        return repr(field.default)

    def field(self, field: Field, target: str, compact: bool) -> None:
        if field.is_array:
            self.array(field, target, compact)
        elif field.struct is not None:
            self.nested(field, target)
        else:
            self.primitive(field.type, target, compact, self.version in field.nullable)

    def nested(self, field: Field, target: str) -> None:
        assert field.struct is not None
        var = self.name("s")
        if self.version in field.nullable:
            flag = self.name("f")
            self.run.append(("b", flag))
            self.flush()
            # Null is -1 in a row of fields, and 0 in a tagged one.
            with self.block(f"if {flag} {'<= 0' if field.tag is not None and self.flexible else '< 0'}:"):
                self.line(f"{target} = None")
            with self.block("else:"):
                self.struct_fields(field.struct, var)
                self.line(f"{target} = {var}")
        else:
            self.struct_fields(field.struct, var)
            self.line(f"{target} = {var}")

    def primitive(self, type_name: str, target: str, compact: bool, nullable: bool) -> None:
        if type_name in FORMATS:
            self.run.append((FORMATS[type_name], target))
            return
        length = self.length(compact, "h" if type_name == "string" else "i", is_often_long=type_name != "string")
        if nullable:
            with self.block(f"if {length} {'== 0' if compact else '< 0'}:"):
                self.line(f"{target} = None")
            with self.block("else:"):
                self.text(type_name, target, length, compact)
        else:
            self.text(type_name, target, length, compact)

    def length(self, compact: bool, code: str, *, is_often_long: bool = False) -> str:
        length = self.name("n")
        self.run.append(("B" if compact else code, length))
        self.flush()
        if compact:
            self.rest_of_uvarint(length, is_often_long)
        return length

    def rest_of_uvarint(self, first: str, is_often_long: bool) -> None:
        """Varints of one byte are done by now; where those of two are common, they are spelled out."""
        with self.block(f"if {first} > 127:"):
            if not is_often_long:
                self.line(f"{first}, p = uvarint_rest(b, p, {first})")
                return
            self.line("k = b[p]")
            with self.block("if k < 128:"):
                self.line(f"{first} += (k << 7) - 128")
                self.line("p += 1")
            with self.block("else:"):
                self.line(f"{first}, p = uvarint_rest(b, p, {first})")

    def text(self, type_name: str, target: str, length: str, compact: bool) -> None:
        self.line(f"q = p + {length}{' - 1' if compact else ''}")
        with self.block("if not p <= q <= end:"):
            self.line("raise Malformed")
        piece = "b[p:q]"
        if type_name == "string" and self.is_replacing:
            piece = f"replacing({piece})"
        elif type_name == "string":
            piece += ".tobytes().decode()" if self.in_view else ".decode()"
        elif type_name == "bytes" and self.in_view:
            piece += ".tobytes()"
        self.line(f"{target} = {piece}")
        self.line("p = q")

    def array(self, field: Field, target: str, compact: bool) -> None:
        length = self.length(compact, "i")
        if self.version in field.nullable:
            with self.block(f"if {length} {'== 0' if compact else '< 0'}:"):
                self.line(f"{target} = None")
            with self.block("else:"):
                self.items(field, target, length, compact)
        else:
            self.items(field, target, length, compact)

    def items(self, field: Field, target: str, length: str, compact: bool) -> None:
        """An array's count is believed only as far as the bytes that are left could hold its elements."""
        if compact:
            self.line(f"{length} -= 1")
        if field.struct is None:
            item = Field(field.name, field.type, field.versions)
            least = field_size_min(item, self.version, self.flexible)
        else:
            least = max(1, size_min(field.struct, self.version, self.flexible))
        self.line(f"elements -= {length}")
        times = f" * {least}" if least > 1 else ""
        with self.block(f"if {length} < 0 or elements < 0 or {length}{times} > end - p:"):
            self.line("raise Malformed")
        if field.struct is None and field.type in FORMATS:
            unpacker = wire.unpack_uuids if field.type == "uuid" else wire.array_unpacker(FORMATS[field.type])
            self.line(f"{target} = {self.constant('array_' + field.type, unpacker)}(b, p, {length})")
            self.line(f"p += {length}{times}")
            return
        items, item_name = self.name("a"), self.name("e")
        self.line(f"{target} = {items} = []")
        # Most arrays have one element or none, and a range takes longer to make than to count down.
        with self.block(f"while {length}:"):
            self.line(f"{length} -= 1")
            if field.struct is None:
                self.primitive(field.type, item_name, compact, nullable=False)
                self.flush()
            else:
                self.struct_fields(field.struct, item_name)
            self.line(f"{items}.append({item_name})")

    def tags(self, tagged: list[Field], var: str) -> None:
        count = self.name("n")
        self.run.append(("B", count))
        self.flush()
        with self.block(f"if {count}:"):
            if not tagged:
                self.line(f"{var}.unknown_tags, p, elements = unknown_tags(b, p, end, {count}, elements)")
                return
            self.line(f"{count}, p, elements = tag_count(b, p, end, {count}, elements)")
            unknown = self.name("u")
            self.line(f"{unknown} = []")
            with self.block(f"for _ in range({count}):"):
                self.tag(tagged, var, unknown)
            with self.block(f"if {unknown}:"):
                self.line(f"{var}.unknown_tags = b''.join({unknown})")

    def tag(self, tagged: list[Field], var: str, unknown: str) -> None:
        start, tag, stop = self.name("p"), self.name("t"), self.name("q")
        self.line(f"{start} = p")
        self.line(f"{tag}, p = uvarint(b, p)")
        self.line(f"{stop}, p = uvarint(b, p)")
        self.line(f"{stop} += p")
        with self.block(f"if {stop} > end:"):
            self.line("raise Malformed")
        word = "if"
        for field in tagged:
            with self.block(f"{word} {tag} == {field.tag}:"):
                self.field(field, f"{var}.{field.name}", compact=True)
                self.flush()
                with self.block(f"if p != {stop}:"):
                    self.line("raise Malformed")
            word = "elif"
        with self.block("else:"):
            # Joined once, at the end: unknown tags in their thousands must not cost their square.
            self.line(f"{unknown}.append(bytes(b[{start}:{stop}]))")
            self.line(f"p = {stop}")
