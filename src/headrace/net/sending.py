# cython: language_level=3, annotation_typing=False, nonecheck=True
"""A reply with stretches of files in it, which go from the page cache to the socket without a copy.

What is in memory the loop sends. What is not, or is very large, a worker does, so that it does not keep the loop,
however cold it is. Whoever sends gives the socket what it takes, and returns; the loop waits until it takes more. A
worker has a descriptor of the socket for itself, and so has the loop while it waits.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

from headrace.net.file_send import send, send_ahead

logger = logging.getLogger(__name__)

IS_POSSIBLE: Final = hasattr(os, "sendfile") and hasattr(os, "posix_fadvise")
SLICE_BYTES: Final = 4 << 20
"""What is sent before others have their turn."""
DESCRIPTOR_WAIT_S: Final = 0.1
"""Before it is tried again while too many are open."""

_OF_FILES: Final = (errno.EIO, errno.EINVAL, errno.ENOSYS, errno.EUCLEAN)
"""What a file may be at fault for, and no socket."""

Run: TypeAlias = Callable[[Callable[[], None], Callable[[None, BaseException | None], None]], None]
"""Runs a job, away from the loop or on it, and calls the second argument on the loop when it is done."""


def on_loop(job: Callable[[], None], done: Callable[[None, BaseException | None], None]) -> None:
    """The `Run` for what is in memory. Behind what the loop has in hand: requests that came with this one go first."""
    asyncio.get_running_loop().call_soon(_do, job, done)


def _do(job: Callable[[], None], done: Callable[[None, BaseException | None], None]) -> None:
    try:
        job()
    except BaseException as error:
        done(None, error)
    else:
        done(None, None)


class FileUnsendable(Exception):
    """It ended before what was promised of it, or can't be read."""


class Stretch:
    """Bytes of a file, by its descriptor. Whoever made it keeps the file open until it was sent.

    Along with it the bytes `ahead`, by their position and how many there are, are asked to be brought into memory,
    between the syncs of their disk, of which the one byte of `sync_beats` tells.
    """

    __slots__ = ("_ahead", "_sync_beats", "descriptor", "position", "size_bytes")

    def __init__(
        self, descriptor: int, position: int, size_bytes: int, ahead: tuple[int, int], sync_beats: bytearray
    ) -> None:
        self.descriptor = descriptor
        self.position = position
        self.size_bytes = size_bytes
        self._ahead = ahead
        self._sync_beats = sync_beats

    def send(self, socket: int, most_bytes: int) -> int:
        start, ahead_bytes = self._ahead
        size_bytes = min(self.size_bytes, most_bytes)
        share_bytes = ahead_bytes * size_bytes // self.size_bytes
        sent = send(socket, self.descriptor, self.position, size_bytes, start, share_bytes, self._sync_beats)
        if sent <= 0:
            if -sent in _OF_FILES:
                raise FileUnsendable(os.strerror(-sent))
            if sent:
                raise OSError(-sent, os.strerror(-sent))
            raise FileUnsendable("it is shorter than its log says")
        asked_bytes = share_bytes * sent // size_bytes
        self._ahead = start + asked_bytes, ahead_bytes - asked_bytes
        self.position += sent
        self.size_bytes -= sent
        return sent


class Stretches:
    """What stands for bytes in a reply that is sent from files: they are as long, and lie there."""

    __slots__ = ("parts", "size_bytes")

    def __init__(self, parts: Sequence[Stretch]) -> None:
        self.parts = parts
        self.size_bytes = sum([part.size_bytes for part in parts])

    def __len__(self) -> int:
        return self.size_bytes


class _Bytes:
    """What is said before and after stretches: little."""

    __slots__ = ("_data", "is_last", "size_bytes")

    def __init__(self, data: bytes | bytearray | memoryview) -> None:
        self._data = bytes(data)
        self.is_last = False
        self.size_bytes = len(self._data)

    def send(self, socket: int, most_bytes: int) -> int:
        data = self._data[:most_bytes]
        sent = os.write(socket, data) if self.is_last else send_ahead(socket, data)
        if sent < 0:
            raise OSError(-sent, os.strerror(-sent))
        self._data = self._data[sent:]
        self.size_bytes -= sent
        return sent


