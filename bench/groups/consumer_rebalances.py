"""How long a large consumer group takes to settle: `python -m bench.groups.consumer_rebalances [--peers ours,kafka]`.

200 members over 400 partitions, all started at once, with heartbeats of 1 s: the time from the first join until every
partition is owned and everyone has its two; and the same after one member, any, falls silent, from the end of its
session of 6 s on (the others hear of it with their next heartbeats, within a second).
Members are coroutines of one process on the same machine, each with a connection of its own, that do what clients do:
they give up at once what they are not assigned, say so at once, and beat as often as they are told.

The bar: not above Kafka's.
"""

from __future__ import annotations

import asyncio
import random
import time
from typing import Any, Final, NamedTuple

import uvloop

from bench.groups.coordinators import coordinators_ready
from bench.node import peers
from bench.node.report import arguments_of, middle, ratio, say, show
from headrace.net.peer import Peer
from headrace.protocol import messages as m
from tests.compat.wire import Wire

MEMBERS: Final = 200
PARTITIONS: Final = 400
SESSION_MS: Final = 6000
TIMEOUT_S: Final = 120
SETTINGS: Final = (
    "group.consumer.heartbeat.interval.ms=1000",
    "group.consumer.min.heartbeat.interval.ms=1000",
    f"group.consumer.session.timeout.ms={SESSION_MS}",
    f"group.consumer.min.session.timeout.ms={SESSION_MS}",
)
Request = m.ConsumerGroupHeartbeatRequest


class Result(NamedTuple):
    formed_s: float
    recovered_s: float
    epoch: int
    cpu_s: float


class Member:
    def __init__(self, group: Group, number: int) -> None:
        self._group = group
        self._peer = Peer(group.host, group.port, "a-bench")
        self._id = f"{group.name}-{number}"
        self.epoch = 0
        self.heard_of_s = 0.0
        self.owned: dict[bytes, list[int]] = {}
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        await self._peer.connect(60)
        self._task = asyncio.get_running_loop().create_task(self._run())

    def stop(self) -> None:
        assert self._task is not None
        self._task.cancel()
        self._peer.close()

    async def _run(self) -> None:
        has_news = True
        while True:
            body = Request(group_id=self._group.name, member_id=self._id, member_epoch=self.epoch)
            if has_news:
                body.topic_partitions = [
                    Request.TopicPartitions(topic_id=topic_id, partitions=partitions)
                    for topic_id, partitions in self.owned.items()
                ]
            if not self.epoch:
                body.rebalance_timeout_ms, body.subscribed_topic_names = 60_000, [self._group.topic]
            self.heard_of_s = time.perf_counter()
            told: Any = await self._peer.send(body, 1)
            assert not told.error_code, told
            self.epoch, has_news = told.member_epoch, False
            if told.assignment is not None:
                owned = {topic.topic_id: list(topic.partitions) for topic in told.assignment.topic_partitions}
                has_news = owned != self.owned
                self.owned = owned
                self._group.changed.set()
            if not has_news:
                await asyncio.sleep(told.heartbeat_interval_ms / 1000)


class Group:
    def __init__(self, peer: peers.Peer, name: str) -> None:
        self.host, _, port = peer.bootstrap.rpartition(":")
        self.port = int(port)
        self.name, self.topic = name, f"topic-of-{name}"
        self.changed = asyncio.Event()
        self.members: list[Member] = []

    async def until_stable(self) -> int:
        """Every partition is owned, and evenly; returns the epoch."""
        async with asyncio.timeout(TIMEOUT_S):
            while True:
                loads = [sum(map(len, member.owned.values())) for member in self.members]
                if sum(loads) == PARTITIONS and max(loads) - min(loads) <= 1:
                    return max(member.epoch for member in self.members)
                self.changed.clear()
                await self.changed.wait()


async def measure(peer: peers.Peer, name: str) -> Result:
    group = Group(peer, name)
    with Wire(peer.bootstrap) as wire:
        topic = m.CreateTopicsRequest.CreatableTopic(name=group.topic, num_partitions=PARTITIONS, replication_factor=1)
        wire.ask(m.CreateTopicsRequest(topics=[topic], timeout_ms=60_000), 7)
    coordinators_ready(peer, [name])
    group.members = [Member(group, number) for number in range(MEMBERS)]
    cpu_s, start_s = peer.cpu_s(), time.perf_counter()
    await asyncio.gather(*(member.start() for member in group.members))
    epoch = await group.until_stable()
    formed_s, cpu_s = time.perf_counter() - start_s, peer.cpu_s() - cpu_s
    await asyncio.sleep(2)
    lost = group.members.pop(random.Random(name).randrange(MEMBERS))
    lost.stop()
    await group.until_stable()
    recovered_s = time.perf_counter() - lost.heard_of_s - SESSION_MS / 1000
    for member in group.members:
        member.stop()
    await asyncio.sleep(0.2)
    return Result(formed_s, recovered_s, epoch, cpu_s)


def main() -> None:
    options = arguments_of(__doc__, ("ours", "kafka")).parse_args()
    names = tuple(options.peers.split(","))
    found: dict[str, list[Result]] = {name: [] for name in names}
    with peers.running(names, SETTINGS) as running:
        for number in range(options.rounds):
            for name, peer in running.items():
                say(f"{name}, round {number}")
                found[name].append(uvloop.run(measure(peer, f"group-{number}")))
    formed = {name: middle([one.formed_s for one in results]) for name, results in found.items()}
    recovered = {name: middle([one.recovered_s for one in results]) for name, results in found.items()}
    last = names[-1]
    show(
        "A large group of the new consumer protocol",
        f"{MEMBERS} members, {PARTITIONS} partitions, heartbeats of 1 s",
        ("", "formed s", f"to {last}", "after a loss s", f"to {last}", "epochs", "CPU s"),
        [
            [
                name,
                f"{formed[name]:.2f}",
                ratio(formed[name], formed[last]),
                f"{recovered[name]:.2f}",
                ratio(recovered[name], recovered[last]),
                f"{middle([one.epoch for one in results]):.0f}",
                f"{middle([one.cpu_s for one in results]):.2f}",
            ]
            for name, results in found.items()
        ],
    )


if __name__ == "__main__":
    main()
