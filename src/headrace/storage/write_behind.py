"""Write-behind: the write-back of what was appended is started early, so that a sync finds little left to do.

It has a thread of its own in a node, without the interpreter: to start a write-back may wait for the device, and
nobody's sync is to wait for that. What it is asked for is a wish: the file is not held open for it, and when more was
asked for than it gets done the rest is left to the system.
"""

from __future__ import annotations

import logging
import os
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final, Protocol

from headrace.storage.disk import Disk, File
from headrace.storage.disk_threads import ask_write_back, serve_write_backs
from headrace.storage.piped_thread import open_pipe, start_thread

if TYPE_CHECKING:
    import threading

logger = logging.getLogger(__name__)

THREAD: Final = "write-behind"


class WritesBehind(Protocol):
    def start(self, file: File, position: int, size: int) -> None:
        """Starts the write-back of a range, without a wait."""


class ThreadWriteBehind:
    """Of one disk. The thread is there from the first range on."""

    __slots__ = ("_asked_fd", "_disk", "_is_stopped", "_thread")

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._thread: threading.Thread | None = None
        self._is_stopped = False
        self._asked_fd = -1

    def start(self, file: File, position: int, size: int) -> None:
        descriptor = file.fileno()
        if descriptor is None or self._is_stopped or (self._thread is None and not self._begin()):
            return
        ask_write_back(self._asked_fd, descriptor, position, size)

    def _begin(self) -> bool:
        try:
            with ExitStack() as opened:  # when it can't be made, nothing is left of it
                asked_fd, self._asked_fd = open_pipe(opened)
                os.set_blocking(self._asked_fd, False)
                beats = self._disk.sync_beats
                self._thread = start_thread(THREAD, lambda: serve_write_backs(asked_fd, beats), asked_fd)
                opened.pop_all()
        except (OSError, RuntimeError) as error:  # no descriptor or no thread is left
            logger.debug("nothing is written behind: %s", error)
            return False
        return True

    def stop(self) -> None:
        """Waits for what was asked for."""
        self._is_stopped = True
        thread, self._thread = self._thread, None
        if thread is not None:
            while not ask_write_back(self._asked_fd, -1, 0, 0):
                time.sleep(0.001)  # and the thread may need the interpreter
            thread.join()
            os.close(self._asked_fd)
