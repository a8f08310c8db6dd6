"""Appends of one partition that wait for their turn.

A produce that must leave the loop before it appends, to be recompressed or to have its transaction verified, holds its
turn: what comes after it for the same partition waits behind it, so that records are in the log in the order in which
they came, and a producer's sequences are never met out of order.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable

logger = logging.getLogger(__name__)


class Turn:
    """A place in the line of one partition."""

    __slots__ = ("_append", "_is_released", "_line")

    def __init__(self, line: HeldAppends, append: Callable[[], None]) -> None:
        self._line = line
        self._append = append
        self._is_released = False

    def release(self) -> None:
        """Nothing is left to be done before the append: it is called now, or as soon as those before it were."""
        self._is_released = True
        self._line._go_on()


class HeldAppends:
    """The line of one partition. It is true while somebody is in it."""

    __slots__ = ("_is_going_on", "_turns")

    def __init__(self) -> None:
        self._turns: deque[Turn] = deque()
        self._is_going_on = False

    def hold(self, append: Callable[[], None]) -> Turn:
        """The last place in the line. `append` is called on the loop, once, in its turn and after its release.

        It is called whatever became of the partition meanwhile: the append itself finds out, and is refused.
        """
        turn = Turn(self, append)
        self._turns.append(turn)
        return turn

    def _go_on(self) -> None:
        if self._is_going_on:  # an append released another one, whose turn comes below
            return
        self._is_going_on = True
        turns = self._turns
        try:
            while turns and turns[0]._is_released:
                try:
                    turns[0]._append()
                except Exception:
                    logger.exception("an append that was held failed")
                turns.popleft()
        finally:
            self._is_going_on = False

    def __len__(self) -> int:
        return len(self._turns)
