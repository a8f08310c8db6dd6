"""A process on a simulated host: one incarnation, from its start to its death.

A context variable says to which process a callback belongs. A crash drops all that it would still have done, and every
later call of one of its ports raises `Crash`, so that no `finally` does anything more. A pause (SIGSTOP) holds its
callbacks while its kernel goes on taking bytes and connections for it.
"""

from __future__ import annotations

import asyncio
import enum
import math
import random
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar
from typing import TYPE_CHECKING, Any, TypeAlias

from headrace.testing.disk import Crash
from headrace.testing.sim.disk import SimDisk
from headrace.testing.sim.workers import SimWorkers

if TYPE_CHECKING:
    from headrace.testing.sim.clock import HostClock
    from headrace.testing.sim.host import Host
    from headrace.testing.sim.loop import SimHandle, SimLoop, SimTimer

Main: TypeAlias = "Callable[[Process], Coroutine[Any, Any, None]]"
"""What a process runs. It exits when that returns; an exception out of it is a finding."""

CURRENT: ContextVar[Process | None] = ContextVar("process", default=None)


class End(enum.Enum):
    """How a process ended, and with it what survives."""

    EXIT = "exited"
    PROCESS_CRASH = "crashed"
    """The page cache survives, and the kernel closes its sockets."""
    MACHINE_CRASH = "lost power"
    """Unsynced bytes may be lost, in part, torn; nobody is told that the connections are gone."""


