"""The content of single files, piece by piece, for who wants to look at it. Nothing is held but the current piece."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from headrace.errors import ProtocolError
from headrace.protocol.batch import HEADER_SIZE_BYTES, Batch
from headrace.storage import names
from headrace.storage.disk import Disk, File
from headrace.storage.index import Index, IndexDamaged
from headrace.storage.inventory import FileKind, NamedFile
from headrace.storage.offset_index import OffsetIndex
from headrace.storage.time_index import TimeIndex
from headrace.storage.transaction_index import TransactionIndex
from headrace.storage.walk import Walk, first_base_offset

CHUNK_BYTES: Final = 1 << 18
INDEX_KINDS: Final[dict[FileKind, type[Index]]] = {
    FileKind.OFFSET_INDEX: OffsetIndex,
    FileKind.TIME_INDEX: TimeIndex,
    FileKind.TRANSACTION_INDEX: TransactionIndex,
}


def walk_from(disk: Disk, path: str, file: File, named: NamedFile, offset: int) -> Walk:
    """A walk over the batches of a file that begins at an offset, or before it: an index beside the file is used."""
    base_offset = first_base_offset(file) if named.base_offset is None else named.base_offset
    size_bytes = file.size()
    position = 0
    if offset > base_offset and named.kind is FileKind.BATCHES:
        index_path = path.removesuffix(named.mark).removesuffix(names.LOG) + names.INDEX + named.mark
        position = _indexed_position(disk, index_path, base_offset, offset)
        if position and not _is_batch(file, position, size_bytes, offset):
            position = 0
    return Walk(file, size_bytes, base_offset, position)


def _indexed_position(disk: Disk, path: str, base_offset: int, offset: int) -> int:
    try:
        return OffsetIndex.load(disk, path, base_offset).lookup(offset)[1]
    except IndexDamaged:
        return 0


def _is_batch(file: File, position: int, size_bytes: int, offset: int) -> bool:
    """An index is not to be trusted."""
    try:
        header = Batch(memoryview(file.read(position, HEADER_SIZE_BYTES)))
    except ProtocolError:
        return False
    return header.base_offset <= offset and position + header.size_bytes <= size_bytes


class IndexEntries:
    """The entries of an index file as they stand. `rest` says, at last, what lies behind them."""

    __slots__ = ("_file", "_kind", "base_offset", "rest")

    def __init__(self, file: File, kind: type[Index], base_offset: int) -> None:
        self._file = file
        self._kind = kind
        self.base_offset = base_offset
        self.rest = ""

    def __iter__(self) -> Iterator[tuple[int, Any]]:
        """Each with its position in the file."""
        entry_bytes = self._kind.ENTRY_BYTES
        size_bytes = self._file.size()
        used = -(-_used_bytes(self._file, size_bytes) // entry_bytes) * entry_bytes
        end = min(used, size_bytes - size_bytes % entry_bytes)
        position = 0
        while position < end:
            step = min(end - position, CHUNK_BYTES // entry_bytes * entry_bytes)
            index, _ = self._kind.take(self._file.read(position, step), self.base_offset)
            for entry in range(len(index)):
                yield position + entry * entry_bytes, index[entry]  # type: ignore[index]
            position += step
        if size_bytes % entry_bytes and used > end:
            self.rest = f"bytes {end} to {size_bytes} are no whole entry"
        elif end < size_bytes:
            self.rest = f"bytes {end} to {size_bytes} are zeros, reserved for entries to come"


def _used_bytes(file: File, size_bytes: int) -> int:
    """Up to the last byte that is not zero: Kafka reserves the whole size of an active segment's index."""
    end = size_bytes
    while end:
        start = max(0, end - CHUNK_BYTES)
        used = len(file.read(start, end - start).rstrip(b"\0"))
        if used:
            return start + used
        end = start
    return 0
