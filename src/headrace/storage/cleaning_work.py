"""Who does a cleaning: a process of its own, or whoever asks, step by step. Both give the same steps.

`next_step` blocks, so it is called through `workers`; all else is called by the loop.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol, TypeAlias

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
        from headrace.storage.cleaning import clean  # which a node that lets a process clean never needs

        self._steps = clean(job, disk)

    def next_step(self) -> Step:
        step = next(self._steps, None)
        if step is None:
            raise CleaningFailed(Trouble.TRANSIENT, "The cleaning was cancelled.")
        return step

    def cancel(self) -> None:
        self._steps = iter(())


class CleaningProcesses:
    """Processes that clean: started when there is work and none is idle, never forked, ended when there is no more."""

    __slots__ = ("_idle", "_leaving")

    def __init__(self) -> None:
        self._idle: list[CleaningProcess] = []
        self._leaving: list[CleaningProcess] = []

    def start(self, job: CleaningJob, disk: Disk) -> ProcessWork:
        return ProcessWork(self, job, disk.root)

    def rest(self) -> None:
        """Lets those go that are idle. Waits for none: a node's loop calls this, and their work is done."""
        self._leaving = [process for process in self._leaving if not process.is_gone()]
        while self._idle:
            process = self._idle.pop()
            process.let_go()
            self._leaving.append(process)

    def stop(self) -> None:
        """Lets them go and waits until they are gone."""
        self.rest()
        while self._leaving:
            self._leaving.pop().end()

    def take(self) -> CleaningProcess:
        with suppress(IndexError):
            return self._idle.pop()
        return CleaningProcess()

    def give_back(self, process: CleaningProcess) -> None:
        self._idle.append(process)


class ProcessWork:
    """In a process, so that a node's loop is not held up."""

    __slots__ = ("_is_cancelled", "_job", "_processes", "_root", "process")

    def __init__(self, processes: CleaningProcesses, job: CleaningJob, root: str) -> None:
        self._processes = processes
        self._job = job
        self._root = root
        self._is_cancelled = False
        self.process: CleaningProcess | None = None

    def next_step(self) -> Step:
        process = self.process or self._begin()
        line = process.read()
        if not line:
            why = process.end()
            why = "it was cancelled" if self._is_cancelled else why
            raise CleaningFailed(Trouble.TRANSIENT, f"The cleaner of {self._job.folder} ended: {why}.")
        try:
            step = decode_line(line)
        except Exception:
            process.end()
            raise
        if isinstance(step, Cleaned) and not self._is_cancelled:
            self._processes.give_back(process)
        return step

    def cancel(self) -> None:
        self._is_cancelled = True
        if self.process is not None:
            self.process.kill()

    def _begin(self) -> CleaningProcess:
        self.process = process = self._processes.take()
        if self._is_cancelled:
            process.kill()
        process.write(self._root, self._job)
        return process


class CleaningProcess:
    """One process, which does one job after another."""

    __slots__ = ("_process",)

    def __init__(self) -> None:
        command = [sys.executable, "-P", "-m", "headrace.storage.cleaner_worker"]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    @property
    def pid(self) -> int:
        return self._process.pid

    def write(self, root: str, job: CleaningJob) -> None:
        given = self._process.stdin
        assert given is not None
        with suppress(BrokenPipeError):  # that it has ended is seen at the next read
            given.write(root.encode("utf-8", "surrogateescape").hex().encode() + b" " + job.encode() + b"\n")
            given.flush()

    def read(self) -> bytes:
        """Its next line; nothing when it has ended."""
        told = self._process.stdout
        assert told is not None
        return told.readline()

    def kill(self) -> None:
        self._process.kill()

    def let_go(self) -> None:
        """It ends when there is nothing more to read."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()

    def is_gone(self) -> bool:
        if self._process.poll() is None:
            return False
        self.end()
        return True

    def end(self) -> str:
        """Waits until it is gone: before that it could still write, and the next one to the same files."""
        process = self._process
        assert process.stdout is not None
        self.let_go()
        code = process.wait()
        process.stdout.close()
        return f"signal {-code}" if code < 0 else f"exit status {code}"