class Process:
    """Made by `Host.start`. `Host.restart` makes the next incarnation."""

    __slots__ = (
        "_held",
        "_held_jobs",
        "_is_busy",
        "_is_paused",
        "_timer_grid",
        "blocked_seconds",
        "callbacks",
        "chance",
        "clock",
        "context",
        "crash_at_call",
        "crash_at_callback",
        "disks",
        "end",
        "ended",
        "host",
        "incarnation",
        "label",
        "loop",
        "main",
        "name",
        "number",
        "port_calls",
        "signal_handlers",
    )

    def __init__(self, host: Host, name: str, number: int, incarnation: int, main: Main) -> None:
        self.host = host
        self.loop: SimLoop = host.network.loop
        self.clock: HostClock = host.clock
        self.name = name
        self.number = number
        self.incarnation = incarnation
        self.main = main
        self.label = f"{host.name}/{name}#{incarnation}"
        self.chance = random.Random(f"{host.network.seed}/process/{host.name}/{name}/{incarnation}")
        """The source of randomness that the process is given."""
        self.context = Context()
        self.context.run(CURRENT.set, self)
        self.end: End | None = None
        self.ended: asyncio.Future[End] = self.loop.create_future()
        self.signal_handlers: dict[int, Callable[[], object]] = {}
        self.disks: list[SimDisk] = []
        self.port_calls = 0
        self.crash_at_call = 0
        """The call of a port, counted from 1, in which the process dies."""
        self.callbacks = 0
        self.crash_at_callback = 0
        """The callback, counted from 1, before which the process dies."""
        self.blocked_seconds = 0.0
        """For how long the callback that runs has waited for the disk."""
        self._is_paused = False
        self._is_busy = False
        self._held: list[SimHandle | SimTimer] = []
        self._held_jobs: list[Callable[[], None]] = []
        # Loops round timers up to their own grain, uvloop's to a millisecond; the order of timers stays.
        self._timer_grid = self.chance.choice((0.0, 0.0001, 0.001))

    def __str__(self) -> str:
        return self.label

    # --- for what runs in it ------------------------------------------------------------------------------------------

    def disk(self, name: str = "data") -> SimDisk:
        """A disk of the host, as this incarnation sees it."""
        disk = SimDisk(self, self.host.platter(name), f"/{self.host.name}/{name}")
        self.disks.append(disk)
        return disk

    def workers(self, name: str = "worker") -> SimWorkers:
        return SimWorkers(self, name)

    def time_ms(self) -> int:
        """What the wall clock of the host shows."""
        return int(self.clock.wall(self.loop.now) * 1000)

    def enter(self) -> None:
        """Every call of a port comes through here: a dead process gets no further."""
        if self.end is not None:
            raise Crash
        current = CURRENT.get()
        assert current is self, f"{current or 'the scenario'} used a port of {self}"
        self.port_calls += 1
        if self.port_calls == self.crash_at_call:
            self.crash()
            raise Crash

    def block(self, seconds: float) -> None:
        """The callback or job that runs waits for the disk."""
        self.blocked_seconds += seconds

    # --- for the scenario ---------------------------------------------------------------------------------------------

    @property
    def is_alive(self) -> bool:
        return self.end is None

    @property
    def is_paused(self) -> bool:
        return self._is_paused

    def spawn(self, coroutine: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """A task in the name of the process."""
        return self.loop.create_task(coroutine, context=self.context.copy())

    def begin(self) -> None:
        self.spawn(self._main())

    def crash(self) -> None:
        """kill -9."""
        self._die(End.PROCESS_CRASH)

    def crash_at_next_call(self, count: int) -> None:
        """kill -9 in the middle of the `count`th call of a port from now on."""
        self.crash_at_call = self.port_calls + count

    def crash_at_next_callback(self, count: int) -> None:
        """kill -9 before the `count`th callback from now on."""
        self.crash_at_callback = self.callbacks + count

    def exit(self) -> None:
        self._die(End.EXIT)

    def lose_power(self) -> None:
        self._die(End.MACHINE_CRASH)

    def pause(self) -> None:
        """SIGSTOP."""
        if self.is_alive and not self._is_paused:
            self._is_paused = True
            self.event("paused")

    def resume(self) -> None:
        """SIGCONT."""
        if self.is_alive and self._is_paused:
            self._is_paused = False
            self.event("goes on")
            self._release()
            jobs, self._held_jobs = self._held_jobs, []
            for job in jobs:
                self.loop.outside_soon(job)

    def signal(self, number: int) -> None:
        """Sends a signal; one without a handler kills."""
        self.event(f"signal {number}")
        handler = self.signal_handlers.get(number)
        if handler is not None:
            handler()
        else:
            self.crash()

    def event(self, what: str) -> None:
        self.loop.trace.event(self.loop.now, self.label, what)

    # --- for the loop -------------------------------------------------------------------------------------------------

    @property
    def is_running(self) -> bool:
        return self.end is None and not self._is_paused and not self._is_busy

    def hold(self, handle: SimHandle | SimTimer) -> None:
        """A callback that can't run now: it waits, or is dropped with the dead."""
        if self.end is None:
            self._held.append(handle)

    def hold_job(self, job: Callable[[], None]) -> bool:
        """Whether a worker's job must wait. A thread stops with its process; it does not wait for the loop's calls."""
        if self._is_paused:
            self._held_jobs.append(job)
        return self._is_paused

    def stall(self) -> None:
        """The callback that ran has blocked the loop of its process for a while."""
        self._is_busy = True
        self.loop.outside_at(self.loop.now + self.blocked_seconds, self._goes_on)
        self.blocked_seconds = 0.0

    def timer_time(self, when: float) -> float:
        """The true time at which a timer of this process goes off."""
        when = self.clock.when(when)
        grid = self._timer_grid
        return math.ceil(when / grid) * grid if grid else when

    def _goes_on(self) -> None:
        self._is_busy = False
        self._release()

    def _release(self) -> None:
        if self.is_running and self._held:
            held, self._held = self._held, []
            self.loop.release(held)

    async def _main(self) -> None:
        try:
            await self.main(self)
        except Exception as error:
            self.event(f"failed: {error!r}")
            self.loop.call_exception_handler({"message": f"{self} failed", "exception": error})
        self.exit()

    def _die(self, end: End) -> None:
        if self.end is not None:
            return
        self.end = end
        self.event(end.value)
        for disk in self.disks:
            disk.abandon()
        self.loop.graveyard += asyncio.all_tasks(self.loop)
        self._held, self._held_jobs = [], []
        self.host.network.process_ended(self, silently=end is End.MACHINE_CRASH)
        if not self.ended.done():
            self.ended.set_result(end)
