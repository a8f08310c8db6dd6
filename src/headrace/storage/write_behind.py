"""Write-behind: the write-back of what was appended is started early, so that a sync finds little left to do.

It has a thread of its own in a node: to start a write-back may wait for the device, and nobody's sync is to wait for
that.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from headrace.storage.disk import File
from headrace.storage.workers import Workers

logger = logging.getLogger(__name__)


class WriteBehind:
    __slots__ = ("_ended", "_is_running", "_ranges", "_workers")

    def __init__(self, workers: Workers, ended: Callable[[], None]) -> None:
        """`ended` is called on the loop after each job."""
        self._workers = workers
        self._ended = ended
        self._ranges: list[tuple[File, int, int]] = []
        self._is_running = False

    @property
    def is_idle(self) -> bool:
        return not self._is_running

    def start(self, file: File, position: int, size: int) -> None:
        """Starts the write-back of a range. What comes while the worker is at it goes with the next job."""
        file.hold()
        self._ranges.append((file, position, size))
        if not self._is_running:
            self._run()

    def _run(self) -> None:
        ranges, self._ranges = self._ranges, []
        self._is_running = True

        def job() -> None:
            for file, position, size in ranges:
                file.start_writeback(position, size)

        def done(result: None, error: BaseException | None) -> None:
            self._is_running = False
            for file, _, _ in ranges:
                file.release()
            if self._ranges:
                self._run()
            self._ended()
            if error is not None:  # the next sync of the file tells, to those who wait for it
                if not isinstance(error, Exception):
                    raise error
                logger.warning("a write-back could not be started: %s", error)

        self._workers.run(job, done)
