"""What was deleted and is still on the disk: a worker removes it when its time has come.

Away from the loop, as to give back a gigabyte takes a file system a good part of a second.
"""

from __future__ import annotations

import logging
from bisect import insort
from collections.abc import Callable, Iterator
from functools import partial

from headrace.errors import HeadraceError
from headrace.storage.disk import Disk
from headrace.storage.partition_folder import remove_files, remove_folder
from headrace.storage.workers import Workers

logger = logging.getLogger(__name__)


class Removals:
    __slots__ = ("_disk", "_doomed", "_ended", "_is_stopped", "_renamed", "_running", "_workers", "on_doomed")

    def __init__(self, disk: Disk, workers: Workers, ended: Callable[[], None]) -> None:
        """`ended` is called on the loop after each job."""
        self._disk = disk
        self._workers = workers
        self._ended = ended
        self._doomed: list[tuple[int, str]] = []
        """Folders of deleted partitions, and when they go: the next one first."""
        self._renamed: set[str] = set()
        """Those of them whose new names may not be durable."""
        self.on_doomed: Callable[[int], None] = lambda due_ms: None
        """Called when a folder is to go, with the time at which it may."""
        self._running = 0
        self._is_stopped = False

    @property
    def is_idle(self) -> bool:
        return not self._running

    @property
    def next_due_ms(self) -> int | None:
        """When the next folder goes; None when none is to."""
        return self._doomed[0][0] if self._doomed else None

    def doom(self, folder: str, due_ms: int) -> None:
        insort(self._doomed, (due_ms, folder))
        self._renamed.add(folder)
        self.on_doomed(due_ms)

    def remove_files(self, paths: list[str], done: Callable[[], None] | None = None) -> None:
        self._run(partial(remove_files, self._disk, paths, self._goes_on), done)

    def remove_due(self, now_ms: int) -> Iterator[None]:
        """One folder at a time."""
        while self._doomed and self._doomed[0][0] <= now_ms:
            self._run(partial(self._remove_folder, self._doomed.pop(0)[1]))
            yield

    def stop(self) -> None:
        """What is not removed by now goes at the next start."""
        self._is_stopped = True

    def _remove_folder(self, folder: str) -> None:
        """By a worker. Not before its name is durable: a loss of power would leave a part of it under the old one."""
        if folder in self._renamed:
            renamed = list(self._renamed)
            self._disk.sync_directory("")
            self._renamed.difference_update(renamed)
        remove_folder(self._disk, folder, self._goes_on)

    def _goes_on(self) -> bool:
        """Asked by workers."""
        return not self._is_stopped

    def _run(self, job: Callable[[], object], done: Callable[[], None] | None = None) -> None:
        def removed(result: object, error: BaseException | None) -> None:
            self._running -= 1
            self._ended()
            if done is not None:
                done()
            if isinstance(error, HeadraceError):
                logger.error("what was deleted can't be removed: %s", error)
            elif error is not None:
                raise error

        self._running += 1
        self._workers.run(job, removed)
