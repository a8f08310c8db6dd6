"""A process that runs one cleaning: `python -m headrace.storage.cleaner_worker ROOT`, with the job as a line of input.

It writes a line for each new segment and one when it is over, and ends. It works only as long as whoever started it
lives: after that somebody else may open the folder, and clean it too.
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


def main() -> int:
    die_with_parent()
    os.nice(NICENESS)
    with open(0, "rb", closefd=False) as given, open(1, "wb", closefd=False) as told:
        job = CleaningJob.decode(given.readline())
        threading.Thread(target=_end_with, args=(given,), daemon=True).start()
        disk = LocalDisk(sys.argv[1])
        return run(job, disk, told, time.monotonic, time.sleep)


def run(
    job: CleaningJob, disk: Disk, told: BinaryIO, clock: Callable[[], float], sleep: Callable[[float], None]
) -> int:
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
            raise
        return 1
    return 0


def die_with_parent() -> None:
    """Where the system can do it, even when this process is stopped or stuck; else `_end_with` does."""
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


def _end_with(given: BinaryIO) -> None:
    given.read()  # until the other end is closed, by whatever ended it
    os._exit(3)


if __name__ == "__main__":
    sys.exit(main())
