"""What a caller hands in, looked at before anything is done with it: who gets it wrong is told which argument, and what
it can be, by the call that has it and not by a broker, a time-out or a log.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from reprlib import Repr
from typing import Any, Final, NoReturn, TypeVar

from headrace.client.errors import WrongArgument

__all__ = [
    "INT16_MAX",
    "INT32_MAX",
    "INT64_MAX",
    "flag",
    "function",
    "instance",
    "items",
    "mapping",
    "number",
    "one_of",
    "partition",
    "partitions",
    "refuse",
    "seconds",
    "text",
    "texts",
    "whole",
    "wholes",
]

INT16_MAX: Final = 2**15 - 1
INT32_MAX: Final = 2**31 - 1
INT64_MAX: Final = 2**63 - 1
SECONDS_MAX: Final = INT32_MAX // 1000  # as milliseconds they fit into a request
_repr: Final = Repr()
_repr.maxstring = _repr.maxother = 60

Given = TypeVar("Given")
Key = TypeVar("Key")
Value = TypeVar("Value")


def refuse(name: str, can_be: str, value: object) -> NoReturn:
    raise WrongArgument(f"{name} is {can_be}, not {_repr.repr(value)}.")


def one_of(name: str, value: object, *choices: str | int) -> None:
    """Neither True nor 1.0 is 1."""
    if not any(value == choice and value.__class__ is choice.__class__ for choice in choices):
        *others, last = map(repr, choices)
        refuse(name, f"{', '.join(others)} or {last}", value)


def whole(name: str, value: object, least: int = 0, most: int = INT32_MAX) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        refuse(name, f"a whole number from {least} to {most}", value)


def seconds(name: str, value: object, *, zero: bool = False) -> None:
    number(name, value, "seconds", SECONDS_MAX, zero=zero)


def number(name: str, value: object, unit: str, most: int, *, zero: bool = False) -> None:
    """More than 0, or 0 where that makes sense. Neither infinite nor nan."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= most or not (value or zero):
        refuse(name, f"a number of {unit} {'from' if zero else 'above'} 0, at most {most}", value)


def flag(name: str, value: object) -> None:
    if not isinstance(value, bool):
        refuse(name, "True or False", value)


def function(name: str, value: object, can_be: str = "a function") -> None:
    if not callable(value):
        refuse(name, can_be, value)


def instance(name: str, value: object, kind: type[Any], can_be: str = "") -> None:
    if not isinstance(value, kind):
        refuse(name, can_be or f"a {kind.__name__}", value)


def text(name: str, value: object, *, empty: bool = False, most_bytes: int = INT16_MAX) -> None:
    """A name or an id: what a request can carry."""
    if not isinstance(value, str):
        refuse(name, "text (str)" if empty else "text (str) that is not empty", value)
    try:
        size_bytes = len(value.encode())
    except UnicodeEncodeError:
        refuse(name, "text that UTF-8 can carry", value)
    if size_bytes > most_bytes:
        refuse(name, f"text of at most {most_bytes} bytes", value)
    if not value and not empty:
        refuse(name, "text (str) that is not empty", value)


def items(name: str, values: Iterable[Given], can_be: str) -> list[Given]:
    """A list of what is iterable; a text is iterable too, and never meant."""
    if isinstance(values, str | bytes | bytearray) or not isinstance(values, Iterable):
        refuse(name, can_be, values)
    return list(values)


def texts(name: str, values: Iterable[str], *, empty: bool = False) -> list[str]:
    checked = items(name, values, "a list of names")
    for value in checked:
        text(f"each of {name}", value, empty=empty)
    return checked


def wholes(name: str, values: Iterable[int], least: int = 0, most: int = INT32_MAX) -> list[int]:
    checked = items(name, values, "a list of whole numbers")
    for value in checked:
        whole(f"each of {name}", value, least, most)
    return checked


def mapping(name: str, value: Mapping[Key, Value], can_be: str) -> dict[Key, Value]:
    """A copy, so that nothing changes while it is asked for."""
    if not isinstance(value, Mapping):
        refuse(name, can_be, value)
    return dict(value)


def partition(name: str, value: object) -> None:
    if not isinstance(value, tuple) or len(value) != 2:
        refuse(name, "a topic and a partition, such as ('letters', 0)", value)
    text(f"the topic of {name}", value[0])
    whole(f"the partition of {name}", value[1])


def partitions(name: str, values: Iterable[tuple[str, int]]) -> list[tuple[str, int]]:
    checked = items(name, values, "a list of topics and partitions, such as [('letters', 0)]")
    for value in checked:
        partition(f"each of {name}", value)
    return checked
