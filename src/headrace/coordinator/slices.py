"""Work that takes long, done on the loop in slices, so that whoever else is served waits for one slice at most."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Final

SLICE_S: Final = 0.003
"""With the step that goes beyond it, and what the loop does besides, others wait for less than 5 ms."""


class Slices:
    """One slice a round of the loop, however many works there are. Each step of a work takes well below a slice."""

    __slots__ = ("_call_soon", "_is_running", "_time", "_works")

    def __init__(self, call_soon: Callable[[Callable[[], None]], object], time: Callable[[], float]) -> None:
        """Both are the loop's."""
        self._call_soon = call_soon
        self._time = time
        self._works: deque[Iterator[None]] = deque()
        self._is_running = False

    def add(self, work: Iterator[None]) -> None:
        """A generator that is run to its end; it deals with its own failures."""
        self._works.append(work)
        if not self._is_running:
            self._is_running = True
            self._call_soon(self._run)

    def _run(self) -> None:
        works, time = self._works, self._time
        end_s = time() + SLICE_S
        try:
            while works:
                work = works.popleft()
                for _ in work:
                    if time() >= end_s:
                        works.append(work)
                        return
        finally:
            self._is_running = bool(works)
            if works:
                self._call_soon(self._run)