class Sending:
    """One such reply on its way. `ended` is called on the loop once: with the error, or with None when all was sent."""

    __slots__ = (
        "_descriptor",
        "_ended",
        "_is_full",
        "_is_running",
        "_is_stopped",
        "_is_told",
        "_is_watched",
        "_own_descriptor",
        "_parts",
        "_run",
        "left_bytes",
    )

    def __init__(self, buffers: Sequence[Any], run: Run, ended: Callable[[BaseException | None], None]) -> None:
        self._parts: deque[_Bytes | Stretch] = deque()
        for buffer in buffers:
            if isinstance(buffer, Stretches):
                self._parts.extend([part for part in buffer.parts if part.size_bytes])
            elif len(buffer):
                self._parts.append(_Bytes(buffer))
        if self._parts and isinstance(last := self._parts[-1], _Bytes):
            last.is_last = True
        self.left_bytes = sum([part.size_bytes for part in self._parts])
        self._run = run
        self._ended: Callable[[BaseException | None], None] | None = ended
        self._is_full = False
        self._is_running = False
        self._is_stopped = False
        self._is_told = False
        self._is_watched = False
        self._descriptor = -1
        self._own_descriptor = -1

    def start(self, socket: int) -> None:
        """The socket must not block. What is sent by others meanwhile would end up in the middle of the reply.

        To start it again does nothing. Who closes the socket calls `stop` before.
        """
        if self._descriptor < 0:
            self._descriptor = socket
            self._go_on()

    def stop(self) -> None:
        """Nobody waits for it any more. It ends when whoever is at work for it, if anybody is, returns."""
        self._is_stopped = True
        if not self._is_running:
            self._end(ConnectionAbortedError())

    def _go_on(self) -> None:
        if self._is_stopped or (self._run is not on_loop and not self._has_own()):
            return
        self._is_running = True
        self._run(self._work, self._worked)

    def _has_own(self) -> bool:
        """Whether it has a descriptor of its own, so that no other socket can get the number while it is used.

        If it can't get one now it goes on when it may.
        """
        if self._own_descriptor < 0:
            try:
                self._descriptor = self._own_descriptor = os.dup(self._descriptor)
            except OSError as error:  # too many files are open
                if not self._is_told:
                    logger.warning("a large reply waits: %s; raise the limit of open files (ulimit -n)", error.strerror)
                    self._is_told = True
                asyncio.get_running_loop().call_later(DESCRIPTOR_WAIT_S, self._go_on)
                return False
        return True

    # --- whose it is to send -----------------------------------------------------------------------------------------

    def _work(self) -> None:
        parts, socket = self._parts, self._descriptor
        budget = SLICE_BYTES
        self._is_full = False
        try:
            while parts and budget > 0 and not self._is_stopped:
                sent = parts[0].send(socket, budget)
                budget -= sent
                self.left_bytes -= sent
                if not parts[0].size_bytes:
                    parts.popleft()
        except BlockingIOError:
            self._is_full = True

    # --- the loop's ---------------------------------------------------------------------------------------------------

    def _worked(self, result: None, error: BaseException | None) -> None:
        self._is_running = False
        if error is not None or not self._parts:
            self._end(error)
        elif self._is_stopped:
            self._end(ConnectionAbortedError())
        elif not self._is_full:
            self._go_on()
        elif self._has_own():
            self._is_watched = True
            asyncio.get_running_loop().add_writer(self._descriptor, self._taken)

    def _taken(self) -> None:
        self._unwatch()
        self._go_on()

    def _unwatch(self) -> None:
        if self._is_watched:
            self._is_watched = False
            asyncio.get_running_loop().remove_writer(self._descriptor)

    def _end(self, error: BaseException | None) -> None:
        ended, self._ended = self._ended, None
        if ended is None:
            return
        self._unwatch()
        if self._own_descriptor >= 0:
            os.close(self._own_descriptor)
        self._parts.clear()
        ended(error)
