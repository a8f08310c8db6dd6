"""What compaction costs, and what it does to appends beside it: `python -m bench.storage.compaction`.

A log of 1 KB records, uncompressed, with a million keys is cleaned by a worker process, as in a node; its CPU is that
of the process, start and system time included, its input all bytes of the log, which are read twice. The bare loop
reads the same files twice in the same chunks, checks all CRCs twice, and writes and syncs what was left.

Then appends: batches of 1 KB, 1,000 a second, no fsync, on a loop that only does this, with and without a cleaning
beside it, in turns. A latency is from when the append was due, so that a stall shows.

The bars: at least 100 MB of input a CPU-second, where the map and the kernel are compiled; the p99 of appends rises by
at most 20%; the worker's memory stays within log.cleaner.dedupe.buffer.size and some 60 MB.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import resource
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import uvloop

from bench.storage.append import NOW_MS, NoFlusher, touch_memory
from headrace.config import CleanerConfig, LogConfig
from headrace.protocol.batch_builder import build
from headrace.protocol.compression import Compression
from headrace.storage import offset_map
from headrace.storage.cleaner import Cleaner, cleanable_of, job_for
from headrace.storage.cleaning_job import Cleaned, Replacement
from headrace.storage.cleaning_work import CleaningProcesses
from headrace.storage.handles import Handles
from headrace.storage.index import IndexCache
from headrace.storage.local_disk import LocalDisk
from headrace.storage.log import Log
from headrace.storage.log_options import LogOptions
from headrace.storage.place import Place
from headrace.storage.recovery import Saved, open_log
from headrace.storage.scan import SegmentScan
from headrace.storage.swap import swap_in
from headrace.storage.workers import WorkerThread

KEYS: Final = 1_000_000
VALUE_BYTES: Final = 1_000
CONFIG: Final = LogConfig(
    cleanup_policy=("compact",), segment_bytes=256 << 20, file_delete_delay_ms=0, min_cleanable_dirty_ratio=0.0
)
APPENDS_A_SECOND: Final = 1_000


def open_at(folder: Path, name: str, config: LogConfig) -> Log:
    disk = LocalDisk(str(folder))
    disk.make_directory(name)
    place = Place(disk, name, Handles(100), IndexCache(16 << 20))
    return open_log(place, name, 0, config, LogOptions(), NoFlusher(), saved=Saved(), now_ms=NOW_MS)


def filled(
    folder: Path, records: int, batch_records: int, compression: Compression = Compression.NONE, seed: int = 0
) -> Log:
    """Records with random keys, in closed segments that all count as durable."""
    log = open_at(folder, "compacted", CONFIG)
    chance = random.Random(seed)
    left = records
    while left > 0:
        count = min(left, batch_records)
        fields = [
            (b"key-%09d" % chance.randrange(KEYS), chance.randbytes(VALUE_BYTES // 4) * 4, (), NOW_MS)
            for _ in range(count)
        ]
        log.append_as_leader(memoryview(build(fields, compression=compression)), 0, NOW_MS)
        left -= count
    log.set_high_watermark(log.log_end_offset)
    log.roll(NOW_MS)
    log.checkpointed_recovery_point = log.log_end_offset
    return log


def cleaned(log: Log, config: CleanerConfig) -> tuple[Cleaned, float, float]:
    """Cleans it in a process; what that did, its CPU seconds, and how long it took."""
    found = cleanable_of(log, NOW_MS)
    processes = CleaningProcesses()
    work = processes.start(job_for(log, found, config, 1, NOW_MS, os.urandom(16)), log.place.disk)
    before, start = cpu_of_children(), time.perf_counter()
    while not isinstance(step := work.next_step(), Cleaned):
        assert isinstance(step, Replacement)
        assert swap_in(log, step, NOW_MS)
    log.clean_offset = step.end_offset
    processes.stop()
    return step, cpu_of_children() - before, time.perf_counter() - start


def bare(log: Log, folder: Path, written_bytes: int) -> float:
    """The CPU seconds of reading and checking it twice, and of writing what would be left."""
    start = time.process_time()
    for _ in range(2):
        for segment in log.segments[:-1]:
            scan = SegmentScan(segment.file, segment.size_bytes, segment.base_offset)
            for _ in scan.batches(chunk_bytes=256 << 10):
                pass
    out = os.open(folder / "bare", os.O_RDWR | os.O_CREAT)
    chunk = bytes(256 << 10)
    for position in range(0, written_bytes, len(chunk)):
        os.pwrite(out, chunk, position)
    os.fsync(out)
    os.close(out)
    (folder / "bare").unlink()
    return time.process_time() - start


def cpu_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


@contextmanager
def temporary_folder(where: str | None) -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="headrace-compaction-", dir=where))
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def throughput(where: str | None, records: int) -> None:
    print(f"\n{records:,} records of 1 KB, {KEYS:,} keys, map and kernel compiled: {offset_map.COMPILED}")
    print("  a batch   input MB   left MB   MB a CPU-second   wall s   of a bare loop   worker's memory MB   passes")
    for batch_records, compression, share in (
        (16, Compression.NONE, 1.0),
        (1000, Compression.NONE, 1.0),
        (1, Compression.NONE, 0.25),
        (16, Compression.LZ4, 0.5),
    ):
        with temporary_folder(where) as folder:
            log = filled(folder, int(records * share), batch_records, compression)
            size = log.size_bytes
            log.place.disk.sync_all()
            passes, cpu_s, wall_s, memory = 0, 0.0, 0.0, 0
            alone_s = bare(log, folder, 0)
            while cleanable_of(log, NOW_MS).dirty_bytes:
                step, cpu, wall = cleaned(log, CleanerConfig())
                passes, cpu_s, wall_s = passes + 1, cpu_s + cpu, wall_s + wall
                memory = max(memory, step.memory_bytes)
            alone_s += bare(log, folder, log.size_bytes) - bare(log, folder, 0)
            name = f"{batch_records}" + ("" if compression is Compression.NONE else f" {compression.name.lower()}")
            print(
                f"  {name:>7}   {size / 1e6:8.0f}   {log.size_bytes / 1e6:7.0f}   {size / 1e6 / cpu_s:15.0f}   "
                f"{wall_s:6.1f}   {alone_s / cpu_s:14.2f}   {memory / 1e6:18.0f}   {passes:6}"
            )


async def appends(log: Log, seconds: float) -> list[float]:
    """Latencies in milliseconds."""
    content = bytearray(build([(b"key", bytes(900), (), NOW_MS)]))
    found = []
    interval = 1 / APPENDS_A_SECOND
    due = time.perf_counter()
    end = due + seconds
    while due < end:
        due += interval
        if (pause := due - time.perf_counter()) > 0:
            await asyncio.sleep(pause)
        content[:8] = bytes(8)  # the append before gave it an offset
        log.append_as_leader(memoryview(content), 0, NOW_MS)
        found.append((time.perf_counter() - due) * 1e3)
    return found


async def beside(where: str | None, records: int, rounds: int) -> None:
    print(
        f"\nappends of 1 KB, {APPENDS_A_SECOND:,} a second, ms: alone and beside a cleaning, {rounds} rounds in turns"
    )
    loop = asyncio.get_running_loop()
    figures: dict[str, list[list[float]]] = {"alone": [], "beside": []}
    with temporary_folder(where) as folder:
        quiet = open_at(folder, "appended", LogConfig())
        await appends(quiet, 1)
        for number in range(rounds):
            log = filled(folder / str(number), records, 16, seed=number)
            log.place.disk.sync_all()
            figures["alone"].append(await appends(quiet, 4))
            ended = asyncio.Event()
            processes = CleaningProcesses()
            cleaner = Cleaner(
                lambda log=log: [log],  # type: ignore[misc]
                CleanerConfig(),
                processes.start,
                [WorkerThread(loop.call_soon_threadsafe, "cleaner")],
                now_ms=lambda: NOW_MS,
                call_later=lambda seconds, call, ended=ended: ended.set(),  # type: ignore[misc]
                secret=lambda: os.urandom(16),
            )
            cleaner.poll()
            ended.clear()
            found: list[float] = []
            while not ended.is_set():
                found += await appends(quiet, 0.1)
            assert not cleaner.set_aside, cleaner.set_aside
            figures["beside"].append(found)
            processes.stop()
            log.close()
            shutil.rmtree(folder / str(number))
    for name, samples in figures.items():
        every = sorted(sample for of_one in samples for sample in of_one)
        p99s = [sorted(of_one)[int(0.99 * len(of_one))] for of_one in samples]
        print(
            f"  {name:>7}: p50 {every[len(every) // 2]:.3f}, p99 {statistics.median(p99s):.3f} "
            f"(of each round: {' '.join(f'{p99:.2f}' for p99 in p99s)}), worst {every[-1]:.1f}, {len(every)} appends"
        )
    ratios = [
        sorted(after)[int(0.99 * len(after))] / sorted(before)[int(0.99 * len(before))]
        for before, after in zip(figures["alone"], figures["beside"], strict=True)
    ]
    print(f"  p99 beside over p99 alone: median {statistics.median(ratios):.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", help="where to write; a temporary folder in it is removed at the end")
    parser.add_argument("--only", choices=("throughput", "beside"))
    parser.add_argument("--nice", type=int, default=0, help="below 0 keeps other work of the machine out (as root)")
    options = parser.parse_args()
    os.nice(options.nice)
    touch_memory(4 << 30)
    if options.only != "beside":
        throughput(options.folder, options.records)
    if options.only != "throughput":
        uvloop.run(beside(options.folder, options.records // 4, options.rounds))


if __name__ == "__main__":
    main()
