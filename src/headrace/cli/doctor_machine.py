"""What `headrace doctor` looks at of the machine and of this Python. Files are read below a root, where tests plant."""

from __future__ import annotations

import ctypes
import platform
import re
import resource
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from headrace.cli.findings import Finding, Level
from headrace.cli.quantities import count_text, size_text
from headrace.cores import cores

OPEN_FILES_LOW: Final = 10_000
MEMORY_LOW_BYTES: Final = 512 << 20
SWAPPINESS_HIGH: Final = 10
BACKLOG_LOW: Final = 1024
PYTHON_NEWEST_TRIED: Final = (3, 14)
_TIME_ERROR: Final = 5


class Machine:
    """What the kernel tells in files, and what it tells when asked."""

    __slots__ = ("_root",)

    def __init__(self, root: Path = Path("/")) -> None:
        self._root = root

    def text(self, path: str) -> str | None:
        try:
            return (self._root / path.lstrip("/")).read_text().strip()
        except OSError:
            return None

    def number(self, path: str) -> int | None:
        text = self.text(path)
        return int(text) if text is not None and text.lstrip("-").isdigit() else None

    def memory(self) -> dict[str, int]:
        """Bytes by the names of /proc/meminfo."""
        lines = re.findall(r"^(\w+):\s+(\d+) kB", self.text("/proc/meminfo") or "", re.MULTILINE)
        return {name: int(kib) * 1024 for name, kib in lines}

    def open_files(self) -> int:
        """The hard limit: a node raises its own limit up to it."""
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        return 2**63 - 1 if hard == resource.RLIM_INFINITY else hard

    def is_clock_synchronised(self) -> bool | None:
        """By the kernel's word, which whatever keeps the time has told; None where it can't be asked."""

        class Timex(ctypes.Structure):
            _fields_ = (("modes", ctypes.c_uint), ("rest", ctypes.c_byte * 252))

        try:
            state = ctypes.CDLL(None).adjtimex(ctypes.byref(Timex()))
        except (OSError, AttributeError):
            return None
        return None if state < 0 else bool(state != _TIME_ERROR)


def machine_findings(machine: Machine) -> Iterator[Finding]:
    yield _system()
    yield _open_files(machine.open_files())
    yield from _memory(machine)
    yield _swap(machine)
    yield from _kernel(machine)
    yield _clock(machine.is_clock_synchronised())
    yield from _python()
    yield _compiled()


def _system() -> Finding:
    text = f"{platform.system()} {platform.release()} on {platform.machine()}, {cores()} cores."
    if platform.system() != "Linux":
        advice = "Nodes are run and measured on Linux; elsewhere they are for trying out."
        return Finding(Level.NOTE, "system", text, advice)
    return Finding(Level.GOOD, "system", text)


def _open_files(limit: int) -> Finding:
    shown = "no limit" if limit >= 2**62 else count_text(limit)
    text = f"A process may open {shown} files."
    if limit >= OPEN_FILES_LOW:
        return Finding(Level.GOOD, "open files", text)
    advice = (
        "Each segment of a partition takes up to three and each connection one: raise the limit, with `ulimit -Hn "
        "100000`, LimitNOFILE=100000 in a systemd unit, or --ulimit nofile=100000 of a container."
    )
    return Finding(Level.WARNING, "open files", text, advice)


def _memory(machine: Machine) -> Iterator[Finding]:
    memory = machine.memory()
    if "MemAvailable" not in memory:
        yield Finding(Level.NOTE, "memory", "The system does not tell how much there is.")
        return
    available, total = memory["MemAvailable"], memory.get("MemTotal", 0)
    limit = machine.number("/sys/fs/cgroup/memory.max")
    text = f"{size_text(available)} of {size_text(total)} available."
    if limit is not None and 0 < limit < total:
        used = machine.number("/sys/fs/cgroup/memory.current") or 0
        available = min(available, max(0, limit - used))
        text = f"{size_text(available)} available, with a limit of {size_text(limit)} for this container."
    if available < MEMORY_LOW_BYTES:
        advice = "Reads are served from what the kernel caches: give the machine more memory, or stop what takes it."
        yield Finding(Level.WARNING, "memory", text, advice)
    else:
        yield Finding(Level.GOOD, "memory", text)


