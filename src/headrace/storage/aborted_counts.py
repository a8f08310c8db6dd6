"""The file `headrace-aborted` of a partition: how many aborted transactions the index of each closed segment has.

A segment in which none ends has no `.txnindex`, so one that is gone would not be missed after an unclean stop, and who
reads committed records would be given aborted ones. A line is a base offset and a number, and is added at the roll; of
two with one base offset the later counts. A line of a segment that is no more means nothing. What a loss of power took
off the end was of segments behind the recovery point, whose indexes are made anew. Kafka leaves the file alone.
"""

from __future__ import annotations

from headrace.storage import names
from headrace.storage.disk import TEMPORARY_SUFFIX, FileVanished
from headrace.storage.place import Place

STALE_MAX = 1000
"""Lines that mean nothing, before a clean stop drops them."""


class AbortedCounts:
    __slots__ = ("_counts", "_lines", "_place", "_size_bytes", "is_there")

    def __init__(self, place: Place, *, is_there: bool) -> None:
        """Reads nothing before it is asked."""
        self._place = place
        self.is_there = is_there
        self._counts: dict[int, int] | None = None
        self._lines = 0
        self._size_bytes = 0

    def of(self, base_offset: int) -> int:
        """How many the index of a closed segment has, as far as that is written down."""
        return self._known().get(base_offset, 0)

    def note(self, base_offset: int, count: int) -> list[str]:
        """Writes down how many a segment has that was closed or replaced; returns the name of the file to be synced."""
        if not (self.is_there or count) or count == self._known().get(base_offset, 0):
            return []
        counts, line = self._known(), b"%d %d\n" % (base_offset, count)
        file = self._place.create(names.ABORTED)
        try:
            if file.size() > self._size_bytes:
                file.truncate(self._size_bytes)  # a torn line, to which this one must not be added
            file.write(self._size_bytes, [line])
        finally:
            file.close()
        self.is_there = True
        self._size_bytes += len(line)
        self._lines += 1
        counts[base_offset] = count
        return [names.ABORTED]

    def tidy(self, base_offsets: set[int]) -> list[str]:
        """At a clean stop, where a sync of everything follows: drops what is of no segment, when that is much."""
        if self._counts is None or self._lines <= len(base_offsets) + STALE_MAX:
            return []
        self._counts = {base: count for base, count in self._counts.items() if base in base_offsets and count}
        content = b"".join(b"%d %d\n" % entry for entry in self._counts.items())
        file = self._place.create(names.ABORTED + TEMPORARY_SUFFIX)
        try:
            file.write(0, [content])
            file.truncate(len(content))
        finally:
            file.close()
        self._place.rename(names.ABORTED + TEMPORARY_SUFFIX, names.ABORTED)
        self._lines, self._size_bytes = len(self._counts), len(content)
        return [names.ABORTED]

    def _known(self) -> dict[int, int]:
        if self._counts is None:
            content = b""
            if self.is_there:
                try:
                    content = self._place.disk.read(self._place.path(names.ABORTED))
                except FileVanished:
                    self.is_there = False
            whole = content[: content.rfind(b"\n") + 1]
            self._size_bytes = len(whole)
            lines = [line.split() for line in whole.splitlines()]
            self._lines = len(lines)
            # What is spoilt in the middle is left out: the indexes that are there are not in doubt for it.
            self._counts = {
                int(words[0]): int(words[1])
                for words in lines
                if len(words) == 2 and words[0].isdigit() and words[1].isdigit()
            }
        return self._counts
