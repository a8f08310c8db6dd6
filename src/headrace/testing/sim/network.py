"""The simulated network: hosts, the links between them, who listens where, and how connections come to be.

Links delay, chunk and can be cut, in one direction or both. As with TCP nothing is lost or reordered inside a
connection: a cut holds its bytes back until it heals, or until the sender's system gives up.
"""

from __future__ import annotations

import asyncio
import errno
import os
import random
import socket
from collections.abc import Iterable
from contextvars import copy_context
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from headrace.testing.sim.clock import HostClock
from headrace.testing.sim.host import LOOPBACK, Host
from headrace.testing.sim.pipe import Pipe
from headrace.testing.sim.process import CURRENT, Process
from headrace.testing.sim.transport import SimTransport

if TYPE_CHECKING:
    from headrace.testing.sim.loop import SimLoop
    from headrace.testing.sim.server import SimServer

_EVERY_ADDRESS: Final = ("", "0.0.0.0", "::")


@dataclass(slots=True)
class Weather:
    """How links, disks and clocks are. A simulation takes one from the seed; a scenario may change it at any time."""

    delay_seconds_min: float = 50e-6
    delay_seconds_max: float = 500e-6
    spike_chance: float = 0.01
    spike_seconds_max: float = 0.05
    bytes_per_second: float = 1e9
    window_bytes_min: int = 16 << 10
    window_bytes_max: int = 1 << 20
    chunk_chance: float = 0.3
    """How often what was written at once arrives in pieces."""
    refuse_chance: float = 0.0
    reset_chance: float = 0.0
    """How often a piece of data meets a reset instead of its receiver."""
    sync_seconds_max: float = 0.002
    """What a disk takes to sync, at most, but for now and then."""
    clock_skew_seconds_max: float = 0.0
    clock_drift_max: float = 0.0
    connect_timeout_seconds: float = 20.0
    send_timeout_seconds: float = 30.0
    """How long the system of a sender tries to get bytes through before it breaks the connection."""

    @classmethod
    def drawn(cls, chance: random.Random) -> Weather:
        """Anything from a fast network in one room to a bad one across an ocean."""
        low = 10 ** chance.uniform(-5, -2.5)
        return cls(
            delay_seconds_min=low,
            delay_seconds_max=low * 10 ** chance.uniform(0.1, 1.5),
            spike_chance=chance.choice((0.0, 0.01, 0.05)),
            spike_seconds_max=chance.choice((0.02, 0.2, 1.0)),
            bytes_per_second=10 ** chance.uniform(6, 9.5),
            window_bytes_min=1 << chance.randint(10, 14),
            window_bytes_max=1 << chance.randint(15, 20),
            chunk_chance=chance.choice((0.0, 0.2, 0.6)),
            refuse_chance=chance.choice((0.0, 0.0, 0.02)),
            reset_chance=chance.choice((0.0, 0.0, 0.002)),
            sync_seconds_max=chance.choice((0.001, 0.005, 0.05)),
            clock_skew_seconds_max=chance.choice((0.0, 0.1, 30.0)),
            clock_drift_max=chance.choice((0.0, 0.0001, 0.02)),
        )


