"""What acknowledgements took: all of them, and those of the time in which the machine's host left the processors to us.

The host of a virtual machine takes from 0 to 40% of the processors, for seconds or for parts of one, and nobody's tail
is shorter than that. So the load client tells of each half second by itself, with what was stolen in it. Calm are those
in which no more was stolen than in the calmest quarter of each peer, never mind how long anything took. The host can
take only from who wants to run, so that busy half seconds are left out more often than those that wait for the disk.
The host's disk has moods, too, and nothing tells of them.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
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
        """A round, or only its first seconds. The last slice has no next, and is its own."""
        found = result.slices if seconds is None else result.slices[: max(1, int(seconds / SLICE_S))]
        for (stolen, latencies_us), (next_stolen, _) in pairwise([*found, *found[-1:]]):
            self._slices.append(Slice(stolen + next_stolen, latencies_us))

    @property
    def all(self) -> Figures:
        return figures_of(self._slices)

    def calm(self, ticks_max: int) -> Figures:
        return figures_of([one for one in self._slices if one.stolen_ticks <= ticks_max])

    @property
    def calm_ticks(self) -> int:
        """The most that was stolen in one of its calmest quarter."""
        stolen = sorted(one.stolen_ticks for one in self._slices)
        return stolen[max(1, int(len(stolen) * CALM_SHARE)) - 1]


def calm_of(measured: Iterable[Acknowledgements]) -> list[Figures]:
    """Of those that are compared, held to the same: what it takes for each to have a quarter of its slices in it."""
    compared = list(measured)
    ticks_max = max(one.calm_ticks for one in compared)
    return [one.calm(ticks_max) for one in compared]


def figures_of(slices: Sequence[Slice]) -> Figures:
    """Of all their requests together."""
    found = sorted(latency for one in slices for latency in one.latencies_us)
    p50_ms, p99_ms, p999_ms = (found[int((len(found) - 1) * share)] / 1000 for share in (0.5, 0.99, 0.999))
    ticks = 2 * SLICE_S * os.sysconf("SC_CLK_TCK") * (os.cpu_count() or 1) * len(slices)
    return Figures(p50_ms, p99_ms, p999_ms, 100 * sum(one.stolen_ticks for one in slices) / ticks)
