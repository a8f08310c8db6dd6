"""Workers that run a job when a test, or the simulator, says so."""

from __future__ import annotations

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
