"""What a group commit costs, by the number of files that it touches: `python -m bench.storage.flush`.

Each round appends a kilobyte to every file and then makes all of it durable. The ways are interleaved, in random order;
the first rounds are not counted; a figure is the median and, in brackets, the 99th percentile (the worst of fewer than
100), in milliseconds. `--beside` writes to another file meanwhile: `bulk` starts its write-back every megabyte, as we
do, `stranger` leaves that to the kernel, as another program would. The last line is our flusher, on uvloop, from the
append on the loop to the reply on the loop.

On what the ways promise: all survive a loss of power, but for the journal, which would need a replay at the start.
"""

from __future__ import annotations

import argparse
import asyncio
import ctypes
import mmap
import os
import random
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import uvloop

from headrace.storage.disk import DiskError, File
from headrace.storage.flusher import Flusher
from headrace.storage.local_disk import LocalDisk
from headrace.storage.workers import WorkerThread

PAYLOAD: Final = os.urandom(1024)
ROUNDS: Final = {1: 300, 100: 60, 1000: 15}
WARM_UP_ROUNDS: Final = 3
MEGABYTE: Final = 1 << 20

_library = ctypes.CDLL(None)
_library.sync_file_range.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)


class Way:
    """One way to make the end of many files durable."""

    name = ""
    reserve: str | None = None

    def __init__(self, folder: Path, count: int) -> None:
        folder.mkdir()
        self.folder = os.open(folder, os.O_RDONLY)
        self.files = [os.open(folder / f"{number}.log", os.O_RDWR | os.O_CREAT) for number in range(count)]
        self.position = 0
        size = len(PAYLOAD) * (max(ROUNDS.values()) + WARM_UP_ROUNDS)
        for file in self.files:
            if self.reserve == "fallocate":
                os.posix_fallocate(file, 0, size)
            elif self.reserve == "zeros":
                os.pwrite(file, bytes(size), 0)

    def round(self) -> float:
        for file in self.files:
            os.pwrite(file, PAYLOAD, self.position)
        start = time.perf_counter()
        self.commit()
        seconds = time.perf_counter() - start
        self.position += len(PAYLOAD)
        return seconds

    def commit(self) -> None:
        for file in self.files:
            os.fdatasync(file)

    def close(self) -> None:
        for file in (self.folder, *self.files):
            os.close(file)


class OneByOne(Way):
    name = "fdatasync, one by one"


class Fallocated(Way):
    name = "the same, fallocated"
    reserve = "fallocate"


class Zeroed(Way):
    name = "the same, over zeros"
    reserve = "zeros"


class Parallel(Way):
    name = "fdatasync, 8 threads"
    threads = 8

    def __init__(self, folder: Path, count: int) -> None:
        super().__init__(folder, count)
        self.pool = ThreadPoolExecutor(self.threads)

    def commit(self) -> None:
        shares = [self.files[number :: self.threads] for number in range(min(self.threads, len(self.files)))]
        list(self.pool.map(_sync_each, shares))

    def close(self) -> None:
        self.pool.shutdown()
        super().close()


def _sync_each(files: list[int]) -> None:
    for file in files:
        os.fdatasync(file)


class WriteBackFirst(Way):
    name = "sync_file_range, then fdatasync"

    def commit(self) -> None:
        for file in self.files:
            _library.sync_file_range(file, self.position, len(PAYLOAD), 2)
        super().commit()


class AtOnce(Way):
    name = "syncfs"

    def commit(self) -> None:
        _library.syncfs(self.folder)


class Journal(Way):
    name = "shared journal over zeros"

    def __init__(self, folder: Path, count: int) -> None:
        super().__init__(folder, count)
        self.journal = os.open(folder / "journal", os.O_RDWR | os.O_CREAT)
        self.size = 64 * MEGABYTE
        os.pwrite(self.journal, bytes(self.size), 0)
        self.end = 0

    def commit(self) -> None:
        for start in range(0, len(self.files), 1000):
            count = len(self.files[start : start + 1000])
            if self.end + count * len(PAYLOAD) > self.size:
                self.end = 0
            self.end += os.pwritev(self.journal, [PAYLOAD] * count, self.end)
        os.fdatasync(self.journal)

    def round(self) -> float:
        seconds = super().round()
        _library.syncfs(self.folder)  # the files themselves, which the next way must not pay for
        return seconds

    def close(self) -> None:
        os.close(self.journal)
        super().close()


