"""How late the event loop is: what a timer that is due waits, everything else waits too."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from headrace.metrics.histogram import Histogram

EVERY_SECONDS: Final = 0.25


class LoopLag:
    """Looks four times a second. Timers come to the millisecond, so less than one means nothing."""

    __slots__ = ("_clock_ns", "_due_ns", "_loop", "_timer", "lag")

    def __init__(self, loop: asyncio.AbstractEventLoop, clock_ns: Callable[[], int]) -> None:
        self._loop = loop
        self._clock_ns = clock_ns
        self._timer: asyncio.TimerHandle | None = None
        self._due_ns = 0
        self.lag = Histogram()

    def start(self) -> None:
        self._due_ns = self._clock_ns() + int(EVERY_SECONDS * 1e9)
        self._timer = self._loop.call_later(EVERY_SECONDS, self._look)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _look(self) -> None:
        self.lag.observe(max(0, self._clock_ns() - self._due_ns))
        self.start()
