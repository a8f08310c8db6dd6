"""Logs that the start could not open for a reason that passes, a full disk say, are opened when it is over.

Of each directory one log is tried at a time. As long as that succeeds the next one follows at once; a try that fails
ends the round, and the pause until the next one grows, so that a disk that stays full costs next to nothing.
"""

from __future__ import annotations

from typing import Final

from headrace.errors import HeadraceError
from headrace.replica.manager import Replicas
from headrace.storage.log import Log
from headrace.storage.log_directory import LogDirectory

PAUSE_MS: Final = 1000
PAUSE_MS_MAX: Final = 10_000


class Reopenings:
    __slots__ = ("_is_stopped", "_replicas")

    def __init__(self, replicas: Replicas) -> None:
        self._replicas = replicas
        self._is_stopped = False

    def start(self) -> None:
        for directory in self._replicas.directories.all:
            self._try_later(directory, PAUSE_MS)

    def stop(self) -> None:
        self._is_stopped = True

    def _try_later(self, directory: LogDirectory, pause_ms: int) -> None:
        if directory.awaits_logs:
            self._replicas.waits.after_ms(pause_ms, lambda: self._try(directory, pause_ms))

    def _try(self, directory: LogDirectory, pause_ms: int) -> None:
        if self._is_stopped or directory.offline is not None or not directory.awaits_logs:
            return
        replicas = self._replicas

        def tried(log: Log | None, error: HeadraceError | None) -> None:
            if log is not None and not self._is_stopped:
                replicas.reopened(log)
            if error is None:
                self._try(directory, PAUSE_MS)
            else:
                self._try_later(directory, min(2 * pause_ms, PAUSE_MS_MAX))

        replicas.directories.reopen(directory, lambda topic: replicas.image.topic_ids.get(topic), tried)
