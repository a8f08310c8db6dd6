"""Logs that could not be opened, why, and what is known of them; and another try where the reason is one that passes.

A full disk may have room again, and files that too many had open are closed: such a log is opened while the node runs,
one at a time, away from the loop, by files of its own. It is verified as after a crash, because a try that failed in
its middle has changed what it found. Anything else stays offline until a restart. An error of the device is no reason
that passes: to try again would be to believe, sooner or later, what it says by chance.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from headrace.errors import HeadraceError
from headrace.named_tuple import NamedTuple
from headrace.storage import names
from headrace.storage.checkpoint import TopicPartition
from headrace.storage.disk import Disk, DiskFull, SyncFailed, TooManyOpenFiles
from headrace.storage.flush import SyncsFiles
from headrace.storage.handles import Handles
from headrace.storage.index import IndexCache
from headrace.storage.log import Log
from headrace.storage.log_options import LogOptions
from headrace.storage.opening import make_durable, open_in
from headrace.storage.recovery import Saved
from headrace.storage.shared import Shared
from headrace.storage.workers import Workers

logger = logging.getLogger(__name__)

OPEN_FILES: Final = 8
"""Of segments, that a try has open at once."""


class OfflineLog(NamedTuple):
    why: HeadraceError
    saved: Saved
    """What the last stop left of it, which stays so."""

    @property
    def is_awaited(self) -> bool:
        """It is opened as soon as it can be."""
        return isinstance(self.why, DiskFull | TooManyOpenFiles)


class _Stopped(HeadraceError):
    """The node stops, and the try is given up."""


class Reopening:
    """Moves logs of one directory from those that are offline to those that are open."""

    __slots__ = (
        "_disk",
        "_flusher",
        "_is_stopped",
        "_logs",
        "_now_ms",
        "_offline",
        "_shared",
        "_workers",
        "key",
        "then",
    )

    def __init__(
        self,
        disk: Disk,
        shared: Shared,
        flusher: SyncsFiles,
        workers: Workers,
        now_ms: Callable[[], int],
        *,
        offline: dict[TopicPartition, OfflineLog],
        logs: dict[TopicPartition, Log],
    ) -> None:
        self._disk = disk
        self._shared = shared
        self._flusher = flusher
        self._workers = workers
        self._now_ms = now_ms
        self._offline = offline
        self._logs = logs
        self._is_stopped = False
        self.key: TopicPartition | None = None
        """The log whose folder a worker has in hand at the moment."""
        self.then: Callable[[], None] | None = None
        """What is to be done with that folder when the worker is through."""

    def next(self) -> TopicPartition | None:
        """Whose turn it is."""
        return next((key for key, found in self._offline.items() if found.is_awaited), None)

    def stop(self) -> None:
        """Begins no other try. One that is under way ends soon."""
        self._is_stopped = True

    def begin(self, key: TopicPartition, done: Callable[[HeadraceError | None], None]) -> None:
        """Tries to open a log. `done` is called with None when it is open, or with why it is not."""
        assert self.key is None, "one log is opened at a time"
        self.key = key
        disk, now_ms = self._disk, self._now_ms()
        saved = self._offline[key].saved._replace(is_clean=False, is_written=False)
        folder, flusher = names.folder_name(*key), self._flusher
        config = self._shared.config_of(key[0])
        indexes = IndexCache(self._shared.indexes.budget_bytes)
        # What the others share is the loop's, and so are settings.
        own = Shared(Handles(OPEN_FILES), indexes, LogOptions(), lambda topic: config)

        def advanced(size_bytes: int) -> None:
            if self._is_stopped:
                raise _Stopped("the node stops")

        def job() -> Log:
            disk.promise()
            try:
                log = open_in(disk, folder, key, own, flusher, saved=saved, now_ms=now_ms, advanced=advanced)
                make_durable(disk, [log], at_once=False)
            finally:
                own.handles.close()
            return log

        def tried(log: Log | None, error: BaseException | None) -> None:
            self.key = None
            then, self.then = self.then, None
            failure: HeadraceError | None = None
            if log is not None:
                self._take(key, log)
            else:
                failure = error if isinstance(error, HeadraceError) else _unexpected(disk.full_path(folder), error)
                self._failed(key, failure)
            if then is not None:
                then()
            done(failure)

        self._workers.run(job, tried)

    def _take(self, key: TopicPartition, log: Log) -> None:
        """From here on it shares what the other logs do."""
        shared = self._shared
        log.place.handles, log.place.indexes = shared.handles, shared.indexes
        log.options = shared.options
        log.configure(shared.config_of(log.topic))
        del self._offline[key]
        self._logs[key] = log
        logger.info("%s-%d is online again; it ends at offset %d", *key, log.log_end_offset)

    def _failed(self, key: TopicPartition, error: HeadraceError) -> None:
        """The others have their turn before it has another one."""
        found = self._offline.pop(key)
        if not isinstance(error, _Stopped | SyncFailed):
            found = found._replace(why=error)
            if not found.is_awaited:
                logger.error("%s-%d stays offline: %s", *key, error)
        self._offline[key] = found


def _unexpected(path: str, error: BaseException | None) -> HeadraceError:
    """A defect of ours: told in full, and not tried again."""
    logger.error("%s can't be opened", path, exc_info=error)
    return HeadraceError(f"{path} could not be opened ({error!r}); report this, and restart the node")
