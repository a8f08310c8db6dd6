# cython: language_level=3, annotation_typing=False, nonecheck=True
"""One segment: a file of batches, and its indexes.

The indexes of the active segment are held here and grow in memory; those of closed ones come from the cache that all
logs share. The file is opened on demand and may be closed at any time by `Handles`. What is looked up in a segment is
in `lookup`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from contextlib import suppress
from typing import Final

from headrace.protocol.batch import HEADER_SIZE_BYTES, Batch
from headrace.storage import names
from headrace.storage.disk import Bytes, DiskError, File, FileVanished
from headrace.storage.index import IndexDamaged
from headrace.storage.offset_index import OffsetIndex
from headrace.storage.place import Place
from headrace.storage.scan import PAGE_BYTES, LogDamaged, SegmentScan
from headrace.storage.time_check import check_last_entry, read_last_entry
from headrace.storage.time_index import NO_TIMESTAMP, TimeIndex
from headrace.storage.transaction_index import AbortedTransaction, TransactionIndex

logger = logging.getLogger(__name__)

PADDING_BYTES: Final = 64 << 10
GROWTH_BYTES_MAX: Final = PADDING_BYTES // 4
"""Who goes further beyond the padding at once would have little of more of it, and writes twice for that."""

FILE_BYTES_MAX: Final = 2**31 - PAGE_BYTES
"""Of a file that is stretched: what a Kafka can open."""

_NEVER: Final = 2**63 - 1
_ZEROS: Final = bytes(PADDING_BYTES + PAGE_BYTES)


class Segment:
    __slots__ = (
        "_aborted_count",
        "_file",
        "_first_timestamp",
        "_is_later",
        "_max_timestamp",
        "_max_timestamp_offset",
        "_offset_index",
        "_time_index",
        "_transaction_index",
        "_unindexed_bytes",
        "base_offset",
        "created_ms",
        "has_index_files",
        "has_transaction_index",
        "is_cut",
        "is_deleted",
        "modified_ms",
        "padded_end",
        "place",
        "size_bytes",
        "stretched_end",
        "touched",
    )

    def __init__(self, place: Place, base_offset: int, size_bytes: int, modified_ms: int) -> None:
        """A segment whose files are there. It is closed until `activate`."""
        self.place = place
        self.base_offset = base_offset
        self.size_bytes = size_bytes
        self.created_ms = modified_ms
        self.modified_ms = modified_ms
        self.padded_end = size_bytes
        """Where the file ended when it was last padded: with zeros, which batches are written over."""
        self.stretched_end = size_bytes
        """The same, of what nothing was written to."""
        self.touched = False
        self.has_index_files = True
        """The offset or the time index has a file. Without batches it needs none."""
        self.has_transaction_index = False
        self.is_cut = False
        """What a failed write left was cut off: a loss of power may bring it back, until the next sync."""
        self.is_deleted = False
        """Its batches have a name by which no start takes them for a segment."""
        self._file: File | None = None
        self._offset_index: OffsetIndex | None = None
        self._time_index: TimeIndex | None = None
        self._transaction_index: TransactionIndex | None = None
        self._first_timestamp: int | None = None
        self._max_timestamp: int | None = None
        self._max_timestamp_offset = base_offset
        self._unindexed_bytes = 0
        self._aborted_count: int | None = None
        """Of the transaction index, where that is known without a look at it."""
        self._is_later = True
        """The time index may have no entry for the largest timestamp yet."""

    @classmethod
    def create(cls, place: Place, base_offset: int, now_ms: int, preallocate_bytes: int = 0) -> Segment:
        """A new active segment. Whatever is in a file of its name is dropped."""
        segment = cls(place, base_offset, 0, now_ms)
        segment.has_index_files = False
        segment.reset()
        file = segment._open(create=True)
        place.names_changed = True
        if file.size():
            file.truncate(0)
        if preallocate_bytes:
            file.preallocate(preallocate_bytes)
            segment.padded_end = preallocate_bytes
        return segment

    def reset(self) -> None:
        """Makes it active, with empty indexes that the batches are to be taken into."""
        self.forget_indexes()
        self._aborted_count = None
        # `has_transaction_index` stays: its file is still there, and what it says is to be overwritten.
        self._offset_index = OffsetIndex(self.base_offset)
        self._time_index = TimeIndex(self.base_offset)
        self._transaction_index = TransactionIndex(self.base_offset)
        self._first_timestamp = None
        self._max_timestamp, self._max_timestamp_offset = NO_TIMESTAMP, self.base_offset
        self._unindexed_bytes = 0

    # ------------------------------------------------------------------------------------------------- files and names

    @property
    def name(self) -> str:
        return names.segment_name(self.base_offset)

    def path(self, suffix: str = names.LOG) -> str:
        return self.place.path(self.name + suffix)

    def full_path(self, suffix: str = names.LOG) -> str:
        return self.place.disk.full_path(self.path(suffix))

    @property
    def is_open(self) -> bool:
        return self._file is not None

    @property
    def is_active(self) -> bool:
        return self._offset_index is not None

    @property
    def file(self) -> File:
        """The file of batches, open. Who keeps it beyond the call holds it."""
        self.touched = True
        return self._file or self._open()

    def _open(self, *, create: bool = False) -> File:
        self._file = file = self.place.handles.open(self, self.place.disk, self.path(), create=create)
        return file

    def close_file(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            file.close()

    def mark_deleted(self) -> list[str]:
        """Renames the files, so that after a crash nobody takes them for a segment; returns their names.

        The batches go first: indexes without them mean nothing. Readers that hold the file are not disturbed.
        """
        self.forget_indexes()
        marked = []
        for suffix in names.SEGMENT_SUFFIXES:
            if suffix == names.TXN_INDEX and not self.has_transaction_index:
                continue
            try:
                self.place.rename(self.name + suffix, self.name + suffix + names.DELETED)
            except FileVanished:
                continue  # the indexes of an active segment are in memory only
            self.is_deleted = True
            marked.append(self.name + suffix + names.DELETED)
        self.close_file()
        return marked

    # ------------------------------------------------------------------------------------------------------- appending

    def append(self, content: Bytes, batches: Iterable[Batch], index_interval_bytes: int) -> None:
        """Writes batches to the end in one call, and indexes them. When the write raises, nothing has changed here."""
        position = self.size_bytes
        self.size_bytes = position + self.file.write(position, (content,))
        for batch in batches:
            self.index(batch, position, index_interval_bytes)
            position += batch.size_bytes

    def index(self, batch: Batch, position: int, index_interval_bytes: int) -> None:
        """Takes a batch at a position into the indexes of an active segment."""
        timestamp = batch.max_timestamp
        if timestamp > self._max_timestamp:  # type: ignore[operator]  # an active segment knows it
            self._max_timestamp = timestamp
            self._max_timestamp_offset = batch.base_offset + batch.last_offset_delta
            self._is_later = True
        unindexed_bytes = self._unindexed_bytes
        if unindexed_bytes > index_interval_bytes:
            self._offset_index.append(batch.base_offset + batch.last_offset_delta, position)  # type: ignore[union-attr]
            if self._is_later:
                self._time_index.append_if_later(self._max_timestamp, self._max_timestamp_offset)  # type: ignore[union-attr,arg-type]
                self._is_later = False
            unindexed_bytes = 0
        elif not position:
            self._first_timestamp = timestamp
        self._unindexed_bytes = unindexed_bytes + batch.size_bytes

    def add_aborted(self, aborted: AbortedTransaction) -> None:
        assert self._transaction_index is not None
        self._transaction_index.append(aborted)
        self.has_transaction_index = True

    def aborted_count(self) -> int:
        """How many transactions the transaction index has, by its size if nobody had reason to read it."""
        if self._transaction_index is not None:
            return len(self._transaction_index)
        if not self.has_transaction_index:
            return 0
        if self._aborted_count is None:
            try:
                self._aborted_count = (
                    self.place.disk.stat(self.path(names.TXN_INDEX)).size // TransactionIndex.ENTRY_BYTES
                )
            except FileVanished:
                self._aborted_count = 0
        return max(1, self._aborted_count)  # there is one only where something was aborted

    def expect_aborted(self, count: int) -> bool:
        """That many transactions must be in the index of a closed segment. False when the file is missing."""
        is_there = self.has_transaction_index or not count
        self._aborted_count = count
        self.has_transaction_index = self.has_transaction_index or count > 0
        return is_there

    def is_index_full(self, index_bytes_max: int) -> bool:
        """No entry more fits into an active segment's indexes, so that the log rolls."""
        assert self._offset_index is not None
        assert self._time_index is not None
        return self._offset_index.is_full(index_bytes_max) or self._time_index.is_full(index_bytes_max)

    def pad(self) -> None:
        """Lets the file be longer than its batches, if it grows a little at a time, before somebody waits for its sync.

        A sync of what lies within a file's size and blocks is the write of that and a flush of the device; one that
        makes it longer writes its inode or the journal, too. The padding is as much as there is of batches, up to
        `PADDING_BYTES`, and to the end of a page, which is taken anyway. Where a disk is full, this file gets no more.
        """
        position = self.size_bytes
        grown_bytes = position - self.padded_end
        self.padded_end = position
        if grown_bytes > GROWTH_BYTES_MAX or self.place.disk.is_tight:
            return
        self.padded_end = end = (position + min(position, PADDING_BYTES) + PAGE_BYTES - 1) & -PAGE_BYTES
        try:
            self.file.write(position, (_ZEROS[: end - position],))
        except DiskError:
            self.padded_end = _NEVER
            self.stretched_end = position
            with suppress(DiskError):
                self.file.truncate(position)

    def stretch(self, ahead_bytes: int) -> tuple[int, int]:
        """Lets the file end so far behind its batches, and at the end of a page, with nothing written there.

        Returns position and size of what is new. Nothing is where it ends there already, or where the disk is full.
        """
        start = max(self.padded_end, self.stretched_end, self.size_bytes)
        end = min((self.size_bytes + ahead_bytes + PAGE_BYTES - 1) & -PAGE_BYTES, FILE_BYTES_MAX)
        if start >= end or self.place.disk.is_tight:
            return start, 0
        try:
            self.file.truncate(end)
        except DiskError:
            return start, 0
        self.stretched_end = end
        return start, end - start

    def trim(self) -> None:
        """The file ends with its batches: nothing is appended any more."""
        if self.padded_end > self.size_bytes or self.stretched_end > self.size_bytes:
            self.file.truncate(self.size_bytes)
            self.padded_end = self.stretched_end = self.size_bytes

    def cut_back(self) -> None:
        """After a write that raised: what of it is in the file goes."""
        self.is_cut = True
        self.padded_end = self.stretched_end = self.size_bytes
        self.file.truncate(self.size_bytes)

    def cut(self, position: int, offset: int) -> None:
        """Drops everything from the batch at `position` on, which is the first that holds `offset` or more."""
        assert self._offset_index is not None
        assert self._time_index is not None
        assert self._transaction_index is not None
        self.file.truncate(position)
        self.size_bytes = self.padded_end = self.stretched_end = position
        self._offset_index.truncate_to(offset)
        self._time_index.truncate_to(offset)
        self._transaction_index.truncate_to(offset)
        self._max_timestamp, self._max_timestamp_offset = self._time_index.last_entry
        self._is_later = False
        self._unindexed_bytes = 0
        if not position:
            self._first_timestamp = None

    def saw_timestamp(self, timestamp: int, offset: int) -> None:
        """Of a batch that the time index has no entry for."""
        if timestamp > self._max_timestamp:  # type: ignore[operator]
            self._max_timestamp, self._max_timestamp_offset = timestamp, offset
            self._is_later = True

    # ---------------------------------------------------------------------------------------------- active and closed

    def activate(self) -> None:
        """Takes the indexes out of the cache, to append to them."""
        if self.is_active:
            return
        if not self.size_bytes:
            self.reset()  # whatever there is in files of theirs is overwritten
        else:
            transaction_index = self.transaction_index
            offset_index, time_index = self.both_indexes()
            self.forget_indexes()
            self._offset_index, self._time_index, self._transaction_index = offset_index, time_index, transaction_index
            self._max_timestamp, self._max_timestamp_offset = time_index.last_entry

    def deactivate(self, now_ms: int) -> None:
        """Leaves the indexes to the cache, after `persist_indexes`. Touches no file, and so it can't fail."""
        self.modified_ms = now_ms
        for index in (self._offset_index, self._time_index, self._transaction_index):
            if index is not None and len(index):
                self.place.indexes.get((self, type(index)), lambda index=index: index)  # type: ignore[misc]
        self._aborted_count = None if self._transaction_index is None else len(self._transaction_index)
        self._offset_index = self._time_index = self._transaction_index = None

    def persist_indexes(self) -> list[str]:
        """Writes out what the files do not have yet; returns their names.

        The largest timestamp gets an entry of its own: retention and lookups need no more than the last entry.
        """
        assert self._time_index is not None
        self._time_index.append_if_later(self._max_timestamp, self._max_timestamp_offset)  # type: ignore[arg-type]
        aborted = self._transaction_index
        if self.has_transaction_index and aborted is not None and not len(aborted):
            self._remove_transaction_index()  # what it had was cut
        written = []
        self.has_index_files = True
        for suffix, index in (
            (names.INDEX, self._offset_index),
            (names.TIME_INDEX, self._time_index),
            (names.TXN_INDEX, self._transaction_index if self.has_transaction_index else None),
        ):
            if index is not None:
                file = self.place.create(self.name + suffix)
                try:
                    if not index.persisted_entries and file.size():
                        file.truncate(0)  # of an index that was thrown away
                    index.persist(file)
                finally:
                    file.close()
                written.append(self.name + suffix)
        return written

    # --------------------------------------------------------------------------------------------------------- indexes

    @property
    def offset_index(self) -> OffsetIndex:
        held = self._offset_index
        return held if held is not None else self.place.indexes.get((self, OffsetIndex), self._load_offset_index)

    @property
    def time_index(self) -> TimeIndex:
        held = self._time_index
        return held if held is not None else self.place.indexes.get((self, TimeIndex), self._load_time_index)

    def both_indexes(self) -> tuple[OffsetIndex, TimeIndex]:
        """The two that were made together, as lookups by time rely on: to load one may be to rebuild both."""
        _ = self.offset_index
        time_index = self.time_index
        return self.offset_index, time_index

    @property
    def transaction_index(self) -> TransactionIndex:
        """Empty where there is no file. A damaged one raises IndexDamaged: only the log can rebuild it."""
        if self._transaction_index is not None:
            return self._transaction_index
        if not self.has_transaction_index:
            return TransactionIndex(self.base_offset)
        return self.place.indexes.get((self, TransactionIndex), self._load_transaction_index)

    def forget_indexes(self) -> None:
        self._offset_index = self._time_index = self._transaction_index = None
        for kind in (OffsetIndex, TimeIndex, TransactionIndex):
            self.place.indexes.forget((self, kind))

    def _load_offset_index(self) -> OffsetIndex:
        if not self.size_bytes:
            return OffsetIndex(self.base_offset)
        try:
            index = OffsetIndex.load(self.place.disk, self.path(names.INDEX), self.base_offset)
            if len(index) and index[-1][1] >= self.size_bytes:
                raise IndexDamaged(self.full_path(names.INDEX), "goes beyond its segment")
            return index
        except IndexDamaged as damaged:
            logger.warning("%s", damaged)
            self.place.indexes.forget((self, TimeIndex))
            return self._rebuild()[0]

    def _load_time_index(self) -> TimeIndex:
        if not self.size_bytes:
            return TimeIndex(self.base_offset)
        try:
            index = TimeIndex.load(self.place.disk, self.path(names.TIME_INDEX), self.base_offset)
            check_last_entry(self, *index.last_entry)
            return index
        except IndexDamaged as damaged:
            logger.warning("%s", damaged)
            self.place.indexes.forget((self, OffsetIndex))
            return self._rebuild()[1]

    def _load_transaction_index(self) -> TransactionIndex:
        index = TransactionIndex.load(self.place.disk, self.path(names.TXN_INDEX), self.base_offset)
        if not len(index):  # there is one only where something was aborted
            raise IndexDamaged(self.full_path(names.TXN_INDEX), "is empty")
        if self._aborted_count not in (None, len(index)):
            reason = f"has {len(index)} transactions, and should have {self._aborted_count}"
            raise IndexDamaged(self.full_path(names.TXN_INDEX), reason)
        return index

    def _remove_transaction_index(self) -> None:
        self.has_transaction_index = False
        with suppress(FileVanished):
            self.place.remove(self.name + names.TXN_INDEX)

    def rebuild_indexes(self) -> None:
        """Makes the offset and the time index anew from the batches, whatever the files say."""
        was_active = self.is_active
        self.place.indexes.forget((self, OffsetIndex))
        self.place.indexes.forget((self, TimeIndex))
        offset_index, time_index = self._rebuild()
        if was_active:
            self._offset_index, self._time_index = offset_index, time_index

    def distrust(self, damaged: IndexDamaged) -> None:
        """Rebuilds both, because of what was found out about one."""
        logger.warning("%s", damaged)
        self.rebuild_indexes()

    def replace_transaction_index(self, index: TransactionIndex) -> None:
        """Takes one that was made anew from the batches."""
        self.place.indexes.forget((self, TransactionIndex))
        self.has_transaction_index = len(index) > 0
        self._aborted_count = len(index)
        if self.is_active:
            self._transaction_index = index
        if not len(index):
            self._remove_transaction_index()
            return
        file = self.place.create(self.name + names.TXN_INDEX)
        try:
            file.truncate(0)
            index.persist(file)
        finally:
            file.close()

    def _rebuild(self) -> tuple[OffsetIndex, TimeIndex]:
        """Both at once: lookups by time rely on entries of the two that were made together."""
        spare = Segment(self.place, self.base_offset, self.size_bytes, self.modified_ms)
        spare.reset()
        scan = SegmentScan(self.file, self.size_bytes, self.base_offset)
        for batch in scan.batches():
            spare.index(batch, scan.position, self.place.index_interval_bytes)
        if (damage := scan.damage()) is not None:  # an index of its sound part would hide the rest
            raise LogDamaged(self.full_path(), damage.position, damage.end, damage.reason)
        assert spare._offset_index is not None
        assert spare._time_index is not None
        spare.persist_indexes()
        if not self.is_active:
            self._max_timestamp, self._max_timestamp_offset = spare._time_index.last_entry
        return spare._offset_index, spare._time_index

    # ------------------------------------------------------------------------------------------------------ timestamps

    @property
    def max_timestamp(self) -> tuple[int, int]:
        """The largest timestamp and the last offset of its batch; -1 and the base offset when there is none."""
        if self._max_timestamp is None:
            self._max_timestamp, self._max_timestamp_offset = self._read_last_time_entry()
        return self._max_timestamp, self._max_timestamp_offset

    def largest_timestamp(self) -> int:
        """Of its records; of its last change where no record has a timestamp."""
        timestamp = self.max_timestamp[0]
        return timestamp if timestamp >= 0 else self.modified_ms

    def first_timestamp(self) -> int:
        """Of its first batch, from which segment.ms counts; -1 when it has none."""
        if self._first_timestamp is None:
            if not self.size_bytes:
                return NO_TIMESTAMP
            self._first_timestamp = Batch(memoryview(self.file.read(0, HEADER_SIZE_BYTES))).max_timestamp
        return self._first_timestamp

    def _read_last_time_entry(self) -> tuple[int, int]:
        """As the file has it, held against the batches; from the whole index, loaded or rebuilt, when it is not so."""
        if (entry := read_last_entry(self)) is not None:
            try:
                check_last_entry(self, *entry)
                return entry
            except IndexDamaged:
                pass  # found again by who loads it, who warns and rebuilds
        return self.time_index.last_entry

    def __repr__(self) -> str:
        return f"<Segment {self.path()} bytes={self.size_bytes}{' active' if self.is_active else ''}>"
