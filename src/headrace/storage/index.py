"""What the index files of a segment have in common, and the cache that bounds what closed segments' indexes take.

An index lives in memory as arrays: at most 20 bytes for an offset entry and a time entry together, and no object for
an entry. That of an active segment grows in memory and is written out by `persist` (at a roll, a checkpoint, a clean
stop); after an unclean stop the log rebuilds what was not. There is no checksum in Kafka's formats, so loading checks
that every entry follows the one before it, and raises IndexDamaged otherwise: the log rebuilds it with a warning.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable
from functools import lru_cache
from typing import ClassVar, Final, Self, TypeVar

from headrace.errors import HeadraceError
from headrace.storage.disk import Disk, File, FileVanished

RELATIVE_OFFSET_MAX: Final = 2**31 - 1
_OBJECTS_BYTES: Final = 400  # what an index without entries takes


class IndexDamaged(HeadraceError):
    """An index file is missing or can't be right. Nothing is lost: it is rebuilt from its segment."""

    def __init__(self, path: str, reason: str) -> None:
        self.path = path
        self.reason = reason
        super().__init__(f"{path} {reason}; it is rebuilt from its segment")


class Index(ABC):
    """Entries in order, and how many of them the file has."""

    __slots__ = ("_is_cut", "base_offset", "persisted_entries")

    ENTRY_BYTES: ClassVar[int]

    def __init__(self, base_offset: int) -> None:
        self.base_offset = base_offset
        self.persisted_entries = 0
        self._is_cut = False

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def encode(self, start: int = 0) -> bytes:
        """The entries from number `start` on, as they stand in the file."""

    @abstractmethod
    def truncate(self, entries: int) -> None:
        """Drops all but the first `entries`."""

    @abstractmethod
    def _decode(self, content: bytes) -> str | None:
        """Takes the entries of a file; returns what is wrong with them, if anything."""

    @classmethod
    def load(cls, disk: Disk, path: str, base_offset: int) -> Self:
        """Reads an index file and checks it."""
        try:
            content = disk.read(path)
        except FileVanished:
            raise IndexDamaged(disk.full_path(path), "is missing") from None
        if len(content) % cls.ENTRY_BYTES:
            raise IndexDamaged(disk.full_path(path), f"has {len(content)} bytes, which are no whole entries")
        index, wrong = cls.take(content, base_offset)
        if wrong:
            raise IndexDamaged(disk.full_path(path), wrong)
        index.persisted_entries = len(index)
        return index

    @classmethod
    def take(cls, content: bytes, base_offset: int) -> tuple[Self, str | None]:
        """Whole entries as they stand, in order or not, and what is wrong with them: for tools that show them all."""
        index = cls(base_offset)
        return index, index._decode(content)

    def persist(self, file: File) -> None:
        """Writes out what the file does not have yet. As durable as any write: not before a sync."""
        position = self.persisted_entries * self.ENTRY_BYTES
        if self._is_cut:
            file.truncate(position)
            self._is_cut = False
        if len(self) > self.persisted_entries:
            file.write(position, [self.encode(self.persisted_entries)])
            self.persisted_entries = len(self)

    def is_full(self, index_bytes_max: int) -> bool:
        """No entry more fits below segment.index.bytes, so the segment rolls."""
        return (len(self) + 1) * self.ENTRY_BYTES > index_bytes_max

    @property
    def memory_bytes(self) -> int:
        return _OBJECTS_BYTES + len(self) * self.ENTRY_BYTES

    def _cut(self, entries: int) -> None:
        if entries < self.persisted_entries:
            self.persisted_entries = entries
            self._is_cut = True


AnyIndex = TypeVar("AnyIndex", bound=Index)


class IndexCache:
    """The indexes of closed segments, those used last, within a budget of bytes."""

    __slots__ = ("_indexes", "budget_bytes", "hits", "misses", "used_bytes")

    def __init__(self, budget_bytes: int) -> None:
        self.budget_bytes = budget_bytes
        self.used_bytes = 0
        self.hits = 0
        self.misses = 0
        self._indexes: dict[Hashable, Index] = {}

    def get(self, key: Hashable, load: Callable[[], AnyIndex]) -> AnyIndex:
        """The index under `key` (a segment and the kind of index), loaded when it is not here."""
        index = self._indexes.pop(key, None)
        if index is None:
            self.misses += 1
            index = load()
            self._make_room(index.memory_bytes)
            self.used_bytes += index.memory_bytes
        else:
            self.hits += 1
        self._indexes[key] = index
        return index  # type: ignore[return-value]  # a key names one kind of index

    def forget(self, key: Hashable) -> None:
        """For a segment that was replaced, cut or removed."""
        index = self._indexes.pop(key, None)
        if index is not None:
            self.used_bytes -= index.memory_bytes

    def __len__(self) -> int:
        return len(self._indexes)

    def _make_room(self, size_bytes: int) -> None:
        while self._indexes and self.used_bytes + size_bytes > self.budget_bytes:
            self.forget(next(iter(self._indexes)))


_CHUNK_ENTRIES: Final = 1024


def is_ascending(content: bytes, entry_bytes: int, signs: int, steps: int) -> bool:
    """Each entry's fields are at least those of the entry before it, plus what `steps` says, and none is negative.

    An entry is one big-endian number, in which `signs` has the sign bit of every field. With these set, and so nothing
    to borrow from the next field, one subtraction of long integers compares a thousand entries with the ones before
    them: those of a gigabyte take 5 ms, on the loop, where comparing one by one took 30.
    """
    bits = 8 * entry_bytes
    stride = entry_bytes * _CHUNK_ENTRIES
    for start in range(0, len(content), stride):
        chunk = content[start : start + stride + entry_bytes]  # with the first of the next chunk
        count = len(chunk) // entry_bytes - 1
        numbers = int.from_bytes(chunk, "big")
        all_signs, later_signs, all_steps, mask = _repeated(count, bits, signs, steps)
        if numbers & all_signs:
            return False
        difference = (numbers & mask | later_signs) - (numbers >> bits) - all_steps
        if difference & later_signs != later_signs:
            return False
    return True


@lru_cache(maxsize=16)
def _repeated(count: int, bits: int, signs: int, steps: int) -> tuple[int, int, int, int]:
    """For `count` entries after a first one: their signs and its, their own, the steps, and all their bits."""
    ones = sum(1 << bits * entry for entry in range(count))
    return signs * (ones | 1 << bits * count), signs * ones, steps * ones, (1 << bits * count) - 1
