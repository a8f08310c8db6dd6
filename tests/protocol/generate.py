"""Messages at random: every field that a version has gets a value of its type."""

from random import Random
from typing import Any

from headrace.errors import Error
from headrace.protocol.message import Message
from headrace.protocol.shape import FRESH, Field
from headrace.protocol.wire import join_tags

INTEGERS = {
    "int8": (-1 << 7, 7),
    "int16": (-1 << 15, 15),
    "uint16": (0, 16),
    "int32": (-1 << 31, 31),
    "int64": (-1 << 63, 63),
}
ERRORS = [int(error) for error in Error]
TEXTS = ["", "a", "orders", "ünï-cödé", "日本語", "🦫", "x" * 127, "y" * 128, "z" * 300]


class Generator:
    """`tame` keeps to values that other codecs can hold: times that fit their types, error codes that exist."""

    def __init__(self, random: Random, tame: bool = False, unknown_tags: bool = True) -> None:
        self.random = random
        self.tame = tame
        self.unknown_tags = unknown_tags and not tame

    def message(self, cls: type[Message], version: int) -> Message:
        return self.fill(cls(), cls, version)

    def fill(self, made: Message, top: type[Message], version: int, at_least_one: bool = False) -> Message:
        flexible = top.shape.is_flexible(version)
        for field in made.struct.fields:
            if version not in field.versions:
                continue
            is_tagged = field.tag is not None and flexible
            if is_tagged and not at_least_one and self.random.random() < 0.4:
                continue
            value = self.value(field, top, version, is_tagged)
            setattr(made, field.name, value)
        if flexible and self.unknown_tags and self.random.random() < 0.1:
            tags = self.random.sample(range(40, 400), 2)
            made.unknown_tags = join_tags({tag: self.random.randbytes(self.random.randrange(4)) for tag in tags})
        return made

    def value(self, field: Field, top: type[Message], version: int, is_tagged: bool) -> Any:
        if version in field.nullable and self.random.random() < 0.25:
            # Null is not a tagged field's default everywhere: then it can't be left out, and other codecs differ.
            return field.default if is_tagged and field.default is not FRESH else None
        if field.is_array:
            return [self.item(field, top, version) for _ in range(self.random.choice((0, 1, 1, 2, 3)))]
        return self.item(field, top, version, not_default=is_tagged)

    def item(self, field: Field, top: type[Message], version: int, not_default: bool = False) -> Any:
        if field.struct is not None:
            struct_class: type[Message] = getattr(top, field.struct.name)
            made = self.fill(struct_class(), top, version)
            while not_default and made == struct_class():
                made = self.fill(struct_class(), top, version, at_least_one=True)
            return made
        return self.primitive(field)

    def primitive(self, field: Field) -> Any:
        random = self.random
        if field.type == "bool":
            return random.random() < 0.5
        if field.type == "error":
            return random.choice(ERRORS)
        if field.type in INTEGERS:
            return self.integer(field)
        if field.type == "float64":
            return random.choice((0.0, -1.5, 1e300, random.random()))
        if field.type == "uuid":
            return random.randbytes(16)
        if field.type == "string":
            return random.choice(TEXTS)
        return random.randbytes(random.choice((0, 1, 5, 126, 127, 128, 300)))

    def integer(self, field: Field) -> int:
        least, bits = INTEGERS[field.type]
        if self.tame and field.type == "int64":
            return self.random.randrange(1, 1 << 40)
        return self.random.choice((least, (1 << bits) - 1, 0, 1, self.random.randrange(least, 1 << bits)))
