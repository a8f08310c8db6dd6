"""Times that were measured: counted in buckets of 2%, so that any number of them takes little memory."""

from __future__ import annotations

import math
from typing import Any, Final

STEP: Final = math.log(1.02)
LEAST_S: Final = 1e-6
PERCENTILES: Final = (50.0, 90.0, 95.0, 99.0, 99.9)
_BOUNDS: Final = tuple(digit * 10.0**power for power in range(-6, 4) for digit in (1, 2, 5))
FULL, SHARES = "█", " ▏▎▍▌▋▊▉"


class Latencies:
    __slots__ = ("_buckets", "count", "max_s", "min_s", "total_s")

    def __init__(self) -> None:
        self._buckets: dict[int, int] = {}
        self.count = 0
        self.total_s = 0.0
        self.max_s = 0.0
        self.min_s = math.inf

    def add(self, seconds: float) -> None:
        number = int(math.log(max(seconds, LEAST_S) / LEAST_S) / STEP)
        self._buckets[number] = self._buckets.get(number, 0) + 1
        self.count += 1
        self.total_s += seconds
        self.max_s = max(self.max_s, seconds)
        self.min_s = min(self.min_s, seconds)

    @property
    def mean_s(self) -> float:
        return self.total_s / self.count if self.count else 0.0

    def percentile_s(self, percent: float) -> float:
        """What so many percent of them did not exceed, to 2%."""
        wanted, seen = math.ceil(self.count * percent / 100), 0
        for number in sorted(self._buckets):
            seen += self._buckets[number]
            if seen >= wanted:
                return min(max(LEAST_S * math.exp((number + 0.5) * STEP), self.min_s), self.max_s)
        return 0.0

    def as_json(self) -> dict[str, Any]:
        """In milliseconds."""
        told = {f"p{percent:g}": round(self.percentile_s(percent) * 1000, 4) for percent in PERCENTILES}
        least = 0.0 if not self.count else self.min_s
        return {
            "count": self.count,
            "mean_ms": round(self.mean_s * 1000, 4),
            "min_ms": round(least * 1000, 4),
            **{f"{name}_ms": value for name, value in told.items()},
            "max_ms": round(self.max_s * 1000, 4),
            "histogram": [
                {"from_ms": round(low * 1000, 4), "to_ms": round(high * 1000, 4), "count": count}
                for low, high, count in self.slices()
            ],
        }

    def slices(self) -> list[tuple[float, float, int]]:
        """How many lie between round bounds (1, 2, 5, 10 …), without the empty ends."""
        counts: dict[int, int] = {}
        for number, count in self._buckets.items():
            middle_s = LEAST_S * math.exp((number + 0.5) * STEP)
            place = next((at for at, bound in enumerate(_BOUNDS) if middle_s < bound), len(_BOUNDS) - 1)
            counts[max(place, 1)] = counts.get(max(place, 1), 0) + count
        if not counts:
            return []
        return [(_BOUNDS[at - 1], _BOUNDS[at], counts.get(at, 0)) for at in range(min(counts), max(counts) + 1)]


def time_short(seconds: float) -> str:
    """Three digits that count, in the unit that fits."""
    for unit, scale in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= scale:
            return f"{_three(seconds / scale)} {unit}"
    return f"{_three(seconds / 1e-6)} µs"


def _three(number: float) -> str:
    return f"{number:.0f}" if number >= 99.95 else f"{number:.1f}" if number >= 9.995 else f"{number:.2f}"


def bound_text(seconds: float) -> str:
    """A round bound without zeros."""
    for unit, scale in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= scale * 0.999:
            return f"{seconds / scale:g} {unit}"
    return f"{seconds / 1e-6:g} µs"


def bar(share: float, width: int) -> str:
    """A part of a width, to an eighth of a character; what is not nothing is seen."""
    eighths = max(round(share * width * 8), 1 if share else 0)
    return FULL * (eighths // 8) + SHARES[eighths % 8].strip()
