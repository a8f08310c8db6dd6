"""Making a log shorter: from its end (another leader wrote something else), from its start (retention), or all."""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from headrace.config import LogConfig
from headrace.errors import Error, HeadraceError, Refused
from headrace.storage import lookup
from headrace.storage.disk import DiskFull
from headrace.storage.producer_state import ProducerState
from headrace.storage.replay import producers_at, transaction_index
from headrace.storage.retention import Expired, expired
from headrace.storage.scan import LogDamaged
from headrace.storage.segment import Segment
from headrace.storage.time_check import confirm_last_entry

if TYPE_CHECKING:
    from headrace.storage.log import Log

logger = logging.getLogger(__name__)


def truncate_to(log: Log, offset: int, now_ms: int) -> bool:
    """Cuts the log so that it ends at `offset`, or before it when that is in the middle of a batch or in a gap.

    True when there was something to cut. After a change of leader the offset comes from leader epochs, never from the
    high watermark (hazard 1).
    """
    assert offset >= 0, "offsets are not negative"
    log.require_online()
    if offset >= log.log_end_offset:
        # A leader that appended nothing has left an epoch without records.
        log.epochs.truncate_from_end(log.log_end_offset)
        return False
    if offset < log.segments[0].base_offset:
        truncate_fully(log, offset, now_ms)
        return True
    number = log.segments.number_at(offset)
    segment = log.segments[number]
    found = lookup.locate(segment, offset)
    position = segment.size_bytes if found is None else found.position
    end_offset = _end_before(segment, position)
    transaction_index(log.segments, number, log.snapshots, log.segments.end_offset(number, log.log_end_offset))
    logger.info("%s-%d is truncated from offset %d to %d", log.topic, log.partition, log.log_end_offset, end_offset)
    # To the start of the segment, whose indexes in files are those of before the cut, and must be made again.
    _lower_recovery_point(log, segment.base_offset)
    with _all_or_offline(log, segment.base_offset):
        # The newest go first: a crash in between leaves no gap.
        gone = log.segments.replace(number + 1, len(log.segments), [])
        for later in reversed(gone):
            log.discard(later, now_ms)
        segment.activate()
        segment.cut(position, end_offset)
        _sync(log, segment)
        for _, batch in lookup.headers(segment, segment.offset_index[-1][1] if len(segment.offset_index) else 0):
            segment.saw_timestamp(batch.max_timestamp, batch.last_offset)
        log.snapshots.remove_above(end_offset)
        log.epochs.truncate_from_end(end_offset)
        log.unsynced.removed(gone)
        log.unsynced.truncated(end_offset)
        log.log_start_offset = min(log.log_start_offset, end_offset)
        log.restart_at(end_offset, producers_at(log.segments, log.snapshots, end_offset))
    return True


@contextmanager
def _all_or_offline(log: Log, recovery_point: int) -> Iterator[None]:
    """An error in the middle leaves neither the old log nor the new one. The next start makes one of what is there."""
    try:
        yield
    except HeadraceError as error:
        log.unsynced.truncated(recovery_point)  # no checkpoint may say more from now on
        log.go_offline(error)
        raise


def _end_before(segment: Segment, position: int) -> int:
    """Where the batches before a position end: there may be a gap behind them, which compaction left."""
    index = segment.offset_index
    entry = bisect_left(range(len(index)), position, key=lambda entry: index[entry][1]) - 1
    entry_offset, start = index[entry] if entry >= 0 else (segment.base_offset, 0)
    end_offset = segment.base_offset
    for at, batch in lookup.headers(segment, start, entry_offset if start else None):
        if at >= position:
            break
        end_offset = batch.next_offset
    return end_offset


def truncate_fully(log: Log, offset: int, now_ms: int, log_start_offset: int | None = None) -> None:
    """Drops everything; the log goes on from `offset`, as a follower's whose leader no longer has what comes next."""
    log.require_online()
    if log.size_bytes:
        logger.info("%s drops all it has and goes on from offset %d", log.place.folder, offset)
    _lower_recovery_point(log, offset)
    # After a crash that leaves no segment, it must not begin where the checkpoint says: what follows is at `offset`.
    recovery_point = offset if log.truncation_point is None else min(offset, log.truncation_point)
    log.lower_recovery_point(log, recovery_point, offset)
    log.truncation_point = recovery_point
    with _all_or_offline(log, min(offset, log.segments[0].base_offset)):
        for segment in reversed(log.segments):
            log.discard(segment, now_ms)
        log.snapshots.remove_above(-1)
        # A log has a segment at all times, also one that this fails for.
        gone = log.segments.replace(0, len(log.segments), [log.create_segment(offset, now_ms)])
        _sync(log, log.segments.active)
        log.epochs.clear()
        log.unsynced.removed(gone)
        log.unsynced.truncated(offset)
        log.log_start_offset = offset if log_start_offset is None else log_start_offset
        log.restart_at(offset, ProducerState(offset))


