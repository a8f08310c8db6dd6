"""What opening a log takes: `python -m bench.storage.recovery`.

After an unclean stop every batch from the recovery point on is read and checked; the bare loop reads the same file in
the same chunks and checks the same CRCs, no more. After a clean stop nothing is read: a log of 1,000 segments opens.
Rounds are interleaved, the file is in the page cache, the first round is not counted.

The bars: of the bare loop's speed at least 0.7 with batches of 16 KB; 1,000 segments open in at most 50 ms.
"""

from __future__ import annotations

import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from bench.storage.append import NOW_MS, NoFlusher, touch_memory
from headrace.config import LogConfig
from headrace.protocol.batch_builder import build
from headrace.protocol.batch_crc import crc32c
from headrace.storage.disk import File
from headrace.storage.handles import Handles
from headrace.storage.index import IndexCache
from headrace.storage.local_disk import LocalDisk
from headrace.storage.log import Log
from headrace.storage.log_options import LogOptions
from headrace.storage.place import Place
from headrace.storage.recovery import Saved, open_log

LOG_BYTES: Final = 500 << 20
CHUNK_BYTES: Final = 1 << 20
SEGMENTS: Final = 1000
ROUNDS: Final = 7


class CountingDisk(LocalDisk):
    """Counts how often a segment's data was opened."""

    __slots__ = ("opened",)

    def __init__(self, root: str) -> None:
        super().__init__(root)
        self.opened = 0

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> File:  # type: ignore[override]
        self.opened += path.endswith(".log")
        return super().open(path, create=create, read_only=read_only)


def opened(folder: Path, config: LogConfig, saved: Saved) -> Log:
    disk = CountingDisk(str(folder))
    disk.make_directory("t-0")
    place = Place(disk, "t-0", Handles(100), IndexCache(16 << 20))
    return open_log(place, "t", 0, config, LogOptions(), NoFlusher(), saved=saved, now_ms=NOW_MS)


def filled(folder: Path, size: int, total: int, config: LogConfig, producer: bool) -> Log:
    log = opened(folder, config, Saved())
    for sequence in range(total // size):
        content = build(
            [(None, bytes(size - 75), (), NOW_MS)],
            producer_id=7 if producer else -1,
            producer_epoch=0 if producer else -1,
            base_sequence=sequence if producer else -1,
        )
        log.append_as_leader(memoryview(content), 3, NOW_MS)
    return log


def bare(path: Path) -> None:
    """Reads and checks, as plainly as it can be done."""
    descriptor = os.open(path, os.O_RDONLY)
    buffer = memoryview(bytearray(CHUNK_BYTES))
    position = 0
    while True:
        found = os.preadv(descriptor, [buffer], position)
        at = 0
        while at + 12 <= found:
            end = at + 12 + int.from_bytes(buffer[at + 8 : at + 12], "big")
            if end > found:
                break
            assert crc32c(buffer[at + 21 : end]) == int.from_bytes(buffer[at + 17 : at + 21], "big")
            at = end
        if not at:
            break
        position += at
    os.close(descriptor)


def recover(folder: Path, config: LogConfig) -> None:
    opened(folder, config, Saved()).close()


def medians(ways: dict[str, Callable[[], object]]) -> dict[str, float]:
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(ROUNDS + 1):
        for name, way in ways.items():
            start = time.perf_counter()
            way()
            seconds[name].append(time.perf_counter() - start)
    return {name: statistics.median(found[1:]) for name, found in seconds.items()}


def main() -> None:
    touch_memory(2 << 30)
    scratch = Path(tempfile.mkdtemp(prefix="headrace-bench-"))
    try:
        print(f"{'batch':>10} {'producer':>9} {'bare MB/s':>10} {'recovery MB/s':>14} {'of bare':>8}")
        for size, producer in ((1_000, False), (16_000, False), (16_000, True), (1_000_000, False)):
            folder = scratch / f"{size}-{producer}"
            config = LogConfig(max_message_bytes=2_000_000)
            log = filled(folder, size, LOG_BYTES, config, producer)
            total, path = log.size_bytes, folder / "t-0" / "00000000000000000000.log"
            log.close()
            found = medians(
                {"bare": lambda path=path: bare(path), "log": lambda f=folder, c=config: recover(f, c)}  # type: ignore[misc]
            )
            print(
                f"{size:>10,} {producer!s:>9} {total / found['bare'] / 1e6:>10.0f} "
                f"{total / found['log'] / 1e6:>14.0f} {found['bare'] / found['log']:>8.2f}"
            )
            shutil.rmtree(folder)
        reopen(scratch / "many")
    finally:
        shutil.rmtree(scratch)


def reopen(folder: Path) -> None:
    config = LogConfig(segment_bytes=16_000)
    log = filled(folder, 1_000, SEGMENTS * 16_000, config, True)
    log.write_out()
    saved = Saved(True, log.log_end_offset)
    log.close()
    data_opened = []

    def once() -> None:
        again = opened(folder, config, saved)
        assert again.log_end_offset == saved.recovery_point
        assert isinstance(again.place.disk, CountingDisk)
        data_opened.append(again.place.disk.opened)
        again.place.disk.close()

    seconds = medians({"reopen": once})["reopen"]
    print(
        f"\nclean reopening of {len(log.segments):,} segments: {seconds * 1e3:.1f} ms, "
        f"{max(data_opened)} data files opened"
    )


if __name__ == "__main__":
    main()
