"""The `.timeindex` file: the largest timestamp so far, and the offset of its record, as the segment grew.

On disk an entry is the timestamp (int64) and the offset relative to the segment's base (int32), big-endian. Timestamps
of records may go back and forth; those of entries only grow, because each is the largest up to its place.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left, bisect_right
from typing import ClassVar, Final

from headrace.storage.index import Index, is_ascending

NO_TIMESTAMP: Final = -1
_SWAPS: Final = sys.byteorder == "little"
_HIGH: Final = 1 if _SWAPS else 0
_SIGNS: Final = 1 << 95 | 1 << 31
_STEPS: Final = 1 << 32
"""Timestamps grow, offsets may stay."""


class TimeIndex(Index):
    __slots__ = ("_offsets", "_timestamps")

    ENTRY_BYTES: ClassVar[int] = 12

    def __init__(self, base_offset: int) -> None:
        super().__init__(base_offset)
        self._timestamps = array("q")
        self._offsets = array("i")

    def append_if_later(self, timestamp_ms: int, offset: int) -> None:
        """Adds an entry when the timestamp is larger than the last one's; the same or an older one says nothing new."""
        if timestamp_ms > self.last_timestamp_ms:
            relative = offset - self.base_offset
            assert not self._offsets or relative >= self._offsets[-1], "offsets of a time index do not go back"
            self._timestamps.append(timestamp_ms)
            self._offsets.append(relative)

    def lookup(self, timestamp_ms: int) -> tuple[int, int]:
        """The last entry at or before a timestamp; no timestamp and the base offset when there is none."""
        found = bisect_right(self._timestamps, timestamp_ms) - 1
        if found < 0:
            return NO_TIMESTAMP, self.base_offset
        return self._timestamps[found], self.base_offset + self._offsets[found]

    @property
    def last_timestamp_ms(self) -> int:
        return self._timestamps[-1] if self._timestamps else NO_TIMESTAMP

    @property
    def last_entry(self) -> tuple[int, int]:
        """No timestamp and the base offset when there is no entry."""
        if not self._timestamps:
            return NO_TIMESTAMP, self.base_offset
        return self._timestamps[-1], self.base_offset + self._offsets[-1]

    def __len__(self) -> int:
        return len(self._timestamps)

    def __getitem__(self, entry: int) -> tuple[int, int]:
        return self._timestamps[entry], self.base_offset + self._offsets[entry]

    def is_full(self, index_bytes_max: int) -> bool:
        """One entry is kept back for the largest timestamp at the roll."""
        return (len(self) + 2) * self.ENTRY_BYTES > index_bytes_max

    def truncate_to(self, offset: int) -> None:
        """Drops the entries at and after an offset."""
        self.truncate(bisect_left(self._offsets, offset - self.base_offset))

    def truncate(self, entries: int) -> None:
        del self._timestamps[entries:]
        del self._offsets[entries:]
        self._cut(entries)

    def encode(self, start: int = 0) -> bytes:
        halves = array("i", self._timestamps[start:].tobytes())
        entries = array("i", bytes(self.ENTRY_BYTES * (len(self) - start)))
        entries[0::3] = halves[_HIGH::2]
        entries[1::3] = halves[1 - _HIGH :: 2]
        entries[2::3] = self._offsets[start:]
        if _SWAPS:
            entries.byteswap()
        return entries.tobytes()

    def _decode(self, content: bytes) -> str | None:
        entries = array("i", content)
        if _SWAPS:
            entries.byteswap()
        halves = array("i", bytes(8 * (len(entries) // 3)))
        halves[_HIGH::2] = entries[0::3]
        halves[1 - _HIGH :: 2] = entries[1::3]
        self._timestamps = array("q", halves.tobytes())
        self._offsets = entries[2::3]
        if entries and (self._offsets[0] < 0 or self._timestamps[0] < 0):
            return "begins before its segment"
        if not is_ascending(content, self.ENTRY_BYTES, _SIGNS, _STEPS):
            return "has entries out of order"
        return None
