"""What the log adds to a checksum and a write: `python -m bench.storage.append`.

The bare loop checks the CRC32C of the same bytes and writes them to the end of a file, no more. Rounds are interleaved,
each on a new file that is removed after it; the first is not counted, and the memory is touched before, because pages
that the machine never used make writes several times slower. CPU is that of the process, system time included.

The bars: of the bare loop's throughput at least 0.95 with batches of 1 MB and 0.55 with 16 KB; one batch of 1 KB takes
at most 8 µs of CPU more.
"""

from __future__ import annotations

import argparse
import mmap
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from headrace.config import LogConfig
from headrace.protocol.batch_builder import build
from headrace.protocol.batch_crc import crc32c
from headrace.storage.disk import DiskError, File
from headrace.storage.handles import Handles
from headrace.storage.index import IndexCache
from headrace.storage.local_disk import LocalDisk
from headrace.storage.log import Log
from headrace.storage.log_options import LogOptions
from headrace.storage.place import Place
from headrace.storage.recovery import Saved, open_log
from headrace.storage.segment import Segment

NOW_MS: Final = 1_700_000_000_000
ROUND_BYTES: Final = {1_000: 60 << 20, 16_000: 250 << 20, 1_000_000: 500 << 20}
ROUNDS: Final = 7


class Spent(NamedTuple):
    wall_s: float
    cpu_s: float


class NoFlusher:
    """Write-back is the business of another thread, and of another benchmark."""

    def sync(self, file: File, waiting: Callable[[DiskError | None], None]) -> None:
        waiting(None)

    def sync_names(self, directory: str) -> None: ...

    def hurry(self) -> None: ...

    def sync_owed(self) -> None: ...

    def write_behind(self, file: File, position: int, size: int) -> None: ...

    def ahead_of(self, segment: Segment) -> None: ...


def new_log(folder: Path, config: LogConfig) -> Log:
    disk = LocalDisk(str(folder))
    disk.make_directory("t-0")
    place = Place(disk, "t-0", Handles(100), IndexCache(1 << 20))
    return open_log(place, "t", 0, config, LogOptions(), NoFlusher(), saved=Saved(), now_ms=NOW_MS)


def bare(folder: Path, content: bytearray, count: int) -> Spent:
    folder.mkdir()
    descriptor = os.open(folder / "bare", os.O_RDWR | os.O_CREAT)
    view = memoryview(content)
    position = 0

    def work() -> None:
        nonlocal position
        for _ in range(count):
            crc32c(view[21:])
            position += os.pwrite(descriptor, view, position)

    spent = timed(work)
    os.close(descriptor)
    return spent


def appended(folder: Path, content: bytearray, count: int, **changes: object) -> Spent:
    log = new_log(folder, LogConfig(max_message_bytes=2_000_000, **changes))  # type: ignore[arg-type]
    view = memoryview(content)
    unplaced = bytes(8)

    def work() -> None:
        append = log.append_as_leader
        for _ in range(count):
            view[:8] = unplaced  # the append before gave it an offset
            append(view, 3, NOW_MS)

    spent = timed(work)
    log.close()
    return spent


def timed(work: Callable[[], None]) -> Spent:
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return Spent(time.perf_counter() - wall, time.process_time() - cpu)


def touch_memory(size_bytes: int) -> None:
    with mmap.mmap(-1, size_bytes) as memory:
        for position in range(0, size_bytes, mmap.PAGESIZE):
            memory[position] = 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--folder", type=Path, default=None, help="where to write (default: a temporary folder)")
    parser.add_argument("--preallocate", action="store_true", help="also with preallocated segments")
    arguments = parser.parse_args()
    touch_memory(2 << 30)
    scratch = Path(tempfile.mkdtemp(prefix="headrace-bench-", dir=arguments.folder))
    print(f"{'batch':>10} {'way':>14} {'MB/s':>8} {'of bare':>8} {'CPU µs a batch':>15} {'above bare':>11}")
    try:
        for size, round_bytes in ROUND_BYTES.items():
            measure(scratch, size, round_bytes, arguments.rounds, arguments.preallocate)
    finally:
        shutil.rmtree(scratch)


def measure(scratch: Path, size: int, round_bytes: int, rounds: int, preallocate: bool) -> None:
    content = build([(None, os.urandom(size - 75), (), NOW_MS)])
    count = round_bytes // len(content)
    ways: dict[str, Callable[[Path], Spent]] = {
        "bare": lambda folder: bare(folder, content, count),
        "log": lambda folder: appended(folder, content, count),
    }
    if preallocate:
        ways["preallocated"] = lambda folder: appended(folder, content, count, preallocate=True)
    spent: dict[str, list[Spent]] = {name: [] for name in ways}
    for number in range(rounds + 1):
        for name, way in ways.items():
            folder = scratch / f"{size}-{number}-{name}"
            spent[name].append(way(folder))
            shutil.rmtree(folder)
    base_wall, base_cpu = medians(spent["bare"][1:])
    for name, found in spent.items():
        wall, cpu = medians(found[1:])
        print(
            f"{len(content):>10,} {name:>14} {count * len(content) / wall / 1e6:8.0f} {base_wall / wall:8.2f} "
            f"{cpu / count * 1e6:15.2f} {(cpu - base_cpu) / count * 1e6:11.2f}"
        )


def medians(spent: list[Spent]) -> Spent:
    return Spent(statistics.median(s.wall_s for s in spent), statistics.median(s.cpu_s for s in spent))


if __name__ == "__main__":
    main()
