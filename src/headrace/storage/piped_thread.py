"""Threads that are spoken to by pipes: they need no lock, and no interpreter where what they do is compiled."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import ExitStack


def open_pipe(opened: ExitStack) -> tuple[int, int]:
    """The end to read from and the one to write to, which the stack closes. Raises OSError when none is left."""
    ends = os.pipe()
    for end in ends:
        opened.callback(os.close, end)
    return ends


def start_thread(name: str, serve: Callable[[], None], *ends: int) -> threading.Thread:
    """Its own ends of pipes are closed when it has served. Raises RuntimeError when there can be no more threads."""

    def run() -> None:
        try:
            serve()
        finally:
            for end in ends:
                os.close(end)

    # A daemon, so that a call that hangs on a broken device can't keep the process from ending by itself.
    thread = threading.Thread(target=run, name=name, daemon=True)
    thread.start()
    return thread
