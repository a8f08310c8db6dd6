"""How long to wait between pieces of work so that they do not go beyond a rate. PURE: the time goes in."""

from __future__ import annotations


class Throttle:
    """Bytes a second, on average."""

    __slots__ = ("_free_at_s", "bytes_per_second")

    def __init__(self, bytes_per_second: float) -> None:
        self.bytes_per_second = bytes_per_second
        self._free_at_s = 0.0

    def pause_s(self, size_bytes: int, now_s: float) -> float:
        """How long to wait after so many bytes. What was not used before is not made up for."""
        self._free_at_s = max(self._free_at_s, now_s) + size_bytes / self.bytes_per_second
        return self._free_at_s - now_s
