"""The logs of a directory at a start: each is opened by what the last stop left of it.

A log that can't be opened is offline, and the others are not.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import suppress

from headrace.errors import HeadraceError
from headrace.storage import names
from headrace.storage.checkpoint import NOT_CLOSED, TopicPartition, write_offsets
from headrace.storage.disk import Disk, DiskFull, SyncFailed
from headrace.storage.flush import SyncsFiles
from headrace.storage.last_stop import SYNC_FAILED, LastStop
from headrace.storage.log import Log
from headrace.storage.names import Fate
from headrace.storage.opening import make_durable, open_in
from headrace.storage.partition_folder import is_unmade, remove_folder
from headrace.storage.progress import Progress
from headrace.storage.reopening import OfflineLog
from headrace.storage.shared import Shared

logger = logging.getLogger(__name__)


class Loading:
    """Puts each log of one directory to those that are open or to those that are offline, then `settle`s."""

    __slots__ = ("_disk", "_flusher", "_folders", "_has_less", "_logs", "_offline_logs", "_shared", "stop")

    def __init__(
        self,
        disk: Disk,
        shared: Shared,
        flusher: SyncsFiles,
        *,
        logs: dict[TopicPartition, Log],
        offline_logs: dict[TopicPartition, OfflineLog],
    ) -> None:
        """Looks what is there. What was deleted goes, and so does the marker of a clean stop."""
        self._disk = disk
        self._shared = shared
        self._flusher = flusher
        self._logs = logs
        self._offline_logs = offline_logs
        self._folders = list(_folders(disk))
        self.stop = LastStop(disk, has_partitions=bool(self._folders))
        self._has_less = False
        """A log has less than it had at the last stop."""

    def open_all(self, now_ms: int, progress: Progress | None) -> None:
        """Raises SyncFailed: what was verified may not be so."""
        if progress is not None:
            progress.found(len(self._folders))
        advanced = None if progress is None else progress.verified
        # What is verified is read from the device: one sync of all of it, where there is one, and not one of each file.
        is_written = bool(self._folders) and not self.stop.is_clean and self._disk.sync_all()
        for key, folder in self._folders:
            try:
                self._open(key, folder, now_ms, advanced, is_written=is_written)
            finally:
                if progress is not None:
                    progress.opened()

    def _open(
        self,
        key: TopicPartition,
        folder: str,
        now_ms: int,
        advanced: Callable[[int], None] | None,
        *,
        is_written: bool,
    ) -> None:
        disk, stop = self._disk, self.stop
        closed = stop.closed(key)
        saved = stop.saved(key, closed)._replace(is_written=is_written)
        try:
            if closed is None and not stop.knows(key) and is_unmade(disk, folder):
                logger.warning("%s was not finished when it was made, and is removed", disk.full_path(folder))
                remove_folder(disk, folder)
                return
            log = open_in(disk, folder, key, self._shared, self._flusher, saved=saved, now_ms=now_ms, advanced=advanced)
        except SyncFailed:
            raise
        except HeadraceError as error:
            offline = self._offline_logs[key] = OfflineLog(error, saved)
            if offline.is_awaited:
                logger.error("%s-%d is offline as long as this lasts: %s", *key, error)
            else:
                logger.error("%s-%d is offline: %s", *key, error)
        else:
            self._logs[key] = log
            self._has_less = (
                self._has_less
                or log.log_end_offset < saved.recovery_point
                or (closed is not None and log.size_bytes < closed.size_bytes)
            )

    @property
    def clean_broker_epoch(self) -> int | None:
        """Of the last stop, when it was clean and all is there that was then (hazard 3)."""
        was_offline = self.stop.not_closed.keys() - self._offline_logs.keys()
        is_awaited = any(found.is_awaited for found in self._offline_logs.values())
        return None if self._has_less or was_offline or is_awaited else self.stop.broker_epoch

    def settle(self) -> None:
        """Makes durable what was found or made anew, so that no later start has to look for it again. Blocks."""
        stop, logs = self.stop, self._logs
        if stop.lost_sync and self._disk.offline is None:
            # Without room for the names, the marker says it of all of them until there is, or until the next start.
            with suppress(DiskFull):
                self._sync_was_lost()
        unclean = [key for key in logs if not stop.is_clean or key in stop.not_closed]
        due = [key for key, log in logs.items() if log.unsynced.is_due]
        make_durable(self._disk, [logs[key] for key in dict.fromkeys(unclean + due)])

    def _sync_was_lost(self) -> None:
        """What is open was read from the device. What is not is written down, and the marker has done its work."""
        lost = {key: 1 for key, found in self._offline_logs.items() if found.saved.lost_sync}
        if lost:
            write_offsets(self._disk, NOT_CLOSED, {**self.stop.not_closed, **lost})
        self._disk.remove(SYNC_FAILED)


def _folders(disk: Disk) -> Iterator[tuple[TopicPartition, str]]:
    """Those of partitions. What was deleted is removed, and so is a copy that was on its way: it begins anew."""
    are_names_durable = False
    for name in disk.names():
        found = names.parse_folder(name)
        if found is None or found.topic == names.METADATA_TOPIC:
            continue
        if found.fate is Fate.CURRENT:
            yield (found.topic, found.partition), name
        elif found.fate is Fate.STRAY:
            logger.warning("%s belongs to no topic of this node and is left alone", disk.full_path(name))
        else:
            if not are_names_durable:  # as in `Removals`
                disk.sync_directory("")
                are_names_durable = True
            remove_folder(disk, name)
