"""Workers that run a job when a test, or the simulator, says so."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from headrace.storage.workers import Done, Result


class SteppedWorkers:
    """Jobs wait in a queue. `step` runs the first and calls its `done`, all in the caller's thread."""

    __slots__ = ("_jobs",)

    def __init__(self) -> None:
        self._jobs: deque[tuple[Callable[[], object], Done[object]]] = deque()

    def run(self, job: Callable[[], Result], done: Done[Result]) -> None:
        self._jobs.append((job, done))  # type: ignore[arg-type]  # each job meets its own `done`

    def step(self) -> None:
        self.end()()

    def end(self) -> Callable[[], None]:
        """Runs the first job; what is returned calls its `done`, so that a test can do something in between."""
        job, done = self._jobs.popleft()
        result: object = None
        error: Exception | None = None
        try:
            result = job()
        except Exception as raised:
            error = raised
        return lambda: done(result, error)

    def __len__(self) -> int:
        return len(self._jobs)


class LoopWorkers:
    """Jobs run on the loop, in its next round: for jobs that never wait."""

    def run(self, job: Callable[[], Result], done: Done[Result]) -> None:
        asyncio.get_running_loop().call_soon(self._run, job, done)

    def _run(self, job: Callable[[], Result], done: Done[Result]) -> None:
        try:
            result = job()
        except Exception as error:
            done(None, error)
        else:
            done(result, None)
