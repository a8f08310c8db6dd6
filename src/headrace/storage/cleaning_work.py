"""Who does a cleaning: a process of its own, or whoever asks, step by step. Both give the same steps.

`next_step` blocks, so it is called through `workers`; all else is called by the loop.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol, TypeAlias

from headrace.storage.cleaning import clean
from headrace.storage.cleaning_job import Cleaned, CleaningFailed, CleaningJob, Step, Trouble, decode_line
from headrace.storage.disk import Disk


class Work(Protocol):
    """A cleaning that somebody does."""

    def next_step(self) -> Step:
        """The last one is Cleaned. Raises what went wrong, and then there is no other."""

    def cancel(self) -> None:
        """Nobody wants the result any more: a step that is waited for raises."""


StartWork: TypeAlias = Callable[[CleaningJob, Disk], Work]


class InlineWork:
    """In the process that asks, a bounded piece at a time: for simulations, tests and tools."""

    __slots__ = ("_steps",)

    def __init__(self, job: CleaningJob, disk: Disk) -> None:
        self._steps = clean(job, disk)

    def next_step(self) -> Step:
        step = next(self._steps, None)
        if step is None:
            raise CleaningFailed(Trouble.TRANSIENT, "The cleaning was cancelled.")
        return step

    def cancel(self) -> None:
        self._steps = iter(())


class ProcessWork:
    """In a process that is started for it, and never forked: so that a node's loop is not held up."""

    __slots__ = ("_is_cancelled", "_job", "_process", "_root")

    def __init__(self, job: CleaningJob, disk: Disk) -> None:
        self._job = job
        self._root = disk.root
        self._process: subprocess.Popen[bytes] | None = None
        self._is_cancelled = False

    def next_step(self) -> Step:
        process = self._process or self._launch()
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            raise CleaningFailed(Trouble.TRANSIENT, f"The cleaner of {self._job.folder} ended: {self._end(process)}.")
        try:
            step = decode_line(line)
        except BaseException:
            self._end(process)
            raise
        if isinstance(step, Cleaned):
            self._end(process)
        return step

    def cancel(self) -> None:
        self._is_cancelled = True
        if self._process is not None:
            self._process.kill()

    def _launch(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-P", "-m", "headrace.storage.cleaner_worker", self._root]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._process = process
        if self._is_cancelled:
            process.kill()
        assert process.stdin is not None
        with suppress(BrokenPipeError):  # its end is seen at the next read
            process.stdin.write(self._job.encode() + b"\n")
            process.stdin.flush()
        return process

    def _end(self, process: subprocess.Popen[bytes]) -> str:
        """Waits until it is gone: before that it could still write, and the next one to the same files."""
        assert process.stdin is not None
        assert process.stdout is not None
        with suppress(BrokenPipeError):
            process.stdin.close()
        code = process.wait()
        process.stdout.close()
        return "it was cancelled" if self._is_cancelled else f"signal {-code}" if code < 0 else f"exit status {code}"
