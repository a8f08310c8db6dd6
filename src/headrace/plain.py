"""Dataclasses whose making costs a start a quarter: what dataclasses compile for each class, all of these share.

`@plain` is `@dataclass(slots=True)`, `@plain_frozen` is `@dataclass(slots=True, frozen=True)`, but that only the type
checker keeps anybody from changing a field. PURE.
"""

from __future__ import annotations

import dataclasses
from typing import Any, TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(field_specifiers=(dataclasses.field,))
def plain(cls: type[T]) -> type[T]:
    return _made(cls)


@dataclass_transform(frozen_default=True, field_specifiers=(dataclasses.field,))
def plain_frozen(cls: type[T]) -> type[T]:
    made: Any = _made(cls)
    made.__hash__ = _hash
    return made  # type: ignore[no-any-return]


def _made(cls: type[T]) -> type[T]:
    has_repr, has_eq = "__repr__" in cls.__dict__, "__eq__" in cls.__dict__
    made: Any = dataclasses.dataclass(slots=True, repr=False, eq=False)(cls)
    if not has_repr:
        made.__repr__ = _repr
    if not has_eq:
        made.__eq__ = _eq
        made.__hash__ = None
    return made  # type: ignore[no-any-return]


def _values(one: Any) -> tuple[Any, ...]:
    return tuple(getattr(one, field.name) for field in dataclasses.fields(one) if field.compare)


def _eq(self: Any, other: object) -> bool:
    return _values(self) == _values(other) if other.__class__ is self.__class__ else NotImplemented


def _hash(self: Any) -> int:
    return hash(_values(self))


def _repr(self: Any) -> str:
    shown = (f"{field.name}={getattr(self, field.name)!r}" for field in dataclasses.fields(self) if field.repr)
    return f"{type(self).__qualname__}({', '.join(shown)})"
