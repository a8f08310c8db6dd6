"""The segment that a cleaning writes: its files have names that end in `.cleaned`, and mean nothing after a crash."""

from __future__ import annotations

from typing import Final

from headrace.errors import HeadraceError
from headrace.protocol.batch import Batch
from headrace.storage import names
from headrace.storage.disk import WRITE_BEHIND_BYTES, Disk
from headrace.storage.handles import Handles
from headrace.storage.index import IndexCache
from headrace.storage.place import Place
from headrace.storage.segment import Segment
from headrace.storage.transaction_index import AbortedTransaction

SIZE_BYTES_MAX: Final = 2**31 - 1


class CleanedPlace(Place):
    """A folder in which every file has the mark behind its name."""

    __slots__ = ()

    def path(self, name: str) -> str:
        return super().path(name) + names.CLEANED


class CleanedSegment:
    """Written from its beginning to its end, then made durable."""

    __slots__ = ("_batches", "_buffer_bytes", "_index_interval_bytes", "_pending", "_segment", "_written_back", "place")

    def __init__(
        self, disk: Disk, folder: str, base_offset: int, *, index_interval_bytes: int, buffer_bytes: int
    ) -> None:
        self.place = CleanedPlace(disk, folder, Handles(1), IndexCache(0))
        self._segment = Segment.create(self.place, base_offset, 0)
        self._index_interval_bytes = index_interval_bytes
        self._buffer_bytes = buffer_bytes
        self._pending = bytearray()
        self._batches: list[Batch] = []
        self._written_back = 0

    @property
    def size_bytes(self) -> int:
        return self._segment.size_bytes + len(self._pending)

    @property
    def has_transaction_index(self) -> bool:
        return self._segment.has_transaction_index

    def append(self, batch: Batch) -> None:
        """Its bytes are copied, so that its buffer may change."""
        self._pending += batch.view
        self._batches.append(batch)
        if len(self._pending) >= self._buffer_bytes:
            self._write()

    def add_aborted(self, aborted: AbortedTransaction) -> None:
        self._segment.add_aborted(aborted)

    def finish(self, modified_ms: int) -> None:
        """Makes all of it durable, with its names. It gets the age of what it replaces, by which retention goes."""
        self._write()
        disk, place, segment = self.place.disk, self.place, self._segment
        for name in segment.persist_indexes():
            file = disk.open(place.path(name))
            try:
                file.datasync()
            finally:
                file.close()
        segment.file.datasync()
        segment.close_file()
        disk.set_modified_ms(segment.path(), modified_ms)
        disk.sync_directory(place.folder)

    def discard(self) -> None:
        """Removes what was written: it is no different from what is there."""
        self._segment.close_file()
        self.place.disk.remove(self._segment.path())

    def _write(self) -> None:
        if not self._pending:
            return
        segment = self._segment
        if self.size_bytes > SIZE_BYTES_MAX:
            raise HeadraceError(
                f"{segment.full_path()} would grow beyond {SIZE_BYTES_MAX} bytes by the delete horizons of its "
                "tombstones, and no index can say where its end is; lower segment.bytes of the topic."
            )
        segment.append(self._pending, self._batches, self._index_interval_bytes)
        self._pending = bytearray()
        self._batches = []
        if segment.size_bytes - self._written_back >= WRITE_BEHIND_BYTES:
            segment.file.start_writeback(self._written_back, segment.size_bytes - self._written_back)
            self._written_back = segment.size_bytes
