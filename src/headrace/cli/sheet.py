"""What a file is shown as: things one after another, each as JSON or as a row of a table. Whoever prints chooses."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from headrace.cli.columns import Column
from headrace.cli.log_values import Format

Thing = TypeVar("Thing")


@dataclass(slots=True)
class Wishes:
    """What of a file is to be shown, and how."""

    records: bool = False
    format: Format = Format.TEXT
    start_offset: int = 0
    count: int | None = None
    state_topic: str | None = None
    past_damage: bool = False
    bytes_max: int | None = None
    """Of a key or value in a table; all of them where it is None."""


@dataclass(slots=True)
class Sheet(Generic[Thing]):
    columns: Sequence[Column]
    things: Iterator[Thing]
    as_json: Callable[[Thing], dict[str, Any]]
    as_cells: Callable[[Thing], Sequence[str] | str]
    """In columns, or as a line across all of them. Called before the next thing is asked for."""


def range_text(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}..{last}"
