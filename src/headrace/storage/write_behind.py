"""Write-behind: the write-back of what was appended is started early, so that a sync finds little left to do.

It has a thread of its own in a node: to start a write-back may wait for the device, and nobody's sync is to wait for
that. As long as it keeps up, it goes in small pieces, with pauses: a sync waits for what the device has been given
before it, and so for a piece and not for all that a large request brought.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from headrace.storage.disk import File
from headrace.storage.workers import Workers

PIECE_BYTES: Final = 128 << 10
PAUSE_S: Final = 0.0008

logger = logging.getLogger(__name__)


class WriteBehind:
    __slots__ = ("_is_running", "_pause", "_ranges", "_workers")

    def __init__(self, workers: Workers, pause: Callable[[float], object] | None = None) -> None:
        """`pause` sleeps in a worker, for seconds; without it there are no pieces."""
        self._workers = workers
        self._pause = pause
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
                self._start(file, position, position + size)

        def done(result: None, error: BaseException | None) -> None:
            self._is_running = False
            for file, _, _ in ranges:
                file.release()
            if self._ranges:
                self._run()
            if error is not None:  # the next sync of the file tells, to those who wait for it
                if not isinstance(error, Exception):
                    raise error
                logger.warning("a write-back could not be started: %s", error)

        self._workers.run(job, done)

    def _start(self, file: File, position: int, end: int) -> None:
        """In a worker."""
        while self._pause is not None and not self._ranges and end - position > PIECE_BYTES:
            file.start_writeback(position, PIECE_BYTES)
            position += PIECE_BYTES
            self._pause(PAUSE_S)
        file.start_writeback(position, end - position)
