# cython: language_level=3, annotation_typing=False, nonecheck=True
"""The log of one partition: append, read, look up, truncate, forget.

Everything is a direct call on the thread that owns the disk, and works per batch. Time goes in with each call. What is
appended is durable only after a flush: `flushed_offset` says up to where. The offsets hold

    log_start_offset <= last_stable_offset <= high_watermark <= log_end_offset

and the log ends right after its last batch, or where its only segment begins.

The log alone renames and removes its files. A deleted segment's files get another name at once and are removed later by
`sweep`; a reader in the middle holds its file and finishes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Final

from headrace.config import LogConfig
from headrace.errors import Error, HeadraceError, Refused
from headrace.protocol.batch import Batch
from headrace.storage import closing, fetch, names, truncation
from headrace.storage.aborted_counts import AbortedCounts
from headrace.storage.append import PRODUCE_VERSION, Appended, Prepared, sound_batches
from headrace.storage.disk import Bytes, DiskError, DiskFull, DiskReadOnly, FileVanished
from headrace.storage.epochs import LeaderEpochs
from headrace.storage.flush import Flushed, Unsynced
from headrace.storage.index import RELATIVE_OFFSET_MAX
from headrace.storage.log_options import LogOptions
from headrace.storage.lookup import Stamped
from headrace.storage.offset_index import OffsetIndex
from headrace.storage.partition_folder import remove_files
from headrace.storage.place import Place
from headrace.storage.producer_state import Origin, ProducerState
from headrace.storage.read import Fetched
from headrace.storage.replay import aborted_by, transaction_index
from headrace.storage.reserve import require_room
from headrace.storage.segment import Segment
from headrace.storage.segments import Segments
from headrace.storage.snapshots import Snapshots
from headrace.storage.time_index import TimeIndex
from headrace.storage.transaction_index import AbortedTransaction
from headrace.storage.truncation_point import remove_truncation_point, write_truncation_point

logger = logging.getLogger(__name__)

GAP_MAX: Final = 2**30

_NEVER: Final = 2**63 - 1


class Log:
    """See `recovery.open_log` for how one comes to be."""

    __slots__ = (
        "_config",
        "_doomed",
        "_index_may_fill",
        "_roll_after_ms",
        "_roll_after_timestamp",
        "aborted",
        "checkpointed_recovery_point",
        "clean_offset",
        "epochs",
        "has_holes",
        "high_watermark",
        "last_flush_ms",
        "log_end_offset",
        "log_start_offset",
        "lower_recovery_point",
        "offered_recovery_point",
        "offline",
        "options",
        "partition",
        "place",
        "producers",
        "read_end",
        "rules",
        "segments",
        "snapshots",
        "topic",
        "topic_id",
        "truncation_point",
        "truncations",
        "unflushed_records",
        "unsynced",
    )

    def __init__(
        self,
        place: Place,
        topic: str,
        partition: int,
        topic_id: bytes | None,
        config: LogConfig,
        options: LogOptions,
        *,
        segments: Segments,
        snapshots: Snapshots,
        epochs: LeaderEpochs,
        producers: ProducerState,
        unsynced: Unsynced,
        aborted: AbortedCounts,
        log_start_offset: int,
        log_end_offset: int,
        high_watermark: int,
        lower_recovery_point: Callable[[Log, int, int | None], None] = write_truncation_point,
        now_ms: int,
    ) -> None:
        self.place = place
        self.topic = topic
        self.partition = partition
        self.topic_id = topic_id
        self.segments = segments
        self.epochs = epochs
        self.producers = producers
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_end_offset
        self.high_watermark = min(max(high_watermark, log_start_offset), log_end_offset)
        self.offline: HeadraceError | None = None
        """Why it takes nothing any more; None as long as it does."""
        self.read_end: tuple[int, Segment, int] | None = None
        """Where the last read ended that came to its bound: the offset, the active segment, the position in it."""
        self.unflushed_records = 0
        self.last_flush_ms = now_ms
        self.checkpointed_recovery_point = unsynced.recovery_point
        """From where on a restart would check: what the checkpoint says, unless a truncation lowered it since."""
        self.offered_recovery_point = unsynced.recovery_point
        """The most that the checkpoint may say, whether or not the one that is under way gets there."""
        self.truncation_point: int | None = None
        """What the file of that name says, which a restart does not go beyond, while there is one."""
        self.clean_offset = 0
        """Compaction has been through what is before it, which is never above `checkpointed_recovery_point`."""
        self.has_holes = False
        """It is written down that offsets have jumped."""
        self.truncations = 0
        """How often its end was cut: what was worked out before is not so any more."""
        self.options = options
        self.snapshots = snapshots
        self.unsynced = unsynced
        self.aborted = aborted
        self.lower_recovery_point = lower_recovery_point
        """Writes down a recovery point that is not above an offset, durably, before what is behind that is cut."""
        self._doomed: list[tuple[int, list[str]]] = []
        self._roll_after_timestamp: int | None = None
        self._roll_after_ms = _NEVER
        self.configure(config)
        producers.advance_high_watermark(self.high_watermark)

    @property
    def config(self) -> LogConfig:
        return self._config

    def configure(self, config: LogConfig) -> None:
        """Takes other settings, from the next append on."""
        self._config = config
        self.place.index_interval_bytes = config.index_interval_bytes
        self.rules = self.options.rules_of(config)
        entries = config.segment_index_bytes // max(OffsetIndex.ENTRY_BYTES, TimeIndex.ENTRY_BYTES)
        self._index_may_fill = entries * (config.index_interval_bytes + 1) <= config.segment_bytes
        self._roll_after_timestamp = None

    # -------------------------------------------------------------------------------------------------------- offsets

    @property
    def last_stable_offset(self) -> int:
        """Where a reader of committed records stops."""
        return max(self.producers.last_stable_offset(self.high_watermark), self.log_start_offset)

    @property
    def flushed_offset(self) -> int:
        """Batches before it survive a loss of power."""
        return self.unsynced.point

    @property
    def recovery_point(self) -> int:
        """What may be written down: after an unclean stop, what is behind it is checked."""
        return self.unsynced.recovery_point

    @property
    def size_bytes(self) -> int:
        return self.segments.size_bytes

    def set_high_watermark(self, offset: int) -> int:
        """Within the log: what is asked for beyond its end is its end. Returns what it is now."""
        self.high_watermark = mark = min(max(offset, self.log_start_offset), self.log_end_offset)
        self.producers.advance_high_watermark(mark)
        return mark

    # ------------------------------------------------------------------------------------------------------- appending

    def append_as_leader(
        self,
        records: memoryview,
        leader_epoch: int,
        now_ms: int,
        origin: Origin = Origin.CLIENT,
        *,
        produce_version: int = PRODUCE_VERSION,
        transaction_version: int = 0,
        prepared: Prepared | None = None,
    ) -> Appended:
        """Appends what a client or a coordinator sends: checks it, gives it offsets in place, writes it in one call.

        Raises Refused; then nothing of it is in the log. The buffer must be writable, and is changed. What `rules` have
        prepared of it elsewhere is taken as it is, unless the topic has other settings meanwhile.
        """
        disk = self.place.disk
        if self.offline is not None or disk.offline is not None:
            raise self._refusal()
        if prepared is not None and prepared.rules is self.rules:
            content, batches, now_ms = prepared.content, prepared.batches, prepared.now_ms
        else:
            content, batches = self.rules.admit(records, origin, produce_version, now_ms)
        next_offset = first_offset = self.log_end_offset
        for batch in batches:
            batch.assign(next_offset, leader_epoch)
            next_offset += batch.last_offset_delta + 1
        if batch.producer_id >= 0 or len(batches) > 1:
            duplicate = self.producers.check_all(batches, origin, transaction_version)
            if duplicate is not None:
                return Appended(
                    duplicate.first_offset,
                    duplicate.last_offset,
                    duplicate.timestamp_ms if self.rules.is_append_time else -1,
                    self.log_start_offset,
                    0,
                    is_duplicate=True,
                )
        if disk.is_tight:
            self._require_room(now_ms)
        self._write(content, batches, next_offset, now_ms, transaction_version)
        return Appended(
            first_offset,
            next_offset - 1,
            now_ms if self.rules.is_append_time else -1,
            self.log_start_offset,
            len(content),
        )

    def append_as_follower(self, records: memoryview, leader_epoch: int, now_ms: int) -> Appended | None:
        """Appends what the leader has, with its offsets and epochs. None when there was no whole batch to take.

        Batches of a later epoch than the one that is followed are left (KAFKA-18723): they are of another leader, whose
        history may be another one. So is what is cut at the end. When it raises, some batches may have been taken.
        """
        disk = self.place.disk
        if self.offline is not None or disk.offline is not None:
            raise self._refusal()
        if disk.is_tight:
            self._require_room(now_ms)
        batches = sound_batches(records, partial=True)
        next_offset = self.log_end_offset
        jumps = False
        for number, batch in enumerate(batches):
            if batch.partition_leader_epoch > leader_epoch:
                del batches[number:]
                break
            if batch.base_offset < next_offset or batch.last_offset_delta < 0:
                raise Refused(
                    Error.INVALID_RECORD,
                    f"The leader sent offsets {batch.base_offset} to {batch.last_offset}, and {next_offset} is next.",
                )
            jumps = jumps or batch.base_offset != next_offset
            next_offset = batch.base_offset + batch.last_offset_delta + 1
        if not batches:
            return None
        if jumps and not self.has_holes:
            try:
                self.note_holes()
            except DiskError as error:
                raise Refused(Error.KAFKA_STORAGE_ERROR, str(error)) from error
        start = 0
        for run in self._runs(batches):
            end = run[-1].end
            self._write(records[start:end], run, run[-1].next_offset, now_ms)
            start = end
        return Appended(batches[0].base_offset, next_offset - 1, -1, self.log_start_offset, start)

    def note_holes(self) -> None:
        """Before there is a first one: a restart would take a jump for a flipped bit, which no checksum covers."""
        if not self.has_holes:
            self.place.create(names.HOLES).close()
            self.unsynced.wrote([names.HOLES], with_batches=True)
            self.has_holes = True

    def _runs(self, batches: list[Batch]) -> list[list[Batch]]:
        """Cut so that each fits a segment of its own, in bytes and in offsets."""
        runs: list[list[Batch]] = [[]]
        size_bytes = 0
        for batch in batches:
            run = runs[-1]
            if run and (
                size_bytes + batch.size_bytes > self._config.segment_bytes
                or batch.last_offset - run[0].base_offset > GAP_MAX
            ):
                runs.append(run := [])
                size_bytes = 0
            run.append(batch)
            size_bytes += batch.size_bytes
        return runs

    def _write(
        self, content: Bytes, batches: Sequence[Batch], next_offset: int, now_ms: int, transaction_version: int = 0
    ) -> None:
        segment = self._segment_for(len(content), batches, next_offset - 1, now_ms)
        try:
            segment.append(content, batches, self._config.index_interval_bytes)
        except DiskError as error:
            self._cut_back(segment)
            if self._has_reserve_for(error):
                with self.place.disk.spent_reserve():
                    self._write(content, batches, next_offset, now_ms, transaction_version)
                return
            raise self._write_failed(error, now_ms) from error
        epochs, producers = self.epochs, self.producers
        for batch in batches:
            if batch.partition_leader_epoch != epochs.latest and batch.partition_leader_epoch >= 0:
                epochs.assign(batch.partition_leader_epoch, batch.base_offset)
            if batch.producer_id >= 0:
                completed = producers.apply(batch, transaction_version)
                if completed is not None and (aborted := aborted_by(completed)) is not None:
                    segment.add_aborted(aborted)
        self.unflushed_records += next_offset - self.log_end_offset
        self.log_end_offset = producers.end_offset = next_offset
        if segment.size_bytes >= self.unsynced.write_back_at:
            self.unsynced.write_back(segment)

    def _cut_back(self, segment: Segment) -> None:
        """What is in the file of a failed write goes, and the log is as it was; if that can't be, it is offline."""
        try:
            segment.cut_back()
        except DiskError as error:
            self.go_offline(error)

    def _has_reserve_for(self, error: DiskError) -> bool:
        """Whether to try again, in the room that was kept for it."""
        is_full = isinstance(error, DiskFull) and self.offline is None
        return is_full and self.options.takes_reserve and self.place.disk.has_reserve

    def _require_room(self, now_ms: int) -> None:
        """The disk is tight, or was until now."""
        if not self.options.takes_reserve:
            try:
                require_room(self.place.disk, self.place.folder, now_ms)
            except DiskError as error:
                raise self._write_failed(error, now_ms) from error

    def _write_failed(self, error: DiskError, now_ms: int) -> Refused:
        if not isinstance(error, DiskFull | DiskReadOnly):
            self.go_offline(error)
        self.place.disk.refusals.note(f"{self.topic}-{self.partition} refuses an append", error, now_ms)
        return Refused(Error.KAFKA_STORAGE_ERROR, str(error))

    def go_offline(self, error: HeadraceError) -> None:
        if self.offline is None:
            self.offline = error
            logger.error("%s-%d is offline: %s", self.topic, self.partition, error)

    def require_online(self) -> None:
        if self.offline is not None:
            raise self._refusal()

    def _refusal(self) -> Refused:
        return Refused(Error.KAFKA_STORAGE_ERROR, str(self.offline or self.place.disk.offline))

    # --------------------------------------------------------------------------------------------------------- rolling

    def _segment_for(self, size_bytes: int, batches: Sequence[Batch], last_offset: int, now_ms: int) -> Segment:
        """The active segment, or a new one when this append does not belong into it any more."""
        active = self.segments.active
        if not active.is_active:
            self.activate(active)
        if not active.size_bytes:
            if last_offset - active.base_offset <= RELATIVE_OFFSET_MAX:
                self._roll_after_timestamp = None
                return active
        elif self._roll_after_timestamp is None:
            self._time_roll(active)
        max_timestamp = batches[0].max_timestamp if len(batches) == 1 else max([b.max_timestamp for b in batches])
        if (
            active.size_bytes + size_bytes > self._config.segment_bytes
            or (self._roll_after_timestamp is not None and max_timestamp > self._roll_after_timestamp)
            or now_ms > self._roll_after_ms
            or last_offset - active.base_offset > RELATIVE_OFFSET_MAX
            or (self._index_may_fill and active.is_index_full(self._config.segment_index_bytes))
        ):
            try:
                first_offset, end_offset = batches[0].base_offset, self.log_end_offset
                is_far = first_offset - end_offset > GAP_MAX or last_offset - end_offset > RELATIVE_OFFSET_MAX
                return self.roll(now_ms, first_offset if is_far else end_offset)
            except DiskError as error:
                if self._has_reserve_for(error):
                    with self.place.disk.spent_reserve():
                        return self._segment_for(size_bytes, batches, last_offset, now_ms)
                self.place.disk.refusals.note(f"{self.topic}-{self.partition} can't begin a segment", error, now_ms)
                raise Refused(Error.KAFKA_STORAGE_ERROR, str(error)) from error
        return active

    def activate(self, active: Segment) -> None:
        """Before a segment that was found is written to: its indexes come into memory."""
        transaction_index(self.segments, len(self.segments) - 1, self.snapshots, self.log_end_offset)
        active.activate()

    def _time_roll(self, active: Segment) -> None:
        """segment.ms counts from the first batch by its own timestamps; without those, from the segment's creation."""
        roll_ms = self._config.segment_ms
        if self._config.compact:  # only closed segments are compacted
            roll_ms = min(roll_ms, self._config.max_compaction_lag_ms)
        roll_ms -= min(roll_ms, self.options.jitter_ms(self._config.segment_jitter_ms))
        first_timestamp = active.first_timestamp()
        if first_timestamp >= 0:
            self._roll_after_timestamp, self._roll_after_ms = first_timestamp + roll_ms, _NEVER
        else:
            self._roll_after_timestamp, self._roll_after_ms = _NEVER, active.created_ms + roll_ms

    def roll(self, now_ms: int, base_offset: int | None = None) -> Segment:
        """Closes the active segment and begins one at the end of the log. An empty one stays, if it begins there.

        Segments follow each other without a gap, by which a restart finds a lost end of one out; only where the offsets
        of a compacted topic, replicated, are further apart than `GAP_MAX`, the next one begins with them.
        """
        self.require_online()
        active = self.segments.active
        base_offset = self.log_end_offset if base_offset is None else base_offset
        if base_offset == active.base_offset:
            return active
        if not active.is_active:
            self.activate(active)
        active.trim()
        if active.is_cut:  # nothing looks at the end of a closed one again
            active.file.datasync()
        side_files = active.persist_indexes()
        side_files += self.aborted.note(active.base_offset, active.aborted_count())
        try:
            self.producers.end_offset = base_offset
            side_files.append(self.snapshots.write(self.producers))
            new = self.create_segment(base_offset, now_ms)
        except DiskError:
            self.producers.end_offset = self.log_end_offset
            raise
        # From here on nothing can fail: a new file that stayed would end the log there, to the next start.
        active.deactivate(now_ms)
        self.segments.append(new)
        self.unsynced.closed(active, side_files)
        self._roll_after_timestamp, self._roll_after_ms = None, _NEVER
        logger.debug("%s-%d begins segment %d", self.topic, self.partition, base_offset)
        self._settle()
        return new

    def create_segment(self, base_offset: int, now_ms: int) -> Segment:
        try:
            return Segment.create(self.place, base_offset, now_ms, self._config.preallocated_bytes)
        except DiskError:
            # An empty file must not stay: batches are going to be appended to the segment before it.
            try:
                self.place.remove(names.segment_name(base_offset) + names.LOG)
            except FileVanished:
                pass
            except DiskError as error:
                self.go_offline(error)
            raise

    # -------------------------------------------------------------------------------------------------------- flushing

    def flush(self, flushed: Flushed) -> None:
        """Calls `flushed` when all that was appended so far is durable.

        Raises SyncFailed when the disk is offline, and Refused when the log is: its files may not be what it says.
        """
        self.require_online()
        self.unsynced.flush(self.log_end_offset, flushed)
        self.unflushed_records = 0

    def is_flush_due(self, now_ms: int) -> bool:
        """By flush.messages or flush.ms. With flush.messages=1, an append is acknowledged after its flush."""
        return self.unflushed_records >= self._config.flush_messages or (
            self.unflushed_records > 0 and now_ms - self.last_flush_ms >= self._config.flush_ms
        )

    def offer_recovery_point(self) -> tuple[int, int]:
        """For a checkpoint that is about to be written: the recovery point, and how often the log was cut by now."""
        self.offered_recovery_point = max(self.offered_recovery_point, self.recovery_point)
        return self.recovery_point, self.truncations

    def checkpointed(self, recovery_point: int, truncations: int) -> None:
        """The checkpoint that was taken when the log had been cut `truncations` times is durable."""
        if truncations == self.truncations:
            self.checkpointed_recovery_point = self.offered_recovery_point = recovery_point
            if self.truncation_point is not None:
                remove_truncation_point(self.place)
                self.truncation_point = None

    def _settle(self) -> None:
        try:
            self.unsynced.settle()
        except DiskError as error:
            logger.error("%s-%d can't sync what it has closed: %s", self.topic, self.partition, error)

    # --------------------------------------------------------------------------------------------------------- reading

    def read(self, offset: int, bytes_max: int, offset_max: int, min_one_batch: bool = True) -> Fetched:
        """Batches from the one that holds `offset`, up to `offset_max` (out) and about `bytes_max` bytes."""
        return fetch.read(self, offset, bytes_max, offset_max, min_one_batch)

    def aborted_in(self, start_offset: int, end_offset: int) -> list[AbortedTransaction]:
        """The aborted transactions that have records from `start_offset` (in) to `end_offset` (out)."""
        return fetch.aborted_in(self, start_offset, end_offset)

    def by_timestamp(self, timestamp: int) -> Stamped | None:
        """The first record at or after a time; None when all are before it."""
        return fetch.by_timestamp(self, timestamp)

    def latest(self) -> Stamped | None:
        """The first record with the largest timestamp, which is the first of all in a log without timestamps."""
        return fetch.latest(self)

    # -------------------------------------------------------------------------------------------------- getting shorter

    def truncate_to(self, offset: int, now_ms: int) -> bool:
        """Cuts the log so that it ends at `offset`, or before it when that is in the middle of a batch."""
        return truncation.truncate_to(self, offset, now_ms)

    def truncate_fully(self, offset: int, now_ms: int, log_start_offset: int | None = None) -> None:
        """Drops everything; the log goes on from `offset`."""
        truncation.truncate_fully(self, offset, now_ms, log_start_offset)

    def delete_before(self, offset: int) -> int:
        """Moves the start of the log up to `offset`; -1 means the high watermark. Returns where it starts now."""
        return truncation.delete_before(self, offset)

    def retain(self, now_ms: int) -> int:
        """Deletes the segments that are past retention; returns how many those were."""
        return truncation.retain(self, now_ms)

    def restart_at(self, log_end_offset: int, producers: ProducerState) -> None:
        """After a truncation: the log ends here, and this is what it knows of producers."""
        self.log_end_offset = log_end_offset
        self.producers = producers
        self.read_end = None
        self.unflushed_records = 0
        self._roll_after_timestamp, self._roll_after_ms = None, _NEVER
        self.set_high_watermark(self.high_watermark)

    def discard(self, segment: Segment, now_ms: int) -> None:
        """Gives the files of a segment that is no longer part of the log another name, and removes them in time.

        After a DiskError it is as it was, or the log is offline: what is left of it must not meet a segment to come.
        """
        try:
            marked = segment.mark_deleted() + self.snapshots.mark_deleted(segment.base_offset)
        except DiskError as error:
            if segment.is_deleted:
                self.go_offline(error)
            raise
        self.doom(marked, now_ms)

    def doom(self, file_names: list[str], now_ms: int) -> None:
        self._doomed.append((now_ms + self._config.file_delete_delay_ms, file_names))

    def take_doomed(self, now_ms: int = _NEVER) -> list[str]:
        """The paths of the files whose time has come, all of them without a time: whoever takes them removes them."""
        taken: list[str] = []
        while self._doomed and self._doomed[0][0] <= now_ms:
            taken += [self.place.path(name) for name in self._doomed.pop(0)[1]]
        return taken

    def sweep(self, now_ms: int = _NEVER) -> int:
        """Removes these files on the spot; returns how many those were."""
        return remove_files(self.place.disk, self.take_doomed(now_ms))

    # --------------------------------------------------------------------------------------------------------- closing

    def write_out(self) -> list[str]:
        """Writes what a clean stop leaves in files; returns the names of those that are to be synced."""
        return closing.write_out(self)

    def sync_now(self, file_names: list[str]) -> None:
        """Makes everything durable, on the spot, after `write_out`."""
        closing.sync_now(self, file_names)

    def trim(self) -> None:
        """Cuts off the padding, where nothing is appended any more."""
        self.segments.active.trim()

    def close(self) -> None:
        """Closes the files, without a word about what they hold."""
        for segment in self.segments:
            segment.close_file()
            segment.forget_indexes()

    def __repr__(self) -> str:
        return f"<Log {self.place.folder} offsets={self.log_start_offset}..{self.log_end_offset}>"
