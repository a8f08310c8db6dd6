"""The disk: the one port through which storage touches files. `local_disk` is the real one.

What is deliberately not in it:

- No buffering: a write is one system call. The page cache is the buffer, and `datasync` is the promise.
- No seek position: every read and write names its place, so that readers and the appender share one descriptor.
- No memory maps: they go around the port, can kill the process by a signal, and stall the loop on a page fault.
- No retry of a failed sync: the kernel drops the page and tells once, so a second sync would lie (hazard 8). After the
  first failure the disk is `offline`: it still reads, but it promises nothing any more.
- No recursion: whoever removes a tree names each file of it.
- No threads: calls block. A file that is held (`File.hold`) may be read, synced or written back by a worker thread;
  every other call on it belongs to the thread that owns the disk.

A crash in a simulation is a BaseException out of any of these calls, so no code here catches more than OSError.
Paths are relative to the root of the disk, with "/" between their parts; "" is the root.
"""

from __future__ import annotations

import errno
import logging
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Final, TypeAlias, TypeVar

from headrace.errors import HeadraceError
from headrace.named_tuple import NamedTuple
from headrace.storage.refusals import Refusals

logger = logging.getLogger(__name__)

Result = TypeVar("Result")
Bytes: TypeAlias = bytes | bytearray | memoryview

LOCK_FILE: Final = ".lock"
RESERVE_FILE: Final = ".reserve"
RESERVE_BYTES: Final = 4 << 20
RESERVE_SHARE: Final = 64
"""Of a small disk one part in so many is kept back."""
WRITE_BEHIND_BYTES: Final = 1 << 20
"""The write-back of as much is started at once, so that a sync finds little that is dirty."""
AHEAD_BYTES: Final = 1 << 20
"""What is brought into memory for whoever is sent a log through, before it is asked for: little by little."""
COLD_AHEAD_BYTES: Final = 4 << 20
"""The same for who reads it into buffers, and asks only when nothing is left: at once."""
TEMPORARY_SUFFIX: Final = ".tmp"
"""What `replace` appends while it writes; a file of that name at start-up is left over from a crash."""


IMPATIENT: Final[ContextVar[bool]] = ContextVar("impatient", default=False)
"""Set while something is looked up on the loop: reads that would wait for the device raise ReadWouldWait."""


class FileStat(NamedTuple):
    size: int
    modified_ms: int
    is_directory: bool


