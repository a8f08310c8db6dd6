"""The `.txnindex` file: the aborted transactions that end in a segment, in the order of their markers.

An entry is, big-endian: version (int16, 0), producer id, first offset, last offset (that of the marker) and the last
stable offset right after the marker (int64 each). A segment without one has no such file.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from struct import Struct
from typing import ClassVar, Final

from headrace.named_tuple import NamedTuple
from headrace.storage.index import Index

VERSION: Final = 0
_ENTRY: Final = Struct(">hqqqq")
_LAST_OFFSET: Final = Struct(">q")
_LAST_OFFSET_AT: Final = 18


class AbortedTransaction(NamedTuple):
    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class TransactionIndex(Index):
    __slots__ = ("_entries",)

    ENTRY_BYTES: ClassVar[int] = _ENTRY.size

    def __init__(self, base_offset: int) -> None:
        super().__init__(base_offset)
        self._entries = bytearray()

    def append(self, aborted: AbortedTransaction) -> None:
        assert not self._entries or aborted.last_offset > self._last_offset(len(self) - 1), "markers come in order"
        self._entries += _ENTRY.pack(VERSION, *aborted)

    def aborted_in(self, start_offset: int, end_offset: int) -> tuple[list[AbortedTransaction], bool]:
        """The aborted transactions that have records from `start_offset` (in) to `end_offset` (out).

        The second part says that later segments can't add to them: a marker was found after which nothing before
        `end_offset` was undecided.
        """
        found = []
        for entry in range(self._first_ending_at(start_offset), len(self)):
            aborted = self[entry]
            if aborted.first_offset < end_offset:
                found.append(aborted)
            if aborted.last_stable_offset >= end_offset:
                return found, True
        return found, False

    def __len__(self) -> int:
        return len(self._entries) // _ENTRY.size

    def __getitem__(self, entry: int) -> AbortedTransaction:
        return AbortedTransaction(*_ENTRY.unpack_from(self._entries, entry * _ENTRY.size)[1:])

    def __iter__(self) -> Iterator[AbortedTransaction]:
        return map(self.__getitem__, range(len(self)))

    def truncate_to(self, offset: int) -> None:
        """Drops the transactions whose marker is at or after an offset."""
        self.truncate(self._first_ending_at(offset))

    def truncate(self, entries: int) -> None:
        del self._entries[entries * _ENTRY.size :]
        self._cut(entries)

    def encode(self, start: int = 0) -> bytes:
        return bytes(self._entries[start * _ENTRY.size :])

    def _first_ending_at(self, offset: int) -> int:
        return bisect_left(range(len(self)), offset, key=self._last_offset)

    def _last_offset(self, entry: int) -> int:
        last_offset: int = _LAST_OFFSET.unpack_from(self._entries, entry * _ENTRY.size + _LAST_OFFSET_AT)[0]
        return last_offset

    def _decode(self, content: bytes) -> str | None:
        self._entries = bytearray(content)
        last_offset = self.base_offset - 1
        for version, _, first_offset, end, last_stable_offset in _ENTRY.iter_unpack(content):
            if version != VERSION:
                return f"has an entry of version {version}, and only {VERSION} is known"
            if end <= last_offset or not 0 <= first_offset < end or last_stable_offset > end + 1:
                return "has entries that contradict each other"
            last_offset = end
        return None
