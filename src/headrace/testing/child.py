"""A node in a child process, which ends with its parent. `python -m headrace.testing.child` is what the child runs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from queue import Empty, SimpleQueue
from typing import Any, Final

from headrace.errors import HeadraceError
from headrace.testing.uncollected import uncollected

STOP_SECONDS: Final = 60.0
START_SECONDS_MAX: Final = 3600.0
"""The parent is less patient."""


class NodeProcess:
    """Started when it is made."""

    def __init__(self, settings: Mapping[str, str], fsync: bool, timeout_s: float) -> None:
        self._child = subprocess.Popen(
            [sys.executable, "-m", __name__, json.dumps({"settings": dict(settings), "fsync": fsync})],
            stdin=subprocess.PIPE,  # closed when this process ends, however it does: then the child ends too
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
        said = self._first_line(timeout_s)
        if "address" not in said:
            self.kill()
            raise HeadraceError(said.get("failure") or "The node ended at its start; what it printed says why.")
        self.address = said["address"]

    @property
    def pid(self) -> int:
        return self._child.pid

    def _first_line(self, timeout_s: float) -> dict[str, str]:
        assert self._child.stdout is not None
        lines: SimpleQueue[str] = SimpleQueue()
        stdout = self._child.stdout
        threading.Thread(target=lambda: lines.put(stdout.readline()), daemon=True).start()
        try:
            line = lines.get(timeout=timeout_s)
        except Empty:
            return {"failure": f"The node was not ready within {timeout_s:g} s; is the machine overloaded?"}
        said: dict[str, str] = json.loads(line) if line else {}
        return said

    def stop(self) -> None:
        """Returns when the node has stopped; raises when it did not do so cleanly."""
        self._child.send_signal(signal.SIGTERM)
        try:
            status = self._child.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            raise HeadraceError(f"The node did not stop within {STOP_SECONDS:g} s, and was killed.") from None
        self._close()
        if status:
            raise HeadraceError(f"The node ended with status {status}; what it printed says why.")

    def kill(self) -> None:
        self._child.kill()
        self._child.wait()
        self._close()

    def _close(self) -> None:
        for pipe in (self._child.stdin, self._child.stdout):
            if pipe is not None:
                pipe.close()


def main(given: str) -> int:
    wanted: dict[str, Any] = json.loads(given)
    # The system may hand a signal to any thread, and then nothing wakes this one but what comes through a descriptor.
    stopping, stop = os.pipe()
    os.set_blocking(stop, False)
    signal.set_wakeup_fd(stop)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, frame: None)

    try:
        with uncollected():
            from headrace.testing.thread import NodeThread

            node = NodeThread(wanted["settings"], wanted["fsync"], START_SECONDS_MAX)
    except HeadraceError as failure:
        print(json.dumps({"failure": str(failure)}), flush=True)
        return 1
    print(json.dumps({"address": node.address}), flush=True)
    threading.Thread(target=_wait_for_parent, args=(stop,), daemon=True).start()
    os.read(stopping, 1)
    node.stop()
    return 0


def _wait_for_parent(stop: int) -> None:
    sys.stdin.read()
    os.write(stop, b"\0")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
