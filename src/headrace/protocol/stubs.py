"""Writes `messages.pyi`, so that type checkers and editors know the fields of every message: `make stubs`."""

from collections.abc import Iterator
from pathlib import Path

from headrace.protocol.shape import NEVER, Field, Kind, Shape, Struct, message_names, shape

PYTHON_TYPES = {
    "bool": "bool",
    "float64": "float",
    "uuid": "bytes",
    "string": "str",
    "bytes": "bytes",
    "records": "Records",
}

HEAD = '''\
"""Generated from shapes/*.shape by `make stubs`: not to be edited."""

from typing import ClassVar, TypeAlias

from headrace.protocol.message import Message

Records: TypeAlias = bytes | bytearray | memoryview
'''


def render() -> str:
    return HEAD + "".join(_message(shape(name)) for name in sorted(message_names()))


def _message(made: Shape) -> str:
    lines = [f"class {made.name}(Message):"]
    if made.text:
        lines.append(f'    """{made.text[0].upper()}{made.text[1:]}."""')
        lines.append("")
    if made.kind is not Kind.DATA:
        lines.append("    api_key: ClassVar[int]" if made.kind is Kind.API else "    record_type: ClassVar[int]")
    for struct in made.structs.values():
        lines += _class(made, struct)
    lines += _fields(made, made.body, "    ")
    return "\n" + "\n".join(lines) + "\n"


def _class(made: Shape, struct: Struct) -> Iterator[str]:
    yield f"    class {struct.name}(Message):"
    yield from _fields(made, struct, "        ")
    yield ""


def _fields(made: Shape, struct: Struct, indent: str) -> Iterator[str]:
    for field in struct.fields:
        yield f"{indent}{field.name}: {_type(made, field)}"
    if not struct.fields:
        yield f"{indent}def __init__(self) -> None: ..."
        return
    yield f"{indent}def __init__("
    yield f"{indent}    self,"
    yield f"{indent}    *,"
    for field in struct.fields:
        yield f"{indent}    {field.name}: {_type(made, field)} = ...,"
    yield f"{indent}) -> None: ..."


def _type(made: Shape, field: Field) -> str:
    name = f"{made.name}.{field.type}" if field.struct is not None else PYTHON_TYPES.get(field.type, "int")
    if field.is_array:
        name = f"list[{name}]"
    return f"{name} | None" if field.nullable != NEVER or field.default is None else name


if __name__ == "__main__":
    Path(__file__).with_name("messages.pyi").write_text(render(), "utf-8")
