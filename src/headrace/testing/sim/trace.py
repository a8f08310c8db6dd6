"""What happened in a simulation, as lines for people and as a digest that two runs of one seed share."""

from __future__ import annotations

import hashlib
import re
from array import array
from collections import deque
from typing import Final

TAIL_LINES: Final = 400
"""How many of the last lines are kept for whoever looks at a failure."""
_STEPS_HASHED_AT_ONCE: Final = 4096


class Trace:
    """Every callback that ran goes into the digest, with its time and process; every event as a line too.

    A line must not hold anything that differs between two runs, such as an `id` or the real time.
    """

    __slots__ = ("_digest", "_steps", "lines", "steps")

    def __init__(self, *, keep_all: bool = False) -> None:
        self._digest = hashlib.blake2b(digest_size=16)
        self._steps = array("d")
        self.steps = 0
        self.lines: deque[str] = deque(maxlen=None if keep_all else TAIL_LINES)

    def step(self, now: float, process: int) -> None:
        """A callback runs. The hot path of the simulator: two numbers, hashed later."""
        steps = self._steps
        steps.append(now)
        steps.append(process)
        self.steps += 1
        if len(steps) >= _STEPS_HASHED_AT_ONCE:
            self._hash_steps()

    def event(self, now: float, who: str, what: str) -> None:
        line = f"{now:12.6f} {who:<12} {without_addresses(what)}"
        self._hash_steps()
        self._digest.update(line.encode())
        self.lines.append(line)

    def digest(self) -> str:
        self._hash_steps()
        return self._digest.hexdigest()

    def _hash_steps(self) -> None:
        self._digest.update(self._steps.tobytes())
        del self._steps[:]


def without_addresses(text: str) -> str:
    """Python's own `repr` of objects shows where they lie, which no two runs share."""
    return _ADDRESS.sub("at 0x…", text) if " at 0x" in text else text


_ADDRESS: Final = re.compile(r"at 0x[0-9a-f]+")
