"""Write-behind: the write-back of what was appended is started early, so that a sync finds little left to do.

It has a thread of its own in a node, without the interpreter: to start a write-back may wait for the device, and
nobody's sync is to wait for that. What is not done of it is left to the system.
"""

from __future__ import annotations

from typing import Final, Protocol

from headrace.storage.disk import Disk, File
from headrace.storage.disk_threads import serve_write_backs
from headrace.storage.range_thread import RangeThread

THREAD: Final = "write-behind"


class WritesBehind(Protocol):
    def start(self, file: File, position: int, size: int) -> None:
        """Starts the write-back of a range, without a wait."""


class ThreadWriteBehind:
    """Of one disk."""

    __slots__ = ("_thread",)

    def __init__(self, disk: Disk) -> None:
        self._thread = RangeThread(THREAD, lambda pipe: serve_write_backs(pipe, disk.sync_beats))

    def start(self, file: File, position: int, size: int) -> None:
        self._thread.ask(file, position, size)

    def stop(self) -> None:
        """Waits for what was asked for."""
        self._thread.stop()
