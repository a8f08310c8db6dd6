"""The errors in a reply, wherever in it they stand, counted by their code.

Which fields those are is read from the shape of the message, once: a reply of many topics and partitions is walked
where there may be errors, and nowhere else.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from headrace.protocol.message import Message
from headrace.protocol.shape import Struct


class _Walk(NamedTuple):
    """Where a struct has errors: in fields of its own, and in structs inside."""

    own: tuple[str, ...]
    inner: tuple[tuple[str, _Walk], ...]


def count_errors(message: Message, errors: dict[int, int]) -> None:
    """Adds one for each error that is not NONE."""
    _count(message, _walk_of(type(message)), errors)


def _count(message: Any, walk: _Walk, errors: dict[int, int]) -> None:
    for name in walk.own:
        code = getattr(message, name)
        if code:
            errors[code] = errors.get(code, 0) + 1
    for name, inner in walk.inner:
        value = getattr(message, name)
        if value is None:
            continue
        if isinstance(value, list):
            for part in value:
                _count(part, inner, errors)
        else:
            _count(value, inner, errors)


def _walk_of(kind: type[Message]) -> _Walk:
    walk = _WALKS.get(kind)
    if walk is None:
        walk = _WALKS[kind] = _find(kind.struct)
    return walk


_WALKS: Final[dict[type[Message], _Walk]] = {}


def _find(struct: Struct) -> _Walk:
    own = tuple(field.name for field in struct.fields if field.type == "error" and not field.is_array)
    found = [(field.name, _find(field.struct)) for field in struct.fields if field.struct is not None]
    return _Walk(own, tuple((name, walk) for name, walk in found if walk.own or walk.inner))