class File(ABC):
    """One open file. Positions are absolute; writing past the end leaves a hole that reads as zeros."""

    __slots__ = ("_closing", "_holds", "asked_for", "is_sendable", "path")

    def __init__(self, path: str) -> None:
        self.path = path
        self.asked_for = 0
        """Up to here, whoever reads on has asked for it to be brought into memory."""
        self.is_sendable = True
        """Nothing went wrong when it was sent from its descriptor: what does is seen by whoever reads it."""
        self._holds = 0
        self._closing = False

    @abstractmethod
    def write(self, position: int, buffers: Sequence[Bytes]) -> int:
        """Writes all the buffers, one after another, from `position` on; returns how many bytes that were.

        When it raises, any part of them may have been written: the caller cuts the file back to where it was.
        """

    @abstractmethod
    def read(self, position: int, size: int) -> bytes:
        """Up to `size` bytes; fewer only at the end of the file."""

    @abstractmethod
    def read_into(self, position: int, buffer: bytearray | memoryview) -> int:
        """Fills the buffer; returns how many bytes there were, fewer than its length only at the end of the file."""

    @abstractmethod
    def read_cached(self, position: int, buffer: bytearray | memoryview) -> int | None:
        """Reads without waiting for the device: some of the bytes, 0 at the end, or None when it would wait."""

    def read_cold(self, position: int, buffer: bytearray | memoryview) -> int:
        """As `read_into`, for whoever reads on behind it next, and expects to wait for the device."""
        return self.read_into(position, buffer)

    def read_impatiently(self, disk: Disk, position: int, size: int) -> bytes:
        """As `read`, but raises ReadWouldWait instead of waiting for the device."""
        buffer = bytearray(size)
        filled = 0
        found = self.read_cached(position, buffer)
        while found != size - filled:
            if found is None:
                raise ReadWouldWait(disk, self.path, position, size)
            if not found:
                del buffer[filled:]
                break
            filled += found
            found = self.read_cached(position + filled, memoryview(buffer)[filled:])
        return bytes(buffer)

    @abstractmethod
    def size(self) -> int: ...

    @abstractmethod
    def truncate(self, size: int) -> None:
        """Cuts the file (or extends it by zeros). As durable as a write: not before the next `datasync`."""

    @abstractmethod
    def preallocate(self, size: int) -> None:
        """Reserves blocks and makes the file at least `size` long; what was not written reads as zeros."""

    @abstractmethod
    def datasync(self) -> None:
        """Returns when every byte written before the call survives a loss of power. Raises only SyncFailed."""

    @abstractmethod
    def start_writeback(self, position: int, size: int) -> None:
        """Starts the write-back of a range without waiting for it and without any promise."""

    @abstractmethod
    def forget_cached(self) -> None:
        """Drops clean pages from memory, so that the next read shows what the device holds (after a failed sync)."""

    def walk(self, is_walked: bool) -> None:
        """Tells the system that it is read from one end to the other from here on, or not any more: much at a time."""
        return

    @abstractmethod
    def fileno(self) -> int | None:
        """The descriptor, for those who hold the file; None where there is none."""

    def to_send(self) -> int | None:
        """The descriptor, for whoever sends from it, and asks for what comes next: the system reads nothing ahead then.

        None where it is not to be sent from.
        """
        return self.fileno() if self.is_sendable else None

    @property
    @abstractmethod
    def sync_beats(self) -> bytearray:
        """The disk's."""

    def is_cached(self, position: int, size: int) -> bool | None:
        """Whether a range of the file is in memory, or on its way there; None where the system can't tell."""
        return None

    def has_come(self, position: int, size: int) -> bool:
        """Whether a range can be read without a wait, as far as a look here and there tells."""
        return True

    def is_at_hand(self, position: int, size: int) -> bool:
        """It is in memory, and not because whoever reads on from a cold disk has asked for it.

        Who reads it right now does not wait; a moment later it may be gone.
        """
        is_replayed = self.asked_for - AHEAD_BYTES < position + size <= self.asked_for
        return not is_replayed and self.is_cached(position, size) is True and self.has_come(position, size)

    def ahead_of(self, position: int, size: int) -> tuple[int, int]:
        """What is to be brought into memory for whoever reads these bytes, and reads on: its position and size.

        Nothing where it is there already: then this was a cold spot, and no replay from a cold disk.
        """
        end = position + size + AHEAD_BYTES
        start = max(position, self.asked_for) if position <= self.asked_for <= end else position
        if start == end:
            return 0, 0
        is_there = self.is_cached(start, end - start)
        if is_there is None:
            is_there = self.has_come(start, end - start)
        if is_there:
            return 0, 0
        self.asked_for = end
        return start, end - start

    @abstractmethod
    def _close(self) -> None: ...

    def hold(self) -> None:
        """Keeps the descriptor open for a reader or a worker thread, even over `close` and over the file's removal."""
        self._holds += 1

    def release(self) -> None:
        """Ends one hold; the last one closes the file when `close` was called meanwhile."""
        assert self._holds > 0, "a file is released as often as it was held"
        self._holds -= 1
        if self._closing and not self._holds:
            self._close()

    def close(self) -> None:
        """Closes, now or when the last hold ends. Closing is no promise: sync first. Closing twice is harmless."""
        if not self._closing:
            self._closing = True
            if not self._holds:
                self._close()

    @property
    def closed(self) -> bool:
        return self._closing


class Lock(ABC):
    """An exclusive claim on a disk, held until `release` or the end of the process."""

    __slots__ = ()

    @abstractmethod
    def release(self) -> None: ...


