# cython: language_level=3, annotation_typing=False, nonecheck=True
"""Times in buckets that double: to observe is an increment at the bit length of the nanoseconds, and no search.

The hot path does it in line (`counts[bits_of(ns)] += 1; sum_ns += ns`): a call would cost more than the work.
"""

from __future__ import annotations

from typing import Final

BITS_MAX: Final = 64
SHOWN_BITS: Final = range(15, 36)
"""The bounds that are told: from 33 µs to 34 s, each twice the one before."""
BOUNDS: Final = tuple(repr((1 << bits) / 1e9) for bits in SHOWN_BITS)


def bits_of(ns: int) -> int:
    """Its bit length. Counted out: compiled, that is a fifth of the work to make an int and ask it."""
    bits = 0
    while ns > 0:
        ns >>= 1
        bits += 1
    return bits


class Histogram:
    """Of nanoseconds. `counts[n]` are those from 2^(n-1) to below 2^n."""

    __slots__ = ("counts", "sum_ns")

    def __init__(self) -> None:
        self.counts = [0] * (BITS_MAX + 1)
        self.sum_ns = 0

    def observe(self, ns: int) -> None:
        self.counts[bits_of(ns)] += 1
        self.sum_ns += ns

    def observe_all(self, sum_ns: int, count: int) -> None:
        """So many, that took so long together."""
        self.counts[bits_of(sum_ns // count)] += count
        self.sum_ns += sum_ns

    @property
    def count(self) -> int:
        return sum(self.counts)

    def cumulative(self) -> list[int]:
        """How many were within each of BOUNDS, and how many there were at all."""
        counts = self.counts
        total = sum(counts[: SHOWN_BITS.start])
        found = []
        for bits in SHOWN_BITS:
            total += counts[bits]
            found.append(total)
        found.append(total + sum(counts[SHOWN_BITS.stop :]))
        return found
