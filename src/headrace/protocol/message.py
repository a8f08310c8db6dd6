"""What all messages and their structs are: mutable slotted classes with the union of their fields over all versions.

Only the codec knows versions. Classes are made from shapes when they are first asked for.
"""

from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterator
from typing import Any, ClassVar, Final

from headrace.errors import Error
from headrace.protocol.shape import FRESH, Field, Kind, Shape, Struct
from headrace.protocol.wire import split_tags

LONGEST_BYTES_SHOWN: Final = 24
LONGEST_LIST_SHOWN: Final = 20
FILLED_SLOWLY: Final = 8
"""Messages of a class, before it is worth a constructor that is compiled."""


class Message:
    """A message, or a struct inside one. Fields are plain attributes; construct with keywords."""

    __slots__ = ("unknown_tags",)

    unknown_tags: bytes | None
    """Tagged fields that the shape does not know, carried along as they came; `wire.split_tags` takes them apart."""
    shape: ClassVar[Shape]
    """The shape of the message that this is, or is a part of."""
    struct: ClassVar[Struct]
    encoders: ClassVar[dict[int, Any]]
    decoders: ClassVar[dict[int, Any]]
    """What the codec has compiled so far, by version."""

    def __eq__(self, other: object) -> bool:
        if self.__class__ is not other.__class__:
            return NotImplemented
        return all(
            getattr(self, name) == getattr(other, name) for name in self.__slots__
        ) and self.unknown_tags == getattr(other, "unknown_tags", None)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"{self.__class__.__name__}({', '.join(self._shown())})"

    def _shown(self) -> Iterator[str]:
        """Only what differs from its default, so that the eye finds what matters."""
        for field in self.struct.fields:
            value = getattr(self, field.name)
            if value == ([] if field.is_array and field.default is FRESH else field.default):
                continue
            yield f"{field.name}={show(field, value)}"
        if self.unknown_tags:
            yield f"unknown_tags={split_tags(self.unknown_tags)}"


def show(field: Field, value: object) -> str:
    """A value for a person: errors by name, ids as Kafka's tools write them, long bytes and lists cut short."""
    if isinstance(value, list):
        shown = [show(field, item) for item in value[:LONGEST_LIST_SHOWN]]
        if len(value) > LONGEST_LIST_SHOWN:
            shown.append(f"… {len(value) - LONGEST_LIST_SHOWN} more")
        return f"[{', '.join(shown)}]"
    if field.type == "uuid" and isinstance(value, bytes):
        return urlsafe_b64encode(value).decode().rstrip("=")
    if isinstance(value, bytes | bytearray | memoryview):
        if len(value) > LONGEST_BYTES_SHOWN:
            return f"<{len(value)} bytes>"
        return f"0x{value.hex()}" if value else "b''"
    if field.type == "error" and isinstance(value, int):
        return Error(value).name if value in Error._value2member_map_ else str(value)
    return repr(value)


def make_class(shape: Shape) -> type[Message]:
    """The class of a message, with the classes of its structs as attributes."""
    made: dict[str, type[Message]] = {}

    def class_of(struct: Struct, qualified_name: str) -> type[Message]:
        if struct.name not in made:
            for field in struct.fields:
                if field.struct is not None:
                    class_of(field.struct, f"{shape.name}.{field.struct.name}")
            made[struct.name] = _make_class(shape, struct, qualified_name, made)
        return made[struct.name]

    message = class_of(shape.body, shape.name)
    for name, struct_class in made.items():
        if struct_class is not message:
            setattr(message, name, struct_class)
    return message


def _make_class(shape: Shape, struct: Struct, qualified_name: str, made: dict[str, type[Message]]) -> type[Message]:
    namespace: dict[str, Any] = {
        "__slots__": tuple(field.name for field in struct.fields),
        "__module__": "headrace.protocol.messages",
        "__qualname__": qualified_name,
        "__doc__": shape.text if struct is shape.body else None,
        "__init__": _first_init(struct, made),
        "shape": shape,
        "struct": struct,
        "encoders": {},
        "decoders": {},
    }
    if struct is shape.body and shape.kind is not Kind.DATA:
        namespace["api_key" if shape.kind is Kind.API else "record_type"] = shape.key
    return type(struct.name, (Message,), namespace)


def _first_init(struct: Struct, made: dict[str, type[Message]]) -> Callable[..., None]:
    """Fills the first messages of a class field by field: a start makes many of which there are no more, and to compile
    the real one takes longer."""
    left = FILLED_SLOWLY

    def __init__(self: Message, **values: Any) -> None:
        nonlocal left
        left -= 1
        if left < 0 or not values.keys() <= set(self.__slots__):
            message: Any = made[struct.name]
            message.__init__ = _make_init(struct, made)
            message.__init__(self, **values)
            return
        self.unknown_tags = None
        for field in struct.fields:
            value = values.get(field.name, field.default)
            if value is FRESH:
                value = [] if field.is_array else made[field.type]()
            setattr(self, field.name, value)

    return __init__


def _make_init(struct: Struct, made: dict[str, type[Message]]) -> Callable[..., None]:
    scope: dict[str, Any] = {"FRESH": FRESH}
    parameters, lines = [], ["    self.unknown_tags = None"]
    for number, field in enumerate(struct.fields):
        default = scope[f"d{number}"] = field.default
        parameters.append(f"{field.name}=d{number}")
        fresh = "[]"
        if default is FRESH and not field.is_array:
            scope[f"c{number}"] = made[field.type]
            fresh = f"c{number}()"
        value = f"{fresh} if {field.name} is FRESH else {field.name}" if default is FRESH else field.name
        lines.append(f"    self.{field.name} = {value}")
    star = "*, " if parameters else ""
    exec(f"def __init__(self, {star}{', '.join(parameters)}):\n" + "\n".join(lines), scope)
    made_init: Callable[..., None] = scope["__init__"]
    return made_init
