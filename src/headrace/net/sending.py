# cython: language_level=3, annotation_typing=False, nonecheck=True
"""A reply with stretches of files in it, which go from the page cache to the socket without a copy.

What is in memory the loop may send: it looks each time right before it does, as a client may have taken its time. What
is not, or is very large, a worker sends, so that it does not keep the loop, however cold it is. Whoever sends gives the
socket what it takes, and returns; the loop waits until it takes more. A worker has a descriptor of the socket for
itself, and so has the loop while it waits.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol, TypeAlias

from headrace.net.file_send import send, send_ahead

logger = logging.getLogger(__name__)

IS_POSSIBLE: Final = hasattr(os, "sendfile") and hasattr(os, "posix_fadvise")
SLICE_BYTES: Final = 4 << 20
"""What is sent before others have their turn."""
RESTING_SLICE_BYTES: Final = 1 << 20
"""The same with rests, which take longer than the work."""
DESCRIPTOR_WAIT_S: Final = 0.1
"""Before it is tried again while too many are open."""
SILENT_S: Final = 60
"""So long nothing more is said of that."""
NOTHING_AHEAD: Final = (0, 0)

_OF_FILES: Final = (errno.EIO, errno.EINVAL, errno.ENOSYS, errno.EUCLEAN)
"""What a file may be at fault for, and no socket."""

_TOO_MANY: Final = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
"""Files are open, and others may be closed."""

Done: TypeAlias = Callable[[None, BaseException | None], None]


class Sender(Protocol):
    """A worker that sends replies."""

    @property
    def rests(self) -> int:
        """After each step of what is brought into memory along with it, so many times as long as it was at work."""

    def run(self, job: Callable[[], None], done: Done) -> None:
        """Runs it away from the loop, and calls `done` on the loop."""


class FileUnsendable(Exception):
    """It ended before what was promised of it, or can't be read."""


class Sendable(Protocol):
    """What is asked of a file whose bytes are sent."""

    @property
    def sync_beats(self) -> bytearray:
        """One byte, odd while a sync of its disk is under way: what is to be read waits for that."""

    def is_at_hand(self, position: int, size: int) -> bool:
        """The loop may send it: who reads it right now does not wait, and nobody replays it from a cold disk."""

    def ahead_of(self, position: int, size: int) -> tuple[int, int]:
        """What is to be brought into memory along with it: its position and size."""


