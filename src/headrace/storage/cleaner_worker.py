"""A process that cleans logs: `python -m headrace.storage.cleaner_worker`, with a job in each line of its input.

For a job it writes a line for each new segment, and one when it is over or has failed. It works only as long as whoever
started it lives: after that somebody else may open the folders, and clean them too.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import sys
import threading
import time
from collections.abc import Callable
from queue import SimpleQueue
from typing import BinaryIO, Final

from headrace.errors import HeadraceError
from headrace.storage.cleaning import clean
from headrace.storage.cleaning_job import Cleaned, CleaningJob, Worked, encode_failure, encode_step
from headrace.storage.disk import Disk
from headrace.storage.local_disk import LocalDisk
from headrace.storage.throttle import Throttle

NICENESS: Final = 10
"""Behind whoever serves clients."""
PR_SET_PDEATHSIG: Final = 1


def main() -> None:
    die_with_parent()
    os.nice(NICENESS)
    lines: SimpleQueue[bytes] = SimpleQueue()
    with open(0, "rb", closefd=False) as given, open(1, "wb", closefd=False) as told:
        threading.Thread(target=_take, args=(given, lines), daemon=True).start()
        while True:
            root, _, job = lines.get().partition(b" ")
            disk = LocalDisk(bytes.fromhex(root.decode()).decode("utf-8", "surrogateescape"))
            try:
                run(CleaningJob.decode(job), disk, told, time.monotonic, time.sleep)
            finally:
                disk.close()


def run(
    job: CleaningJob, disk: Disk, told: BinaryIO, clock: Callable[[], float], sleep: Callable[[float], None]
) -> None:
    throttle = Throttle(job.bytes_per_second)
    try:
        for step in clean(job, disk):
            if isinstance(step, Worked):
                if (pause_s := throttle.pause_s(step.bytes_read + step.bytes_written, clock())) > 0:
                    sleep(pause_s)
                continue
            if isinstance(step, Cleaned):
                step = step._replace(memory_bytes=peak_memory_bytes())
            told.write(encode_step(step))
            told.flush()
    except Exception as error:
        told.write(encode_failure(error))
        told.flush()
        if not isinstance(error, HeadraceError):
            raise  # a defect of ours, which is shown with where it is


def die_with_parent() -> None:
    """Where the system can do it, even when this process is stopped or stuck; else `_take` does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a terminal, for the whole group: the parent decides
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def peak_memory_bytes() -> int:
    """Of getrusage only where nothing else tells: it counts what the parent had when it started this process."""
    try:
        with open("/proc/self/status") as status:
            return next(int(line.split()[1]) for line in status if line.startswith("VmHWM:")) * 1024
    except (OSError, StopIteration):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _take(given: BinaryIO, lines: SimpleQueue[bytes]) -> None:
    while line := given.readline():
        lines.put(line)
    os._exit(0)  # the other end is closed, by whatever ended it: not a byte more


if __name__ == "__main__":
    main()
