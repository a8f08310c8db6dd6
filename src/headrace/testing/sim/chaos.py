"""Trouble, by the seed: processes crash, pause and restart, machines lose power, links are cut, clocks jump.

It runs for a while beside what a scenario does, and then makes everything good again, so that the scenario can ask
what is left.
"""

from __future__ import annotations

import asyncio
import itertools
import signal
from collections.abc import Callable
from dataclasses import dataclass, field

from headrace.testing.sim.host import Host
from headrace.testing.sim.process import Process
from headrace.testing.sim.simulation import Simulation


@dataclass(slots=True)
class Odds:
    """How often each kind of trouble is picked. 0 for never."""

    process_crash: int = 3
    crash_in_call: int = 3
    crash_at_callback: int = 2
    machine_crash: int = 2
    pause: int = 3
    cut_both: int = 2
    cut_one_way: int = 2
    partition: int = 1
    reset: int = 2
    clock_jump: int = 1
    terminate: int = 0
    sync_failure: int = 0
    disk_full: int = 0
    stall: int = 0


@dataclass(slots=True)
class Chaos:
    """Trouble for the processes of some hosts, and for the links between all hosts."""

    simulation: Simulation
    targets: list[Host]
    """Their processes crash and pause. Clients usually are not among them."""
    odds: Odds = field(default_factory=Odds)
    gap_seconds: float = 0.5
    """Between one trouble and the next, on the average."""
    outage_seconds: float = 0.5

    async def run(self, seconds: float) -> None:
        """Makes trouble for a while, then heals everything."""
        chance = self.simulation.chance("chaos")
        end = self.simulation.now + seconds
        kinds = [name for name in Odds.__slots__ for _ in range(getattr(self.odds, name))]
        troubles: list[asyncio.Task[None]] = []
        while (wait := chance.expovariate(1 / self.gap_seconds)) < end - self.simulation.now:
            await asyncio.sleep(wait)
            kind = chance.choice(kinds)
            outage = chance.expovariate(1 / self.outage_seconds)
            troubles.append(asyncio.ensure_future(getattr(self, f"_{kind}")(chance.choice(self.targets), outage)))
        await asyncio.gather(*troubles)
        await self.heal()

    async def heal(self) -> None:
        """Everything runs and everything is connected."""
        self.simulation.network.heal_all()
        for host in self.targets:
            for name, process in list(host.processes.items()):
                process.resume()
                process.crash_at_call = process.crash_at_callback = 0
                for disk in process.disks:
                    disk.faults.fail_sync_at, disk.faults.capacity_bytes = 0, None
                if not process.is_alive:
                    host.restart(name)
        await asyncio.sleep(0)

    # --- kinds of trouble ---------------------------------------------------------------------------------------------

    async def _process_crash(self, host: Host, outage: float) -> None:
        for process in host.processes.values():
            if process.is_alive:
                process.crash()
        await self._restart(host, outage)

    async def _crash_in_call(self, host: Host, outage: float) -> None:
        """Dies in the middle of one of the next calls of a port, the disk's above all."""
        count = self.simulation.chance(f"crash in call {self.simulation.now}").randint(1, 40)
        await self._crash_soon(host, outage, lambda process: process.crash_at_next_call(count))

    async def _crash_at_callback(self, host: Host, outage: float) -> None:
        """Dies between two callbacks that a real process runs microseconds apart."""
        count = self.simulation.chance(f"crash at callback {self.simulation.now}").randint(1, 100)
        await self._crash_soon(host, outage, lambda process: process.crash_at_next_callback(count))

    async def _crash_soon(self, host: Host, outage: float, plan: Callable[[Process], None]) -> None:
        for process in list(host.processes.values()):
            if process.is_alive:
                plan(process)
                await asyncio.wait([process.ended], timeout=outage + 1)
                process.crash_at_call = process.crash_at_callback = 0
        await self._restart(host, outage)

    async def _machine_crash(self, host: Host, outage: float) -> None:
        if host.is_up:
            host.lose_power()
        await self._restart(host, outage)

    async def _pause(self, host: Host, outage: float) -> None:
        paused = list(host.processes.values())
        for process in paused:
            process.pause()
        await asyncio.sleep(outage)
        for process in paused:
            process.resume()

    async def _cut_both(self, host: Host, outage: float) -> None:
        await self._cut(host, outage, both=True)

    async def _cut_one_way(self, host: Host, outage: float) -> None:
        await self._cut(host, outage, both=False)

    async def _partition(self, host: Host, outage: float) -> None:
        names = [other.name for other in self.simulation.network.hosts]
        chance = self.simulation.chance(f"partition {self.simulation.now}")
        chance.shuffle(names)
        split = chance.randint(1, max(1, len(names) - 1))
        self.simulation.network.partition(names[:split], names[split:])
        await asyncio.sleep(outage)
        for one, two in itertools.product(names[:split], names[split:]):
            self.simulation.network.heal(one, two)

    async def _reset(self, host: Host, outage: float) -> None:
        for other in self.simulation.network.hosts:
            self.simulation.network.reset(host.name, other.name)

    async def _stall(self, host: Host, outage: float) -> None:
        """What a client gave up for lost arrives after what it has sent instead."""
        chance = self.simulation.chance(f"stall {self.simulation.now}")
        self.simulation.network.stall(host.name, outage, chance)

    async def _clock_jump(self, host: Host, outage: float) -> None:
        seconds = self.simulation.chance(f"clock {self.simulation.now}").uniform(-5, 5)
        self.simulation.event(f"the clock of {host} jumps by {seconds:.3f} s")
        host.clock.jump(seconds)

    async def _terminate(self, host: Host, outage: float) -> None:
        """SIGTERM. Whoever does not stop by itself in time is killed."""
        for process in list(host.processes.values()):
            if process.is_alive:
                process.signal(signal.SIGTERM)
                await asyncio.wait([process.ended], timeout=10 * outage + 1)
                if process.is_alive:
                    process.crash()
        await self._restart(host, outage)

    async def _sync_failure(self, host: Host, outage: float) -> None:
        """One of the next syncs fails. A process that exits for it is started again."""
        chance = self.simulation.chance(f"sync {self.simulation.now}")
        for process in list(host.processes.values()):
            if process.is_alive and process.disks:
                disk = chance.choice(process.disks)
                disk.faults.fail_sync_at = disk.syncs + chance.randint(1, 10)
                await asyncio.wait([process.ended], timeout=outage + 1)
                disk.faults.fail_sync_at = 0
        await self._restart(host, outage)

    async def _disk_full(self, host: Host, outage: float) -> None:
        """There is little room, or none, for a while; where there is none, not even to write over what is there."""
        chance = self.simulation.chance(f"full {self.simulation.now}")
        for process in host.processes.values():
            for disk in process.disks:
                free_bytes = chance.choice((0, 100, 5000))
                disk.faults.capacity_bytes = disk.platter.used_bytes() + free_bytes
                disk.faults.copies_on_write = not free_bytes
                process.event(f"{disk.root} has {disk.free()} bytes left")
        filled = [disk for process in host.processes.values() for disk in process.disks]
        await asyncio.sleep(outage)
        for disk in filled:
            disk.faults.capacity_bytes = None
        await self._restart(host, 0)

    async def _cut(self, host: Host, outage: float, *, both: bool) -> None:
        network = self.simulation.network
        chance = self.simulation.chance(f"cut {self.simulation.now}")
        others = [other for other in network.hosts if other is not host]
        if others:
            ends = [host.name, chance.choice(others).name]
            chance.shuffle(ends)
            network.cut(*ends, both=both)
            await asyncio.sleep(outage)
            network.heal(*ends)

    async def _restart(self, host: Host, outage: float) -> None:
        await asyncio.sleep(outage)
        if not host.is_up:
            host.boot()
        for name, process in list(host.processes.items()):
            if not process.is_alive:
                host.restart(name)
