# cython: language_level=3, annotation_typing=False, nonecheck=True
"""The memory of replies to fetches, over all connections (hazard 15: a client that never reads).

A listener stops reading from a client that does not take its replies, but by then it may have one of 50 MB, and there
may be many such clients. So what replies hold is counted, from when a buffer is made until the last one who sends it
lets go of it. The fuller it is, the smaller replies get: a reply may always have less than was asked for. When it is
full, fetches wait, as they do for records, and whoever has not read for a while is disconnected, so that clients which
do not read can't keep those waiting which do.

What was let go of is used again: half of what a large reply cost was the kernel's work to hand out new pages for it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final
from weakref import ref

SHARE_MIN_BYTES: Final = 1 << 20
UNCOUNTED_BYTES: Final = 16 << 10
"""Buffers up to this size are not counted: what a connection may have waiting bounds them well enough."""
SPARE_MAX_BYTES: Final = 16 << 20
REUSED_MAX_BYTES: Final = 4 << 20
"""Larger buffers are rare, and not kept."""


class _Buffer(bytearray):
    __slots__ = ("__weakref__",)


class _Held(ref[memoryview]):
    """A view that was handed out. When it is gone, its buffer is free, unless a transport has views of its own."""

    __slots__ = ("buffer", "size_bytes")

    buffer: _Buffer
    size_bytes: int


class _Unsent(ref[_Buffer]):
    """A buffer that a transport has not sent all of: uvloop keeps it by a view of its own until it has."""

    __slots__ = ("size_bytes",)

    size_bytes: int


class ReplyMemory:
    __slots__ = ("_call_soon", "_held", "_spare_bytes", "_spares", "_waiting", "held_bytes", "on_full", "size_bytes")

    def __init__(self, size_bytes: int, call_soon: Callable[[Callable[[], None]], object]) -> None:
        """`call_soon` is the loop's."""
        self.size_bytes = size_bytes
        self.held_bytes = 0
        self.on_full: Callable[[], None] = lambda: None
        """Called when somebody has to wait: who holds what is not read may be made to let go."""
        self._call_soon = call_soon
        self._waiting: dict[Callable[[], None], None] = {}
        self._held: dict[int, _Held | _Unsent] = {}
        self._spares: dict[int, list[_Buffer]] = {}
        """By size, which is a power of two."""
        self._spare_bytes = 0

    @property
    def is_full(self) -> bool:
        return self.held_bytes >= self.size_bytes

    @property
    def share_bytes(self) -> int:
        """What one reply may have now: a quarter of what is left, but enough for any batch of usual size."""
        return max((self.size_bytes - self.held_bytes) // 4, SHARE_MIN_BYTES)

    def buffer(self, size_bytes: int) -> bytearray | memoryview:
        """Room for so many bytes. What is in it is any bytes."""
        if size_bytes <= UNCOUNTED_BYTES:
            return bytearray(size_bytes)
        buffer = self._take(size_bytes)
        view = memoryview(buffer)[:size_bytes]
        held = _Held(view, self._let_go)
        held.buffer, held.size_bytes = buffer, size_bytes
        self._held[id(held)] = held
        self.held_bytes += size_bytes
        return view

    def _take(self, size_bytes: int) -> _Buffer:
        if size_bytes > REUSED_MAX_BYTES:
            return _Buffer(size_bytes)
        capacity = 1 << (size_bytes - 1).bit_length()
        spares = self._spares.get(capacity)
        if not spares:
            return _Buffer(capacity)
        self._spare_bytes -= capacity
        return spares.pop()

    def _let_go(self, held: _Held) -> None:
        del self._held[id(held)]
        buffer, capacity = held.buffer, len(held.buffer)
        try:
            # Refused while there is any other view of it.
            buffer.pop()
            buffer.append(0)
        except BufferError:
            unsent = _Unsent(buffer, self._sent)
            unsent.size_bytes = held.size_bytes
            self._held[id(unsent)] = unsent
            return
        if capacity <= REUSED_MAX_BYTES and self._spare_bytes + capacity <= SPARE_MAX_BYTES:
            self._spares.setdefault(capacity, []).append(buffer)
            self._spare_bytes += capacity
        self._give_back(held.size_bytes)

    def _sent(self, unsent: _Unsent) -> None:
        del self._held[id(unsent)]
        self._give_back(unsent.size_bytes)

    def wait(self, wake: Callable[[], None]) -> None:
        """Calls `wake` once, when it is no longer full."""
        self._waiting[wake] = None
        self.on_full()

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
