"""The timers of a shard, by key, on the node's one heap.

Nearly all of them are put off again and again (each heartbeat puts off a session's end), so putting one off only notes
its new time: it is looked at when the old one comes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from headrace.coordinator.shard import Outcome
from headrace.replica.waits import Wait, Waits


class _Timer:
    __slots__ = ("armed_s", "deadline_ms", "due_s", "event", "wait")

    wait: Wait

    def __init__(self, due_s: float, deadline_ms: int, event: Callable[[int], Outcome]) -> None:
        self.armed_s = self.due_s = due_s
        self.deadline_ms = deadline_ms
        self.event = event


class ShardTimers:
    """Deadlines are of the wall clock, as all times of a shard; what they are waited by is the loop's clock, which
    nobody sets back."""

    __slots__ = ("_now_ms", "_rings", "_timers", "_waits")

    def __init__(
        self,
        waits: Waits,
        now_ms: Callable[[], int],
        rings: Callable[[Callable[[int], Outcome], int], None],
    ) -> None:
        """`rings(event, now_ms)` is called when the time of an event has come."""
        self._waits = waits
        self._now_ms = now_ms
        self._rings = rings
        self._timers: dict[Any, _Timer] = {}

    def at(self, key: Any, deadline_ms: int, event: Callable[[int], Outcome]) -> None:
        due_s = self._waits.time() + (deadline_ms - self._now_ms()) / 1000
        timer = self._timers.get(key)
        if timer is not None:
            if timer.armed_s <= due_s:
                timer.due_s, timer.deadline_ms, timer.event = due_s, deadline_ms, event
                return
            timer.wait.cancel()
        timer = self._timers[key] = _Timer(due_s, deadline_ms, event)
        timer.wait = self._waits.at(due_s, partial(self._due, key, timer))

    def cancel(self, key: Any) -> None:
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.wait.cancel()

    def cancel_all(self) -> None:
        timers, self._timers = self._timers, {}
        for timer in timers.values():
            timer.wait.cancel()

    def __len__(self) -> int:
        return len(self._timers)

    def _due(self, key: Any, timer: _Timer) -> None:
        if timer.due_s > self._waits.time():
            timer.armed_s = timer.due_s
            timer.wait = self._waits.at(timer.due_s, partial(self._due, key, timer))
            return
        del self._timers[key]
        # The wall clock may have been set back: for the event, its time has come all the same.
        self._rings(timer.event, max(self._now_ms(), timer.deadline_ms))
