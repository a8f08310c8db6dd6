"""Syncs of a whole file system, away from the loop and without the interpreter (`sync_thread`).

The loop asks by one event descriptor and hears by another. One thread a file system, from its first sync on; what it
begins is never more than one at a time.
"""

from __future__ import annotations

import os
import threading
from asyncio import AbstractEventLoop
from collections.abc import Callable
from contextlib import ExitStack
from typing import Final

from headrace.storage.sync_thread import END, SYNC, serve

THREAD: Final = "sync-all"


class FileSystemSyncs:
    """Of one file system, by a descriptor of anything on it."""

    __slots__ = ("_asked_fd", "_loop", "_synced", "_thread", "_told_fd")

    def __init__(self, loop: AbstractEventLoop, descriptor: int) -> None:
        """Raises OSError or RuntimeError when there is no descriptor or no thread left."""
        self._loop = loop
        self._synced: Callable[[int], None] | None = None
        with ExitStack() as opened:  # when it can't be made, nothing is left of it
            self._asked_fd = os.eventfd(0, os.EFD_CLOEXEC)
            opened.callback(os.close, self._asked_fd)
            self._told_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
            opened.callback(os.close, self._told_fd)
            # A daemon, so that a sync that hangs on a broken device can't keep the process from ending by itself.
            self._thread = threading.Thread(
                target=serve, args=(self._asked_fd, self._told_fd, descriptor), name=THREAD, daemon=True
            )
            self._thread.start()
            opened.pop_all()
        loop.add_reader(self._told_fd, self._told)

    def start(self, synced: Callable[[int], None]) -> bool:
        """Calls `synced` on the loop, with 0 or the number of the error. False while another is under way."""
        if self._synced is not None:
            return False
        self._synced = synced
        os.eventfd_write(self._asked_fd, SYNC)
        return True

    def _told(self) -> None:
        try:
            number = os.eventfd_read(self._told_fd)
        except BlockingIOError:
            return
        synced, self._synced = self._synced, None
        assert synced is not None, "what ended was under way"
        synced(number - 1)

    def stop(self) -> None:
        """Waits for what is under way, of which nobody is told any more."""
        self._loop.remove_reader(self._told_fd)
        os.eventfd_write(self._asked_fd, END)
        self._thread.join()
        os.close(self._asked_fd)
        os.close(self._told_fd)
