"""A simulated machine: an address, clocks, disks that outlive its processes, and the power switch."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Final

from headrace.testing.disk import Platter
from headrace.testing.sim.clock import HostClock
from headrace.testing.sim.history import MachineCrash
from headrace.testing.sim.process import Main, Process

if TYPE_CHECKING:
    from headrace.testing.sim.network import Network

LOOPBACK: Final = "127.0.0.1"
EPHEMERAL_PORT: Final = 32_768


class Host:
    """Made by `Network.host`."""

    __slots__ = (
        "_next_port",
        "address",
        "chance",
        "clock",
        "is_up",
        "losses",
        "name",
        "network",
        "platters",
        "processes",
    )

    def __init__(self, network: Network, name: str, address: str, clock: HostClock) -> None:
        self.network = network
        self.name = name
        self.address = address
        self.clock = clock
        self.chance = random.Random(f"{network.seed}/host/{name}")
        self.is_up = True
        self.platters: dict[str, Platter] = {}
        self.processes: dict[str, Process] = {}
        """The last incarnation of each."""
        self.losses: list[MachineCrash] = []
        """When what was not synced may have gone: with the power, or by a sync that failed."""
        self._next_port = EPHEMERAL_PORT

    def __str__(self) -> str:
        return self.name

    def platter(self, name: str = "data") -> Platter:
        """A disk of the machine, empty when it is asked for the first time."""
        platter = self.platters.get(name)
        if platter is None:
            platter = self.platters[name] = Platter()
            platter.chance = random.Random(f"{self.network.seed}/platter/{self.name}/{name}")
        return platter

    def start(self, name: str, main: Main) -> Process:
        """Starts a process; the machine is switched on when it is off."""
        if not self.is_up:
            self.boot()
        before = self.processes.get(name)
        assert before is None or not before.is_alive, f"{before} is running"
        incarnation = 1 if before is None else before.incarnation + 1
        process = Process(self, name, self.network.next_process_number(), incarnation, main)
        self.processes[name] = process
        process.event("starts")
        process.begin()
        return process

    def restart(self, name: str) -> Process:
        """The next incarnation of a process that has ended."""
        return self.start(name, self.processes[name].main)

    def lose_power(self) -> None:
        """Every process dies, and what was not synced may be gone, in part."""
        self.is_up = False
        self.network.event(self.name, "loses power")
        for process in self.processes.values():
            process.lose_power()
        for platter in self.platters.values():
            platter.lose_power()
        self.lost()

    def lost(self) -> None:
        """From a history's view a failed sync is no better than a machine that lost power."""
        self.losses.append(MachineCrash(self.network.loop.now, self.name))

    def boot(self) -> None:
        self.is_up = True
        self.network.event(self.name, "boots")
        self.network.links_changed()

    def address_seen_by(self, other: Host) -> str:
        return LOOPBACK if other is self else self.address

    def ephemeral_port(self) -> int:
        self._next_port += 1
        return self._next_port
