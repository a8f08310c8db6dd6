"""The errors in a reply, wherever in it they stand, counted by their code.

Which fields those are is read from the shape of the message, once, and made into a function: a reply of many topics and
partitions is walked where there may be errors, and nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, TypeAlias

from headrace.protocol.message import Message
from headrace.protocol.shape import Struct

_Count: TypeAlias = Callable[[Any, dict[int, int]], None]


def count_errors(message: Message, errors: dict[int, int]) -> None:
    """Adds one for each error that is not NONE."""
    count = _COUNTS.get(type(message))
    if count is None:
        count = _COUNTS[type(message)] = _compile(type(message))
    count(message, errors)


_COUNTS: Final[dict[type[Message], _Count]] = {}


def _compile(kind: type[Message]) -> _Count:
    lines = ["def count(s0, errors):", *_walk(kind.struct, 0, "    "), "    return None"]
    names: dict[str, Any] = {}
    exec(compile("\n".join(lines), f"<errors of {kind.__name__}>", "exec"), names)
    count: _Count = names["count"]
    return count


def _walk(struct: Struct, depth: int, indent: str) -> Iterator[str]:
    """The lines that look at a struct, which is in the variable of its depth; none where there are no errors."""
    for field in struct.fields:
        value, inner = f"s{depth}.{field.name}", f"s{depth + 1}"
        if field.type == "error" and not field.is_array:
            yield f"{indent}if {value}: errors[{value}] = errors.get({value}, 0) + 1"
        elif field.struct is not None:
            lines = list(_walk(field.struct, depth + 1, indent + "    "))
            if lines and field.is_array:
                yield f"{indent}for {inner} in {value} or ():"
            elif lines:
                yield f"{indent}{inner} = {value}"
                yield f"{indent}if {inner} is not None:"
            yield from lines
