"""A real node in a process of its own: started, stopped and killed as a user would."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import threading
from collections import deque
from pathlib import Path
from typing import Final

STOP_TIMEOUT_S: Final = 60
LINES_KEPT: Final = 200
_READY: Final = re.compile(r"ready on 127\.0\.0\.1:(\d+)")
_DEFECT: Final = re.compile(r"Traceback|\"traceback\"|never retrieved|defect of headrace")


class Process:
    """`headrace serve` on a folder. A second start takes the port of the first, so that clients find it again."""

    def __init__(self, data: Path, *arguments: str) -> None:
        self.data = data
        self.arguments = arguments
        self.port = 0
        self.lines: deque[str] = deque(maxlen=LINES_KEPT)
        """The last lines that it said, on both streams: what a failing test shows."""
        self.defects: list[str] = []
        """All lines that tell of a failure inside the node."""
        self._child: subprocess.Popen[str] | None = None
        self._reader: threading.Thread | None = None

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self._child is not None
        return self._child.pid

    @property
    def is_running(self) -> bool:
        return self._child is not None and self._child.poll() is None

    def start(self) -> None:
        """Returns when the node has said that it is ready."""
        command = [sys.executable, "-m", "headrace", "serve", "--data", str(self.data), "--listen", self.bootstrap]
        self._child = subprocess.Popen(
            [*command, *self.arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        ready = threading.Event()
        self._reader = threading.Thread(target=self._read, args=(self._child, ready), daemon=True)
        self._reader.start()
        ready.wait()
        if not self.port or not self.is_running:
            raise AssertionError(f"the node ended at its start:\n{self.said}")

    def stop(self) -> int:
        """SIGTERM; returns the exit code."""
        return self._end(signal.SIGTERM)

    def kill(self) -> None:
        """kill -9: what was not written to the operating system is gone."""
        self._end(signal.SIGKILL)

    @property
    def said(self) -> str:
        return "".join(self.lines)

    def _end(self, number: signal.Signals) -> int:
        child, reader = self._child, self._reader
        assert child is not None
        assert reader is not None
        child.send_signal(number)
        try:
            code = child.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
            raise AssertionError(f"the node did not stop within {STOP_TIMEOUT_S} s:\n{self.said}") from None
        finally:
            reader.join()
            assert child.stdout is not None
            child.stdout.close()
            self._child = None
        return code

    def _read(self, child: subprocess.Popen[str], ready: threading.Event) -> None:
        assert child.stdout is not None
        for line in child.stdout:
            self.lines.append(line)
            if _DEFECT.search(line):
                self.defects.append(line)
            if not ready.is_set() and (found := _READY.search(line)):
                self.port = int(found[1])
                ready.set()
        ready.set()
