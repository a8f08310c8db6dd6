"""Who is measured: ours, Apache Kafka and the bare loop, each started on a folder of its own."""

from __future__ import annotations

import mmap
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from bench.peers.kafka import Kafka
from headrace.protocol import messages as m
from tests.compat.wire import Wire

NAMES: Final = ("ours", "kafka", "bare")
"""By default; `written` is a bare one that writes back what it appends, as ours does."""
COMMANDS: Final = {
    "ours": ("headrace", "serve", "--data"),
    "bare": ("bench.node.bare",),
    "written": ("bench.node.bare",),
}
SETTINGS: Final = ("log.segment.delete.delay.ms=0", "auto.create.topics.enable=false")
"""Of ours and of Kafka: what a round wrote is gone before the next one."""
TOUCHED_SHARE: Final = 0.6
CLOCK_OF_A_PROCESS: Final = 2
"""How Linux spells the CPU clock of all threads of another process: nanoseconds, and those that ended count."""


class Peer:
    """A running broker; `pid` is the process whose CPU and memory count."""

    def __init__(self, name: str, folder: Path, settings: tuple[str, ...] = ()) -> None:
        self.name = name
        self.folder = folder
        self.settings = SETTINGS + settings
        self.started_s = 0.0
        """From the start of the process to the first answered Metadata."""
        self._kafka: Kafka | None = None
        self._child: subprocess.Popen[str] | None = None
        self.bootstrap = ""
        self.pid = 0

    @property
    def is_bare(self) -> bool:
        return self.name in ("bare", "written")

    def start(self) -> None:
        """Returns when Metadata is answered."""
        if self.name == "kafka":
            self._kafka = self._kafka or Kafka(self.folder, settings=self.settings)
            self._kafka.start()
            assert self._kafka.process is not None
            self.pid, self.bootstrap = self._kafka.process.pid, self._kafka.bootstrap
            began = self._kafka.began_s
        else:
            began = time.monotonic()
            more = ["--listen", "127.0.0.1:0"] if self.name == "ours" else []
            if self.name == "ours":
                more += [word for setting in self.settings for word in ("--set", setting)]
            if self.name == "written":
                more.append("--written")
            command = [sys.executable, "-m", *COMMANDS[self.name], str(self.folder), *more]
            with open(f"{self.folder}.log", "ab") as log:
                self._child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
            assert self._child.stdout is not None
            line = next((line for line in self._child.stdout if "ready on " in line), None)
            if line is None:
                raise RuntimeError(f"{self.name} ended at its start; {self.folder}.log says why")
            self.bootstrap = line.split("ready on ")[1].split()[0]
            self.pid = self._child.pid
        self._answered()
        self.started_s = time.monotonic() - began

    def _answered(self) -> None:
        with Wire(self.bootstrap) as wire:
            while not wire.ask(m.MetadataRequest(topics=[]), 8).brokers:
                time.sleep(0.01)

    def stop(self) -> None:
        if self._kafka is not None:
            self._kafka.stop()
        elif self._child is not None:
            self._child.send_signal(signal.SIGTERM)
            self._child.wait(60)
            assert self._child.stdout is not None
            self._child.stdout.close()

    def cpu_s(self) -> float:
        return time.clock_gettime(~self.pid << 3 | CLOCK_OF_A_PROCESS)

    def resident_mb(self) -> float:
        status = Path(f"/proc/{self.pid}/status").read_text()
        return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS")) / 1024

    def forget_cache(self) -> None:
        """Its data has to come from the disk again."""
        os.sync()
        for file in self.folder.rglob("*.log"):
            descriptor = os.open(file, os.O_RDONLY)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)


@contextmanager
def running(names: tuple[str, ...], settings: tuple[str, ...] = (), start: bool = True) -> Iterator[dict[str, Peer]]:
    """All of them at once, idle but for the one that is measured; memory is touched first."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that nothing is left running, nor on the disk
    allow_files()
    touch_memory()
    scratch = Path(tempfile.mkdtemp(prefix="headrace-bench-"))
    peers = {name: Peer(name, scratch / name, settings) for name in names}
    try:
        for peer in peers.values():
            if start:
                peer.start()
        yield peers
    finally:
        for peer in peers.values():
            if peer.pid:
                peer.stop()
        shutil.rmtree(scratch)


def allow_files() -> None:
    """Of the children too: a thousand connections are more than many systems allow at first."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def touch_memory(share: float = TOUCHED_SHARE) -> None:
    """Pages that the machine never used make writes several times slower for whoever comes first."""
    size_bytes = int(os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") * share)
    with mmap.mmap(-1, size_bytes) as memory:
        for position in range(0, size_bytes, mmap.PAGESIZE):
            memory[position] = 1
