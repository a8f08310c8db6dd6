"""What acknowledgements took: all of them, and those of the time in which the machine's host left the processors to us.

The host of a virtual machine takes from 0 to 40% of the processors, for seconds or for parts of one, and nobody's tail
is shorter than that. So the load client tells of each half second by itself, with what was stolen in it. Calm are the
quarter in which least was stolen, and all others in which it was no more. That looks at the host's processors alone,
never at how long anything took, and is the same for all peers. The host's disk has moods, too; nothing tells of them.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from bench.node.load import SLICE_S, Result

CALM_SHARE: Final = 0.25


class Figures(NamedTuple):
    p50_ms: float
    p99_ms: float
    p999_ms: float
    stolen_percent: float


class Slice(NamedTuple):
    stolen_ticks: int
    """In it and in the next: who waited at its end waited there."""
    latencies_us: Sequence[int]


class Acknowledgements:
    """Of one peer in one case, over all rounds."""

    def __init__(self) -> None:
        self._slices: list[Slice] = []

    def add(self, result: Result, seconds: float | None = None) -> None:
        """A round, or only its first seconds. The last slice has no next, and is left out."""
        found = result.slices if seconds is None else result.slices[: int(seconds / SLICE_S)]
        for (stolen, latencies_us), (next_stolen, _) in pairwise(found):
            self._slices.append(Slice(stolen + next_stolen, latencies_us))

    @property
    def calm(self) -> Figures:
        stolen = sorted(one.stolen_ticks for one in self._slices)
        most = stolen[max(1, int(len(stolen) * CALM_SHARE)) - 1]
        return figures_of([one for one in self._slices if one.stolen_ticks <= most])

    @property
    def all(self) -> Figures:
        return figures_of(self._slices)


def figures_of(slices: Sequence[Slice]) -> Figures:
    """Of all their requests together."""
    found = sorted(latency for one in slices for latency in one.latencies_us)
    p50_ms, p99_ms, p999_ms = (found[int((len(found) - 1) * share)] / 1000 for share in (0.5, 0.99, 0.999))
    ticks = 2 * SLICE_S * os.sysconf("SC_CLK_TCK") * (os.cpu_count() or 1) * len(slices)
    return Figures(p50_ms, p99_ms, p999_ms, 100 * sum(one.stolen_ticks for one in slices) / ticks)
