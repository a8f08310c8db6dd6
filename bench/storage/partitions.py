"""What many partitions cost their storage: `python -m bench.storage.partitions [--partitions N]`.

Creates them, appends a batch to each, stops cleanly, starts again, and starts after a kill. Memory is what the process
holds more than before. The open files stay within their bound, whatever the number of partitions.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from bench.storage.append import NOW_MS, NoFlusher
from headrace.config import LogConfig
from headrace.protocol.batch_builder import build
from headrace.storage.append import Appended
from headrace.storage.directories import Directories
from headrace.storage.handles import Handles
from headrace.storage.index import IndexCache
from headrace.storage.local_disk import LocalDisk
from headrace.storage.log import Log
from headrace.storage.log_options import LogOptions
from headrace.storage.ports import Ports
from headrace.storage.shared import Shared
from headrace.storage.workers import Done, Result

OPEN_FILES: Final = 500


class Inline:
    """Runs a job on the spot."""

    def run(self, job: Callable[[], Result], done: Done[Result]) -> None:
        done(job(), None)


def opened(folder: Path) -> Directories:
    ports = Ports(
        now_ms=lambda: NOW_MS,
        random_bytes=os.urandom,
        flusher_of=lambda disk, on_offline: NoFlusher(),
        workers_of=lambda disk: Inline(),
    )
    config = LogConfig()
    shared = Shared(Handles(OPEN_FILES), IndexCache(64 << 20), LogOptions(), lambda topic: config)
    return Directories.open([LocalDisk(str(folder))], ports, shared, cluster_id="bench", node_id=1)


def resident_mb() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 1e6


def timed(what: str, count: int, work: Callable[[], object]) -> object:
    memory, wall, cpu = resident_mb(), time.perf_counter(), time.process_time()
    result = work()
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    print(
        f"{what:28} {wall:8.2f} s {wall / count * 1e6:8.0f} µs each, CPU {cpu / count * 1e6:6.0f} µs, "
        f"{resident_mb() - memory:+7.1f} MB"
    )
    return result


def append(log: Log, content: memoryview) -> Appended:
    content[:8] = bytes(8)  # the append before gave it an offset
    return log.append_as_leader(content, 0, NOW_MS)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--partitions", type=int, default=10_000)
    count: int = parser.parse_args().partitions
    scratch = Path(tempfile.mkdtemp(prefix="headrace-bench-"))
    content = memoryview(build([(None, bytes(900), (), NOW_MS)]))
    try:
        directories = opened(scratch)
        timed("create", count, lambda: [directories.create("t", number, bytes(16)) for number in range(count)])
        logs = list(directories.logs())
        timed("append one batch to each", count, lambda: [append(log, content) for log in logs])
        timed("append another to each", count, lambda: [append(log, content) for log in logs])
        timed("look after all", count, lambda: sum(1 for _ in directories.look_after()))
        timed("checkpoint", count, directories.checkpoint)
        timed("clean stop", count, lambda: directories.close(1))
        logs = []
        again = timed("clean start", count, lambda: opened(scratch))
        assert isinstance(again, Directories)
        assert sum(log.log_end_offset for log in again.logs()) == 2 * count
        print(f"{'open files':28} {len(os.listdir('/proc/self/fd')):8}")
        for directory in again.all:
            directory.abandon()  # as a kill leaves it
        timed("start after a kill", count, lambda: opened(scratch))
    finally:
        shutil.rmtree(scratch)


if __name__ == "__main__":
    main()
