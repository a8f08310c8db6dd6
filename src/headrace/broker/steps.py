"""A request about very many things is served a bit at a time, so that others are served in between."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from itertools import islice
from typing import Any, Final, TypeVar

T = TypeVar("T")
R = TypeVar("R")

THINGS_A_STEP: Final = 500
"""Each takes some microseconds."""


def in_steps(work: Iterator[T], count: int, done: Callable[[list[T]], R]) -> R | Coroutine[Any, Any, R]:
    """`done` of what `work` gives, for each of `count` things: at once where they are few, else in a coroutine."""
    return done(list(work)) if count <= THINGS_A_STEP else _later(work, done)


async def _later(work: Iterator[T], done: Callable[[list[T]], R]) -> R:
    found: list[T] = []
    while step := list(islice(work, THINGS_A_STEP)):
        found += step
        await asyncio.sleep(0)
    return done(found)