def _swap(machine: Machine) -> Finding:
    total = machine.memory().get("SwapTotal", 0)
    swappiness = machine.number("/proc/sys/vm/swappiness")
    if not total:
        return Finding(Level.GOOD, "swap", "There is none.")
    text = f"{size_text(total)}, with vm.swappiness={swappiness}."
    if swappiness is not None and swappiness > SWAPPINESS_HIGH:
        advice = "A node that is swapped out loses its session: `sysctl vm.swappiness=1`, or turn swap off."
        return Finding(Level.WARNING, "swap", text, advice)
    return Finding(Level.GOOD, "swap", text)


def _kernel(machine: Machine) -> Iterator[Finding]:
    backlog = machine.number("/proc/sys/net/core/somaxconn")
    if backlog is not None:
        text = f"{count_text(backlog)} connections may wait to be accepted (net.core.somaxconn)."
        low = backlog < BACKLOG_LOW
        advice = "When many clients come at once some are turned away: `sysctl net.core.somaxconn=4096`." if low else ""
        yield Finding(Level.NOTE if low else Level.GOOD, "backlog", text, advice)
    pages = machine.text("/sys/kernel/mm/transparent_hugepage/enabled")
    if pages is not None and "[always]" in pages:
        text = "Transparent huge pages are always on, which makes a node's memory larger than it need be."
        advice = "`echo madvise > /sys/kernel/mm/transparent_hugepage/enabled`"
        yield Finding(Level.NOTE, "huge pages", text, advice)


def _clock(is_synchronised: bool | None) -> Finding:
    if is_synchronised:
        return Finding(Level.GOOD, "clock", "It is kept right from outside.")
    if is_synchronised is None:
        return Finding(Level.NOTE, "clock", "The system does not tell whether its clock is kept right.")
    advice = "Records are kept and found by time: run chrony, systemd-timesyncd or another NTP client on the machine."
    return Finding(Level.NOTE, "clock", "The kernel does not know of anything that keeps its clock right.", advice)


def _python() -> Iterator[Finding]:
    version = platform.python_version()
    text = f"{platform.python_implementation()} {version}"
    if platform.python_implementation() != "CPython":
        yield Finding(Level.WARNING, "python", f"{text}.", "Headrace is written for CPython: use that.")
    elif sysconfig.get_config_var("Py_DEBUG"):
        yield Finding(Level.WARNING, "python", f"{text}, built for debugging.", "A release build is much faster.")
    elif sys.version_info[:2] > PYTHON_NEWEST_TRIED:
        yield Finding(Level.NOTE, "python", f"{text}, which is newer than what was tried.")
    elif "--enable-optimizations" not in (sysconfig.get_config_var("CONFIG_ARGS") or "--enable-optimizations"):
        advice = "One that was (--enable-optimizations, as in most packages) is about a tenth faster."
        yield Finding(Level.NOTE, "python", f"{text}, not built with its own profile.", advice)
    else:
        yield Finding(Level.GOOD, "python", f"{text}.")


def _compiled() -> Finding:
    from headrace.net import connection
    from headrace.protocol import kernel, kernel_writer
    from headrace.storage import log, offset_map

    modules = (kernel, kernel_writer, offset_map, log, connection)
    plain = [module for module in modules if str(module.__file__).endswith(".py")]
    names = ", ".join(module.__name__.rpartition(".")[2] for module in plain or modules)
    if not plain:
        return Finding(Level.GOOD, "compiled", f"All of {names}.")
    advice = (
        "Records and requests are handled slower: install a C compiler, then `pip install --force-reinstall headrace`."
    )
    return Finding(Level.WARNING, "compiled", f"Not compiled: {names}.", advice)
