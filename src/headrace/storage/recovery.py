"""Opening a log: at once after a clean stop, and after an unclean one by verifying what was not known to be durable.

Verifying begins with the segment that holds the recovery point. Each batch is checked; indexes, leader epochs and
producer state are made anew from them on the way. What a crash leaves at the end is cut, at the first batch that is not
sound. What no crash leaves (see `scan`) is never cut: LogDamaged says where it is, and the partition stays offline.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from headrace.config import LogConfig
from headrace.named_tuple import NamedTuple
from headrace.storage import lookup, names
from headrace.storage.aborted_counts import AbortedCounts
from headrace.storage.checkpoint import CheckpointDamaged
from headrace.storage.closed_logs import ClosedLog
from headrace.storage.epochs import LeaderEpochs
from headrace.storage.flush import SyncsFiles, Unsynced
from headrace.storage.folder import take_stock
from headrace.storage.log import GAP_MAX, Log
from headrace.storage.log_options import LogOptions
from headrace.storage.place import Place
from headrace.storage.producer_state import ProducerState
from headrace.storage.replay import aborted_by, batches_between, producers_at, transaction_index
from headrace.storage.scan import CHUNK_BYTES, LogDamaged, SegmentScan
from headrace.storage.segment import Segment
from headrace.storage.segments import Segments
from headrace.storage.snapshots import Snapshots
from headrace.storage.truncation import limit_recovery_point
from headrace.storage.truncation_point import (
    read_truncation_point,
    remove_truncation_point,
    write_truncation_point,
)

logger = logging.getLogger(__name__)

_NO_END: Final = 2**63 - 1


class Saved(NamedTuple):
    """What the log directory knows of a log from before."""

    is_clean: bool = False
    """The last stop was clean: everything is durable and as it was left."""
    recovery_point: int = 0
    log_start_offset: int = 0
    high_watermark: int = 0
    clean_offset: int = 0
    """Up to where it was compacted."""
    lost_sync: bool = False
    """A sync failed: what is in memory may not be on the device (hazard 8), and small files are written anew."""
    closed: ClosedLog | None = None
    """What the files were when it was last closed."""
    suspect_offset: int | None = None
    """A file is not as it was left: from here on the log is verified, although it was durable."""
    is_written: bool = False
    """What memory had of its files when it was opened was written to the device."""


def open_log(
    place: Place,
    topic: str,
    partition: int,
    config: LogConfig,
    options: LogOptions,
    flusher: SyncsFiles,
    *,
    saved: Saved,
    now_ms: int,
    topic_id: bytes | None = None,
    lower_recovery_point: Callable[[Log, int, int | None], None] = write_truncation_point,
    advanced: Callable[[int], None] | None = None,
) -> Log:
    """Opens the log in a folder that is there, or begins one in it.

    Raises LogDamaged, and DiskError. `advanced` hears how many bytes were verified, as it goes.
    """
    place.index_interval_bytes = config.index_interval_bytes
    stock = take_stock(place, is_clean=saved.is_clean)
    offered_recovery_point = saved.recovery_point
    truncation_point, restart_offset = None, 0
    if stock.has_truncation_point:
        if saved.is_clean:
            remove_truncation_point(place)
        else:
            truncation_point, restart_offset = read_truncation_point(place)
            saved = saved._replace(
                recovery_point=min(saved.recovery_point, truncation_point),
                clean_offset=min(saved.clean_offset, truncation_point),
            )
    snapshots = Snapshots(place, stock.snapshot_offsets)
    segments = Segments(stock.segments)
    without_index: list[Segment] = []
    if saved.closed is not None:
        saved, without_index = _compare(place, segments, saved, saved.closed)
    if not len(segments):
        start_offset = max(saved.log_start_offset, restart_offset)
        segments.append(Segment.create(place, start_offset, now_ms, config.preallocated_bytes))
        snapshots.remove_above(start_offset)
    elif saved.is_clean and not segments.active.size_bytes and saved.recovery_point > segments.active.base_offset:
        logger.warning("%s was emptied after a clean stop; the log is recovered", segments.active.full_path())
        saved = saved._replace(is_clean=False)
    aborted = AbortedCounts(place, is_there=stock.has_aborted_counts)
    recovery = _Recovery(place, segments, snapshots, config, saved, aborted, advanced)
    recovery.may_have_holes = stock.has_holes or config.compact or saved.clean_offset > 0
    producers = recovery.reopen() if saved.is_clean else recovery.recover()
    segments.recount()
    epochs = recovery.epochs
    log_end_offset = producers.end_offset
    log_start_offset = max(saved.log_start_offset, segments[0].base_offset)
    if log_end_offset < log_start_offset:
        logger.warning("%s ends before its start at offset %d; it goes on there, empty", place.folder, log_start_offset)
        recovery.drop(0)
        segments.append(Segment.create(place, log_start_offset, now_ms, config.preallocated_bytes))
        snapshots.remove_above(-1)
        log_end_offset = log_start_offset
        producers = ProducerState(log_start_offset)
    noted = []
    for segment in without_index + recovery.without_index:
        number = segments.number_at(segment.base_offset)
        if number >= 0 and segments[number] is segment:
            transaction_index(segments, number, snapshots, segments.end_offset(number, log_end_offset))
            noted += [segment.name + names.TXN_INDEX, *aborted.note(segment.base_offset, segment.aborted_count())]
    epochs.truncate_from_end(log_end_offset)
    epochs.truncate_from_start(log_start_offset)
    snapshots.keep(segment.base_offset for segment in segments)
    recovery_point = log_end_offset if saved.is_clean else min(saved.recovery_point, log_end_offset)
    unsynced = Unsynced(place, segments, epochs, flusher, recovery_point)
    for segment, side_files in recovery.rebuilt:
        unsynced.closed(segment, [*side_files, *aborted.note(segment.base_offset, segment.aborted_count())])
    unsynced.wrote(noted)
    unsynced.write_back_at += segments.active.size_bytes
    log = Log(
        place,
        topic,
        partition,
        topic_id,
        config,
        options,
        segments=segments,
        snapshots=snapshots,
        epochs=epochs,
        producers=producers,
        unsynced=unsynced,
        aborted=aborted,
        log_start_offset=log_start_offset,
        log_end_offset=log_end_offset,
        high_watermark=saved.high_watermark,
        lower_recovery_point=lower_recovery_point,
        now_ms=now_ms,
    )
    log.offered_recovery_point = offered_recovery_point
    log.truncation_point = truncation_point
    log.has_holes = stock.has_holes
    limit_recovery_point(log, log_end_offset)  # a log may have lost what was durable: somebody cut it
    if saved.clean_offset <= log_end_offset:  # else records that were not compacted will come to be before it
        log.clean_offset = saved.clean_offset
    return log


def _compare(place: Place, segments: Segments, saved: Saved, closed: ClosedLog) -> tuple[Saved, list[Segment]]:
    """Holds the files against what was left of them. Says what to believe, and whose transaction index is missing.

    The end of a log that was cut is its new end, once it is verified. A segment in the middle that was cut is damage,
    or, where it was cut between two batches, a gap that somebody wanted, and is told of. Raises LogDamaged.
    """
    there = {segment.base_offset: segment for segment in segments}
    suspects = []
    without_index = []
    for left in closed.segments:
        segment = there.get(left.base_offset)
        if segment is None:
            if left.size_bytes:
                path = place.full_path(names.segment_name(left.base_offset) + names.LOG)
                reason = f"the file is missing, and had {left.size_bytes} bytes when the log was closed"
                raise LogDamaged(path, 0, left.size_bytes, reason)
        elif segment.size_bytes != left.size_bytes:
            suspects.append(segment)
            logger.warning(
                "%s has %d bytes %s than when the log was closed; the log is verified from there on",
                segment.full_path(),
                abs(segment.size_bytes - left.size_bytes),
                "less" if segment.size_bytes < left.size_bytes else "more",
            )
        elif not segment.expect_aborted(left.aborted):
            without_index.append(segment)
    if suspects:
        recovery_point = saved.recovery_point
        if saved.is_clean and suspects[-1] is segments.active:
            recovery_point = min(recovery_point, segments.active.base_offset)
        suspect_offset = suspects[0].base_offset
        saved = saved._replace(is_clean=False, recovery_point=recovery_point, suspect_offset=suspect_offset)
    return saved, without_index


class _Recovery:
    __slots__ = (
        "aborted",
        "advanced",
        "config",
        "epochs",
        "may_have_holes",
        "place",
        "rebuilt",
        "saved",
        "segments",
        "snapshots",
        "without_index",
    )

    def __init__(
        self,
        place: Place,
        segments: Segments,
        snapshots: Snapshots,
        config: LogConfig,
        saved: Saved,
        aborted: AbortedCounts,
        advanced: Callable[[int], None] | None,
    ) -> None:
        self.place = place
        self.segments = segments
        self.snapshots = snapshots
        self.epochs = LeaderEpochs()
        self.config = config
        self.saved = saved
        self.aborted = aborted
        self.advanced = advanced
        self.may_have_holes = True
        self.rebuilt: list[tuple[Segment, list[str]]] = []
        """Closed segments whose small files were made anew, with the names of those."""
        self.without_index: list[Segment] = []
        """Those whose transaction index is missing."""

    def reopen(self) -> ProducerState:
        """After a clean stop. Returns the producers where the log ends, for which no batch is read.

        Not even the indexes are: the log activates its last segment when it is first appended to.
        """
        self._load_epochs(len(self.segments))
        return producers_at(self.segments, self.snapshots, self._clean_end())

    def _clean_end(self) -> int:
        """By the name of the last snapshot if the checkpoint says the same, else by the last batches."""
        active = self.segments.active
        end_offset = self.saved.recovery_point
        if self.snapshots.latest_offset == end_offset and end_offset >= active.base_offset:
            return end_offset
        if not active.size_bytes:
            return active.base_offset
        if end_offset:
            name = names.segment_name(end_offset) + names.SNAPSHOT
            logger.warning("%s is missing; the end of the log is read from it instead", self.place.full_path(name))
        entry_offset, position = active.offset_index.lookup(_NO_END)
        end_offset = active.base_offset
        for at, batch in lookup.headers(active, position, entry_offset if position else None):
            end_offset = batch.next_offset
            if at + batch.size_bytes > active.size_bytes:
                raise LogDamaged(active.full_path(), at, active.size_bytes, "a record batch is cut")
        return end_offset

    def recover(self) -> ProducerState:
        """After an unclean stop. Returns the producers where the log ends."""
        first_offset = self.saved.recovery_point
        if self.saved.suspect_offset is not None:
            first_offset = min(first_offset, self.saved.suspect_offset)
        number = max(0, self.segments.number_at(first_offset))
        segment = self.segments[number]
        if self.aborted.is_there:
            for earlier in self.segments[:number]:
                count = self.aborted.of(earlier.base_offset)
                if count and not earlier.expect_aborted(count):
                    self.without_index.append(earlier)
        self._load_epochs(number)
        known = None if self.epochs.is_dirty else self.epochs.entries()
        self.epochs.truncate_from_end(segment.base_offset)
        self.snapshots.remove_above(segment.base_offset)
        producers = producers_at(self.segments, self.snapshots, segment.base_offset)
        while True:
            if self.rebuilt or len(producers):
                self.snapshots.write(producers)
            follower = self.segments[number + 1] if number + 1 < len(self.segments) else None
            scan = self._scan(segment, producers, follower)
            producers.end_offset = scan.next_offset
            if self._ends_here(scan, segment, follower):
                break
            assert follower is not None, "a log ends with its last segment"
            producers.end_offset = follower.base_offset
            snapshot = names.segment_name(follower.base_offset) + names.SNAPSHOT
            self.rebuilt.append((segment, [*segment.persist_indexes(), snapshot]))
            segment.deactivate(segment.modified_ms)
            number, segment = number + 1, follower
        if follower is not None:
            self.drop(number + 1)
        self.epochs.is_dirty = self.epochs.entries() != known
        if producers.end_offset < self.saved.recovery_point:
            logger.warning(
                "%s ends at offset %d, although it was durable up to %d: somebody cut it",
                self.place.folder,
                producers.end_offset,
                self.saved.recovery_point,
            )
        return producers

    def _scan(self, segment: Segment, producers: ProducerState, follower: Segment | None) -> SegmentScan:
        """Takes the sound batches of a segment in."""
        segment.reset()
        # From the device and not from memory, which may show what the device never got: a process may die between a
        # sync that fails and the marker that says so, and the kernel tells nobody else (hazard 8).
        file = segment.file
        if segment.size_bytes:
            if not self.saved.is_written:
                file.datasync()
            file.forget_cached()
            segment.size_bytes = file.size()
        is_long = segment.size_bytes > CHUNK_BYTES
        if is_long:
            file.walk(True)
        scan = SegmentScan(file, segment.size_bytes, segment.base_offset)
        scan.has_holes = self.may_have_holes
        scan.end_offset = None if follower is None else follower.base_offset
        interval = self.config.index_interval_bytes
        epochs, index, apply = self.epochs, segment.index, producers.apply
        for batch in scan.batches(self.advanced):
            index(batch, scan.position, interval)
            if batch.partition_leader_epoch > epochs.latest:
                epochs.assign(batch.partition_leader_epoch, batch.base_offset)
            if batch.producer_id >= 0:
                completed = apply(batch)
                if completed is not None and (aborted := aborted_by(completed)) is not None:
                    segment.add_aborted(aborted)
        if is_long:
            file.walk(False)
        return scan

    def _ends_here(self, scan: SegmentScan, segment: Segment, follower: Segment | None) -> bool:
        """Cuts what a crash left, and says whether the log ends with this segment."""
        damage = scan.damage()
        if follower is not None and (scan.next_offset > follower.base_offset or damage is not None):
            follower = self._real_follower(scan, segment, follower)
        is_durable = scan.next_offset < self.saved.recovery_point
        if damage is not None and (
            is_durable or (not damage.is_lost_write and (damage.is_followed or follower is not None))
        ):
            given_up = f"everything from offset {scan.next_offset} on"
            if is_durable and follower is not None:
                given_up = f"offsets {scan.next_offset} to {follower.base_offset - 1}, which readers then pass over,"
            raise LogDamaged(segment.full_path(), damage.position, damage.end, damage.reason, given_up)
        if scan.position < segment.size_bytes:
            if damage is not None:
                logger.warning(
                    "%s is cut at byte %d, offset %d, after an unclean stop: %d bytes go, because %s",
                    segment.full_path(),
                    scan.position,
                    scan.next_offset,
                    segment.size_bytes - scan.position,
                    damage.reason,
                )
            segment.padded_end, segment.size_bytes = segment.size_bytes, scan.position
            if damage is None:  # zeros, which may come back
                segment.trim()
            else:
                segment.cut_back()
                segment.file.datasync()
        if follower is None or damage is not None:
            return True
        # Segments follow each other without a gap (`Log.roll`), and the cleaner stays behind the recovery point. So a
        # gap is the end of a segment that was lost, unless it is wider than those that a roll leaves.
        if not is_durable and 0 < follower.base_offset - scan.next_offset <= GAP_MAX:
            logger.warning(
                "%s ends at offset %d and %s begins later, after an unclean stop: the log is cut there",
                segment.full_path(),
                scan.next_offset,
                follower.full_path(),
            )
            return True
        if scan.next_offset < follower.base_offset and not self.may_have_holes:
            logger.warning(
                "%s ends at offset %d and %s begins later: offsets %d to %d are not there, and readers pass over them",
                segment.full_path(),
                scan.next_offset,
                follower.full_path(),
                scan.next_offset,
                follower.base_offset - 1,
            )
        return False

    def _real_follower(self, scan: SegmentScan, segment: Segment, follower: Segment) -> Segment | None:
        """None for the empty file of a roll that failed: it was removed, a crash took that back, and the log went on.

        A segment with batches at offsets that the one before it has too is left by no crash.
        """
        if scan.next_offset >= follower.base_offset and follower is self.segments.active and not follower.size_bytes:
            return None
        if scan.next_offset > follower.base_offset:
            found = lookup.locate(segment, follower.base_offset)
            raise LogDamaged(
                segment.full_path(),
                scan.position if found is None else found.position,
                segment.size_bytes,
                f"they have offsets from {follower.base_offset} on, with which {follower.full_path()} begins",
            )
        return follower

    def drop(self, start: int) -> None:
        """Removes segments from a number on, the newest first, so that a crash in between leaves no gap."""
        gone = self.segments.replace(start, len(self.segments), [])
        self.rebuilt = [found for found in self.rebuilt if found[0] not in gone]
        for segment in reversed(gone):
            logger.warning("%s is removed after an unclean stop", segment.full_path())
            segment.mark_deleted()
            self.snapshots.mark_deleted(segment.base_offset)
        self.place.disk.sync_directory(self.place.folder)

    def _load_epochs(self, count: int) -> None:
        """Those of the first segments; where the checkpoint does not say them, from the batches."""
        path = self.place.path(names.EPOCHS)
        try:
            self.epochs = LeaderEpochs.load(self.place.disk, path)
            if len(self.epochs) or not any(segment.size_bytes for segment in self.segments[:count]):
                return
            logger.warning("%s is missing or empty; it is made anew from the batches", self.place.disk.full_path(path))
        except CheckpointDamaged as damaged:
            logger.warning("%s", damaged)
        end_offset = self.segments[count].base_offset if count < len(self.segments) else _NO_END
        for _, batch in batches_between(self.segments, self.segments[0].base_offset, end_offset):
            if batch.partition_leader_epoch > self.epochs.latest:
                self.epochs.assign(batch.partition_leader_epoch, batch.base_offset)
        self.epochs.is_dirty = True
