"""A thread that is told ranges of files, to do something about them that nobody waits for.

It needs no interpreter where what it does is compiled. What it is asked for is a wish: the file is not held open for
it, and when more was asked for than it gets done the rest is left out.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING

from headrace.storage.disk import File
from headrace.storage.disk_threads import ask_range
from headrace.storage.piped_thread import open_pipe, start_thread

if TYPE_CHECKING:
    import threading

logger = logging.getLogger(__name__)


class RangeThread:
    """It is there from the first range on."""

    __slots__ = ("_asked_fd", "_is_stopped", "_name", "_serve", "_thread")

    def __init__(self, name: str, serve: Callable[[int], None]) -> None:
        """`serve` is what the thread does: with the pipe by which it is asked."""
        self._name = name
        self._serve = serve
        self._thread: threading.Thread | None = None
        self._is_stopped = False
        self._asked_fd = -1

    def ask(self, file: File, position: int, size: int) -> bool:
        """Whether it is to be done."""
        descriptor = file.fileno()
        if descriptor is None or self._is_stopped or (self._thread is None and not self._begin()):
            return False
        return ask_range(self._asked_fd, descriptor, position, size)

    def _begin(self) -> bool:
        try:
            with ExitStack() as opened:  # when it can't be made, nothing is left of it
                asked_fd, self._asked_fd = open_pipe(opened)
                os.set_blocking(self._asked_fd, False)
                self._thread = start_thread(self._name, lambda: self._serve(asked_fd), asked_fd)
                opened.pop_all()
        except (OSError, RuntimeError) as error:  # no descriptor or no thread is left
            logger.debug("there is no thread for %s: %s", self._name, error)
            return False
        return True

    def stop(self) -> None:
        """Waits for what was asked for."""
        self._is_stopped = True
        thread, self._thread = self._thread, None
        if thread is not None:
            while thread.is_alive() and not ask_range(self._asked_fd, -1, 0, 0):
                time.sleep(0.001)  # and the thread may need the interpreter
            thread.join()
            os.close(self._asked_fd)
