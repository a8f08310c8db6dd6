"""The disk of a simulated process: it dies with the process, takes its time, and stands in the trace."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headrace.testing.disk import Crash, FaultyDisk, FaultyLock, Platter

if TYPE_CHECKING:
    from headrace.testing.sim.process import Process

_CALL_SECONDS: Final = 5e-6
_SYNCS: Final = frozenset(("datasync", "sync_directory", "sync_all"))


class SimDisk(FaultyDisk):
    """One incarnation on a platter of its host. Its `faults` may change at any time."""

    __slots__ = ("_lock", "process")

    def __init__(self, process: Process, platter: Platter, root: str) -> None:
        super().__init__(platter, root=root, now_ms=process.time_ms)
        self.process = process
        self._lock: FaultyLock | None = None

    def call(self, name: str, path: str) -> None:
        process = self.process
        process.enter()
        process.event(f"{name} {path}")
        try:
            super().call(name, path)
        except Crash:
            process.crash()
            raise
        chance = process.host.chance
        if name in _SYNCS:
            # Mostly what a device takes; now and then it is busy with something else.
            longest = process.host.network.weather.sync_seconds_max if chance.random() < 0.95 else 0.2
            process.block(chance.uniform(0.0001, longest))
        else:
            process.block(_CALL_SECONDS)

    def lock(self) -> FaultyLock:
        self._lock = super().lock()
        return self._lock

    def fail_sync(self, path: str) -> None:
        self.process.event(f"a sync of {path} fails")
        self.process.host.lost()
        super().fail_sync(path)

    def abandon(self) -> None:
        """The process is dead. Its kernel gives the lock back."""
        self.dead = True
        if self.offline is not None:  # what was written since the sync that failed is not safe either
            self.process.host.lost()
        if self._lock is not None:
            self._lock.release()
