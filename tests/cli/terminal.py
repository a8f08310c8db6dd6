"""`headrace` as a process of its own, on a terminal or not."""

from __future__ import annotations

import codecs
import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager, suppress

HEADRACE = (sys.executable, "-m", "headrace")
TIMEOUT_S = 60


def headrace(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*HEADRACE, *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT_S,
        env={**os.environ, **environment},
    )


@contextmanager
def started(*arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """A command whose three streams are pipes. Whatever a test finds wrong, it does not stay behind."""
    pipe = subprocess.PIPE
    with subprocess.Popen([*HEADRACE, *arguments], stdin=pipe, stdout=pipe, stderr=pipe) as process:
        try:
            yield process
        finally:
            process.kill()


class Terminal:
    """A command on a terminal of its own, 100 columns wide."""

    def __init__(self, *arguments: str, **environment: str) -> None:
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 100, 0, 0))
        without = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "COLUMNS")}
        self.process = subprocess.Popen(
            [*HEADRACE, *arguments],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env={**without, "TERM": "xterm-256color", **environment},
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        os.close(theirs)
        self._ours = ours
        self._poll = select.poll()  # select() itself has no room for descriptors above 1023
        self._poll.register(ours, select.POLLIN)
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self.shown = ""

    def until(self, text: str) -> str:
        """Reads until it shows a text, or ends."""
        while text not in self.shown:
            ready = self._poll.poll(TIMEOUT_S * 1000)
            assert ready, f"it never showed {text!r}: {self.shown!r}"
            try:
                read = os.read(self._ours, 1 << 16)
            except OSError:  # the other side is closed
                break
            self.shown += self._decoder.decode(read)
        return self.shown

    def type(self, keys: str) -> None:
        os.write(self._ours, keys.encode())

    def interrupted(self) -> int:
        """Ctrl-C, again when Python was just about to wait for a key: between the two nobody hears of it."""
        while self.process.poll() is None:
            self.type("\x03")
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(1)
        return self.end()

    def end(self) -> int:
        self.until("\0")
        os.close(self._ours)
        return self.process.wait(TIMEOUT_S)


def lines_of(terminal: Terminal) -> list[str]:
    """What it shows, or showed last where it draws in one place, without colours."""
    last = terminal.shown.rpartition("\x1b[2K")[2] if "looking …" in terminal.shown else terminal.shown
    return [line.rstrip() for line in re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", last).splitlines()]
