"""The memory of replies to fetches, over all connections (hazard 15: a client that never reads).

A listener stops reading from a client that does not take its replies, but by then it may have one of 50 MB, and there
may be many such clients. So what replies hold is counted, from when a buffer is made until the last one who sends it
lets go of it. The fuller it is, the smaller replies get: a reply may always have less than was asked for. When it is
full, fetches wait, as they do for records.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

SHARE_MIN_BYTES: Final = 1 << 20
UNCOUNTED_BYTES: Final = 16 << 10
"""Buffers up to this size are not counted: what a connection may have waiting bounds them well enough."""


class ReplyBuffer(bytearray):
    """Bytes that are counted as long as somebody has them."""

    __slots__ = ("_memory", "_size_bytes")

    def __init__(self, size_bytes: int, memory: ReplyMemory) -> None:
        super().__init__(size_bytes)
        self._size_bytes = size_bytes
        self._memory = memory
        memory.held_bytes += size_bytes

    def __del__(self) -> None:
        self._memory._give_back(self._size_bytes)


class ReplyMemory:
    __slots__ = ("_call_soon", "_waiting", "held_bytes", "size_bytes")

    def __init__(self, size_bytes: int, call_soon: Callable[[Callable[[], None]], object]) -> None:
        """`call_soon` is the loop's."""
        self.size_bytes = size_bytes
        self.held_bytes = 0
        self._call_soon = call_soon
        self._waiting: dict[Callable[[], None], None] = {}

    @property
    def is_full(self) -> bool:
        return self.held_bytes >= self.size_bytes

    @property
    def share_bytes(self) -> int:
        """What one reply may have now: a quarter of what is left, but enough for any batch of usual size."""
        return max((self.size_bytes - self.held_bytes) // 4, SHARE_MIN_BYTES)

    def buffer(self, size_bytes: int) -> bytearray:
        return bytearray(size_bytes) if size_bytes <= UNCOUNTED_BYTES else ReplyBuffer(size_bytes, self)

    def wait(self, wake: Callable[[], None]) -> None:
        """Calls `wake` once, when it is no longer full."""
        self._waiting[wake] = None

    def forget(self, wake: Callable[[], None]) -> None:
        self._waiting.pop(wake, None)

    def _give_back(self, size_bytes: int) -> None:
        was_full = self.is_full
        self.held_bytes -= size_bytes
        # Not on the spot: this runs wherever the last reference was dropped.
        if was_full and self._waiting and not self.is_full:
            self._call_soon(self._wake)

    def _wake(self) -> None:
        while self._waiting and not self.is_full:
            wake = next(iter(self._waiting))
            del self._waiting[wake]
            wake()
