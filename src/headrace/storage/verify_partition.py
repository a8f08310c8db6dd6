"""Verifying one partition: a walk over its segments, on which everything else in its folder is held against them."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Final

from headrace.errors import ProtocolError
from headrace.protocol.batch import TRANSACTIONAL_BIT, Batch, TimestampType
from headrace.protocol.control import read_control
from headrace.protocol.records import records_of
from headrace.storage import names
from headrace.storage.disk import Disk, DiskError, File, FileVanished
from headrace.storage.inventory import PartitionFiles, SegmentFiles
from headrace.storage.names import Fate
from headrace.storage.offset_index import OffsetIndex
from headrace.storage.scan import Damage
from headrace.storage.time_index import TimeIndex
from headrace.storage.transaction_index import TransactionIndex
from headrace.storage.verify_epochs import EpochCheck
from headrace.storage.verify_files import (
    FETCH_ANEW,
    Checkpoints,
    Known,
    check_closed,
    check_identity,
    check_metadata_snapshot,
    check_offsets,
    check_quorum_state,
    check_snapshots,
    tell_unreadable,
)
from headrace.storage.verify_indexes import AnyIndex, IndexFile, OffsetIndexCheck, TimeIndexCheck, TransactionCheck
from headrace.storage.verify_report import Report
from headrace.storage.walk import DECOMPRESSED_BYTES_MAX, Walk

_GROWTHS_MAX: Final = 100
_OLD_FORMATS: Final = (0, 1)


class PartitionCheck:
    """Of one partition."""

    __slots__ = (
        "advanced",
        "deep",
        "disk",
        "epochs",
        "has_gaps",
        "is_cut",
        "is_tail_told",
        "known",
        "missing",
        "next_offset",
        "partition",
        "report",
        "transactions",
    )

    def __init__(
        self,
        disk: Disk,
        partition: PartitionFiles,
        checkpoints: Checkpoints,
        deep: bool,
        advanced: Callable[[int], None] | None,
    ) -> None:
        self.disk = disk
        self.partition = partition
        self.known: Known = checkpoints.known(partition)
        self.deep = deep
        self.advanced = advanced
        self.report = Report(partition.folder)
        self.epochs = EpochCheck(disk, partition, self.known, self.report)
        self.transactions = TransactionCheck(self.report)
        self.next_offset = 0
        self.has_gaps = False
        self.is_cut = False
        """The next start cuts the log where this came to, and what is behind is not worth a word."""
        self.is_tail_told = False
        self.missing: list[tuple[str, int, int]] = []
        """Between two segments: the first one, and the offsets."""

    def run(self) -> Report:
        report, partition = self.report, self.partition
        report.segments = len(partition.segments)
        report.size_bytes = partition.size_bytes
        if partition.segments:
            self.next_offset = partition.segments[0].base_offset
            report.start_offset = max(self.next_offset, self.known.log_start_offset)
        for number, segment in enumerate(partition.segments):
            if not self.is_cut:
                self._segment(number, segment)
            elif self.advanced is not None:
                self.advanced(segment.size_bytes)
        report.end_offset = self.next_offset
        self._tell_missing()
        if partition.segments or partition.name.fate is Fate.CURRENT:
            check_offsets(report, self.known, is_tail_told=self.is_tail_told)
        if self.known.closed is not None:
            check_closed(self.disk, partition, self.known.closed, report)
        self.epochs.finish(self.next_offset)
        check_snapshots(self.disk, partition, self.next_offset, self.known, report)
        check_identity(self.disk, partition, self.known.closed, report)
        check_quorum_state(self.disk, partition, report)
        for name in partition.metadata_snapshots:
            check_metadata_snapshot(self.disk, partition.path(name), report, self.advanced)
        self._tell_strays()
        return report

    # One segment

    def _segment(self, number: int, segment: SegmentFiles) -> None:
        is_last = number + 1 == len(self.partition.segments)
        follower = None if is_last else self.partition.segments[number + 1]
        path = self.partition.path(segment.name())
        # Before the file is opened: what an index says was in the log before it was in the index.
        offsets = OffsetIndexCheck(self._index(OffsetIndex, number, names.INDEX))
        times = TimeIndexCheck(self._index(TimeIndex, number, names.TIME_INDEX))
        aborted = self._index(TransactionIndex, number, names.TXN_INDEX)
        try:
            file = self.disk.open(path, read_only=True)
            try:
                end_position = self._batches(file, segment, path, follower, offsets, times)
            finally:
                file.close()
        except FileVanished:
            self.report.note(path, "it went away while the partition was verified", "")
            return
        except DiskError as error:
            tell_unreadable(self.report, path, error)
            self.is_tail_told = is_last
            return
        offsets.finish(end_position)
        times.finish(self.next_offset)
        self.transactions.finish(aborted)
        if not is_last and not self.is_cut:
            self._between(path, self.partition.segments[number + 1])

    def _index(self, kind: type[AnyIndex], number: int, suffix: str) -> IndexFile[AnyIndex]:
        segments = self.partition.segments
        segment = segments[number]
        # After an unclean stop, a start makes those of the segment with the recovery point and of all later ones anew.
        is_durable = number + 1 < len(segments) and segments[number + 1].base_offset <= self.known.recovery_point
        is_settled = self.known.is_clean or is_durable
        path = self.partition.path(segment.name(suffix))
        is_made_anew = self._is_metadata and number + 1 == len(segments)
        is_needed = segment.size_bytes > 0 and suffix != names.TXN_INDEX and not is_made_anew
        return IndexFile(
            kind, self.disk, path, segment.base_offset, self.report, is_settled=is_settled, is_needed=is_needed
        )

    def _batches(
        self,
        file: File,
        segment: SegmentFiles,
        path: str,
        follower: SegmentFiles | None,
        offsets: OffsetIndexCheck,
        times: TimeIndexCheck,
    ) -> int:
        """Walks a segment; returns where its sound batches end."""
        is_last = follower is None
        self.next_offset = max(self.next_offset, segment.base_offset)
        walk = Walk(file, file.size(), segment.base_offset)
        walk.has_holes = self.partition.has_holes or self.known.cleaned_offset is not None
        walk.end_offset = None if follower is None else follower.base_offset
        for growths_left in range(_GROWTHS_MAX, -1, -1):
            for found in walk(self.advanced):
                if not isinstance(found, Damage):
                    self._batch(path, walk.position, found)
                    offsets.see(walk.position, found)
                    times.see(found)
                    continue
                is_tail = is_last and not found.is_followed
                if is_tail and file.size() > walk.size_bytes and growths_left:
                    break  # a node is writing there: the batch is whole by now
                self.is_tail_told = is_tail
                self._damaged(file, path, found, follower)
                if self.is_cut:
                    return walk.position
                offsets.skip(found)
                times.skip()
            size_bytes = file.size()
            if walk.position >= min(walk.size_bytes, size_bytes):
                break
            if size_bytes == walk.size_bytes or not is_last:
                self._zeros(path, walk, is_last)
                break
            walk = Walk(file, size_bytes, segment.base_offset, walk.position)
        return walk.position

    def _batch(self, path: str, position: int, batch: Batch) -> None:
        report, epochs = self.report, self.epochs
        report.batches += 1
        report.records += batch.record_count
        if batch.base_offset != self.next_offset:
            self.has_gaps = True
        self.next_offset = batch.base_offset + batch.last_offset_delta + 1
        if batch.partition_leader_epoch != epochs.latest or batch.base_offset >= epochs.next_start:
            epochs.see(path, position, batch)
        if batch.record_count != batch.last_offset_delta + 1:
            self._sparse(path, position, batch)
        try:
            if batch.attributes & TRANSACTIONAL_BIT:
                self.transactions.see(batch)
            if self.deep:
                self._inside(path, position, batch)
        except ProtocolError as error:
            report.damage(path, f"the batch with base offset {batch.base_offset}: {error}", FETCH_ANEW, position)

    def _damaged(self, file: File, path: str, damage: Damage, follower: SegmentFiles | None) -> None:
        is_last = follower is None
        what = f"bytes {damage.position} to {damage.end}: {damage.reason}"
        is_tail = damage.is_lost_write or (is_last and not damage.is_followed)
        if is_tail and not self._is_durable(self.next_offset):
            self.is_cut = True
            self.report.note(
                path,
                f"{what}; an unclean stop leaves such a tail, or a node is writing there",
                "Nothing to do: the next start cuts the log there.",
                damage.position,
            )
            return
        magic = file.read(damage.position + 16, 1)
        if magic and magic[0] in _OLD_FORMATS and not damage.is_lost_write:
            what += f" (of message format {magic[0]}, perhaps, which Kafka wrote before 0.11 and nothing here reads)"
        given_up = "the rest of this file"
        if follower is not None and self._is_durable(self.next_offset):
            given_up = f"offsets {self.next_offset} to {follower.base_offset - 1}, which readers then pass over"
        elif follower is not None:
            given_up = f"everything from offset {self.next_offset} on"
        self.report.damage(
            path,
            what,
            f"{FETCH_ANEW} Else give up {given_up}: stop the node, `truncate -s {damage.position} "
            f"{self.disk.full_path(path)}`, remove .kafka_cleanshutdown from the log directory, and start it.",
            damage.position,
        )

    @property
    def _is_metadata(self) -> bool:
        """It is the metadata log: read from the device at every start, and its last segment indexed on the way."""
        return self.partition.name.topic == names.METADATA_TOPIC

    def _is_durable(self, offset: int) -> bool:
        """A crash can't have taken it."""
        return self.known.is_clean or offset < self.known.recovery_point

    def _zeros(self, path: str, walk: Walk, is_last: bool) -> None:
        """Padding, where a node appends; a crash may leave that elsewhere, too."""
        what = f"bytes {walk.position} to {walk.size_bytes} are zeros"
        is_recovered = is_last and self._is_metadata
        if self._is_durable(self.next_offset) and not is_recovered:
            self.report.damage(
                path,
                f"{what}, and the segment should end before them",
                f"Stop the node, `truncate -s {walk.position} {self.disk.full_path(path)}`, remove "
                ".kafka_cleanshutdown from the log directory, and start it.",
                walk.position,
            )
        elif not is_last:
            self.report.note(path, f"{what}: a crash came before they were cut off", "", walk.position)

    def _sparse(self, path: str, position: int, batch: Batch) -> None:
        """Compaction leaves fewer records than offsets; more there can't be."""
        self.has_gaps = True
        if not 0 <= batch.record_count <= batch.last_offset_delta + 1:
            self.report.damage(
                path,
                f"the batch with base offset {batch.base_offset} says that it has {batch.record_count} records in "
                f"{batch.last_offset_delta + 1} offsets",
                FETCH_ANEW,
                position,
            )

    def _inside(self, path: str, position: int, batch: Batch) -> None:
        """The records can be read, and are what the header says."""
        if batch.is_control:
            read_control(batch)
        records = records_of(batch, DECOMPRESSED_BYTES_MAX)
        offsets = records.offsets()
        if any(later <= earlier for earlier, later in pairwise(offsets)) or (
            offsets and not batch.base_offset <= offsets[0] <= offsets[-1] <= batch.last_offset
        ):
            raise ProtocolError(f"its records have offsets that are not in order from {batch.base_offset} on")
        largest = records.timestamp_bounds()[1]
        if offsets and batch.timestamp_type is TimestampType.CREATE_TIME and largest != batch.max_timestamp:
            self.report.note(
                path,
                f"the batch with base offset {batch.base_offset} says that its largest timestamp is "
                f"{batch.max_timestamp}, and it is {largest}: lookups by time may miss it",
                "",
                position,
            )

    # Between segments, and beside them

    def _between(self, path: str, follower: SegmentFiles) -> None:
        if self.next_offset > follower.base_offset:
            self.report.damage(
                path,
                f"it goes up to offset {self.next_offset - 1}, and {follower.name()} begins at {follower.base_offset}",
                FETCH_ANEW,
            )
        elif self.next_offset < follower.base_offset and not self._is_durable(self.next_offset):
            self.is_cut = True
            self.report.note(
                path,
                f"offsets {self.next_offset} to {follower.base_offset - 1} are not there, after an unclean stop",
                "Nothing to do: the next start cuts the log there.",
            )
        elif self.next_offset < follower.base_offset:
            self.missing.append((path, self.next_offset, follower.base_offset))
            self.next_offset = follower.base_offset

    def _tell_missing(self) -> None:
        """Compaction leaves holes, most of them inside segments. A log with holes between segments only lost a file."""
        if self.has_gaps or self.known.cleaned_offset is not None:
            return
        for path, start, end in self.missing:
            self.report.damage(
                path,
                f"offsets {start} to {end - 1} should come next, and are not there: a segment is missing, unless the "
                "topic is compacted",
                FETCH_ANEW,
            )

    def _tell_strays(self) -> None:
        report, partition = self.report, self.partition
        for name in partition.orphans:
            report.note(partition.path(name), "it is an index of no segment", "The next start removes it.")
        for mark, what in _MARKS.items():
            found = [name for name in partition.put_aside if _mark(name) == mark]
            if found:
                more = f", and so do {len(found) - 1} more" if len(found) > 1 else ""
                report.note(partition.path(found[0]), f"it {what}{more}")
        for name in partition.others:
            report.note(
                partition.path(name), "it is nothing that a partition has", "Move it away if nobody needs it here."
            )
        if partition.name.fate in _FATES:
            report.note(partition.folder, _FATES[partition.name.fate])


def _mark(name: str) -> str:
    return next((mark for mark in _MARKS if mark and name.endswith(mark)), "")


_MARKS: Final = {
    names.DELETED: "waits to be removed",
    names.CLEANED: "belongs to the cleaner, which has not finished it",
    names.SWAP: "belongs to the cleaner, and is swapped in at the next start",
    "": "is being written, or left over from a write that was not finished",
}
_FATES: Final = {
    Fate.DELETE: "the partition was deleted, and its files wait to be removed",
    Fate.FUTURE: "it is a copy on its way from another log directory",
    Fate.STRAY: "the node was not meant to have it, and keeps it for you",
}
