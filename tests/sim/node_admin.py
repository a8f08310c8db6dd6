"""An operator: moves partitions between log directories, deletes records, adds partitions, in the midst of trouble."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from headrace.client import HIGH_WATERMARK, NewTopic, Produced
from headrace.errors import Error, HeadraceError, Refused
from headrace.testing.sim.process import Process
from tests.sim.node_clients import Seen, TopicPartition, connected

TRIMMED: TopicPartition = ("trimmed", 0)
GROWN = "grown"
TOPICS = [NewTopic(TRIMMED[0], 1, configs={"retention.ms": "-1", "segment.ms": "300"}), NewTopic(GROWN, 1)]
PARTITIONS_MAX = 8


class Operator:
    """What was said to be deleted stays deleted, and partitions that were added stay, whatever happens."""

    def __init__(self, seen: Seen, name: str, moved: Sequence[TopicPartition]) -> None:
        """`moved` are the partitions that change their directories, where there are several."""
        self.name = name
        self._seen = seen
        self._moved = [*moved, TRIMMED]
        self._start = 0
        self._count = 1

    async def run(self, process: Process) -> None:
        chance = process.chance
        async with connected(process, operation_timeout_s=2.0) as client:
            while not self._seen.is_stopping:
                act = chance.choice((self._move, self._move, self._trim, self._grow))
                try:
                    await act(process, client)
                except HeadraceError as error:
                    self._seen.simulation.event(f"the operator is refused: {str(error)[:80]}")
                await asyncio.sleep(chance.expovariate(1 / 0.15))

    async def _move(self, process: Process, client: Any) -> None:
        (directories,) = (await client.admin.describe_log_dirs()).values()
        roots = [directory.path for directory in directories if directory.error is Error.NONE]
        if len(roots) > 1:
            topic, index = process.chance.choice(self._moved)
            (broker,) = (await client.admin.describe_cluster()).nodes
            await client.admin.alter_replica_log_dirs({(topic, index, broker.node_id): process.chance.choice(roots)})

    async def _trim(self, process: Process, client: Any) -> None:
        producer = client.producer(delivery_timeout_s=1.0)
        for number in range(process.chance.randint(0, 3)):
            producer.send_soon(TRIMMED[0], b"%d" % number, partition=0).add_done_callback(_let_be)
        await producer.close()
        end = (await client.admin.list_offsets({TRIMMED: "latest"}))[TRIMMED].offset
        offset = process.chance.choice((HIGH_WATERMARK, process.chance.randint(self._start, max(self._start, end))))
        try:
            low = (await client.admin.delete_records({TRIMMED: offset}))[TRIMMED]
        except Refused as refused:
            if refused.error is Error.OFFSET_OUT_OF_RANGE:
                return  # what was at the end was not promised to stay there
            raise
        if low < max(offset, self._start):
            self._seen.wrong(f"trimmed: records before {offset} are deleted, and it starts at {low}")
        self._start = max(self._start, low)
        await self._look_at_start(client)

    async def _grow(self, process: Process, client: Any) -> None:
        if self._count < PARTITIONS_MAX:
            try:
                await client.admin.create_partitions({GROWN: self._count + 1})
            except Refused as refused:
                if refused.error is not Error.INVALID_PARTITIONS:  # a try whose answer was lost made it
                    raise
            self._count += 1
        await self._look_at_count(client)

    async def _look_at_start(self, client: Any) -> None:
        start = (await client.admin.list_offsets({TRIMMED: "earliest"}))[TRIMMED].offset
        if start < self._start:
            self._seen.wrong(f"trimmed: it started at {self._start}, and starts at {start} again")

    async def _look_at_count(self, client: Any) -> None:
        count = len((await client.admin.describe_topics([GROWN]))[GROWN].partitions)
        if count < self._count:
            self._seen.wrong(f"grown: it had {self._count} partitions, and has {count}")

    async def check(self, process: Process) -> None:
        async with connected(process, operation_timeout_s=30.0) as client:
            await self._look_at_start(client)
            await self._look_at_count(client)


def _let_be(future: asyncio.Future[Produced]) -> None:
    """Nobody minds whether it was sent."""
    if not future.cancelled():
        future.exception()
