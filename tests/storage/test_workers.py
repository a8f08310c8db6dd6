"""A worker that gives way: others have the processor and the disk first."""

from __future__ import annotations

import asyncio
import ctypes
import os
import sys

import pytest

from headrace.storage.workers import NICENESS, WorkerThread

IOPRIO_GET = {"x86_64": 252, "aarch64": 31}
IDLE_CLASS = 3


def priorities() -> tuple[int, int]:
    """Of this thread: its niceness, and the class of its reads and writes."""
    number = IOPRIO_GET[os.uname().machine]
    return os.getpriority(os.PRIO_PROCESS, 0), ctypes.CDLL(None).syscall(number, 1, 0) >> 13


async def seen_by(worker: WorkerThread) -> tuple[int, int]:
    seen: asyncio.Future[tuple[int, int]] = asyncio.get_running_loop().create_future()

    def done(result: tuple[int, int] | None, error: BaseException | None) -> None:
        assert result is not None, error
        seen.set_result(result)

    worker.run(priorities, done)
    try:
        return await seen
    finally:
        worker.stop()


@pytest.mark.skipif(
    sys.platform != "linux" or os.uname().machine not in IOPRIO_GET, reason="needs priorities of a thread's own"
)
def test_one_that_gives_way_leaves_processor_and_disk_to_others() -> None:
    async def both() -> tuple[tuple[int, int], tuple[int, int]]:
        call_soon = asyncio.get_running_loop().call_soon_threadsafe
        return await seen_by(WorkerThread(call_soon, "usual")), await seen_by(
            WorkerThread(call_soon, "giving", gives_way=True)
        )

    before = priorities()
    usual, giving = asyncio.run(both())
    assert usual == before == priorities()
    assert giving == (before[0] + NICENESS, IDLE_CLASS)
