"""How long a large classic group takes to be stable: `python -m bench.groups.rebalances [--peers ours,kafka]`.

200 members over 400 partitions, all started at once, without an initial delay, with heartbeats of 1 s: the time from
the first join until each has its assignment in one generation; and the same after one member falls silent, beyond its
session of 6 s. Members are coroutines of one process on the same machine, each with a connection of its own, that do
what clients do: join again when a heartbeat says so, and the leader assigns.

The bar: not above Kafka's.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any, Final, NamedTuple

import uvloop

from bench.groups.coordinators import coordinators_ready
from bench.node import peers
from bench.node.report import arguments_of, middle, ratio, say, show
from headrace.errors import Error
from headrace.net.peer import Peer
from headrace.protocol import messages as m

MEMBERS: Final = 200
PARTITIONS: Final = 400
SESSION_MS: Final = 6000
BEAT_S: Final = 1.0
TIMEOUT_S: Final = 120
SETTINGS: Final = ("group.initial.rebalance.delay.ms=0",)


class Result(NamedTuple):
    formed_s: float
    recovered_s: float
    generations: int
    cpu_s: float


class Member:
    def __init__(self, group: Group) -> None:
        self._group = group
        self._peer = Peer(group.host, group.port, "a-bench")
        self.member_id = ""
        self.generation = -1
        self.is_assigned = False
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        await self._peer.connect(60)
        self._task = asyncio.get_running_loop().create_task(self._run())

    def stop(self) -> None:
        assert self._task is not None
        self._task.cancel()
        self._peer.close()

    async def _run(self) -> None:
        while True:
            if await self._join() and await self._sync():
                self.is_assigned = True
                self._group.changed.set()
                while not await self.beat():
                    await asyncio.sleep(BEAT_S)
                self.is_assigned = False

    async def _join(self) -> bool:
        body = m.JoinGroupRequest(
            group_id=self._group.name,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=60_000,
            member_id=self.member_id,
            protocol_type="consumer",
            protocols=[m.JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=bytes(64))],
        )
        self.joined: Any = await self._peer.send(body, 9)
        if self.joined.error_code == Error.MEMBER_ID_REQUIRED:
            self.member_id = self.joined.member_id
        elif self.joined.error_code == Error.UNKNOWN_MEMBER_ID:
            self.member_id = ""
        self.generation = self.joined.generation_id
        return not self.joined.error_code

    async def _sync(self) -> bool:
        count = max(len(self.joined.members), 1)
        body = m.SyncGroupRequest(
            group_id=self._group.name,
            generation_id=self.generation,
            member_id=self.member_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=[
                m.SyncGroupRequest.SyncGroupRequestAssignment(
                    member_id=one.member_id, assignment=bytes(16 + 4 * (PARTITIONS // count))
                )
                for one in self.joined.members
            ],
        )
        return not (await self._peer.send(body, 5)).error_code

    async def beat(self) -> int:
        body = m.HeartbeatRequest(group_id=self._group.name, generation_id=self.generation, member_id=self.member_id)
        error: int = (await self._peer.send(body, 4)).error_code
        return error


class Group:
    def __init__(self, peer: peers.Peer, name: str) -> None:
        self.host, _, port = peer.bootstrap.rpartition(":")
        self.port = int(port)
        self.name = name
        self.changed = asyncio.Event()
        self.members: list[Member] = []

    async def until_stable(self) -> int:
        """Everybody has an assignment of the same generation, which is returned."""
        async with asyncio.timeout(TIMEOUT_S):
            while True:
                generations = {member.generation for member in self.members if member.is_assigned}
                if len(generations) == 1 and all(member.is_assigned for member in self.members):
                    return generations.pop()
                self.changed.clear()
                await self.changed.wait()


async def measure(peer: peers.Peer, name: str) -> Result:
    group = Group(peer, name)
    group.members = [Member(group) for _ in range(MEMBERS)]
    cpu_s, start_s = peer.cpu_s(), time.perf_counter()
    await asyncio.gather(*(member.start() for member in group.members))
    generations = await group.until_stable()
    formed_s, cpu_s = time.perf_counter() - start_s, peer.cpu_s() - cpu_s
    await asyncio.sleep(2 * BEAT_S)
    before = generations
    lost = group.members.pop()
    await lost.beat()
    start_s = time.perf_counter()
    lost.stop()
    while await group.until_stable() == before:
        await asyncio.sleep(0.01)
    recovered_s = time.perf_counter() - start_s - SESSION_MS / 1000
    for member in group.members:
        member.stop()
    await asyncio.sleep(0.2)
    return Result(formed_s, recovered_s, generations, cpu_s)


def main() -> None:
    options = arguments_of(__doc__, ("ours", "kafka")).parse_args()
    names = tuple(options.peers.split(","))
    found: dict[str, list[Result]] = {name: [] for name in names}
    with peers.running(names, SETTINGS) as running:
        groups = [f"group-{number}" for number in range(options.rounds)]
        for peer in running.values():
            coordinators_ready(peer, groups)
        for group in groups:
            for name, peer in running.items():
                say(f"{name}, {group}")
                found[name].append(uvloop.run(measure(peer, group)))
    formed = {name: middle([one.formed_s for one in results]) for name, results in found.items()}
    recovered = {name: middle([one.recovered_s for one in results]) for name, results in found.items()}
    show(
        "Rebalances of a large classic group",
        f"{MEMBERS} members over {PARTITIONS} partitions, heartbeats of {BEAT_S:g} s, no initial delay",
        ("", "formed s", "of ours", "recovered s", "of ours", "generations", "CPU s to form"),
        [
            [
                name,
                f"{formed[name]:.2f}",
                ratio(formed[name], formed[names[0]]),
                f"{recovered[name]:.2f}",
                ratio(recovered[name], recovered[names[0]]),
                f"{middle([one.generations for one in results]):.0f}",
                f"{middle([one.cpu_s for one in results]):.2f}",
            ]
            for name, results in found.items()
        ],
    )


if __name__ == "__main__":
    main()
