"""Workers: the port through which work that may block leaves the loop.

A job sees its arguments only, and nothing that the loop changes meanwhile. What is deliberately not in it: no result to
wait for, no cancelling, no priorities. `done` is called on the loop, once, in the order in which jobs end; a job that
raises ends with its exception. The simulator's workers run a job when the seed says so.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from typing import Final, Protocol, TypeAlias, TypeVar

Result = TypeVar("Result")
Done: TypeAlias = Callable[[Result | None, BaseException | None], None]


NICENESS: Final = 5
"""Of who gives way: a third of the processor beside somebody who does not, and all of it when nobody wants it."""

_IOPRIO_SET: Final = {"x86_64": 251, "aarch64": 30}
_IOPRIO_THIS_THREAD: Final = (1, 0)
_IOPRIO_IDLE: Final = 3 << 13


class Workers(Protocol):
    def run(self, job: Callable[[], Result], done: Done[Result]) -> None:
        """Runs the job away from the loop, then `done(result, None)` or `done(None, exception)` on the loop."""


class WorkerThread:
    """One persistent thread, from the first job on: jobs run one after another. A hop there and back takes 10 µs."""

    __slots__ = ("_call_soon_threadsafe", "_gives_way", "_jobs", "_name", "_thread")

    def __init__(self, call_soon_threadsafe: Callable[..., object], name: str, *, gives_way: bool = False) -> None:
        """The first argument is the loop's. One that gives way lets others have the processor and the disk first."""
        self._gives_way = gives_way
        self._call_soon_threadsafe = call_soon_threadsafe
        self._jobs: SimpleQueue[tuple[Callable[[], object], Done[object]] | None] = SimpleQueue()
        self._name = name
        self._thread: threading.Thread | None = None

    def run(self, job: Callable[[], Result], done: Done[Result]) -> None:
        if self._thread is None:
            # A daemon, so that a sync that hangs on a broken device can't keep the process from ending.
            thread = threading.Thread(target=self._work, name=self._name, daemon=True)
            thread.start()  # or not, where the system has none left: the next job tries again
            self._thread = thread
        self._jobs.put((job, done))  # type: ignore[arg-type]  # each job meets its own `done`

    def stop(self) -> None:
        """Ends after the jobs that were given so far; waits for them."""
        if self._thread is not None:
            self._jobs.put(None)
            self._thread.join()

    def _work(self) -> None:
        if self._gives_way:
            _give_way()
        while (given := self._jobs.get()) is not None:
            job, done = given
            result: object = None
            error: BaseException | None = None
            try:
                result = job()
            except BaseException as raised:
                error = raised
            try:
                self._call_soon_threadsafe(done, result, error)
            except RuntimeError:
                return  # the loop is closed: nobody waits any more


def _give_way() -> None:
    """This thread, where threads have priorities of their own. Where it is forbidden, all stays as it was."""
    if sys.platform != "linux":
        return
    with suppress(OSError):
        os.nice(NICENESS)
    if (ioprio_set := _IOPRIO_SET.get(os.uname().machine)) is not None:
        import ctypes  # not at the start of every process that has a worker

        # Reads that were asked for far ahead would keep a sync waiting for all of them: schedulers prefer reads.
        ctypes.CDLL(None).syscall(ioprio_set, *_IOPRIO_THIS_THREAD, _IOPRIO_IDLE)
