"""What all logs of a node have in common."""

from __future__ import annotations

from collections.abc import Callable

from headrace.config import LogConfig
from headrace.storage.append import LeaderRules


class LogOptions:
    """What all logs of a node have in common."""

    __slots__ = ("_rules", "decompressed_bytes_max", "jitter_ms", "takes_reserve")

    def __init__(
        self,
        *,
        jitter_ms: Callable[[int], int] = lambda most_ms: 0,
        decompressed_bytes_max: int = 128 << 20,
        takes_reserve: bool = False,
    ) -> None:
        self.jitter_ms = jitter_ms
        """At random, from 0 to what it is given: what is taken off segment.ms."""
        self.decompressed_bytes_max = decompressed_bytes_max
        self.takes_reserve = takes_reserve
        """On a full disk they are written all the same, in what is kept back for that."""
        self._rules: tuple[LogConfig, LeaderRules] | None = None

    def rules_of(self, config: LogConfig) -> LeaderRules:
        """Most logs have the settings of the log before them, the very same object: they share what follows from it."""
        if self._rules is None or self._rules[0] is not config:
            self._rules = config, LeaderRules(config, self.decompressed_bytes_max)
        return self._rules[1]
