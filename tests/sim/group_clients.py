"""Members of a group in trouble, and an auditor of what they commit.

What must hold: what was committed and acknowledged is never taken back, nothing is committed that nobody asked for, and
nothing before a committed offset was left out by all members.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

from headrace.client import GroupConsumer
from headrace.errors import HeadraceError
from headrace.testing.sim.process import Process
from tests.sim.node_clients import Seen, TopicPartition, connected, read_all

HEARTBEAT_S = 0.15
GROUP = "readers"
TOPIC = "source"


def group_settings(protocol: str, session_ms: int) -> dict[str, Any]:
    quick = {"session_timeout_ms": session_ms, "rebalance_timeout_ms": session_ms + 400, "heartbeat_s": HEARTBEAT_S}
    return {"protocol": protocol, "auto_commit_s": None, "auto_offset_reset": "earliest", **quick}


@dataclass(slots=True)
class Committed:
    """What the members of one group did, between them."""

    asked: dict[TopicPartition, dict[int, None]] = field(default_factory=dict)
    acknowledged: dict[TopicPartition, int] = field(default_factory=dict)
    """The highest offset of a commit that was acknowledged."""
    read: dict[TopicPartition, dict[int, None]] = field(default_factory=dict)
    """Offsets that a member was given."""


class Member:
    """Reads and commits. Now and then it leaves and comes back, or is killed, by whoever makes trouble."""

    def __init__(self, seen: Seen, name: str, protocol: str, session_ms: int, committed: Committed) -> None:
        self.name = name
        self._seen = seen
        self._settings = group_settings(protocol, session_ms)
        self._committed = committed

    async def run(self, process: Process) -> None:
        chance, seen = process.chance, self._seen
        while not seen.is_stopping:
            async with connected(process, operation_timeout_s=2.0) as client:
                instance = self.name if chance.random() < 0.3 else None
                consumer = client.group_consumer(GROUP, instance_id=instance, **self._settings)
                consumer.subscribe([TOPIC])
                end = seen.simulation.now + chance.expovariate(1 / 2.0)
                try:
                    while not seen.is_stopping and seen.simulation.now < end:
                        await self._step(consumer, chance.choice((1, 5, 50)))
                except HeadraceError as error:
                    seen.simulation.event(f"{self.name} begins again: {error}")
            await asyncio.sleep(chance.expovariate(1 / 0.1))

    async def _step(self, consumer: GroupConsumer, count: int) -> None:
        records = await consumer.poll(count, timeout_s=0.2)
        if not records:
            return
        committed, next_offsets = self._committed, {}
        for record in records:
            partition = (record.topic, record.partition)
            committed.read.setdefault(partition, {})[record.offset] = None
            next_offsets[partition] = record.offset + 1
        for partition, offset in next_offsets.items():
            committed.asked.setdefault(partition, {})[offset] = None
        try:
            await consumer.commit()
        except HeadraceError as error:
            self._seen.simulation.event(f"{self.name} could not commit: {error}")
        else:
            for partition, offset in next_offsets.items():
                committed.acknowledged[partition] = max(committed.acknowledged.get(partition, 0), offset)


class Auditor:
    """Asks what is committed, during the trouble and after it."""

    def __init__(self, seen: Seen, name: str, partitions: list[TopicPartition], committed: Committed) -> None:
        self.name = name
        self._seen = seen
        self._partitions = partitions
        self._committed = committed

    async def run(self, process: Process) -> None:
        async with connected(process) as client:
            consumer = client.group_consumer(GROUP, auto_commit_s=None)
            while not self._seen.is_stopping:
                try:
                    await self._look(consumer)
                except HeadraceError as error:
                    self._seen.simulation.event(f"{self.name} is not told: {error}")
                await asyncio.sleep(process.chance.expovariate(1 / 0.2))

    async def check(self, process: Process) -> None:
        """After the trouble."""
        async with connected(process, operation_timeout_s=30.0) as client:
            found = await self._look(client.group_consumer(GROUP, auto_commit_s=None))
            for partition, end in found.items():
                read = self._committed.read.get(partition, {})
                missing = [
                    record.offset
                    for record in await read_all(client, partition)
                    if record.offset < end and record.offset not in read
                ]
                if missing:
                    self._seen.wrong(f"{partition} is committed up to {end}, and nobody was given {missing[:5]}")

    async def _look(self, consumer: GroupConsumer) -> dict[TopicPartition, int]:
        known = dict(self._committed.acknowledged)
        told = await consumer.committed(self._partitions)
        for partition in self._partitions:
            offset = told[partition].offset if partition in told else -1
            if offset < known.get(partition, -1):
                self._seen.wrong(f"{partition} was committed at {known[partition]} by {GROUP}, and then is at {offset}")
            if offset >= 0 and offset not in self._committed.asked.get(partition, {}):
                self._seen.wrong(f"{partition} is committed at {offset}, which nobody asked for")
        return {partition: at.offset for partition, at in told.items()}
