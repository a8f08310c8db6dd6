# cython: language_level=3, annotation_typing=False, nonecheck=True
"""The real disk: a folder of the local file system behind the disk port."""

from __future__ import annotations

import errno
import fcntl
import functools
import os
import re
import stat as stat_bits
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from time import thread_time_ns
from typing import Final, NoReturn

from headrace.named_tuple import NamedTuple
from headrace.storage.disk import (
    COLD_AHEAD_BYTES,
    IMPATIENT,
    LOCK_FILE,
    Bytes,
    Disk,
    DiskError,
    DiskInUse,
    File,
    FileStat,
    FileThere,
    FileVanished,
    Lock,
    NoFolder,
    Result,
    SyncFailed,
    disk_error,
)

WRITE_BACK_STEP_BYTES: Final = 256 << 10
"""What is written back at a time where somebody syncs: a quarter of a millisecond of a disk that writes a gigabyte a
second."""
SLOW_NS_A_BYTE: Final = 1
"""Of the processor. To write to memory that is at hand takes a third of it."""
_VECTOR_LENGTH_MAX: Final = 1024  # IOV_MAX of every system we run on
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")


class LocalDisk(Disk):
    """A folder of the local file system. It makes the folder when it is missing."""

    __slots__ = ("_descriptor",)

    def __init__(self, root: str) -> None:
        super().__init__(os.path.abspath(root))
        try:
            self.make_directory("")
        except (FileVanished, FileThere) as error:
            raise NoFolder(error.path, "it is no folder" if os.path.exists(self.root) else error.reason) from error
        # Open from the start: it is told of every failed write-back after that, whichever file it was in.
        self._descriptor = self._call("", os.open, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def close(self) -> None:
        if self._descriptor >= 0:
            descriptor, self._descriptor = self._descriptor, -1
            os.close(descriptor)

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> LocalFile:
        flags = (os.O_RDONLY if read_only else os.O_RDWR) | (os.O_CREAT if create else 0) | os.O_CLOEXEC
        return self._file(path, self._call(path, os.open, flags, 0o644))

    def _file(self, path: str, descriptor: int) -> LocalFile:
        return LocalFile(self, path, descriptor)

    def read(self, path: str) -> bytes:
        if IMPATIENT.get():
            file = self.open(path, read_only=True)
            try:
                return file.read(0, file.size())
            finally:
                file.close()
        return self._call(path, _read_all)

    def rename(self, path: str, new_path: str) -> None:
        self._call(path, os.rename, self.full_path(new_path))

    def remove(self, path: str) -> None:
        self._call(path, os.unlink)

    def make_directory(self, path: str) -> None:
        self._call(path, os.makedirs, 0o755, True)

    def remove_directory(self, path: str) -> None:
        self._call(path, os.rmdir)

    def sync_directory(self, path: str) -> None:
        self.promise()
        descriptor = self._call(path, os.open, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        except OSError as error:
            self.sync_failed(path, error)
        finally:
            os.close(descriptor)

    def sync_all(self) -> bool:
        self.promise()
        if not _has_syncfs():
            return False
        number = sync_file_system(self._descriptor)
        if number:
            self.sync_failed("", OSError(number, os.strerror(number)))
        return True

    def fileno(self) -> int | None:
        return self._descriptor if _has_syncfs() else None

    def names(self, path: str = "") -> list[str]:
        return sorted(self._call(path, os.listdir))

    def scan(self, path: str = "") -> dict[str, FileStat]:
        return self._call(path, _scan)

    def stat(self, path: str) -> FileStat:
        return _file_stat(self._call(path, os.stat))

    def exists(self, path: str) -> bool:
        try:
            self.stat(path)
        except FileVanished:
            return False
        return True

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        modified_ns = modified_ms * 1_000_000
        self._call(path, lambda full_path: os.utime(full_path, ns=(modified_ns, modified_ns)))

    def free_bytes(self) -> int:
        space = self._call("", os.statvfs)
        return space.f_bavail * space.f_frsize

    def total_bytes(self) -> int:
        space = self._call("", os.statvfs)
        return space.f_blocks * space.f_frsize

    def lock(self) -> LocalLock:
        descriptor = self._call(LOCK_FILE, os.open, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)  # against another node in this process
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)  # the kind that Java takes
        except OSError as error:
            os.close(descriptor)
            if error.errno in (errno.EAGAIN, errno.EACCES):
                raise DiskInUse(self.root) from error
            raise disk_error(self.full_path(LOCK_FILE), error) from error
        return LocalLock(descriptor)

    def sync_failed(self, path: str, error: OSError) -> NoReturn:
        """Goes offline, with the first failure as the reason."""
        failure = SyncFailed(self.full_path(path), os.strerror(error.errno or 0))
        self.go_offline(failure)
        raise failure from error

    def _call(self, path: str, call: Callable[..., Result], *arguments: object) -> Result:
        full_path = self.full_path(path)
        try:
            return call(full_path, *arguments)
        except OSError as error:
            raise disk_error(full_path, error) from error


class LocalFile(File):
    __slots__ = ("_beat", "_descriptor", "_disk", "_is_random")

    def __init__(self, disk: LocalDisk, path: str, descriptor: int) -> None:
        super().__init__(path)
        self._disk = disk
        self._descriptor = descriptor
        self._is_random = False
        self._beat = disk.sync_beats[0]  # of the syncs, when it was last written much to

    def write(self, position: int, buffers: Sequence[Bytes]) -> int:
        is_one = len(buffers) == 1
        size = len(buffers[0]) if is_one else sum(map(len, buffers))
        try:
            if not is_one:
                written = os.pwritev(self._descriptor, buffers, position)
            elif size <= WRITE_BACK_STEP_BYTES:
                written = os.pwrite(self._descriptor, buffers[0], position)
            else:
                written = self._write_much(buffers[0], position, size)
        except OSError as error:
            if error.errno != errno.EINVAL or len(buffers) <= _VECTOR_LENGTH_MAX:
                raise self._error(error) from error
            written = 0  # too many buffers for one call
        # Short when the disk is about to be full, above 2 GB, or with too many buffers: then the rest says which.
        return size if written == size else self._write_rest(position, buffers, written, size)

    def _write_much(self, buffer: Bytes, position: int, size: int) -> int:
        began_ns = thread_time_ns()
        disk = self._disk
        if self._beat == disk.sync_beats[0]:
            written = os.pwrite(self._descriptor, buffer, position)
        else:
            self._beat = disk.sync_beats[0]
            written = _write_in_pieces(self._descriptor, buffer, position, size)
        if thread_time_ns() - began_ns > size * SLOW_NS_A_BYTE:
            disk.slow_beats[0] = (disk.slow_beats[0] + 1) & 0xFF
        return written

    def _write_rest(self, position: int, buffers: Sequence[Bytes], written: int, size: int) -> int:
        rest = [memoryview(buffer) for buffer in buffers]
        try:
            while written < size:
                skip = written
                start = 0
                while skip >= len(rest[start]):
                    skip -= len(rest[start])
                    start += 1
                written += os.pwritev(
                    self._descriptor,
                    [rest[start][skip:], *rest[start + 1 : start + _VECTOR_LENGTH_MAX]],
                    position + written,
                )
        except OSError as error:
            raise self._error(error) from error
        return written

    def read(self, position: int, size: int) -> bytes:
        if IMPATIENT.get():
            return self.read_impatiently(self._disk, position, size)
        try:
            found = os.pread(self._descriptor, size, position)
            if len(found) < size:
                while more := os.pread(self._descriptor, size - len(found), position + len(found)):
                    found += more
        except OSError as error:
            raise self._error(error) from error
        return found

    def read_into(self, position: int, buffer: bytearray | memoryview) -> int:
        try:
            found = os.preadv(self._descriptor, [buffer], position)
            if found < len(buffer):
                rest = memoryview(buffer)
                while more := os.preadv(self._descriptor, [rest[found:]], position + found):
                    found += more
        except OSError as error:
            raise self._error(error) from error
        return found

    def read_cached(self, position: int, buffer: bytearray | memoryview) -> int | None:
        if sys.platform != "linux":
            return self.read_into(position, buffer)
        self._end_read_ahead()
        # A read that must not wait starts the read-ahead, and may wait with that for room in the device's queue.
        if len(buffer) >= _ASKED_BYTES_MIN and self.is_cached(position, len(buffer)) is False:
            return None
        try:
            return os.preadv(self._descriptor, [buffer], position, os.RWF_NOWAIT)
        except BlockingIOError:
            return None
        except OSError as error:
            if error.errno == errno.EOPNOTSUPP:
                return self.read_into(position, buffer)
            raise self._error(error) from error

    def read_cold(self, position: int, buffer: bytearray | memoryview) -> int:
        if sys.platform != "linux":
            return self.read_into(position, buffer)
        self._end_read_ahead()
        found = self.read_into(position, buffer)
        os.posix_fadvise(self._descriptor, position + found, COLD_AHEAD_BYTES, os.POSIX_FADV_WILLNEED)
        return found

    def is_cached(self, position: int, size: int) -> bool | None:
        cached_pages = _library().cached_pages
        if cached_pages is None:
            return None
        found = cached_pages(self._descriptor, position, size)
        if found < 0:
            return None
        return found >= _pages(position, position + size) or found >= _pages(
            position, min(position + size, self.size())
        )

    def has_come(self, position: int, size: int) -> bool:
        has_come = _library().has_come
        return has_come is None or has_come(self._descriptor, position, size)

    def size(self) -> int:
        try:
            return os.fstat(self._descriptor).st_size
        except OSError as error:
            raise self._error(error) from error

    def truncate(self, size: int) -> None:
        try:
            os.ftruncate(self._descriptor, size)
        except OSError as error:
            raise self._error(error) from error

    def preallocate(self, size: int) -> None:
        try:
            if sys.platform == "darwin":
                os.ftruncate(self._descriptor, max(size, self.size()))
            else:
                os.posix_fallocate(self._descriptor, 0, size)
        except OSError as error:
            raise self._error(error) from error

    def datasync(self) -> None:
        self._disk.promise()
        try:
            _datasync(self._descriptor)
        except OSError as error:
            self._disk.sync_failed(self.path, error)

    def start_writeback(self, position: int, size: int) -> None:
        write_back(self._descriptor, position, size)

    def forget_cached(self) -> None:
        if sys.platform == "linux":
            os.posix_fadvise(self._descriptor, 0, 0, os.POSIX_FADV_DONTNEED)

    def walk(self, is_walked: bool) -> None:
        if sys.platform == "linux":
            advice = os.POSIX_FADV_SEQUENTIAL if is_walked else os.POSIX_FADV_NORMAL
            os.posix_fadvise(self._descriptor, 0, 0, advice)
            self._is_random = False

    def fileno(self) -> int:
        return self._descriptor

    def to_send(self) -> int | None:
        if not self.is_sendable:
            return None
        self._end_read_ahead()
        return self._descriptor

    def _end_read_ahead(self) -> None:
        """Before anything is read: its marks would make whoever comes to them start more of it, on the loop.

        One mark is followed by others, whatever is said meanwhile, and a system may read 8 MB at each.
        """
        if not self._is_random and sys.platform == "linux":
            self._is_random = True
            with suppress(OSError):  # it was only advice
                os.posix_fadvise(self._descriptor, 0, 0, os.POSIX_FADV_RANDOM)

    @property
    def sync_beats(self) -> bytearray:
        return self._disk.sync_beats

    def _close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        os.close(descriptor)

    def _error(self, error: OSError) -> DiskError:
        return disk_error(self._disk.full_path(self.path), error)


class LocalLock(Lock):
    __slots__ = ("_descriptor",)

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def release(self) -> None:
        if self._descriptor >= 0:
            descriptor, self._descriptor = self._descriptor, -1
            os.close(descriptor)


def _read_all(full_path: str) -> bytes:
    with open(full_path, "rb", buffering=0) as file:
        return file.readall()


def _scan(full_path: str) -> dict[str, FileStat]:
    found = {}
    with os.scandir(full_path) as entries:
        for entry in entries:
            try:
                found[entry.name] = _file_stat(entry.stat())
            except FileNotFoundError:
                continue  # gone since it was listed: tools look on while a node removes files
    return dict(sorted(found.items()))


def _file_stat(found: os.stat_result) -> FileStat:
    return FileStat(found.st_size, found.st_mtime_ns // 1_000_000, stat_bits.S_ISDIR(found.st_mode))


def _device_sync() -> Callable[[int], None]:
    if sys.platform == "darwin":
        # There an fsync only reaches the drive's cache.
        return lambda descriptor: (fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC), None)[1]
    return os.fdatasync


class _Library(NamedTuple):
    """What Python's os module lacks. Loaded on first use: ctypes takes 2 to 20 ms, and start-up does not need it."""

    sync_file_range: Callable[[int, int, int, int], int] | None = None
    syncfs: Callable[[int], int] | None = None
    cached_pages: Callable[[int, int, int], int] | None = None
    """How many pages of a range are in memory; -1 when this file system does not tell."""
    has_come: Callable[[int, int, int], bool] | None = None


@functools.cache
def _library() -> _Library:
    if sys.platform != "linux":
        return _Library()
    import ctypes

    from headrace.storage.page_cache import cached_pages, has_come

    library = ctypes.CDLL(None, use_errno=True)
    sync_file_range = library.sync_file_range
    sync_file_range.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)

    def syncfs(descriptor: int) -> int:
        return ctypes.get_errno() if library.syncfs(descriptor) else 0

    return _Library(sync_file_range, syncfs, cached_pages if _kernel_version() >= (6, 5) else None, has_come)


