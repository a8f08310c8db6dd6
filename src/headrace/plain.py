"""Classes of values whose making costs a start next to nothing.

`@plain` is `@dataclass(slots=True)`, `@plain_frozen` is `@dataclass(slots=True, frozen=True)`, but that only the type
checker keeps anybody from changing a field. To it they are just that. A dataclass takes 0.3 ms, most of it to compile
its methods, and a node has fifty of them: these compile `__init__` alone, with their second value, and share the rest.
PURE.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar, dataclass_transform

if TYPE_CHECKING:
    from collections.abc import Callable
    from dataclasses import field, replace

__all__ = ["field", "plain", "plain_frozen", "replace", "values_of"]

T = TypeVar("T")

if not TYPE_CHECKING:

    def field(*, default_factory):
        """A default that is made anew for each value."""
        return _Anew(default_factory)

    def replace(one, /, **changes):
        """Another value, with these fields changed."""
        return type(one)(**{**values_of(one), **changes})


@dataclass_transform(field_specifiers=(field,))
def plain(cls: type[T]) -> type[T]:
    return _made(cls)


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def plain_frozen(cls: type[T]) -> type[T]:
    made: Any = _made(cls)
    made.__hash__ = _hash
    return made  # type: ignore[no-any-return]


def values_of(one: Any) -> dict[str, Any]:
    """By field."""
    return {name: getattr(one, name) for name in one.__match_args__}


def _made(cls: type[T]) -> type[T]:
    """Slots can't be added to a class, so this is another one with the same body."""
    body = {name: value for name, value in cls.__dict__.items() if name not in ("__dict__", "__weakref__")}
    names = tuple(body.get("__annotations__", ()))
    defaults = {name: body.pop(name) for name in names if name in body}
    body |= {"__qualname__": cls.__qualname__, "__slots__": names, "__match_args__": names}
    body["__dataclass_fields__"] = _Fields(cls)
    body.setdefault("__repr__", _repr)
    if "__eq__" not in body:
        body |= {"__eq__": _eq, "__hash__": None}
    has_post_init = "__post_init__" in body

    def first_init(self: Any, *given: Any, **named: Any) -> None:
        # Half of a node's classes have one value, which is filled sooner than a method is compiled.
        made.__init__ = second_init
        placed = dict(zip(names, given, strict=False))
        values = {**defaults, **placed, **named}
        if values.keys() != set(names) or len(placed) < len(given) or placed.keys() & named.keys():
            second_init(self, *given, **named)  # which says what is wrong
            return
        for name in names:
            value = values[name]
            setattr(self, name, value.make() if isinstance(value, _Anew) else value)
        if has_post_init:
            self.__post_init__()

    def second_init(self: Any, *given: Any, **named: Any) -> None:
        made.__init__ = _init(cls.__qualname__, names, defaults, has_post_init)
        made.__init__(self, *given, **named)

    body["__init__"] = first_init
    made: Any = type(cls.__name__, cls.__bases__, body)
    return made  # type: ignore[no-any-return]


class _Fields:
    """What `dataclasses` looks for (`fields`, `replace`, `asdict`), made when it does."""

    __slots__ = ("_of",)

    def __init__(self, of: type[object]) -> None:
        self._of = of

    def __get__(self, one: object, owner: Any) -> dict[str, Any]:
        import dataclasses

        made: Any = dataclasses.dataclass(init=False, repr=False, eq=False, match_args=False)(self._of)
        owner.__dataclass_fields__ = made.__dataclass_fields__
        return made.__dataclass_fields__  # type: ignore[no-any-return]


class _Anew:
    __slots__ = ("make",)

    def __init__(self, make: Callable[[], Any]) -> None:
        self.make = make


_MISSING: Any = object()


def _init(title: str, names: tuple[str, ...], defaults: dict[str, Any], has_post_init: bool) -> Callable[..., None]:
    known: dict[str, Any] = {"_MISSING": _MISSING}
    parameters, lines = ["self"], []
    for name in names:
        default = defaults.get(name, _MISSING)
        if default is _MISSING:
            parameters.append(name)
            lines.append(f"self.{name} = {name}")
        elif isinstance(default, _Anew):
            known[f"_make_{name}"] = default.make
            parameters.append(f"{name}=_MISSING")
            lines.append(f"self.{name} = _make_{name}() if {name} is _MISSING else {name}")
        else:
            known[f"_default_{name}"] = default
            parameters.append(f"{name}=_default_{name}")
            lines.append(f"self.{name} = {name}")
    if has_post_init:
        lines.append("self.__post_init__()")
    source = f"def __init__({', '.join(parameters)}):\n " + "\n ".join(lines or ["pass"])
    exec(compile(source, f"<{title}>", "exec"), known)
    return known["__init__"]  # type: ignore[no-any-return]


def _eq(self: Any, other: Any) -> bool:
    return values_of(self) == values_of(other) if other.__class__ is self.__class__ else NotImplemented


def _hash(self: Any) -> int:
    return hash(tuple(values_of(self).values()))


def _repr(self: Any) -> str:
    shown = ", ".join(f"{name}={value!r}" for name, value in values_of(self).items())
    return f"{type(self).__qualname__}({shown})"
