"""Who is measured: ours, Apache Kafka and the bare loop, each started on a folder of its own, one at a time."""

from __future__ import annotations

import mmap
import os
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
COMMANDS: Final = {"ours": ("headrace", "serve", "--data"), "bare": ("bench.node.bare",)}


class Peer:
    """A running broker; `pid` is the process whose CPU and memory count."""

    def __init__(self, name: str, folder: Path, settings: tuple[str, ...] = ()) -> None:
        self.name = name
        self.folder = folder
        self.settings = settings
        self.started_s = 0.0
        self._kafka: Kafka | None = None
        self._child: subprocess.Popen[str] | None = None
        self.bootstrap = ""
        self.pid = 0

    def start(self) -> None:
        """Returns when Metadata is answered; `started_s` says how long that took from the start of the process."""
        if self.name == "kafka":
            self._kafka = self._kafka or Kafka(self.folder, settings=self.settings)
            self._kafka.start()
            assert self._kafka.process is not None
            self.pid, self.bootstrap = self._kafka.process.pid, self._kafka.bootstrap
            self.started_s = 0.0
        else:
            began = time.perf_counter()
            listen = ("--listen", "127.0.0.1:0") if self.name == "ours" else ()
            command = [sys.executable, "-m", *COMMANDS[self.name], str(self.folder), *listen]
            with open(f"{self.folder}.log", "ab") as log:
                self._child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
            assert self._child.stdout is not None
            line = next((line for line in self._child.stdout if "ready on " in line), None)
            if line is None:
                raise RuntimeError(f"{self.name} ended at its start; {self.folder}.log says why")
            self.bootstrap = line.split("ready on ")[1].split()[0]
            self.pid = self._child.pid
            self.answered()
            self.started_s = time.perf_counter() - began
        self.answered()

    def answered(self) -> None:
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
        with open(f"/proc/{self.pid}/stat") as stat:
            fields = stat.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def resident_mb(self) -> float:
        status = Path(f"/proc/{self.pid}/status").read_text()
        return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS")) / 1024


@contextmanager
def running(names: tuple[str, ...], settings: tuple[str, ...] = ()) -> Iterator[dict[str, Peer]]:
    """All of them at once, idle but for the one that is measured; memory is touched first."""
    touch_memory()
    scratch = Path(tempfile.mkdtemp(prefix="headrace-bench-"))
    peers = {name: Peer(name, scratch / name, settings if name == "kafka" else ()) for name in names}
    began: list[Peer] = []
    try:
        for peer in peers.values():
            peer.start()
            began.append(peer)
        yield peers
    finally:
        for peer in began:
            peer.stop()
        shutil.rmtree(scratch)


def touch_memory(share: float = 0.4) -> None:
    """Pages that the machine never used make writes several times slower for whoever comes first."""
    size_bytes = int(os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") * share)
    with mmap.mmap(-1, size_bytes) as memory:
        for position in range(0, size_bytes, mmap.PAGESIZE):
            memory[position] = 1


def conditions() -> str:
    return f"one node each, {os.cpu_count()} cores shared with the client; ours fsyncs acks=all, Kafka and bare do not"
