"""A large group, by either protocol: how long it takes to be stable, at first and after the loss of a member.

Members are coroutines of one process on the same machine, each with a connection of its own, that do what clients do.
"""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Final, Generic, NamedTuple, TypeVar

import uvloop

from bench.groups.coordinators import coordinators_ready
from bench.node import peers
from bench.node.report import arguments_of, middle, ratio, say, show
from headrace.net.peer import Peer

MEMBERS: Final = 200
PARTITIONS: Final = 400
SESSION_MS: Final = 6000
BEAT_S: Final = 1.0
TIMEOUT_S: Final = 120.0


class Result(NamedTuple):
    formed_s: float
    recovered_s: float
    generation: int
    """Or epoch, of the group when it was stable first."""
    cpu_s: float


class Member(ABC):
    def __init__(self, group: Group[Any]) -> None:
        self._group = group
        self._peer = Peer(group.host, group.port, "a-bench")
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        await self._peer.connect(60)
        self._task = asyncio.get_running_loop().create_task(self._run())

    def stop(self) -> None:
        assert self._task is not None
        self._task.cancel()
        self._peer.close()

    @abstractmethod
    async def _run(self) -> None: ...


AnyMember = TypeVar("AnyMember", bound=Member)


class Group(ABC, Generic[AnyMember]):
    def __init__(self, peer: peers.Peer, name: str) -> None:
        self._broker = peer
        self.host, _, port = peer.bootstrap.rpartition(":")
        self.port = int(port)
        self.name = name
        self.changed = asyncio.Event()
        self.members: list[AnyMember] = []

    @abstractmethod
    def stable(self) -> int | None:
        """The generation that all have come to; None until then."""

    @abstractmethod
    async def lose(self, generation: int) -> float:
        """Stops a member and waits until the group is stable without it; returns when that was heard of last."""

    async def until_stable(self) -> int:
        async with asyncio.timeout(TIMEOUT_S):
            while (generation := self.stable()) is None:
                self.changed.clear()
                await self.changed.wait()
            return generation

    async def measure(self) -> Result:
        coordinators_ready(self._broker, [self.name])
        cpu_s, start_s = self._broker.cpu_s(), time.perf_counter()
        await asyncio.gather(*(member.start() for member in self.members))
        generation = await self.until_stable()
        formed_s, cpu_s = time.perf_counter() - start_s, self._broker.cpu_s() - cpu_s
        await asyncio.sleep(2 * BEAT_S)
        heard_of_s = await self.lose(generation)
        recovered_s = time.perf_counter() - heard_of_s - SESSION_MS / 1000
        for member in self.members:
            member.stop()
        await asyncio.sleep(0.2)
        return Result(formed_s, recovered_s, generation, cpu_s)


def main(
    description: str | None, title: str, settings: tuple[str, ...], begin: Callable[[peers.Peer, str], Group[Any]]
) -> None:
    options = arguments_of(description, ("ours", "kafka")).parse_args()
    names = tuple(options.peers.split(","))
    found: dict[str, list[Result]] = {name: [] for name in names}

    async def measure(peer: peers.Peer, group: str) -> Result:
        return await begin(peer, group).measure()

    with peers.running(names, settings) as running:
        for number in range(options.rounds):
            for name, peer in running.items():
                say(f"{name}, round {number}")
                found[name].append(uvloop.run(measure(peer, f"group-{number}")))
    formed = {name: middle([one.formed_s for one in results]) for name, results in found.items()}
    recovered = {name: middle([one.recovered_s for one in results]) for name, results in found.items()}
    last = names[-1]
    show(
        title,
        f"{MEMBERS} members over {PARTITIONS} partitions, heartbeats of {BEAT_S:g} s",
        ("", "formed s", f"to {last}", "after a loss s", f"to {last}", "generations", "CPU s to form"),
        [
            [
                name,
                f"{formed[name]:.2f}",
                ratio(formed[name], formed[last]),
                f"{recovered[name]:.2f}",
                ratio(recovered[name], recovered[last]),
                f"{middle([one.generation for one in results]):.0f}",
                f"{middle([one.cpu_s for one in results]):.2f}",
            ]
            for name, results in found.items()
        ],
    )
