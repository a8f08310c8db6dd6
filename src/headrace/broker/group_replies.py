"""One reply that is made of what several shards say."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from headrace.errors import Error
from headrace.protocol.message import Message

RefusedPart: TypeAlias = Callable[[Error, "str | None"], Message]


class Gathered:
    """Parts in their order, handed on when all of them are there."""

    __slots__ = ("_done", "_left", "_parts")

    def __init__(self, count: int, done: Callable[[list[Any]], None]) -> None:
        self._parts: list[Any] = [None] * count
        self._left = count
        self._done = done

    def part(self, place: int, refused: RefusedPart) -> Part:
        """The reply for one shard; `refused` makes what stands in its place when it can't be asked."""
        return Part(self, place, refused)

    def put(self, place: int, message: Message) -> None:
        self._parts[place] = message
        self._left -= 1
        if not self._left:
            self._done(self._parts)


class Part:
    """See `coordinator.shard.Reply`."""

    __slots__ = ("_gathered", "_place", "_refused")

    def __init__(self, gathered: Gathered, place: int, refused: RefusedPart) -> None:
        self._gathered = gathered
        self._place = place
        self._refused = refused

    def __call__(self, message: Message, /) -> None:
        self._gathered.put(self._place, message)

    def refuse(self, error: Error, text: str | None = None, /) -> None:
        self(self._refused(error, text))
