# cython: language_level=3, annotation_typing=False, nonecheck=True
"""The `.index` file: about every index.interval.bytes, an offset and the position of its batch in the segment.

On disk an entry is the offset relative to the segment's base (int32) and the position (int32), big-endian. The offset
is the last one of what was appended, the position where that begins: a reader starts at the position and walks.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left, bisect_right
from typing import ClassVar, Final

from headrace.storage.index import Index, is_ascending

_SWAPS: Final = sys.byteorder == "little"
_SIGNS: Final = 1 << 63 | 1 << 31
_STEPS: Final = 1 << 32 | 1
"""Offsets and positions both grow."""


class OffsetIndex(Index):
    __slots__ = ("_offsets", "_positions")

    ENTRY_BYTES: ClassVar[int] = 8

    def __init__(self, base_offset: int) -> None:
        super().__init__(base_offset)
        self._offsets = array("i")
        self._positions = array("i")

    def append(self, offset: int, position: int) -> None:
        """Offsets and positions only grow; the caller rolls the segment before they no longer fit."""
        relative = offset - self.base_offset
        assert not self._offsets or relative > self._offsets[-1], "offsets of an index increase"
        self._offsets.append(relative)
        self._positions.append(position)

    def lookup(self, offset: int) -> tuple[int, int]:
        """The last entry at or before an offset, and its position; the start of the segment when there is none."""
        # An offset beyond what four bytes hold compares like any other: bisect takes any integer.
        found = bisect_right(self._offsets, offset - self.base_offset) - 1
        if found < 0:
            return self.base_offset, 0
        return self.base_offset + self._offsets[found], self._positions[found]

    def first_from(self, offset: int) -> tuple[int, int] | None:
        """The first entry at or after an offset, and its position; None when there is none."""
        found = bisect_left(self._offsets, offset - self.base_offset)
        return (self.base_offset + self._offsets[found], self._positions[found]) if found < len(self._offsets) else None

    def last_up_to(self, position: int) -> int:
        """The number of the last entry at or before a position; -1 when there is none."""
        return bisect_right(self._positions, position) - 1

    @property
    def last_offset(self) -> int:
        """The base offset when there is no entry."""
        return self.base_offset + self._offsets[-1] if self._offsets else self.base_offset

    def __len__(self) -> int:
        return len(self._offsets)

    def __getitem__(self, entry: int) -> tuple[int, int]:
        return self.base_offset + self._offsets[entry], self._positions[entry]

    def truncate_to(self, offset: int) -> None:
        """Drops the entries at and after an offset."""
        self.truncate(bisect_left(self._offsets, offset - self.base_offset))

    def truncate(self, entries: int) -> None:
        del self._offsets[entries:]
        del self._positions[entries:]
        self._cut(entries)

    def encode(self, start: int = 0) -> bytes:
        entries = array("i", bytes(self.ENTRY_BYTES * (len(self) - start)))
        entries[0::2] = self._offsets[start:]
        entries[1::2] = self._positions[start:]
        if _SWAPS:
            entries.byteswap()
        return entries.tobytes()

    def _decode(self, content: bytes) -> str | None:
        entries = array("i", content)
        if _SWAPS:
            entries.byteswap()
        self._offsets = entries[0::2]
        self._positions = entries[1::2]
        if entries and (self._offsets[0] < 0 or self._positions[0] < 0):
            return "begins before its segment"
        if not is_ascending(content, self.ENTRY_BYTES, _SIGNS, _STEPS):
            return "has entries out of order"
        return None
