"""What ends a command from outside: Ctrl-C, and SIGTERM of what runs it, as timeout, systemd and docker stop do.

Both are KeyboardInterrupt to the code of a command, in a loop of its own or not; they differ in the exit code alone.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final

CAUSES: Final = {signal.SIGINT: "Ctrl-C", signal.SIGTERM: "SIGTERM"}
_last: signal.Signals = signal.SIGINT


@contextmanager
def heard() -> Iterator[None]:
    """While a command runs SIGTERM is what Ctrl-C is, unless somebody else has it or wants it ignored."""
    note(signal.SIGINT)
    if signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, _raise)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def handlers() -> dict[signal.Signals, Any]:
    """Those that are a command's own to take over, and who has them now. Who ignores one goes on doing so, as a shell
    does for what runs in the background.
    """
    found = {number: signal.getsignal(number) for number in CAUSES}
    return {number: who for number, who in found.items() if who in (signal.default_int_handler, _raise)}


def note(number: signal.Signals) -> None:
    """Which of them it was that came."""
    global _last
    _last = number


def cause() -> str:
    return CAUSES[_last]


def exit_code() -> int:
    """As a shell tells of a program that a signal has ended: 130 and 143."""
    return 128 + _last


class Counted:
    """How many have come, to code that no exception may leave: one that is raised in a callback of C is lost there."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0

    def __bool__(self) -> bool:
        return self.count > 0


@contextmanager
def counted() -> Iterator[Counted]:
    """Nothing is raised in here."""
    found, before = Counted(), handlers()

    def count(number: int, frame: FrameType | None) -> None:
        note(signal.Signals(number))
        found.count += 1

    for number in before:
        signal.signal(number, count)
    try:
        yield found
    finally:
        for number, who in before.items():
            signal.signal(number, who)


def _raise(number: int, frame: FrameType | None) -> None:
    note(signal.Signals(number))
    raise KeyboardInterrupt
