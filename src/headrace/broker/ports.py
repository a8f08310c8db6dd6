"""What a node is handed in: everything that a simulation has another one of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from headrace.plain import plain

if TYPE_CHECKING:
    from headrace.broker.process import ProcessFigures
    from headrace.storage.cleaning_work import StartWork
    from headrace.storage.disk import Disk
    from headrace.storage.headroom import Headroom
    from headrace.storage.syncs import Ended, Syncs
    from headrace.storage.workers import Workers
    from headrace.storage.write_behind import WritesBehind


def _nothing() -> None:
    pass


def _unknown() -> None:
    return None


@plain
class NodePorts:
    disk_of: Callable[[str], Disk]
    """The disk of a folder, made when it is not there."""
    workers_of: Callable[[str], Workers]
    """Another thread, by what it is for; its jobs run one after another."""
    clean: StartWork
    """Does the work of a compaction."""
    now_ms: Callable[[], int]
    """The wall clock. It may go back."""
    random_bytes: Callable[[int], bytes]
    choose: Callable[[int], int]
    """A number below the one it is given, at random."""
    host_name: Callable[[], str]
    clock_ns: Callable[[], int] | None = None
    """A clock for short times, that never goes back; the loop's when there is none."""
    senders: Sequence[Workers] = ()
    """Threads that send large replies. None where a connection has no socket of the system."""
    cores: int = 1
    """How many processors they share with the loop and with others."""
    syncs_of: Callable[[Disk, Ended], Syncs] | None = None
    """Who syncs the files of a disk, away from the loop; workers do without."""
    behind_of: Callable[[Disk], WritesBehind] | None = None
    """Who starts the write-back of what is appended to a disk, where that may have to wait."""
    headroom_of: Callable[[Disk], Headroom] | None = None
    """Who gets memory for what is appended to a disk, where that is slow."""
    process: Callable[[], ProcessFigures | None] = _unknown
    """What the process takes of its machine, where that means something."""
    open_files: int = 1000
    """How many files of segments may be open at once."""
    rest: Callable[[], None] = _nothing
    """The compaction has nothing to do for a while."""
    stop: Callable[[], None] = _nothing
    """The node has stopped, and needs none of this any more."""


class SteadyClock:
    """Milliseconds since 1970 that never go back."""

    __slots__ = ("_last_ms", "_now_ms")

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._last_ms = 0

    def __call__(self) -> int:
        now_ms = self._now_ms()
        if now_ms < self._last_ms:
            return self._last_ms
        self._last_ms = now_ms
        return now_ms
