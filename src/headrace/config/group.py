"""A group of settings that belong to one part of the node, as a class whose fields are its settings.

    class CleanerConfig(Group):
        log_cleaner_threads: int = integer(default=1, least=0, doc="How many cleaners run at once.")

declares the setting `log.cleaner.threads` once: the name follows from the field, mypy knows that the field is an int,
and parsing, the checks, `headrace config explain` and the page of settings come from the same line.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any, ClassVar, NoReturn, Self, TypeVar, cast, dataclass_transform

from headrace.config.setting import Change, Kind, Scope, Setting, unknown
from headrace.errors import Refused

E = TypeVar("E", bound=Enum)


def boolean(*, default: bool, doc: str, **more: Any) -> bool:
    return cast("bool", Setting(Kind.BOOLEAN, default, doc, **more))


def integer(*, default: int, doc: str, **more: Any) -> int:
    """A whole number of 32 bits."""
    return cast("int", Setting(Kind.INT, default, doc, **more))


def short(*, default: int, doc: str, **more: Any) -> int:
    """A whole number of 16 bits."""
    return cast("int", Setting(Kind.SHORT, default, doc, **more))


def long(*, default: int, doc: str, **more: Any) -> int:
    """A whole number of 64 bits."""
    return cast("int", Setting(Kind.LONG, default, doc, **more))


def double(*, default: float, doc: str, **more: Any) -> float:
    return cast("float", Setting(Kind.DOUBLE, default, doc, **more))


def string(*, default: str, doc: str, **more: Any) -> str:
    return cast("str", Setting(Kind.STRING, default, doc, **more))


def words(*, default: tuple[str, ...], doc: str, **more: Any) -> tuple[str, ...]:
    """A list, written with commas."""
    return cast("tuple[str, ...]", Setting(Kind.LIST, default, doc, **more))


def choice(*, default: E, doc: str, **more: Any) -> E:
    """One of the values of an enum."""
    return cast("E", Setting(Kind.STRING, default, doc, choices=type(default), **more))


@dataclass_transform(
    kw_only_default=True,
    frozen_default=True,
    field_specifiers=(boolean, integer, short, long, double, string, words, choice),
)
class GroupType(type):
    """Takes the declarations out of the class body, and leaves a slot for each."""

    settings: dict[str, Setting]
    fields: dict[str, Setting]

    def __new__(
        cls, name: str, bases: tuple[type, ...], body: dict[str, Any], scope: Scope = Scope.BROKER
    ) -> GroupType:
        fields = {field: declared for field, declared in body.items() if isinstance(declared, Setting)}
        rest = {key: value for key, value in body.items() if key not in fields}
        made = super().__new__(cls, name, bases, {**rest, "__slots__": tuple(fields)})
        for field, setting in fields.items():
            setting.name = field.replace("_", ".")
            setting.scope = scope
            if scope is not Scope.BROKER:
                setting.change = Change.TOPIC
        made.fields = fields
        made.settings = {setting.name: setting for setting in fields.values()}
        return made


class Group(metaclass=GroupType):
    """Values of a group's settings. They do not change: `replace` makes others.

    A program that makes one by hand may go beyond the bounds (a test that wants tiny segments); whatever comes as text
    from outside goes through `parse`, which refuses it.
    """

    fields: ClassVar[dict[str, Setting]]
    settings: ClassVar[dict[str, Setting]]

    def __init__(self, **values: Any) -> None:
        put = object.__setattr__
        for field, setting in type(self).fields.items():
            put(self, field, values.pop(field) if field in values else setting.default)
        if values:
            raise TypeError(f"{type(self).__name__} has no field {next(iter(values))!r}")

    @classmethod
    def parse(cls, texts: Mapping[str, str], base: Self | None = None) -> Self:
        """The values of these texts, by setting name; the rest as in `base`, or the defaults."""
        values: dict[str, Any] = {} if base is None else base.values()
        for name, text in texts.items():
            setting = cls.settings.get(name)
            if setting is None:
                raise unknown(name, cls.settings, next(iter(cls.settings.values())).scope)
            values[name.replace(".", "_")] = setting.parse(text)
        made = cls(**values)
        made.check()
        return made

    @classmethod
    def parse_leniently(cls, texts: Mapping[str, str], base: Self | None = None) -> tuple[Self, dict[str, str]]:
        """As `parse`, without the texts that can't be, which come by name with why: those of a later version, say."""
        try:
            return cls.parse(texts, base), {}
        except Refused:
            pass
        made = cls() if base is None else base
        left_out: dict[str, str] = {}
        for name, text in texts.items():
            try:
                made = cls.parse({name: text}, made)
            except Refused as refused:
                left_out[name] = refused.text
        return made, left_out

    def check(self) -> None:
        """Refuses values that are fine one by one and not together."""

    def replace(self, **changes: Any) -> Self:
        return type(self)(**{**self.values(), **changes})

    def values(self) -> dict[str, Any]:
        return {field: getattr(self, field) for field in type(self).fields}

    def texts(self) -> dict[str, str]:
        """What differs from the defaults, by setting name, as `parse` takes it."""
        return {
            setting.name: setting.format(value)
            for field, setting in type(self).fields.items()
            if (value := getattr(self, field)) != setting.default
        }

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and cast("Self", other).values() == self.values()

    def __hash__(self) -> int:
        return hash(tuple(self.values().values()))

    def __repr__(self) -> str:
        changed = (f"{name}={text}" for name, text in self.texts().items())
        return f"{type(self).__name__}({', '.join(changed)})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.values())

    def __setattr__(self, field: str, value: object) -> NoReturn:
        raise AttributeError(f"{type(self).__name__} does not change; use replace({field}=...)")


def _rebuild(cls: type[Group], values: dict[str, Any]) -> Group:
    return cls(**values)
