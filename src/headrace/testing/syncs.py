"""Syncs whose thread is a worker that a test, or the simulator, moves."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection

from headrace.storage.disk import Disk, DiskError, File
from headrace.storage.syncs import GROUPS_MAX, Ended, Outcome
from headrace.storage.workers import Workers


class WorkerSyncs:
    """As a thread does it: each job syncs all that was asked for by then, of all groups together."""

    __slots__ = ("_asked", "_disk", "_ended", "_workers")

    def __init__(self, disk: Disk, workers: Workers, ended: Ended) -> None:
        self._disk = disk
        self._workers = workers
        self._ended = ended
        self._asked: deque[tuple[Collection[File], int]] = deque()

    def start(self, files: Collection[File], at_once_from: int) -> bool:
        if len(self._asked) == GROUPS_MAX:
            return False
        self._asked.append((files, at_once_from))
        self._workers.run(self._sync, self._synced)
        return True

    def _sync(self) -> tuple[int, Outcome | None, DiskError | None]:
        groups = list(self._asked)
        self._asked.clear()
        files = dict.fromkeys(file for group, _ in groups for file in group)
        try:
            at_once = bool(groups) and 0 < groups[-1][1] <= len(files) and self._disk.sync_all()
            if not at_once:
                for file in files:
                    file.datasync()
        except DiskError as error:
            return len(groups), None, error
        return len(groups), Outcome(len(files), at_once, 0.0), None

    def _synced(self, result: tuple[int, Outcome | None, DiskError | None] | None, error: BaseException | None) -> None:
        if result is None:
            assert error is not None
            raise error
        if result[0]:
            self._ended(*result)
