"""Syncs of the files of one disk, by a thread that does not need the interpreter (`disk_threads`).

A group of files is asked for by a pipe. The thread takes all groups that were asked for while it was at the ones before
and syncs their files together, so that the disk never waits for the loop, and tells of their end by another pipe.
"""

from __future__ import annotations

import logging
import os
from asyncio import AbstractEventLoop
from collections import deque
from collections.abc import Callable, Collection
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

from headrace.named_tuple import NamedTuple
from headrace.storage.disk import Disk, File, SyncFailed
from headrace.storage.disk_threads import FILES_MAX, MESSAGES_MAX, ask_sync, hear, serve_syncs
from headrace.storage.piped_thread import open_pipe, start_thread

if TYPE_CHECKING:
    import threading

logger = logging.getLogger(__name__)

THREAD: Final = "syncs"
GROUPS_MAX: Final = MESSAGES_MAX - 1
"""That may be under way: one message more is the end of the thread."""


class Outcome(NamedTuple):
    """What a sync did and what it took."""

    files: int
    at_once: bool
    seconds: float


Ended: TypeAlias = Callable[[int, Outcome | None, BaseException | None], None]
"""Called on the loop: so many groups have ended, the first that were asked for, all of them well or none."""


class Syncs(Protocol):
    """Syncs groups of files away from the loop. They end in the order in which they began."""

    def start(self, files: Collection[File], at_once_from: int) -> bool:
        """False when it can't: then nothing was begun, and nothing is told.

        From `at_once_from` files on all of the disk is synced instead; never when it is 0.
        """


class ThreadSyncs:
    """Of one disk. The thread is there from the first group on."""

    __slots__ = ("_asked_fd", "_disk", "_ended", "_groups", "_is_stopped", "_loop", "_thread", "_told_fd")

    def __init__(self, loop: AbstractEventLoop, disk: Disk, ended: Ended) -> None:
        self._loop = loop
        self._disk = disk
        self._ended = ended
        self._groups: deque[Collection[File]] = deque()
        self._thread: threading.Thread | None = None
        self._is_stopped = False
        self._asked_fd = self._told_fd = -1

    def start(self, files: Collection[File], at_once_from: int) -> bool:
        if len(self._groups) == GROUPS_MAX or self._is_stopped:
            return False
        file_system = self._disk.fileno()
        if file_system is None:
            file_system, at_once_from = -1, 0
        descriptors: list[int] = []
        if len(files) <= FILES_MAX:
            for file in files:
                descriptor = file.fileno()
                if descriptor is None:
                    return False
                descriptors.append(descriptor)
        elif not 0 < at_once_from <= len(files):
            return False
        if self._thread is None and not self._begin():
            return False
        try:
            ask_sync(self._asked_fd, descriptors, len(files), at_once_from, file_system)
        except BrokenPipeError:  # it has ended by itself, which is heard next
            return False
        self._groups.append(files)
        return True

    def _begin(self) -> bool:
        try:
            with ExitStack() as opened:  # when it can't be made, nothing is left of it
                asked_fd, self._asked_fd = open_pipe(opened)
                self._told_fd, told_fd = open_pipe(opened)
                os.set_blocking(self._told_fd, False)
                beats = self._disk.sync_beats
                self._thread = start_thread(THREAD, lambda: serve_syncs(asked_fd, told_fd, beats), asked_fd, told_fd)
                opened.pop_all()
        except (OSError, RuntimeError) as error:  # no descriptor or no thread is left
            logger.debug("no thread syncs by itself: %s", error)
            return False
        self._loop.add_reader(self._told_fd, self._hear)
        return True

    def _hear(self) -> None:
        try:
            told = hear(self._told_fd)
        except EOFError:
            self._lose()
            return
        if told is None:
            return
        count, files, at_once, error, descriptor, took_ns = told
        groups = [self._groups.popleft() for _ in range(count)]
        if not error:
            self._ended(count, Outcome(files, bool(at_once), took_ns / 1e9), None)
            return
        failed = [file.path for group in groups for file in group if file.fileno() == descriptor]
        self._fail(count, failed[0] if failed else "", os.strerror(error))

    def _lose(self) -> None:
        """The thread has ended by itself: a defect of ours. What it was asked for may be durable, or not."""
        self._loop.remove_reader(self._told_fd)
        self._is_stopped = True
        count = len(self._groups)
        self._groups.clear()
        self._fail(count, "", "the thread that does it has ended")

    def _fail(self, count: int, path: str, reason: str) -> None:
        failure = SyncFailed(self._disk.full_path(path), reason)
        self._disk.go_offline(failure)
        self._ended(count, None, failure)

    def stop(self) -> None:
        """Waits for what is under way, of which nobody is told any more."""
        self._is_stopped = True
        thread, self._thread = self._thread, None
        if thread is not None:
            self._loop.remove_reader(self._told_fd)
            with suppress(OSError):  # by itself, it has ended already
                ask_sync(self._asked_fd, [], 0, 0, -1)
            thread.join()
            os.close(self._asked_fd)
            os.close(self._told_fd)
