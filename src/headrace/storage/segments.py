"""The segments of a log, in order, and which of them an offset or a time is in. Every search is binary."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import overload

from headrace.storage.segment import Segment


class Segments(Sequence[Segment]):
    """Ascending by base offset; the last one is active. There is always one, once the log is open."""

    __slots__ = ("_bases", "_closed_bytes", "_reach", "_segments", "_transactional")

    def __init__(self, segments: Sequence[Segment] = ()) -> None:
        self._segments: list[Segment] = []
        self._bases: list[int] = []
        self._closed_bytes = 0
        self._reach: list[int] | None = None
        self._transactional: list[int] = []  # bases of closed segments
        self.replace(0, 0, segments)

    @property
    def active(self) -> Segment:
        return self._segments[-1]

    @property
    def size_bytes(self) -> int:
        return self._closed_bytes + self._segments[-1].size_bytes

    def __len__(self) -> int:
        return len(self._segments)

    @overload
    def __getitem__(self, number: int) -> Segment: ...

    @overload
    def __getitem__(self, number: slice) -> list[Segment]: ...

    def __getitem__(self, number: int | slice) -> Segment | list[Segment]:
        return self._segments[number]

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._segments)

    def number_at(self, offset: int) -> int:
        """The number of the segment that an offset falls into; -1 before the first."""
        return bisect_right(self._bases, offset) - 1

    def end_offset(self, number: int, log_end_offset: int) -> int:
        """Where a segment ends: the base of the next, or the end of the log."""
        return self._bases[number + 1] if number + 1 < len(self._bases) else log_end_offset

    def number_reaching(self, timestamp: int) -> int:
        """The number of the first segment that has a record at or after a time; as many as there are when none has."""
        number = bisect_left(self._closed_reach(), timestamp)
        if number == len(self._segments) - 1 and self.active.max_timestamp[0] < timestamp:
            return number + 1
        return number

    def latest(self) -> Segment:
        """The first segment with the largest timestamp of all."""
        largest = max([*self._closed_reach()[-1:], self.active.max_timestamp[0]])
        return self._segments[self.number_reaching(largest)]

    def _closed_reach(self) -> list[int]:
        """The largest timestamp up to each closed segment, which only grows, so that it can be searched.

        Worked out when it is first asked for, from the last entry of each time index, and kept.
        """
        if self._reach is None:
            self._reach = list(accumulate((segment.max_timestamp[0] for segment in self._segments[:-1]), max))
        return self._reach

    def with_transactions(self, start: int) -> Iterator[int]:
        """The numbers, from one on, of the segments in which an aborted transaction ends."""
        if start < len(self._segments):
            for base_offset in self._transactional[bisect_left(self._transactional, self._bases[start]) :]:
                yield self.number_at(base_offset)
            if self.active.has_transaction_index:
                yield len(self._segments) - 1

    def append(self, segment: Segment) -> None:
        """Adds a new active segment; the one before it is closed."""
        if self._segments:
            closed = self._segments[-1]
            self._closed_bytes += closed.size_bytes
            if closed.has_transaction_index:
                self._transactional.append(closed.base_offset)
            if self._reach is not None:
                largest = closed.max_timestamp[0]
                self._reach.append(max(self._reach[-1], largest) if self._reach else largest)
        self._segments.append(segment)
        self._bases.append(segment.base_offset)

    def replace(self, start: int, stop: int, new: Sequence[Segment]) -> list[Segment]:
        """Puts others in the place of the segments from number `start` to `stop`; returns those that went."""
        gone = self._segments[start:stop]
        self._segments[start:stop] = new
        self._bases[start:stop] = [segment.base_offset for segment in new]
        self.recount()
        return gone

    def recount(self) -> None:
        """Works out anew what is known of all closed segments together, after one of them was changed."""
        closed = self._segments[:-1]
        self._closed_bytes = sum(segment.size_bytes for segment in closed)
        self._transactional = [segment.base_offset for segment in closed if segment.has_transaction_index]
        self._reach = None