class Stretch:
    """Bytes of a file, and its descriptor. Whoever made it keeps the file open until it was sent."""

    __slots__ = ("_ahead", "_descriptor", "_file", "_position", "_sync_beats", "size_bytes")

    def __init__(self, file: Sendable, descriptor: int, position: int, size_bytes: int) -> None:
        self._file = file
        self._descriptor = descriptor
        self._position = position
        self._sync_beats = file.sync_beats
        self._ahead: tuple[int, int] | None = None
        self.size_bytes = size_bytes

    def is_at_hand(self) -> bool:
        return self._file.is_at_hand(self._position, self.size_bytes)

    def look_ahead(self) -> None:
        """What comes next is brought into memory along with what is left of it, little by little."""
        if self._ahead is None:
            self._ahead = self._file.ahead_of(self._position, self.size_bytes)

    def send(self, socket: int, most_bytes: int, rests: int) -> int:
        start, ahead_bytes = self._ahead or NOTHING_AHEAD
        size_bytes = min(self.size_bytes, most_bytes)
        share_bytes = ahead_bytes * size_bytes // self.size_bytes
        sent = send(socket, self._descriptor, self._position, size_bytes, start, share_bytes, self._sync_beats, rests)
        if sent <= 0:
            if -sent in _OF_FILES:
                raise FileUnsendable(os.strerror(-sent))
            if sent:
                raise OSError(-sent, os.strerror(-sent))
            raise FileUnsendable("it is shorter than its log says")
        if ahead_bytes:
            asked_bytes = share_bytes * sent // size_bytes
            self._ahead = start + asked_bytes, ahead_bytes - asked_bytes
        self._position += sent
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

    def is_at_hand(self) -> bool:
        return True

    def look_ahead(self) -> None:
        return

    def send(self, socket: int, most_bytes: int, rests: int) -> int:
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
        "_by_loop",
        "_descriptor",
        "_ended",
        "_is_full",
        "_is_running",
        "_is_stopped",
        "_is_watched",
        "_own_descriptor",
        "_parts",
        "_rests",
        "_sender",
        "left_bytes",
    )

    def __init__(
        self, buffers: Sequence[Any], sender: Sender, by_loop: bool, ended: Callable[[BaseException | None], None]
    ) -> None:
        """Where it may be `by_loop`, the loop sends as long as all of it is at hand, and needs no sender."""
        self._parts: deque[_Bytes | Stretch] = deque()
        for buffer in buffers:
            if isinstance(buffer, Stretches):
                self._parts.extend([part for part in buffer.parts if part.size_bytes])
            elif len(buffer):
                self._parts.append(_Bytes(buffer))
        if self._parts and isinstance(last := self._parts[-1], _Bytes):
            last.is_last = True
        self.left_bytes = sum([part.size_bytes for part in self._parts])
        self._sender = sender
        self._rests = 0
        self._by_loop = by_loop
        self._ended: Callable[[BaseException | None], None] | None = ended
        self._is_full = False
        self._is_running = False
        self._is_stopped = False
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
        if self._is_stopped:
            return
        self._is_full = False
        if self._by_loop:
            # Behind what the loop has in hand: requests that came with this one go first.
            self._is_running = True
            asyncio.get_running_loop().call_soon(self._work_here)
        elif self._has_own():
            self._is_running = True
            try:
                for part in self._parts:
                    part.look_ahead()
                self._rests = self._sender.rests
                self._sender.run(self._work, self._worked)
            except BaseException as error:
                self._worked(None, error)

    def _work_here(self) -> None:
        error: BaseException | None = None
        try:
            if self._is_stopped or self._is_at_hand():
                self._work()
            else:
                self._by_loop = False
        except BaseException as raised:
            error = raised
        self._worked(None, error)

    def _is_at_hand(self) -> bool:
        for part in self._parts:  # noqa: SIM110  # compiled, a generator is slower
            if not part.is_at_hand():
                return False
        return True

    def _has_own(self) -> bool:
        """Whether it has a descriptor of its own, so that no other socket can get the number while it is used.

        If it can't get one now it goes on when it may.
        """
        if self._own_descriptor < 0:
            try:
                self._descriptor = self._own_descriptor = os.dup(self._descriptor)
            except OSError as error:
                if error.errno not in _TOO_MANY:
                    self._end(error)
                    return False
                loop = asyncio.get_running_loop()
                _tell(error, loop.time())
                loop.call_later(DESCRIPTOR_WAIT_S, self._go_on)
                return False
        return True

    # --- whose it is to send -----------------------------------------------------------------------------------------

    def _work(self) -> None:
        parts, socket = self._parts, self._descriptor
        budget = RESTING_SLICE_BYTES if self._rests else SLICE_BYTES
        try:
            while parts and budget > 0 and not self._is_stopped:
                sent = parts[0].send(socket, budget, self._rests)
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
            try:
                asyncio.get_running_loop().add_writer(self._descriptor, self._taken)
                self._is_watched = True
            except OSError as raised:
                self._end(raised)

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


_silent_until_s = 0.0


def _tell(error: OSError, now_s: float) -> None:
    """Once for all that wait: it is the process that has too many files open."""
    global _silent_until_s
    if now_s >= _silent_until_s:
        _silent_until_s = now_s + SILENT_S
        logger.warning("large replies wait: %s; raise the limit of open files (ulimit -n)", error.strerror)
