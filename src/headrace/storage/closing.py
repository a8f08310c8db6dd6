"""What a clean stop leaves of a log: files that say what they have to, and all of it durable."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.storage import names
from headrace.storage.disk import FileVanished

if TYPE_CHECKING:
    from headrace.storage.log import Log


def write_out(log: Log) -> list[str]:
    """Returns the names of the files that are to be synced.

    The snapshot at the end of the log is by whose name the next start knows that end without a look at the data.
    A log that never had a record has no such files: a node may have thousands of those.
    """
    log.sweep()
    active = log.segments.active
    is_blank = _is_blank(log)
    if not (active.is_active or log.unsynced.has_epochs) and (
        is_blank or log.snapshots.latest_offset == log.log_end_offset
    ):
        return []  # it is as it was found
    if not active.is_active:
        log.activate(active)
    active.trim()
    written = [active.name + names.LOG]
    if not is_blank:
        written += [*active.persist_indexes(), log.snapshots.write(log.producers)]
    if log.unsynced.has_epochs:
        log.unsynced.write_epochs()
        written.append(names.EPOCHS)
    written += log.aborted.tidy({segment.base_offset for segment in log.segments})
    return written


def _is_blank(log: Log) -> bool:
    """There is nothing in it, nothing to know of producers, and no file that says otherwise."""
    active = log.segments.active
    return (
        not active.size_bytes
        and not active.has_index_files
        and not active.has_transaction_index
        and len(log.segments) == 1
        and not len(log.producers)
        and log.snapshots.latest_offset is None
    )


def sync_now(log: Log, file_names: list[str]) -> None:
    disk = log.place.disk
    for name in dict.fromkeys([*log.unsynced.take_names(), *file_names]):
        try:
            file = disk.open(log.place.path(name))
        except FileVanished:
            continue  # deleted since
        try:
            file.datasync()
        finally:
            file.close()
    disk.sync_directory(log.place.folder)
    disk.sync_directory("")