class Ours(Way):
    """The flusher with its thread, on a loop of its own."""

    name = "our flusher, end to end"

    def __init__(self, folder: Path, count: int) -> None:
        super().__init__(folder, 0)
        self.loop = uvloop.new_event_loop()
        self.disk = LocalDisk(str(folder))
        self.open_files: list[File] = [self.disk.open(f"{number}.log", create=True) for number in range(count)]
        self.workers = WorkerThread(self.loop.call_soon_threadsafe, "flusher")
        self.flusher = Flusher(
            self.disk,
            self.workers,
            call_soon=self.loop.call_soon,
            clock=time.perf_counter,
            on_offline=lambda failure: print(failure),
        )

    def round(self) -> float:
        return self.loop.run_until_complete(self._round())

    async def _round(self) -> float:
        for file in self.open_files:
            file.write(self.position, [PAYLOAD])
        self.position += len(PAYLOAD)
        told = asyncio.Event()
        waiting = len(self.open_files)

        def tell(failure: DiskError | None) -> None:
            nonlocal waiting
            waiting -= 1
            if not waiting:
                told.set()

        start = time.perf_counter()
        for file in self.open_files:
            self.flusher.sync(file, tell)
        await told.wait()
        return time.perf_counter() - start

    def close(self) -> None:
        self.workers.stop()
        for file in self.open_files:
            file.close()
        self.disk.close()
        self.loop.close()
        super().close()


WAYS: Final[Sequence[type[Way]]] = (
    OneByOne,
    Fallocated,
    Zeroed,
    Parallel,
    WriteBackFirst,
    AtOnce,
    Journal,
    Ours,
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--directory", default=None, help="where to write; the default is the system's for temporary files"
    )
    parser.add_argument("--beside", choices=("nothing", "bulk", "stranger"), default="nothing")
    parser.add_argument("--rate", type=int, default=90, help="of what is written beside, in MB/s")
    arguments = parser.parse_args()
    warm_page_cache()
    with tempfile.TemporaryDirectory(dir=arguments.directory) as folder:
        print(
            f"ms for a group commit of 1 KB a file, beside {arguments.beside}; {os.cpu_count()} cores, {kind(folder)}"
        )
        print(f"{'':34}" + "".join(f"{count:>10} files " for count in ROUNDS))
        table: dict[str, list[str]] = {way.name: [] for way in WAYS}
        for count in ROUNDS:
            with beside(arguments.beside, arguments.rate, Path(folder)):
                for name, seconds in measure(Path(folder), count).items():
                    table[name].append(cell(seconds))
        for name, cells in table.items():
            print(f"{name:34}" + " ".join(f"{text:>16}" for text in cells))


def measure(folder: Path, count: int) -> dict[str, list[float]]:
    ways = [way(folder / f"{number}", count) for number, way in enumerate(WAYS)]
    os.sync()
    taken: dict[str, list[float]] = {way.name: [] for way in ways}
    chance = random.Random(1)
    for number in range(WARM_UP_ROUNDS + ROUNDS[count]):
        chance.shuffle(ways)  # what one way leaves behind for the next is not always the same one's to pay
        for way in ways:
            seconds = way.round()
            if number >= WARM_UP_ROUNDS:
                taken[way.name].append(seconds)
    for way in ways:
        way.close()
    for number in range(len(WAYS)):
        shutil.rmtree(folder / f"{number}")
    return taken


def cell(seconds: list[float]) -> str:
    ordered = sorted(seconds)
    return f"{ordered[len(ordered) // 2] * 1e3:.2f} [{ordered[int(len(ordered) * 0.99)] * 1e3:.2f}]"


@contextmanager
def beside(what: str, rate_mb: int, folder: Path) -> Iterator[None]:
    """Bulk writes to another file meanwhile."""
    if what == "nothing":
        yield
        return
    stop = threading.Event()
    thread = threading.Thread(target=_write_bulk, args=(folder / "bulk", what == "bulk", rate_mb, stop.is_set))
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _write_bulk(path: Path, write_behind: bool, rate_mb: int, is_over: Callable[[], bool]) -> None:
    chunk = os.urandom(MEGABYTE)
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    written = 0
    start = time.perf_counter()
    while not is_over():
        position = written % (4 << 30)  # of new bytes each time: overwriting would be cheaper than appending
        if not position and written:
            os.ftruncate(file, 0)
        os.pwrite(file, chunk, position)
        if write_behind:
            _library.sync_file_range(file, position, MEGABYTE, 2)
        written += MEGABYTE
        time.sleep(max(0.0, start + written / rate_mb / 1e6 - time.perf_counter()))
    os.close(file)
    path.unlink()


def warm_page_cache() -> None:
    """Memory that the machine never touched makes writes several times slower, and the first way would pay for it."""
    with open("/proc/meminfo") as meminfo:
        free = next(int(line.split()[1]) for line in meminfo if line.startswith("MemFree")) * 1024
    size = min(free // 2, 4 << 30)
    with mmap.mmap(-1, size) as memory:
        for position in range(0, size, mmap.PAGESIZE):
            memory[position] = 1


def kind(folder: str) -> str:
    """The file system, and the kernel."""
    best = ("", "?")
    with open("/proc/mounts") as mounts:
        for line in mounts:
            _, point, system, *_ = line.split()
            if folder.startswith(point) and len(point) >= len(best[0]):
                best = (point, system)
    return f"{best[1]}, Linux {os.uname().release}"


if __name__ == "__main__":
    main()
