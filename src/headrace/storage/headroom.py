"""Headroom: memory for what is appended next is got ahead of it, where memory is slow.

What is appended goes into pages of memory that the system has to find first. On a virtual machine whose host takes back
what is free, or where something else has to give way first, a megabyte of them takes milliseconds, and the loop that
appends serves nobody meanwhile. Where that is seen, a file that grows by megabytes is let end some of them behind its
batches (`Segment.stretch`), and a thread has what is there brought into memory, which is nothing but pages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from headrace.storage.disk import WRITE_BEHIND_BYTES, Disk
from headrace.storage.disk_threads import serve_headroom
from headrace.storage.range_thread import RangeThread

if TYPE_CHECKING:
    from headrace.storage.segment import Segment

THREAD: Final = "headroom"
AHEAD_BYTES: Final = 2 * WRITE_BEHIND_BYTES
"""What is appended next, and what comes behind it while memory for that is got."""
PATIENCE: Final = 64
"""So many megabytes after memory was slow it may be so again: who stopped at once would find out by waiting for it."""


class Headroom(Protocol):
    def ahead_of(self, segment: Segment) -> None:
        """The segment has grown by another megabyte. Without a wait."""


class ThreadHeadroom:
    """Of one disk. It is asked for one range at a time: what it does not get done is not asked for."""

    __slots__ = ("_beat", "_disk", "_is_free", "_left", "_thread")

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._beat = disk.slow_beats[0]
        self._left = 0
        self._is_free = is_free = bytearray([1])
        self._thread = RangeThread(THREAD, lambda pipe: serve_headroom(pipe, disk.slow_beats, is_free))

    def ahead_of(self, segment: Segment) -> None:
        beat = self._disk.slow_beats[0]
        if beat != self._beat:
            self._beat, self._left = beat, PATIENCE
        if not self._left:
            return
        self._left -= 1
        if self._is_free[0]:
            position, size = segment.stretch(AHEAD_BYTES)
            self._is_free[0] = 0
            if not size or not self._thread.ask(segment.file, position, size):
                self._is_free[0] = 1

    def stop(self) -> None:
        """Waits for what was asked for."""
        self._thread.stop()
