"""Syncs that the kernel does by itself, without a thread of ours (Linux AIO).

A thread that syncs needs the interpreter before and after each file, and takes it from the loop: on a busy loop half of
the time of a group commit was waiting for that. Here one call hands all files to the kernel, and the loop hears through
an event descriptor when they are done (docs/decisions/0020-group-commit.md).
"""

from __future__ import annotations

import ctypes
import errno
import logging
import os
import struct
import sys
from asyncio import AbstractEventLoop
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeAlias

if TYPE_CHECKING:
    from headrace.storage.file_system_syncs import FileSystemSyncs

logger = logging.getLogger(__name__)

DEPTH: Final = 64
"""Files that may be under way at once."""

Synced: TypeAlias = Callable[[int], None]
"""Called on the loop: 0 when all files are durable, or the error number of the first that is not."""


class Syncs(Protocol):
    """Syncs the data of open files, away from the loop."""

    def start(self, descriptors: Sequence[int], synced: Synced) -> bool:
        """False when it can't: then nothing was begun, and `synced` is not called."""

    def start_all(self, descriptor: int, synced: Synced) -> bool:
        """The same for all that is on the file system of an open directory."""


class _Calls(NamedTuple):
    """Numbers of the system's calls, which the C library has no functions for."""

    setup: int
    destroy: int
    events: int
    submit: int


_CALLS: Final = {"x86_64": _Calls(206, 207, 208, 209), "aarch64": _Calls(0, 1, 4, 2)}
_CONTROL: Final = struct.Struct(
    "<QIIHhIQQqQII"
)  # data, key, flags, code, priority, file, buffer, ..., event descriptor
_CODE_DATASYNC: Final = 3
_WITH_EVENT_DESCRIPTOR: Final = 1
_EVENT: Final = struct.Struct("<QQqq")  # data, object, result, more


class KernelSyncs:
    """Of one loop. Groups end in any order; each is told once."""

    __slots__ = (
        "_calls",
        "_context",
        "_controls",
        "_events",
        "_file_systems",
        "_first",
        "_free",
        "_groups",
        "_is_stopped",
        "_loop",
        "_ready_fd",
        "_submitted",
        "_system",
    )

    def __init__(self, loop: AbstractEventLoop) -> None:
        """Raises OSError where there is no such thing."""
        calls = _CALLS.get(os.uname().machine) if sys.platform == "linux" else None
        if calls is None:
            raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
        # None of the calls blocks, so the interpreter is not given away for them.
        self._system = ctypes.PyDLL(None, use_errno=True).syscall
        self._system.restype = ctypes.c_long
        self._calls = calls
        self._context = ctypes.c_ulong(0)
        if self._system(calls.setup, DEPTH, ctypes.byref(self._context)) < 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        self._controls = ctypes.create_string_buffer(_CONTROL.size * DEPTH)
        self._first = ctypes.addressof(self._controls)
        self._submitted = (ctypes.c_void_p * DEPTH)()
        self._events = ctypes.create_string_buffer(_EVENT.size * DEPTH)
        self._free = deque(range(DEPTH))
        self._groups: list[_Group | None] = [None] * DEPTH
        self._file_systems: dict[int, FileSystemSyncs] = {}
        self._is_stopped = False
        self._ready_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._loop = loop
        loop.add_reader(self._ready_fd, self._ready)

    def start(self, descriptors: Sequence[int], synced: Synced) -> bool:
        if len(descriptors) > len(self._free):
            return False
        count = len(descriptors)
        group = _Group(synced)
        numbers = [self._free.popleft() for _ in descriptors]
        for place, (number, descriptor) in enumerate(zip(numbers, descriptors, strict=True)):
            _CONTROL.pack_into(
                self._controls,
                _CONTROL.size * number,
                *(number, 0, 0, _CODE_DATASYNC, 0, descriptor, 0, 0, 0, 0, _WITH_EVENT_DESCRIPTOR, self._ready_fd),
            )
            self._submitted[place] = self._first + _CONTROL.size * number
        begun: int = max(0, self._system(self._calls.submit, self._context, ctypes.c_long(count), self._submitted))
        for number in numbers[:begun]:
            self._groups[number] = group
        group.left = begun
        if begun < count:
            logger.debug("the kernel does not sync by itself: %s", os.strerror(ctypes.get_errno()))
            self._free.extend(numbers[begun:])
            group.forget()
        return begun == count

    def start_all(self, descriptor: int, synced: Synced) -> bool:
        if self._is_stopped:
            return False
        found = self._file_systems.get(descriptor)
        if found is None:
            try:
                from headrace.storage.file_system_syncs import FileSystemSyncs  # for who has so many files to sync

                found = self._file_systems[descriptor] = FileSystemSyncs(self._loop, descriptor)
            except (OSError, ImportError, RuntimeError) as error:  # no descriptor or no thread is left
                logger.debug("no thread syncs by itself: %s", error)
                return False
        return found.start(synced)

    def _ready(self) -> None:
        try:
            os.eventfd_read(self._ready_fd)
        except BlockingIOError:
            return
        calls = self._calls
        count = self._system(calls.events, self._context, ctypes.c_long(0), ctypes.c_long(DEPTH), self._events, None)
        ended = [_EVENT.unpack_from(self._events, _EVENT.size * index) for index in range(count)]
        for number, _, result, _ in ended:
            group, self._groups[number] = self._groups[number], None
            self._free.append(number)
            assert group is not None, "what ended was under way"
            group.ended(-result if result < 0 else 0)

    def stop(self) -> None:
        """Waits for what is under way, of which nobody is told any more."""
        self._is_stopped = True
        for file_system in self._file_systems.values():
            file_system.stop()
        self._loop.remove_reader(self._ready_fd)
        self._system(self._calls.destroy, self._context)
        os.close(self._ready_fd)


class _Group:
    __slots__ = ("_error", "_synced", "left")

    def __init__(self, synced: Synced) -> None:
        self._synced: Synced | None = synced
        self._error = 0
        self.left = 0

    def ended(self, error: int) -> None:
        self.left -= 1
        self._error = self._error or error
        if not self.left and self._synced is not None:
            self._synced(self._error)

    def forget(self) -> None:
        """Somebody else does it."""
        self._synced = None
