"""Who sends large replies: threads, each for some connections, that rest while records are produced.

A thread that sends what it reads from a cold disk keeps a processor busy, its client another one, and the disk the host
of a virtual machine. Whoever produces a record beside a replay waits for one of them, if there are not enough for all.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final

from headrace.metrics.requests import RequestFigures
from headrace.net.sending import Done
from headrace.storage.workers import Workers

RESTS: Final = 4
"""Who rests so many times as long as it works takes a fifth of a processor."""
AFTER_S: Final = 1.0
"""For so long after the last record was produced."""


class Senders:
    """Of a node."""

    __slots__ = ("_is_crowded", "_looked_s", "_produced_ns", "_rests_until_s", "_senders", "_time", "produced")

    def __init__(self, threads: Sequence[Workers], cores: int, time: Callable[[], float]) -> None:
        """`time` counts seconds, from any start."""
        self._time = time
        self._is_crowded = cores <= len(threads) + 1  # that of the loop
        self._senders = [PacedSender(self, thread) for thread in threads]
        self.produced: RequestFigures | None = None
        """Of the requests that produce."""
        self._produced_ns = 0
        self._looked_s = self._rests_until_s = -math.inf

    def __bool__(self) -> bool:
        return bool(self._senders)

    def of(self, peer_port: int) -> PacedSender:
        return self._senders[peer_port % len(self._senders)]

    @property
    def rests(self) -> int:
        produced = self.produced
        if produced is None or not self._is_crowded:
            return 0
        now_s = self._time()
        produced_ns = produced.at_once.sum_ns + produced.total.sum_ns
        if produced_ns != self._produced_ns:
            self._produced_ns = produced_ns
            if now_s < self._looked_s + AFTER_S:  # else nobody knows when it was
                self._rests_until_s = now_s + AFTER_S
        self._looked_s = now_s
        return RESTS if now_s < self._rests_until_s else 0


class PacedSender:
    """One of its threads."""

    __slots__ = ("_senders", "_thread")

    def __init__(self, senders: Senders, thread: Workers) -> None:
        self._senders = senders
        self._thread = thread

    @property
    def rests(self) -> int:
        return self._senders.rests

    def run(self, job: Callable[[], None], done: Done) -> None:
        self._thread.run(job, done)
