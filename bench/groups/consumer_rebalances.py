"""How long a large consumer group takes to settle: `python -m bench.groups.consumer_rebalances [--peers ours,kafka]`.

200 members over 400 partitions, all started at once, with heartbeats of 1 s: the time from the first join until every
partition is owned and everyone has its two; and the same after one member, any, falls silent, from the end of its
session of 6 s on (the others hear of it with their next heartbeats, within a second). Members give up at once what they
are not assigned, say so at once, and beat as often as they are told.

The bar: not above Kafka's.
"""

from __future__ import annotations

import asyncio
import random
import time
from typing import Any, Final

from bench.groups import rebalancing
from bench.groups.rebalancing import MEMBERS, PARTITIONS, SESSION_MS
from bench.node import peers
from headrace.protocol import messages as m
from tests.compat.wire import Wire

SETTINGS: Final = (
    "group.consumer.heartbeat.interval.ms=1000",
    "group.consumer.min.heartbeat.interval.ms=1000",
    f"group.consumer.session.timeout.ms={SESSION_MS}",
    f"group.consumer.min.session.timeout.ms={SESSION_MS}",
)
Request = m.ConsumerGroupHeartbeatRequest


class Member(rebalancing.Member):
    def __init__(self, group: Group, number: int) -> None:
        super().__init__(group)
        self._topic = group.topic
        self._id = f"{group.name}-{number}"
        self.epoch = 0
        self.heard_of_s = 0.0
        self.owned: dict[bytes, list[int]] = {}

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
                body.rebalance_timeout_ms, body.subscribed_topic_names = 60_000, [self._topic]
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


class Group(rebalancing.Group[Member]):
    def __init__(self, peer: peers.Peer, name: str) -> None:
        super().__init__(peer, name)
        self.topic = f"topic-of-{name}"
        self.members = [Member(self, number) for number in range(MEMBERS)]
        topic = m.CreateTopicsRequest.CreatableTopic(name=self.topic, num_partitions=PARTITIONS, replication_factor=1)
        with Wire(peer.bootstrap) as wire:
            wire.ask(m.CreateTopicsRequest(topics=[topic], timeout_ms=60_000), 7)

    def stable(self) -> int | None:
        """Every partition is owned, and evenly."""
        loads = [sum(map(len, member.owned.values())) for member in self.members]
        is_stable = sum(loads) == PARTITIONS and max(loads) - min(loads) <= 1
        return max(member.epoch for member in self.members) if is_stable else None

    async def lose(self, generation: int) -> float:
        lost = self.members.pop(random.Random(self.name).randrange(MEMBERS))
        lost.stop()
        await self.until_stable()
        return lost.heard_of_s


if __name__ == "__main__":
    rebalancing.main(__doc__, "A large group of the new consumer protocol", SETTINGS, Group)
