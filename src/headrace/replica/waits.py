# cython: language_level=3, annotation_typing=False, nonecheck=True
"""Who waits: for a time, all on one heap with one timer of the loop, or for an offset of a partition.

Nearly all that waits for a time is cancelled before, so cancelling only empties the entry. It is dropped when its time
comes, or when most of the heap is such entries.
"""

from __future__ import annotations

import heapq
import logging
from bisect import insort
from collections import deque
from collections.abc import Callable
from operator import itemgetter
from typing import Final, Protocol, TypeAlias

from headrace.errors import Error

logger = logging.getLogger(__name__)

CANCELLED_MIN: Final = 1000
"""Fewer cancelled entries than this are not worth a pass over the heap."""

_OFFSET_OF: Final = itemgetter(0)

Reached: TypeAlias = Callable[[Error], None]
"""Called with NONE when the offset is reached, or with why it will not be."""


class Timer(Protocol):
    def cancel(self) -> None: ...


class Wait:
    """A place on the heap."""

    __slots__ = ("_callback", "_waits")

    def __init__(self, waits: Waits, callback: Callable[[], None]) -> None:
        self._waits = waits
        self._callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        """What was waited for came before its time, or does not matter any more. Harmless when it is over."""
        if self._callback is not None:
            self._callback = None
            self._waits._cancelled += 1

    def _take(self) -> Callable[[], None] | None:
        callback, self._callback = self._callback, None
        return callback


class Waits:
    """Calls back at a time, in seconds of the loop's clock. Two of the same time are called in their order."""

    __slots__ = ("_call_at", "_cancelled", "_due_s", "_heap", "_number", "_timer", "time")

    def __init__(self, call_at: Callable[[float, Callable[[], None]], Timer], time: Callable[[], float]) -> None:
        """Both are the loop's."""
        self._call_at = call_at
        self.time = time
        self._heap: list[tuple[float, int, Wait]] = []
        self._number = 0
        self._cancelled = 0
        self._timer: Timer | None = None
        self._due_s = 0.0

    def at(self, deadline_s: float, callback: Callable[[], None]) -> Wait:
        wait = Wait(self, callback)
        self._number += 1
        heapq.heappush(self._heap, (deadline_s, self._number, wait))
        if self._timer is None or deadline_s < self._due_s:
            self._set_timer(deadline_s)
        elif self._cancelled > CANCELLED_MIN and self._cancelled * 2 > len(self._heap):
            self._drop_cancelled()
        return wait

    def after_ms(self, pause_ms: float, callback: Callable[[], None]) -> Wait:
        return self.at(self.time() + pause_ms / 1000, callback)

    def __len__(self) -> int:
        """The entries on the heap, those that were cancelled included."""
        return len(self._heap)

    def _set_timer(self, due_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._due_s = due_s
        self._timer = self._call_at(due_s, self._due)

    def _due(self) -> None:
        self._timer = None
        now_s, heap = self.time(), self._heap
        # What is asked for meanwhile has a number above this one, and its turn in the next round of the loop.
        last = self._number
        while heap and heap[0][1] <= last:
            deadline_s, _, wait = heap[0]
            callback = wait._take()
            if callback is None:
                self._cancelled -= 1
            elif deadline_s > now_s:
                wait._callback = callback
                break
            heapq.heappop(heap)
            if callback is not None:
                self._call(callback)
        # A callback may have set the timer for what it asked for, which can be later than what was there before.
        if heap and (self._timer is None or heap[0][0] < self._due_s):
            self._set_timer(heap[0][0])

    def _call(self, callback: Callable[[], None]) -> None:
        try:
            callback()
        except Exception:
            logger.exception("what waited for its time failed")

    def _drop_cancelled(self) -> None:
        self._heap[:] = [entry for entry in self._heap if entry[2]._callback is not None]  # `_due` may be at it
        heapq.heapify(self._heap)
        self._cancelled = 0


class OffsetWaits:
    """Who waits for an offset of one partition to be reached, the nearest first."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: deque[tuple[int, Reached]] = deque()

    def add(self, offset: int, reached: Reached) -> None:
        """Waits until everything before `offset` is there."""
        waiting = self._waiting
        if waiting and waiting[-1][0] > offset:  # a duplicate waits for what was appended before
            insort(waiting, (offset, reached), key=_OFFSET_OF)
        else:
            waiting.append((offset, reached))

    def reached(self, offset: int, error: Error = Error.NONE) -> None:
        """Everything before `offset` is there, or will not be."""
        waiting = self._waiting
        while waiting and waiting[0][0] <= offset:
            _call_reached(waiting.popleft()[1], error)

    def fail(self, error: Error) -> None:
        """Nobody will get what they wait for."""
        waiting, self._waiting = self._waiting, deque()
        for _, reached in waiting:
            _call_reached(reached, error)

    def __len__(self) -> int:
        return len(self._waiting)


def _call_reached(reached: Reached, error: Error) -> None:
    try:
        reached(error)
    except Exception:
        logger.exception("what waited for an offset failed")
