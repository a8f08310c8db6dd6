"""A disk in memory that crashes, loses, tears, fills up and lies, by a plan: the disk port for tests and simulations.

A `FaultyDisk` is one incarnation of a process on a `Platter`. A crash is a BaseException out of any call, and every
later call of that incarnation raises it too, so that no `finally` does anything more. `restart` gives the next
incarnation: after a crash of the process the page cache is all there; after a crash of the machine, unsynced bytes and
unsynced names are lost, in part, torn at any byte.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from headrace.storage.disk import (
    LOCK_FILE,
    Bytes,
    Disk,
    DiskError,
    DiskFull,
    DiskInUse,
    DiskReadOnly,
    File,
    FileStat,
    FileThere,
    FileVanished,
    Lock,
    NoPermission,
    SyncFailed,
    TooManyOpenFiles,
)
from headrace.testing.disk_platter import Directory, NameChange, Node, Platter, Resize, Write

__all__ = ["Crash", "Faults", "FaultyDisk", "Platter"]

_ENDLESS_BYTES: Final = 1 << 40
_RESERVE_BYTES: Final = 4096
"""Little, as what is kept in memory here is."""


class Crash(BaseException):
    """The process, or its machine, is dead. No `except Exception` sees it, and no `finally` can do anything more."""


@dataclass(slots=True)
class Faults:
    """The plan. Calls and syncs are counted from 1 over the life of one incarnation; any part may change meanwhile."""

    crash_at_call: int = 0
    """A write dies in its middle; any other call dies before it does anything."""
    fail_sync_at: int = 0
    """This one sync fails, and its pages never reach the device."""
    errors_at_calls: dict[int, type[DiskError]] = field(default_factory=dict)
    capacity_bytes: int | None = None
    copies_on_write: bool = False
    """What is written over takes room as well, as on some file systems."""
    open_files_max: int = 1 << 20
    read_only: bool = False
    forbidden: tuple[str, ...] = ()
    """Paths, and what is below them, that this user may not touch."""
    unreadable: tuple[str, ...] = ()
    """Files whose reads fail, as on a bad sector."""
    can_sync_all: bool = True


class FaultyDisk(Disk):
    """One incarnation of a process on a platter."""

    __slots__ = ("calls", "dead", "faults", "now_ms", "open_files", "platter", "syncs", "trace")

    def __init__(
        self,
        platter: Platter | None = None,
        faults: Faults | None = None,
        *,
        root: str = "/disk",
        now_ms: Callable[[], int] | None = None,
    ) -> None:
        super().__init__(root)
        self.platter = platter or Platter()
        self.faults = faults or Faults()
        self.calls: int = 0
        self.syncs = 0
        self.open_files = 0
        self.dead = False
        self.trace: list[str] | None = None
        """A test that compares two runs puts a list here."""
        self.now_ms = now_ms or (lambda: self.calls)

    def crash(self) -> None:
        """Kills the incarnation from outside; what it wrote is where it is."""
        self.dead = True

    def restart(self, *, power_lost: bool = False, faults: Faults | None = None) -> FaultyDisk:
        """The next incarnation, after a crash of the process or, with `power_lost`, of its machine."""
        self.dead = True
        self.platter.holder = None
        if power_lost:
            self.platter.lose_power()
        return FaultyDisk(self.platter, faults, root=self.root, now_ms=self.now_ms)

    # The port

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> FaultyFile:
        self.call("open", path)
        if self.open_files >= self.faults.open_files_max:
            raise TooManyOpenFiles(self.full_path(path))
        if create and self.platter.find(path) is None:
            self.writing(path)
            node = Node(modified_ms=self.now_ms())
            self.platter.change(NameChange(None, (*self._place(path), node)))
        else:
            node = self._file(path)
            if not read_only:
                self.writing(path)
        self.open_files += 1
        return FaultyFile(self, path, node, read_only)

    def read(self, path: str) -> bytes:
        self.call("read", path)
        self.reading(path)
        return bytes(self._file(path).cached)

    def rename(self, path: str, new_path: str) -> None:
        self.call("rename", path)
        self.writing(path)
        node = self.platter.find(path)
        if node is None:
            raise FileVanished(self.full_path(path))
        there = self.platter.find(new_path)
        if isinstance(there, Directory) if isinstance(node, Node) else there is not None:
            raise FileThere(self.full_path(path))
        self.platter.change(NameChange(self._place(path), (*self._place(new_path), node)))

    def remove(self, path: str) -> None:
        self.call("remove", path)
        self.writing(path)
        self._file(path)
        self.platter.change(NameChange(self._place(path), None))

    def make_directory(self, path: str) -> None:
        self.call("make_directory", path)
        parts = path.split("/") if path else []
        for length in range(1, len(parts) + 1):
            part = "/".join(parts[:length])
            found = self.platter.find(part)
            if isinstance(found, Node):
                raise FileThere(self.full_path(part))
            if found is None:
                self.writing(part)
                self.platter.change(NameChange(None, (*self._place(part), Directory())))

    def remove_directory(self, path: str) -> None:
        self.call("remove_directory", path)
        self.writing(path)
        if self._directory(path).names:
            raise FileThere(self.full_path(path))
        self.platter.change(NameChange(self._place(path), None))

    def sync_directory(self, path: str) -> None:
        self.promise()
        self.call("sync_directory", path)
        directory = self._directory(path)
        self.syncing(path, [])
        self.platter.sync_names(directory)

    def sync_all(self) -> bool:
        self.promise()
        self.call("sync_all", "")
        if not self.faults.can_sync_all:
            return False
        nodes = [node for _, node in self.platter.files()]
        self.syncing("", nodes)
        for node in nodes:
            node.sync()
        self.platter.sync_all_names()
        return True

    def names(self, path: str = "") -> list[str]:
        self.call("names", path)
        return sorted(self._directory(path).names)

    def scan(self, path: str = "") -> dict[str, FileStat]:
        self.call("scan", path)
        return {name: _stat(node) for name, node in sorted(self._directory(path).names.items())}

    def stat(self, path: str) -> FileStat:
        self.call("stat", path)
        node = self.platter.find(path)
        if node is None:
            raise FileVanished(self.full_path(path))
        return _stat(node)

    def exists(self, path: str) -> bool:
        self.call("exists", path)
        return self.platter.find(path) is not None

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        self.call("set_modified_ms", path)
        self.writing(path)
        self._file(path).modified_ms = modified_ms

    def free_bytes(self) -> int:
        self.call("free_bytes", "")
        return self.free()

    def total_bytes(self) -> int:
        self.call("total_bytes", "")
        return _ENDLESS_BYTES if self.faults.capacity_bytes is None else self.faults.capacity_bytes

    def reserve_bytes(self) -> int:
        return _RESERVE_BYTES

    def lock(self) -> FaultyLock:
        self.open(LOCK_FILE, create=True).close()
        if self.platter.holder is not None:
            raise DiskInUse(self.root)
        return FaultyLock(self.platter)

    def close(self) -> None:
        pass

    # The faults

    def call(self, name: str, path: str) -> None:
        """Every call of the port comes through here, and here it dies when the plan says so."""
        if self.dead:
            raise Crash
        self.calls += 1
        if self.trace is not None:
            self.trace.append(f"{name} {path}")
        if self.calls == self.faults.crash_at_call:
            self.dead = True
            raise Crash
        error = self.faults.errors_at_calls.get(self.calls)
        if error is SyncFailed:
            self.fail_sync(path)
        if error is not None:
            raise error(self.full_path(path), "Input/output error")
        if _below(path, self.faults.forbidden):
            raise NoPermission(self.full_path(path))

    def reading(self, path: str) -> None:
        if _below(path, self.faults.unreadable):
            raise DiskError(self.full_path(path), "Input/output error")

    def writing(self, path: str) -> None:
        if self.faults.read_only:
            raise DiskReadOnly(self.full_path(path))

    def syncing(self, path: str, nodes: Sequence[Node]) -> None:
        self.syncs += 1
        if self.syncs == self.faults.fail_sync_at:
            for node in nodes:
                node.fail_sync()
            self.fail_sync(path)

    def fail_sync(self, path: str) -> None:
        failure = SyncFailed(self.full_path(path), "Input/output error")
        self.go_offline(failure)
        raise failure

    def free(self) -> int:
        if self.faults.capacity_bytes is None:
            return _ENDLESS_BYTES
        return max(0, self.faults.capacity_bytes - self.platter.used_bytes())

    def _file(self, path: str) -> Node:
        node = self.platter.find(path)
        if isinstance(node, Node):
            return node
        raise (FileVanished if node is None else FileThere)(self.full_path(path))

    def _directory(self, path: str) -> Directory:
        node = self.platter.find(path)
        if isinstance(node, Directory):
            return node
        raise (FileVanished if node is None else FileThere)(self.full_path(path))

    def _place(self, path: str) -> tuple[Directory, str]:
        parent, _, name = path.rpartition("/")
        return self._directory(parent), name


class FaultyFile(File):
    __slots__ = ("_disk", "_is_open", "_node", "_read_only")

    def __init__(self, disk: FaultyDisk, path: str, node: Node, read_only: bool) -> None:
        super().__init__(path)
        self._disk = disk
        self._node = node
        self._read_only = read_only
        self._is_open = True

    def write(self, position: int, buffers: Sequence[Bytes]) -> int:
        disk = self._disk
        content = b"".join(buffers)
        was_dead = disk.dead
        try:
            self._call("write")
        except Crash:
            if not was_dead:
                self._write(position, content[: disk.platter.chance.randint(0, len(content))])
            raise
        self._writing()
        end = len(self._node.cached)
        growth = len(content) if disk.faults.copies_on_write else position + len(content) - end
        if growth > 0 and growth > (free := disk.free()):
            self._write(position, content[: max(0, len(content) - growth + free)])
            raise DiskFull(disk.full_path(self.path))
        self._write(position, content)
        return len(content)

    def read(self, position: int, size: int) -> bytes:
        self._call("read")
        self._disk.reading(self.path)
        return bytes(self._node.cached[position : position + size])

    def read_into(self, position: int, buffer: bytearray | memoryview) -> int:
        found = self.read(position, len(buffer))
        memoryview(buffer)[: len(found)] = found
        return len(found)

    def read_cached(self, position: int, buffer: bytearray | memoryview) -> int | None:
        return self.read_into(position, buffer)

    def size(self) -> int:
        self._call("size")
        return len(self._node.cached)

    def truncate(self, size: int) -> None:
        self._call("truncate")
        self._writing()
        self._node.change(Resize(size))
        self._node.modified_ms = self._disk.now_ms()

    def preallocate(self, size: int) -> None:
        disk = self._disk
        self._call("preallocate")
        self._writing()
        growth = size - len(self._node.cached)
        if growth > 0:
            if growth > disk.free():
                raise DiskFull(disk.full_path(self.path))
            self._node.change(Resize(size))

    def datasync(self) -> None:
        self._disk.promise()
        self._call("datasync")
        self._disk.syncing(self.path, [self._node])
        self._node.sync()

    def start_writeback(self, position: int, size: int) -> None:
        self._call("start_writeback")

    def forget_cached(self) -> None:
        self._call("forget_cached")
        self._node.forget_cached()

    def fileno(self) -> None:
        return None

    @property
    def sync_beats(self) -> bytearray:
        return self._disk.sync_beats

    def _close(self) -> None:
        self._is_open = False
        self._disk.open_files -= 1

    def _call(self, name: str) -> None:
        self._disk.call(name, self.path)
        if not self._is_open:
            raise DiskError(self._disk.full_path(self.path), "Bad file descriptor")

    def _writing(self) -> None:
        if self._read_only:
            raise DiskError(self._disk.full_path(self.path), "Bad file descriptor")
        self._disk.writing(self.path)

    def _write(self, position: int, content: bytes) -> None:
        if content:
            self._node.change(Write(position, content))
            self._node.modified_ms = self._disk.now_ms()


class FaultyLock(Lock):
    __slots__ = ("_platter",)

    def __init__(self, platter: Platter) -> None:
        self._platter = platter
        platter.holder = self

    def release(self) -> None:
        if self._platter.holder is self:
            self._platter.holder = None


def _stat(node: Node | Directory) -> FileStat:
    if isinstance(node, Directory):
        return FileStat(0, 0, True)
    return FileStat(len(node.cached), node.modified_ms, False)


def _below(path: str, places: tuple[str, ...]) -> bool:
    return any(path == place or path.startswith(place + "/") for place in places)