def delete_before(log: Log, offset: int) -> int:
    """Moves the start of the log up to `offset`, as DeleteRecords asks; -1 means the high watermark.

    Whole segments below it go at the next `retain`. Returns where the log starts now.
    """
    if offset == -1:
        offset = log.high_watermark
    if offset > log.high_watermark:
        raise Refused(
            Error.OFFSET_OUT_OF_RANGE,
            f"{log.topic}-{log.partition} can't start at {offset}: its high watermark is {log.high_watermark}.",
        )
    if offset > log.log_start_offset:
        log.log_start_offset = offset
        log.epochs.truncate_from_start(offset)
        log.producers.advance_log_start(offset)
    return log.log_start_offset


def retain(log: Log, now_ms: int) -> int:
    """Deletes the segments that are past retention; returns how many those were."""
    log.require_online()
    try:
        found = _expired(log, log.config, now_ms)
        # What can't be undone is not done on the word of one entry of an index.
        while not all(confirm_last_entry(segment) for segment in _by_time(log, found)):
            log.segments.recount()
            found = _expired(log, log.config, now_ms)
    except LogDamaged as damaged:
        logger.error("%s-%d deletes no segment for its age: %s", log.topic, log.partition, damaged)
        found = _expired(log, log.config.replace(retention_ms=-1), now_ms)
    if not found.segments:
        return 0
    count = found.segments
    if count == len(log.segments):
        try:
            log.place.disk.with_reserve(lambda: log.roll(now_ms))
        except DiskFull:
            if count == 1:
                raise
            count -= 1  # those before it make the room for that: it goes next time
    gone: list[Segment] = []
    try:
        for segment in log.segments[:count]:
            logger.info("%s-%d deletes %s: %s", log.topic, log.partition, segment.path(), found.reason)
            log.discard(segment, now_ms)
            gone.append(segment)
    finally:
        # The log starts behind what is out of the way, and no further: an error must not bring back what was given up.
        log.segments.replace(0, len(gone), [])
        log.unsynced.removed(gone)
        if (start := log.segments[0].base_offset) > log.log_start_offset:
            delete_before(log, start)
    return len(gone)


def _expired(log: Log, config: LogConfig, now_ms: int) -> Expired:
    return expired(
        log.segments,
        size_bytes=log.segments.size_bytes,
        log_start_offset=log.log_start_offset,
        high_watermark=log.high_watermark,
        log_end_offset=log.log_end_offset,
        config=config,
        now_ms=now_ms,
    )


def _by_time(log: Log, found: Expired) -> list[Segment]:
    return log.segments[found.segments - found.by_time : found.segments]


def _sync(log: Log, active: Segment) -> None:
    """Before anything is appended: what comes back of the old history, behind the new one, would pass for it."""
    log.place.disk.sync_directory(log.place.folder)
    active.file.datasync()


def _lower_recovery_point(log: Log, recovery_point: int) -> None:
    """Before anything is cut: a restart must not take new bytes below the old recovery point for checked ones."""
    log.truncations += 1
    # What comes in its place is dirty, also to the next start, which takes it to be clean at most so far.
    log.clean_offset = min(log.clean_offset, recovery_point)
    limit_recovery_point(log, recovery_point)


def limit_recovery_point(log: Log, recovery_point: int) -> None:
    """Sees to it that a restart takes nothing from this offset on for durable, whatever the checkpoint says."""
    log.checkpointed_recovery_point = min(log.checkpointed_recovery_point, recovery_point)
    found = log.offered_recovery_point
    if log.truncation_point is not None:
        found = min(found, log.truncation_point)
    if recovery_point < found:
        log.lower_recovery_point(log, recovery_point, None)
        log.truncation_point = recovery_point
