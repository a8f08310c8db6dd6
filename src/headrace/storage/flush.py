# cython: language_level=3, annotation_typing=False, nonecheck=True
"""What of a log is written and not yet durable, and how it gets there.

Two things become durable at their own pace. The batches: a flush syncs the segments that were appended to, and the
names of new files, and `point` moves up; acknowledgements wait for that. What only a restart needs, the indexes and
snapshots of closed segments and the leader epochs: `settle` syncs them after a roll, in the background, and with them
the batches of those segments, so that a log that nobody ever flushes is not verified from its beginning. What may be
written down as the recovery point is the lesser of the two, because a restart looks only at what is behind it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from headrace.storage import names
from headrace.storage.checkpoint import encode_numbers
from headrace.storage.disk import TEMPORARY_SUFFIX, WRITE_BEHIND_BYTES, Disk, DiskError, DiskFull, File, FileVanished
from headrace.storage.epochs import LeaderEpochs
from headrace.storage.place import Place
from headrace.storage.segment import Segment
from headrace.storage.segments import Segments

Flushed = Callable[[DiskError | None], None]
"""Called when it is durable, with None, or when it will not be."""


class SyncsFiles(Protocol):
    """What a log asks of a `Flusher`: groups end in the order in which they began."""

    def sync(self, file: File, waiting: Flushed) -> None: ...

    def sync_names(self, directory: str) -> None: ...

    def hurry(self) -> None: ...

    def sync_owed(self) -> None: ...

    def write_behind(self, file: File, position: int, size: int) -> None: ...

    def ahead_of(self, segment: Segment) -> None: ...


class DirectFlusher:
    """Syncs on the spot: for tools, and for whoever has no loop to keep free."""

    __slots__ = ("_disk",)

    def __init__(self, disk: Disk) -> None:
        self._disk = disk

    def sync(self, file: File, waiting: Flushed) -> None:
        try:
            file.datasync()
        except DiskError as error:
            waiting(error)
        else:
            waiting(None)

    def sync_names(self, directory: str) -> None:
        self._disk.sync_directory(directory)

    def hurry(self) -> None:
        pass

    def sync_owed(self) -> None:
        pass

    def write_behind(self, file: File, position: int, size: int) -> None:
        file.start_writeback(position, size)

    def ahead_of(self, segment: Segment) -> None:
        pass


class Unsynced:
    """The flushes of one log."""

    __slots__ = (
        "_closed",
        "_epochs",
        "_first_files",
        "_flusher",
        "_flushing",
        "_place",
        "_segments",
        "_settling",
        "_side_files",
        "_wants_settling",
        "epochs_on_their_way",
        "is_new_folder",
        "point",
        "settled_point",
        "write_back_at",
    )

    def __init__(
        self, place: Place, segments: Segments, epochs: LeaderEpochs, flusher: SyncsFiles, recovery_point: int
    ) -> None:
        self._place = place
        self._segments = segments
        self._epochs = epochs
        self._flusher = flusher
        self._closed: list[Segment] = []
        self._side_files: dict[str, None] = {}
        self._first_files: list[str] = []
        self._flushing: list[_Flush] = []
        self._settling: _Mark | None = None
        self._wants_settling = False
        self.is_new_folder = False
        self.epochs_on_their_way: list[str] = []
        """The name of their file while it is not yet that of the old ones."""
        self.point = recovery_point
        """Batches before it survive a loss of power."""
        self.settled_point = recovery_point
        """Segments that end before it need no look after an unclean stop."""
        self.write_back_at = WRITE_BEHIND_BYTES
        """At this size of the active segment, the write-back of its last megabyte starts."""

    @property
    def recovery_point(self) -> int:
        """What may be written down: after an unclean stop, what is behind it is checked."""
        return min(self.point, self.settled_point)

    @property
    def is_due(self) -> bool:
        """Something was written or renamed that nobody has asked to be synced."""
        return bool(self._place.names_changed or self._closed or self._side_files or self._first_files)

    @property
    def has_epochs(self) -> bool:
        """The checkpoint of the leader epochs is not what they are, or nobody knows yet."""
        return self._epochs.is_dirty or self._settling is not None

    # ------------------------------------------------------------------------------------------------- what is written

    def closed(self, segment: Segment, side_files: Iterable[str]) -> None:
        """A segment was closed, and its indexes and a snapshot were written."""
        self._closed.append(segment)
        self._side_files |= dict.fromkeys(side_files)
        self.write_back_at = WRITE_BEHIND_BYTES

    def wrote(self, side_files: Iterable[str], *, with_batches: bool = False) -> None:
        """Small files that a restart wants to find; some of them with the first batches."""
        if with_batches:
            self._first_files += side_files
        else:
            self._side_files |= dict.fromkeys(side_files)

    def write_back(self, segment: Segment) -> None:
        """The active segment has reached `write_back_at`."""
        start = self.write_back_at - WRITE_BEHIND_BYTES
        self._flusher.write_behind(segment.file, start, segment.size_bytes - start)
        self.write_back_at = segment.size_bytes + WRITE_BEHIND_BYTES
        self._flusher.ahead_of(segment)

    def truncated(self, offset: int) -> None:
        """What is at and behind an offset is gone: no flush that is under way speaks for what will take its place."""
        active = self._segments.active
        self.point = min(self.point, offset)
        self.settled_point = min(self.settled_point, active.base_offset)
        for flush in self._flushing:
            flush.offset = min(flush.offset, offset)
        if self._settling is not None:
            self._settling.offset = min(self._settling.offset, active.base_offset)
        self._closed = [segment for segment in self._closed if segment.base_offset < active.base_offset]
        self.write_back_at = active.size_bytes + WRITE_BEHIND_BYTES

    def removed(self, gone: Iterable[Segment]) -> None:
        """Segments were deleted, or replaced by others: nobody waits for them any more."""
        lost = set(gone)
        self._closed = [segment for segment in self._closed if segment not in lost]

    def use_epochs(self, epochs: LeaderEpochs) -> None:
        """Others take the place of those known so far."""
        self._epochs = epochs
        epochs.is_dirty = True

    # ----------------------------------------------------------------------------------------------- how it gets there

    def flush(self, end_offset: int, flushed: Flushed) -> None:
        """Calls `flushed` when all batches before `end_offset` are durable. Raises when the disk is offline."""
        flush = _Flush(self, end_offset, flushed)
        active = self._segments.active
        if active.size_bytes > active.padded_end:
            active.pad()
        file = active.file
        self._sync_closed()
        self._flushing.append(flush)
        self._flusher.sync(file, flush)

    def settle(self) -> None:
        """Makes durable what a restart wants to find of the segments before the active one, sooner or later."""
        if self._settling is not None:
            self._wants_settling = True
            return
        self._wants_settling = False
        self._settling = _Mark(self._segments.active.base_offset)
        has_new_epochs = self._epochs.is_dirty
        try:
            self._sync_closed()
            for name in self._side_files:
                self._sync_small(name)
            self._side_files = {}
            if has_new_epochs:
                self._write_epochs(names.EPOCHS + TEMPORARY_SUFFIX)
                self._sync_small(names.EPOCHS + TEMPORARY_SUFFIX, self._take_epochs)
            else:
                self._flusher.sync(self._segments.active.file, self._settled)
        except DiskError:  # what is left of it is tried again at the next roll
            self._settling = None
            self._epochs.is_dirty = self._epochs.is_dirty or has_new_epochs
            raise

    def take_names(self) -> list[str]:
        """All files that are not synced yet, but for the active segment's: somebody else syncs them."""
        found = [segment.name + names.LOG for segment in self._closed] + self._first_files + list(self._side_files)
        self._closed, self._first_files, self._side_files = [], [], {}
        return found

    def _take_epochs(self, error: DiskError | None) -> None:
        """The new epochs are durable beside the old ones, and take their place."""
        if error is None:
            try:
                self._place.rename(names.EPOCHS + TEMPORARY_SUFFIX, names.EPOCHS)
                self._sync_closed()
                self._flusher.sync(self._segments.active.file, self._settled)
                return
            except DiskError as raised:
                error = raised
        self._epochs.is_dirty = True
        self._settled(error)

    def _settled(self, error: DiskError | None) -> None:
        mark, self._settling = self._settling, None
        assert mark is not None, "what is settled was settling"
        if error is not None:
            return  # a failed sync is the flusher's to tell; anything else is tried again at the next roll
        # The closed segments are durable with what belongs to them, whether or not anybody asked for a flush.
        self.settled_point = max(self.settled_point, mark.offset)
        self.point = max(self.point, mark.offset)
        if self._wants_settling:
            self.settle()

    def _sync_closed(self) -> None:
        """With the names: a batch in a file without a name is lost."""
        if self._place.names_changed:
            if self.is_new_folder:
                self._flusher.sync_names(self._place.folder.rpartition("/")[0])
                self.is_new_folder = False
            self._flusher.sync_names(self._place.folder)
            self._place.names_changed = False
        for name in self._first_files:
            self._sync_small(name)
        self._first_files = []
        for segment in self._closed:
            self._flusher.sync(segment.file, _ignore)
        self._closed = []

    def _sync_small(self, name: str, synced: Flushed | None = None) -> None:
        try:
            file = self._place.disk.open(self._place.path(name))
        except FileVanished:
            return  # deleted since
        try:
            self._flusher.sync(file, synced or _ignore)
        finally:
            file.close()

    def write_epochs(self) -> None:
        """For a clean stop, where a sync of the whole disk follows."""
        self._write_epochs(names.EPOCHS + TEMPORARY_SUFFIX)
        self._place.rename(names.EPOCHS + TEMPORARY_SUFFIX, names.EPOCHS)

    # At a start, for who syncs many logs at once

    def put_epochs(self) -> bool:
        """Writes them beside the old ones, if they are others. On a full disk they stay in memory until a roll."""
        if not self._epochs.is_dirty:
            return False
        try:
            self._write_epochs(names.EPOCHS + TEMPORARY_SUFFIX)
        except DiskFull:
            self._epochs.is_dirty = True
            return False
        self.epochs_on_their_way = [names.EPOCHS + TEMPORARY_SUFFIX]
        return True

    def take_epochs(self) -> None:
        """They are durable, and take the place of the old ones."""
        self._place.rename(names.EPOCHS + TEMPORARY_SUFFIX, names.EPOCHS)
        self.epochs_on_their_way = []

    def all_is_durable(self, end_offset: int) -> None:
        """All files and names were synced."""
        self.take_names()
        self._place.names_changed = self.is_new_folder = False
        self.point = end_offset
        if not self._epochs.is_dirty:
            self.settled_point = max(self.settled_point, self._segments.active.base_offset)

    def _write_epochs(self, name: str) -> None:
        file = self._place.create(name)
        try:
            content = encode_numbers(self._epochs.entries())
            file.write(0, [content])
            file.truncate(len(content))
        finally:
            file.close()
        self._epochs.is_dirty = False


class _Mark:
    """How far what is under way will have brought it."""

    __slots__ = ("offset",)

    def __init__(self, offset: int) -> None:
        self.offset = offset


class _Flush:
    """One that is under way, up to an offset, and who is told of its end."""

    __slots__ = ("_flushed", "_unsynced", "offset")

    def __init__(self, unsynced: Unsynced, offset: int, flushed: Flushed) -> None:
        self._unsynced = unsynced
        self.offset = offset
        self._flushed = flushed

    def __call__(self, error: DiskError | None) -> None:
        unsynced = self._unsynced
        unsynced._flushing.remove(self)
        if error is None and self.offset > unsynced.point:
            unsynced.point = self.offset
        self._flushed(error)


def _ignore(error: DiskError | None) -> None:
    """The last wait of the same group hears it."""