class Disk(ABC):
    """A folder of files. Everything above storage is handed one; the simulator hands in one that crashes."""

    __slots__ = (
        "asked_room_ms",
        "has_reserve",
        "is_tight",
        "offline",
        "on_offline",
        "refusals",
        "root",
        "slow_beats",
        "sync_beats",
    )

    def __init__(self, root: str) -> None:
        self.root = root
        self.sync_beats = bytearray(1)
        """One byte that counts when a sync that replies wait for begins, and when it ends: odd while one is under way,
        which who has much to read lets pass. A byte, so that threads without the interpreter can look at it."""
        self.slow_beats = bytearray(1)
        """One byte that counts what took so long that it must have waited for memory; `headroom` looks at it."""
        self.on_offline: Callable[[SyncFailed], None] = lambda failure: None
        """Called once, by whoever's sync failed first, in that thread."""
        self.offline: SyncFailed | None = None
        """The first failed sync. From then on everything that makes a promise raises it again."""
        self.refusals = Refusals()
        self.has_reserve = False
        """There is room that only what leads out of a full disk may take; `reserve` keeps it."""
        self.is_tight = False
        """Some of that room is in use, or can't be had: no records are taken, and no logs made, until there is more."""
        self.asked_room_ms = 0
        """When that was last looked for."""

    @abstractmethod
    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> File:
        """Opens a file. With `create` it may be missing, and its name is durable after `sync_directory`."""

    @abstractmethod
    def read(self, path: str) -> bytes:
        """A whole small file."""

    def replace(self, path: str, content: Bytes) -> None:
        """Puts a small file in place so that after any crash it holds the old content or the new one, and syncs it.

        Two syncs: leave the loop for it. On a full disk it takes the reserve.
        """
        self.promise()
        self.with_reserve(lambda: self._replace(path, content))

    def _replace(self, path: str, content: Bytes) -> None:
        file = self.open(path + TEMPORARY_SUFFIX, create=True)
        try:
            file.truncate(0)
            file.write(0, [content])
            file.datasync()
        except DiskFull:
            with suppress(DiskError):
                file.truncate(0)  # what it took others may need
            raise
        finally:
            file.close()
        self.rename(path + TEMPORARY_SUFFIX, path)
        self.sync_directory(path.rpartition("/")[0])

    @abstractmethod
    def rename(self, path: str, new_path: str) -> None:
        """Renames a file or a directory, over a file that is there. Durable after `sync_directory` of both parents."""

    @abstractmethod
    def remove(self, path: str) -> None:
        """Removes a file. Descriptors that are open on it go on reading."""

    @abstractmethod
    def make_directory(self, path: str) -> None:
        """Makes a directory and those above it; one that exists is left as it is."""

    @abstractmethod
    def remove_directory(self, path: str) -> None:
        """Removes an empty directory."""

    @abstractmethod
    def sync_directory(self, path: str) -> None:
        """Makes the names in a directory durable: those created, renamed and removed. SyncFailed when that fails."""

    @abstractmethod
    def sync_all(self) -> bool:
        """Makes all bytes and all names durable at once, where the system can do that and tells when it fails.

        False when it can't: then sync each file. It waits for whatever else the system has yet to write there.
        """

    def fileno(self) -> int | None:
        """A descriptor by which the system itself can be asked for what `sync_all` does; None where it can't."""
        return None

    @abstractmethod
    def names(self, path: str = "") -> list[str]:
        """The names in a directory, sorted."""

    @abstractmethod
    def scan(self, path: str = "") -> dict[str, FileStat]:
        """The names in a directory, sorted, each with what `stat` says, in one pass."""

    @abstractmethod
    def stat(self, path: str) -> FileStat: ...

    @abstractmethod
    def exists(self, path: str) -> bool: ...

    @abstractmethod
    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        """A cleaned segment keeps the age of the one it replaces."""

    @abstractmethod
    def free_bytes(self) -> int:
        """What this process may still write."""

    @abstractmethod
    def total_bytes(self) -> int: ...

    def reserve_bytes(self) -> int:
        """How much is kept back."""
        return min(RESERVE_BYTES, self.total_bytes() // RESERVE_SHARE)

    def with_reserve(self, write: Callable[[], Result]) -> Result:
        """Does what leads out of a full disk, in the reserve where there is no other room."""
        had_reserve = self.has_reserve  # before: another thread may spend it meanwhile, and there is room then
        try:
            return write()
        except DiskFull:
            if not had_reserve:
                raise
            with self.spent_reserve():
                return write()

    def tighten(self) -> None:
        """No records are taken from here on."""
        if not self.is_tight:
            room = f"{-(-2 * self.reserve_bytes() >> 10):,} KiB"
            logger.error("%s is full, and takes no records until %s are free: delete or trim topics", self.root, room)
        self.is_tight = True

    @contextmanager
    def spent_reserve(self) -> Iterator[None]:
        """Whatever leads out of a full disk has the room that was kept for it; what that leaves is kept again."""
        self.has_reserve = False
        self.tighten()
        with suppress(DiskError):  # then there is no room
            self._cut_reserve()
        try:
            yield
        finally:
            with suppress(DiskError):
                self._keep_rest()

    def keep_reserve(self, size_bytes: int, spare_bytes: int) -> None:
        """Makes the file as large, if there is room for so much more beside it: that is found out by taking it.

        What a system says is free may not be what this process may take, which may be more, or less.
        """
        file = self.open(RESERVE_FILE, create=True)
        try:
            found_bytes = file.size()
            try:
                file.preallocate(size_bytes + spare_bytes)
            except DiskError:
                file.truncate(found_bytes)  # a part of it may be taken
                raise
            file.truncate(size_bytes)
        finally:
            file.close()
        self.has_reserve = True

    def _cut_reserve(self) -> None:
        """Its name stays, which takes room of another kind."""
        file = self.open(RESERVE_FILE)
        try:
            file.truncate(0)
        finally:
            file.close()

    def _keep_rest(self) -> None:
        """As many sixteenths as there are, but one, which stays free for directories and the like."""
        part_bytes = self.reserve_bytes() // 16
        for parts in range(15, 0, -1):
            with suppress(DiskFull):
                self.keep_reserve(parts * part_bytes, part_bytes)
                return

    @abstractmethod
    def lock(self) -> Lock:
        """Claims the disk for this process, or raises DiskInUse. Kafka honours the same lock."""

    @abstractmethod
    def close(self) -> None:
        """Gives back what the disk itself holds open. Its files are closed one by one, before."""

    def full_path(self, path: str) -> str:
        """The path as a person knows it."""
        return f"{self.root}/{path}" if path else self.root

    def go_offline(self, failure: SyncFailed) -> None:
        """A sync has failed: the first failure is the reason, and is told."""
        if self.offline is None:
            self.offline = failure
            self.on_offline(failure)

    def promise(self) -> None:
        """Raises when a sync has failed before: the disk promises nothing any more."""
        if self.offline is not None:
            raise SyncFailed(self.offline.path, self.offline.reason)


class ReadWouldWait(Exception):
    """What was looked up is not in memory. Let a worker call `warm`, then try again."""

    def __init__(self, disk: Disk, path: str, position: int, size: int) -> None:
        super().__init__(f"{disk.full_path(path)} bytes {position}..{position + size}")
        self._disk = disk
        self._path = path
        self._position = position
        self._size = size

    def warm(self) -> None:
        """Reads it, so that it is in memory for the next one. Through a descriptor of its own: it is for any thread."""
        file = self._disk.open(self._path, read_only=True)
        try:
            file.read_into(self._position, bytearray(self._size))
        finally:
            file.close()


class DiskError(HeadraceError):
    """The disk did not do as it was asked. `path` says where, the message what to do."""

    advice = "could not be read or written ({reason}); check the disk and the kernel's log, then restart"

    def __init__(self, path: str, reason: str = "") -> None:
        self.path = path
        self.reason = reason
        super().__init__(f"{path} " + self.advice.format(reason=reason or "no reason given"))


class DiskFull(DiskError):
    """Nothing more fits. The partial write is to be cut; the log stays online and refuses."""

    advice = "can't grow because the disk is full; free space on it, or delete or trim topics"


class DiskReadOnly(DiskError):
    advice = "can't be written because its file system is read-only; mount it for writing or choose another folder"


class NoPermission(DiskError):
    advice = "may not be used by this user; give the user that runs the node read and write access to the log directory"


class FileVanished(DiskError):
    advice = "does not exist; if something outside the node removed it, restart the node so that it recovers"


class FileThere(DiskError):
    advice = "can't be made because something of that name is in its place; move it out of the log directory"


class NoFolder(DiskError):
    advice = "can't be a log directory ({reason}); choose a folder that can be made, or one that is there"


class TooManyOpenFiles(DiskError):
    advice = "can't be opened because too many files are open; raise the limit of open files (ulimit -n)"


class DiskInUse(DiskError):
    advice = "is in use by another process; stop that one or choose another folder"


class SyncFailed(DiskError):
    """A sync failed, so what was written before it may be gone. Its log directory is offline until a restart."""

    advice = "could not be synced ({reason}), so its log directory is offline; check the disk, then restart the node"


_ERRORS: Final[dict[int, type[DiskError]]] = {
    errno.ENOSPC: DiskFull,
    errno.EDQUOT: DiskFull,
    errno.EROFS: DiskReadOnly,
    errno.EACCES: NoPermission,
    errno.EPERM: NoPermission,
    errno.ENOENT: FileVanished,
    errno.ESTALE: FileVanished,
    errno.EEXIST: FileThere,
    errno.ENOTDIR: FileThere,
    errno.EISDIR: FileThere,
    errno.ENOTEMPTY: FileThere,
    errno.EMFILE: TooManyOpenFiles,
    errno.ENFILE: TooManyOpenFiles,
}


def disk_error(path: str, error: OSError) -> DiskError:
    """The error of the family that an errno stands for."""
    number = error.errno or 0
    return _ERRORS.get(number, DiskError)(path, os.strerror(number))
