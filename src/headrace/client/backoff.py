"""How long to wait before the next try."""

import random

__all__ = ["Backoff"]

_DOUBLINGS_MAX = 30


class Backoff:
    """Twice as long after each failure, up to a limit; a fifth more or less by chance, so that clients spread out."""

    __slots__ = ("_chance", "_first_s", "_most_s", "failures")

    def __init__(self, first_s: float, most_s: float, chance: random.Random) -> None:
        self._first_s = first_s
        self._most_s = most_s
        self._chance = chance
        self.failures = 0

    def failed(self) -> float:
        """One more failure: the seconds to wait."""
        delay_s = min(self._most_s, self._first_s * (1 << min(self.failures, _DOUBLINGS_MAX)))
        self.failures += 1
        return delay_s * self._chance.uniform(0.8, 1.2)

    def succeeded(self) -> None:
        self.failures = 0
