"""How far a start has come: said once it takes longer than a second, and then about every second."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

INTERVAL_S: Final = 1.0


class Progress:
    __slots__ = ("_clock", "_next_s", "_report", "logs_done", "logs_total", "verified_bytes")

    def __init__(self, report: Callable[[Progress], None], clock: Callable[[], float]) -> None:
        """`clock` counts seconds, from any start."""
        self._report = report
        self._clock = clock
        self._next_s = clock() + INTERVAL_S
        self.logs_total = 0
        self.logs_done = 0
        self.verified_bytes = 0

    def found(self, logs: int) -> None:
        self.logs_total += logs

    def opened(self) -> None:
        self.logs_done += 1
        self._tell()

    def verified(self, size_bytes: int) -> None:
        self.verified_bytes += size_bytes
        self._tell()

    def _tell(self) -> None:
        now_s = self._clock()
        if now_s >= self._next_s:
            self._next_s = now_s + INTERVAL_S
            self._report(self)
