"""What the process of a node takes of its machine."""

from __future__ import annotations

import gc
import os
import resource
import sys
import time
from typing import Any, Final

from headrace.named_tuple import NamedTuple

_TICKS: Final = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
_GENERATIONS: Final = 3


class ProcessFigures(NamedTuple):
    python: str
    cpu_seconds: float
    resident_bytes: int
    virtual_bytes: int
    open_files: int
    open_files_max: int
    start_seconds: float
    """Since 1970."""
    gc_collections: tuple[int, ...]
    """By generation."""
    gc_seconds: float


class LocalProcess:
    """Looks at this process, and at its garbage collector while it is `stop`ped not."""

    __slots__ = ("_gc_began_ns", "_gc_ns", "_python", "_start_seconds")

    def __init__(self) -> None:
        self._python = f"{sys.implementation.name} {'.'.join(map(str, sys.version_info[:3]))}"
        self._start_seconds = _start_seconds()
        self._gc_began_ns = 0
        self._gc_ns = 0
        gc.callbacks.append(self._collected)

    def stop(self) -> None:
        if self._collected in gc.callbacks:
            gc.callbacks.remove(self._collected)

    def _collected(self, phase: str, info: dict[str, Any]) -> None:
        now_ns = time.perf_counter_ns()
        if phase == "start":
            self._gc_began_ns = now_ns
        elif self._gc_began_ns:
            self._gc_ns += now_ns - self._gc_began_ns

    def __call__(self) -> ProcessFigures:
        resident_bytes, virtual_bytes = _memory()
        return ProcessFigures(
            python=self._python,
            cpu_seconds=time.process_time(),
            resident_bytes=resident_bytes,
            virtual_bytes=virtual_bytes,
            open_files=_open_files(),
            open_files_max=resource.getrlimit(resource.RLIMIT_NOFILE)[0],
            start_seconds=self._start_seconds,
            gc_collections=tuple(found["collections"] for found in gc.get_stats()[:_GENERATIONS]),
            gc_seconds=self._gc_ns / 1e9,
        )


def _start_seconds() -> float:
    """Of the process; of this object where the system does not tell."""
    try:
        with open("/proc/self/stat", "rb") as file:
            after_name = file.read().rpartition(b")")[2].split()
        with open("/proc/uptime", "rb") as file:
            uptime = float(file.read().split()[0])
        return time.time() - uptime + int(after_name[19]) / _TICKS
    except (OSError, ValueError, IndexError):
        return time.time()


def _memory() -> tuple[int, int]:
    try:
        with open("/proc/self/statm", "rb") as file:
            pages = file.read().split()
        return int(pages[1]) * _PAGE_BYTES, int(pages[0]) * _PAGE_BYTES
    except (OSError, ValueError, IndexError):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024, 0


def _open_files() -> int:
    try:
        # Since Linux 6.2 the folder's size says it; before, it is 0, and a list of ten thousand takes milliseconds.
        return os.stat("/proc/self/fd").st_size or len(os.listdir("/proc/self/fd"))
    except OSError:
        return 0