@functools.cache
def _kernel_version() -> tuple[int, int]:
    major, minor = re.findall(r"\d+", os.uname().release + ".0.0")[:2]
    return int(major), int(minor)


def _has_syncfs() -> bool:
    """Before Linux 5.8 it did not report a failed write-back, and a promise that can't fail is none (hazard 8)."""
    return sys.platform == "linux" and _kernel_version() >= (5, 8)


def sync_file_system(descriptor: int) -> int:
    """The number of the error, or 0. For systems with such a call (see `LocalDisk.fileno`)."""
    syncfs = _library().syncfs
    assert syncfs is not None
    return syncfs(descriptor)


def sync_descriptor(descriptor: int) -> int:
    """The number of the error, or 0."""
    try:
        _datasync(descriptor)
    except OSError as error:
        return error.errno or errno.EIO
    except ValueError:  # no number of a descriptor
        return errno.EBADF
    return 0


def _write_in_pieces(descriptor: int, buffer: Bytes, position: int, size: int) -> int:
    """Where somebody syncs: what is written by one call the system may keep in memory as one, and write back only as
    one (seen with Linux 6.18 and ext4), and their syncs would wait for all of it."""
    view, written, piece = memoryview(buffer), 0, WRITE_BACK_STEP_BYTES
    while written < size and piece == WRITE_BACK_STEP_BYTES:
        piece = os.pwrite(descriptor, view[written : written + WRITE_BACK_STEP_BYTES], position + written)
        written += piece
    return written


def write_back(descriptor: int, position: int, size: int) -> None:
    """Starts it, where there is such a call."""
    sync_file_range = _library().sync_file_range
    if sync_file_range is not None:
        sync_file_range(descriptor, position, size, _SYNC_FILE_RANGE_WRITE)


def _pages(start: int, end: int) -> int:
    return (end - 1) // _PAGE_BYTES - start // _PAGE_BYTES + 1 if end > start else 0


_SYNC_FILE_RANGE_WRITE: Final = 2
_ASKED_BYTES_MIN: Final = 16 << 10
"""What is smaller is read at once: to ask first costs as much."""
_datasync: Final = _device_sync()
