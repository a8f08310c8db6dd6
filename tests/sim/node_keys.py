"""A writer of a compacted topic: of each key the last acknowledged value, or a later one, is there in the end."""

from __future__ import annotations

import asyncio
from typing import Any

from headrace.client import NotSent, Produced
from headrace.errors import Refused
from headrace.testing.sim.process import Process
from tests.sim.node_clients import Seen, TopicPartition, connected, read_all, text_of

KEYS = 4
COMPACTED: TopicPartition = ("compacted", 0)
CONFIGS = {
    "cleanup.policy": "compact",
    "segment.ms": "150",
    "index.interval.bytes": "100",
    "min.cleanable.dirty.ratio": "0.01",
}


class KeyWriter:
    """Numbers its values through, so that of two the later is known."""

    def __init__(self, seen: Seen, name: str) -> None:
        self.name = name
        self._seen = seen
        self._made = 0
        self._acknowledged: dict[int, int] = {}
        """Offsets by number."""
        self._refused: dict[int, None] = {}

    async def run(self, process: Process) -> None:
        chance = process.chance
        async with connected(process) as client:
            producer = client.producer(delivery_timeout_s=chance.choice((2.0, 60.0)), batch_bytes=300)
            while not self._seen.is_stopping:
                for _ in range(chance.randint(1, 5)):
                    self._send(producer, chance.randrange(KEYS))
                await asyncio.sleep(chance.expovariate(1 / 0.1))
            await producer.flush()

    def _send(self, producer: Any, key: int) -> None:
        topic, index = COMPACTED
        number = self._made
        self._made += 1
        text = f"{key}/{number}".encode()
        future = producer.send_soon(topic, text, key=str(key).encode(), partition=index)

        def ended(future: asyncio.Future[Produced]) -> None:
            if future.cancelled():
                return
            error = future.exception()
            if error is None:
                self._acknowledged[key * 1_000_000 + number] = future.result().offset
            elif isinstance(error, (Refused, NotSent)):
                self._refused[number] = None

        future.add_done_callback(ended)

    async def check(self, process: Process) -> None:
        """Reads all that compaction left."""
        wrong = self._seen.wrong
        async with connected(process, operation_timeout_s=30.0) as client:
            records = await read_all(client, COMPACTED)
        last: dict[int, int] = {}
        for record in records:
            key, number = map(int, text_of(record).split("/"))
            told = self._acknowledged.get(key * 1_000_000 + number, -1)
            if record.key != str(key).encode():
                wrong(f"compacted: {record.key!r} holds the value of key {key}")
            if number in self._refused:
                wrong(f"compacted: {number} was refused, and is there")
            if told not in (-1, record.offset):
                wrong(f"compacted: {number} was acknowledged at offset {told}, and stands at {record.offset}")
            if number <= last.get(key, -1):
                wrong(f"compacted: key {key} has {number} after {last[key]}")
            last[key] = number
        for code in self._acknowledged:
            key, number = divmod(code, 1_000_000)
            if number > last.get(key, -1):
                wrong(f"compacted: key {key} had {number} acknowledged, and ends with {last.get(key)}")