class Network:
    """All hosts. The host `localhost` is where whatever is no simulated process runs."""

    __slots__ = (
        "_cut",
        "_hosts",
        "_next_process",
        "_parked",
        "_servers",
        "_transports",
        "chance",
        "loop",
        "seed",
        "weather",
    )

    def __init__(self, loop: SimLoop, seed: int) -> None:
        self.loop = loop
        self.seed = seed
        self.chance = random.Random(f"{seed}/network")
        self.weather = Weather()
        self._hosts: dict[str, Host] = {}
        self._cut: set[tuple[str, str]] = set()  # asked for membership only: a set has no order to rely on
        self._parked: list[Pipe] = []
        self._servers: dict[tuple[str, int], list[SimServer]] = {}
        self._transports: dict[SimTransport, None] = {}
        self._next_process = 0
        self._hosts["localhost"] = Host(self, "localhost", LOOPBACK, HostClock())

    # --- hosts --------------------------------------------------------------------------------------------------------

    def host(self, name: str) -> Host:
        """The host of this name, made when it is asked for the first time."""
        host = self._hosts.get(name)
        if host is None:
            chance, weather = random.Random(f"{self.seed}/clock/{name}"), self.weather
            clock = HostClock(
                1 + chance.uniform(-weather.clock_drift_max, weather.clock_drift_max),
                chance.uniform(-weather.clock_skew_seconds_max, weather.clock_skew_seconds_max),
                chance.uniform(0, 1e6),
            )
            host = self._hosts[name] = Host(self, name, f"10.0.0.{len(self._hosts)}", clock)
        return host

    @property
    def hosts(self) -> list[Host]:
        return [host for name, host in self._hosts.items() if name != "localhost"]

    def own_host(self) -> Host:
        process = CURRENT.get()
        return self._hosts["localhost"] if process is None else process.host

    def resolve(self, name: str | None) -> Host:
        if name is None or name in (LOOPBACK, "::1", "localhost", *_EVERY_ADDRESS):
            return self.own_host()
        for host in self._hosts.values():
            if name in (host.name, host.address):
                return host
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    def next_process_number(self) -> int:
        self._next_process += 1
        return self._next_process

    # --- faults -------------------------------------------------------------------------------------------------------

    def cut(self, source: str, target: str, *, both: bool = True) -> None:
        """Nothing gets from one host to the other; with `both`, nor back."""
        self.event("network", f"cut {source} {'-' if both else '->'} {target}")
        self._cut.add((source, target))
        if both:
            self._cut.add((target, source))

    def heal(self, source: str, target: str) -> None:
        """Both directions."""
        self.event("network", f"heal {source} - {target}")
        self._cut -= {(source, target), (target, source)}
        self.links_changed()

    def partition(self, *groups: Iterable[str]) -> None:
        """Hosts of different groups do not reach each other; those in no group are left as they are."""
        sides = [list(group) for group in groups]
        for index, side in enumerate(sides):
            for other in sides[index + 1 :]:
                for one in side:
                    for two in other:
                        self.cut(one, two)

    def heal_all(self) -> None:
        self.event("network", "heal all")
        self._cut.clear()
        self.links_changed()

    def reset(self, source: str, target: str) -> None:
        """Breaks every connection between two hosts, as a middle box does that forgot them."""
        self.event("network", f"reset {source} - {target}")
        for transport in list(self._transports):
            if (transport.host.name, transport.far_host.name) in ((source, target), (target, source)):
                transport.reset_arrived()

    def stall(self, source: str, seconds: float, chance: random.Random) -> None:
        """Some connections of a host have bad luck: what it sends by them comes late, after what it sends by others."""
        self.event("network", f"stall {source}")
        for transport in list(self._transports):
            if transport.host.name == source and chance.random() < 0.6:
                transport.stall(self.loop.now + seconds)

    def is_open(self, source: Host, target: Host) -> bool:
        """Whether bytes get from one host to the other now."""
        return target.is_up and (source.name, target.name) not in self._cut

    def links_changed(self) -> None:
        """What was held back tries again."""
        parked, self._parked = self._parked, []
        for pipe in parked:
            pipe.unpark()

    # --- for pipes ----------------------------------------------------------------------------------------------------

    def park(self, pipe: Pipe) -> None:
        """A pipe whose way is cut is told when that may have changed."""
        if pipe not in self._parked:
            self._parked.append(pipe)

    def delay(self, source: Host, target: Host, size_bytes: int) -> float:
        """How long so many bytes take."""
        chance, weather = self.chance, self.weather
        if source is target:
            return chance.uniform(5e-6, 30e-6) + size_bytes / 5e9
        delay = chance.uniform(weather.delay_seconds_min, weather.delay_seconds_max)
        if weather.spike_chance and chance.random() < weather.spike_chance:
            delay += chance.uniform(0, weather.spike_seconds_max)
        return delay + size_bytes / weather.bytes_per_second

    def window_bytes(self) -> int:
        return self.chance.randint(self.weather.window_bytes_min, self.weather.window_bytes_max)

    def event(self, who: str, what: str) -> None:
        self.loop.trace.event(self.loop.now, who, what)

    # --- listening ----------------------------------------------------------------------------------------------------

    def address_to_listen_on(self, name: str | None) -> str:
        return _address(name, self.resolve(name))

    def listen(self, server: SimServer, name: str | None, port: int) -> None:
        process = CURRENT.get()
        if process is not None:
            process.enter()
        host = self.own_host()
        if self.resolve(name) is not host:
            raise _os_error(errno.EADDRNOTAVAIL)
        port = port or host.ephemeral_port()
        address = _address(name, host)
        there = self._servers.setdefault((host.name, port), [])
        if any(other.meets(port, address) for other in there):
            raise _os_error(errno.EADDRINUSE)
        there.append(server)
        server.bound(host, address, port)

    def forget_server(self, server: SimServer, host: Host, port: int) -> None:
        self._servers[host.name, port].remove(server)

    def _server_at(self, host: Host, address: str, port: int) -> SimServer | None:
        for server in self._servers.get((host.name, port), ()):
            if server.is_serving() and server.meets(port, address):
                return server
        return None

    # --- connecting ---------------------------------------------------------------------------------------------------

    async def connect(self, protocol_factory: Any, name: str | None, port: int) -> SimTransport:
        process = CURRENT.get()
        if process is not None:
            process.enter()
        near, far = self.own_host(), self.resolve(name)
        address = LOOPBACK if name in (None, *_EVERY_ADDRESS) else _address(name, far)
        own_address = LOOPBACK if address == LOOPBACK else near.address
        transport = SimTransport(self, process, near, far, copy_context())
        transport.set_names((own_address, near.ephemeral_port()), (address, port))
        established: asyncio.Future[None] = self.loop.create_future()
        attempt = _Attempt(self, transport, established)
        attempt.send()
        try:
            await established
        except BaseException:
            transport.kernel_close()
            raise
        transport.begin(protocol_factory())
        return transport

    def opened(self, transport: SimTransport) -> None:
        self._transports[transport] = None

    def closed(self, transport: SimTransport) -> None:
        self._transports.pop(transport, None)

    def process_ended(self, process: Process, *, silently: bool) -> None:
        """Its kernel closes what it had open; a machine without power says nothing to anybody."""
        for servers in list(self._servers.values()):
            for server in list(servers):
                if server.process is process:
                    server.close()
        for transport in list(self._transports):
            if transport.process is process:
                if silently:
                    transport.vanish()
                else:
                    transport.kernel_close()


