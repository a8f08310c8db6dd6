"""The clocks of a host: they start anywhere, run a little fast or slow, and can jump."""

from __future__ import annotations

from typing import Final

EPOCH_SECONDS: Final = 1_750_000_000.0
"""What a right clock shows when a simulation starts."""


class HostClock:
    """`rate` is local seconds by true second; `skew_seconds` is how far the wall clock is ahead at the start.

    The monotonic clock has the same rate, and a start of its own, so that nobody compares it between hosts.
    """

    __slots__ = ("monotonic_start", "rate", "skew_seconds")

    def __init__(self, rate: float = 1.0, skew_seconds: float = 0.0, monotonic_start: float = 0.0) -> None:
        self.rate = rate
        self.skew_seconds = skew_seconds
        self.monotonic_start = monotonic_start

    def jump(self, seconds: float) -> None:
        """Somebody sets the wall clock. The monotonic clock does not notice."""
        self.skew_seconds += seconds

    def wall(self, now: float) -> float:
        return EPOCH_SECONDS + self.skew_seconds + now * self.rate

    def monotonic(self, now: float) -> float:
        return self.monotonic_start + now * self.rate

    def when(self, monotonic: float) -> float:
        """The true time at which the monotonic clock shows this."""
        return (monotonic - self.monotonic_start) / self.rate


RIGHT: Final = HostClock()
"""The clock of whoever is no simulated host: the scenario itself."""
