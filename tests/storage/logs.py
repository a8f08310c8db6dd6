"""Logs for the tests, on a disk in memory, synced on the spot; and what a reader gets from them."""

from __future__ import annotations

from typing import Any

from headrace.config import LogConfig
from headrace.protocol.batch import scan
from headrace.protocol.kernel_types import Record
from headrace.protocol.records import records_of
from headrace.storage.disk import Disk
from headrace.storage.flush import DirectFlusher
from headrace.storage.handles import Handles
from headrace.storage.index import IndexCache
from headrace.storage.log import Log
from headrace.storage.log_options import LogOptions
from headrace.storage.place import Place
from headrace.storage.recovery import Saved, open_log
from headrace.testing.disk import FaultyDisk

FOLDER = "t-0"
SMALL = LogConfig(segment_bytes=1000, index_interval_bytes=100, file_delete_delay_ms=0)


def open_at(disk: Disk, config: LogConfig = SMALL, saved: Saved | None = None, **more: Any) -> Log:
    """The log in a folder of the disk, made if it is missing."""
    disk.make_directory(FOLDER)
    place = Place(disk, FOLDER, Handles(100), IndexCache(1 << 20))
    flusher = more.pop("flusher", None) or DirectFlusher(disk)
    options = more.pop("options", None) or LogOptions()
    now_ms = more.pop("now_ms", 0)
    log = open_log(place, "t", 0, config, options, flusher, saved=saved or Saved(), now_ms=now_ms, **more)
    log.unsynced.is_new_folder = True
    return log


def new_log(config: LogConfig = SMALL, **more: Any) -> Log:
    return open_at(FaultyDisk(), config, **more)


def reopened(log: Log, *, clean: bool = True, **saved: Any) -> Log:
    """As the next process finds it, after a clean stop or a crash of the process."""
    if clean:
        log.write_out()
        log.close()
    recovery_point = saved.pop("recovery_point", log.log_end_offset if clean else log.recovery_point)
    disk = log.place.disk
    if isinstance(disk, FaultyDisk):
        disk = disk.restart()
    return open_at(
        disk,
        log.config,
        Saved(clean, recovery_point, log.log_start_offset, log.high_watermark)._replace(**saved),
    )


def records_in(log: Log, start: int | None = None, end: int | None = None, bytes_max: int = 1 << 30) -> list[Record]:
    """What a reader sees, batch by batch, from an offset on."""
    found = []
    offset = log.log_start_offset if start is None else start
    end = log.log_end_offset if end is None else end
    while offset < end:
        content = log.read(offset, bytes_max, end).take()
        if not content:
            break
        for batch in scan(content, partial=True):
            batch.verify()
            if not batch.is_control:
                found += [record for record in records_of(batch, 1 << 20).decode() if offset <= record.offset < end]
            next_offset = batch.next_offset
        offset = next_offset
    return found


def values_in(log: Log, start: int | None = None, end: int | None = None) -> list[tuple[int, bytes | None]]:
    return [(record.offset, record.value) for record in records_in(log, start, end)]
