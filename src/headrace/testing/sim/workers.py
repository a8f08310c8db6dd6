"""Threads, as the simulator has them: a job runs whole, at a time that the seed says, between callbacks of the loop."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from headrace.storage.workers import Done, Result
from headrace.testing.disk import Crash

if TYPE_CHECKING:
    from headrace.testing.sim.process import Process


class SimWorkers:
    """One thread: jobs run one after another. What a job does is done before its `done` is called, a while before."""

    __slots__ = ("_is_busy", "_jobs", "_process", "name")

    def __init__(self, process: Process, name: str) -> None:
        self.name = name
        self._process = process
        self._jobs: deque[tuple[Callable[[], object], Done[object]]] = deque()
        self._is_busy = False

    def run(self, job: Callable[[], Result], done: Done[Result]) -> None:
        self._process.enter()
        self._jobs.append((job, done))  # type: ignore[arg-type]  # each job meets its own `done`
        if not self._is_busy:
            self._start_next()

    def _start_next(self) -> None:
        self._is_busy = True
        process = self._process
        # A thread wakes up in tens of microseconds; on a busy machine it waits for a core.
        chance = process.host.chance
        wait = chance.uniform(10e-6, 100e-6) if chance.random() < 0.9 else chance.uniform(0.0001, 0.02)
        process.loop.outside_at(process.loop.now + wait, self._work)

    def _work(self) -> None:
        process = self._process
        if not process.is_alive or process.hold_job(self._work):
            return
        job, done = self._jobs.popleft()
        loop = process.loop
        on_loop, process.blocked_seconds = process.blocked_seconds, 0.0
        process.event(f"{self.name} runs a job")
        result: object = None
        error: BaseException | None = None
        loop.in_job = True
        try:
            result = process.context.copy().run(job)
        except Crash:
            process.crash()
            return
        except BaseException as raised:
            error = raised
        finally:
            loop.in_job = False
            took, process.blocked_seconds = process.blocked_seconds, on_loop
        loop.outside_at(loop.now + took, self._end, done, result, error)

    def _end(self, done: Done[object], result: object, error: BaseException | None) -> None:
        process = self._process
        if not process.is_alive or process.hold_job(lambda: self._end(done, result, error)):
            return
        process.loop.call_soon(done, result, error, context=process.context.copy())
        self._is_busy = False
        if self._jobs:
            self._start_next()