class _Attempt:
    """The handshake of one connection, tried again like TCP does when nobody answers."""

    __slots__ = ("_established", "_give_up_at", "_network", "_pause_seconds", "_transport")

    def __init__(self, network: Network, transport: SimTransport, established: asyncio.Future[None]) -> None:
        self._network = network
        self._transport = transport
        self._established = established
        self._pause_seconds = 1.0
        self._give_up_at = network.loop.now + network.weather.connect_timeout_seconds

    def send(self) -> None:
        loop = self._network.loop
        near, far = self._transport.host, self._transport.far_host
        loop.outside_at(loop.now + self._network.delay(near, far, 60), self._arrive)

    def _arrive(self) -> None:
        network, near = self._network, self._transport
        if self._established.done():
            return
        if not network.is_open(near.host, near.far_host):
            self._later()
            return
        address, port = near.peer_name
        server = network._server_at(near.far_host, address, port)
        if server is None or network.chance.random() < network.weather.refuse_chance:
            self._answer(_os_error(errno.ECONNREFUSED))
            return
        if server.is_full:
            self._later()
            return
        far = SimTransport(network, server.process, near.far_host, near.host, server.context)
        far.set_names(near.peer_name, near.own_name)
        near.join(far)
        far.join(near)
        server.arrived(far)
        self._answer(None)

    def _answer(self, error: OSError | None) -> None:
        network, near = self._network, self._transport
        loop = network.loop
        when = loop.now + network.delay(near.far_host, near.host, 60)
        if error is None:
            near.incoming().not_before(when)
        loop.outside_at(when, self._end, error)

    def _end(self, error: OSError | None) -> None:
        near = self._transport
        if self._established.done():
            return
        if not self._network.is_open(near.far_host, near.host):
            # The answer is lost. TCP would send it again; the one that waits sees no difference.
            self._later(error)
        elif error is not None:
            self._established.set_exception(error)
        else:
            self._network.event(str(near), "connected")
            self._established.set_result(None)

    def _later(self, *answer: OSError | None) -> None:
        loop = self._network.loop
        if loop.now >= self._give_up_at:
            if not self._established.done():
                self._established.set_exception(_os_error(errno.ETIMEDOUT))
            return
        loop.outside_at(loop.now + self._pause_seconds, self._end if answer else self._arrive, *answer)
        self._pause_seconds *= 2


def _address(name: str | None, host: Host) -> str:
    """The address that a name of a host stands for."""
    if name is None or name in _EVERY_ADDRESS:
        return "0.0.0.0"
    if name in ("localhost", "::1"):
        return LOOPBACK
    return host.address if name == host.name else name


def _os_error(number: int) -> OSError:
    return OSError(number, os.strerror(number))
