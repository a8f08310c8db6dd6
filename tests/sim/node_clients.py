"""Clients of a node in trouble. They write down what they saw, and what they do not know is "maybe"."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from headrace.client import Client, ConsumedRecord, LogTruncated, NoOffset, NotSent, Produced, Uncertain
from headrace.errors import Error, HeadraceError, Refused
from headrace.protocol.messages import InitProducerIdRequest
from headrace.testing.sim.history import Entry, History, Outcome, Poll, Promise, Write
from headrace.testing.sim.node import PORT
from headrace.testing.sim.process import Process
from headrace.testing.sim.simulation import Simulation

UNDER_WAY_MAX = 20
FETCH_SECONDS_MAX = 1.4
"""How long ago the leader may have read what a client gets: its time-outs, by its clock."""
SYNC_SECONDS_MAX = 2.0
"""Of the simulated disk, with all that waits for it."""

TopicPartition = tuple[str, int]


@dataclass(slots=True)
class Seen:
    """What the clients of one simulation saw between them."""

    simulation: Simulation
    history: History = field(default_factory=History)
    problems: list[str] = field(default_factory=list)
    """What is wrong and is no matter of records."""
    numbers: dict[TopicPartition | bytes, int] = field(default_factory=dict)
    """The partitions as the history counts them; those of topics that come and go by their ids."""
    is_stopping: bool = False
    """The trouble is over: finish."""

    def number(self, partition: TopicPartition | bytes) -> int:
        return self.numbers.setdefault(partition, len(self.numbers))

    def wrong(self, text: str) -> None:
        self.problems.append(text)
        self.simulation.event(f"wrong: {text}")


@asynccontextmanager
async def connected(process: Process, **settings: Any) -> Any:
    defaults: dict[str, Any] = {
        "client_id": process.host.name,
        "connect_timeout_s": 1.0,
        "request_timeout_s": 1.0,
        "operation_timeout_s": 10.0,
        "retry_backoff_s": 0.02,
        "retry_backoff_max_s": 0.2,
        "reconnect_backoff_s": 0.02,
        "reconnect_backoff_max_s": 0.2,
    }
    client = Client(f"server:{PORT}", chance=process.chance, now_ms=process.time_ms, **(defaults | settings))
    async with client:
        yield client


def sent(seen: Seen, write: Write, future: asyncio.Future[Produced]) -> None:
    """Writes down how a send ends."""

    def ended(future: asyncio.Future[Produced]) -> None:
        if future.cancelled():
            return
        error = future.exception()
        if error is None:
            offset = future.result().offset
            write.outcome, write.end = Outcome.ACKNOWLEDGED, seen.simulation.now
            write.offset = offset if offset >= 0 else None
        elif isinstance(error, (Refused, NotSent)):
            write.outcome = Outcome.REFUSED
        elif not isinstance(error, Uncertain):
            seen.wrong(f"a send of {write.value[:40]} ended with {error!r}")

    future.add_done_callback(ended)


class Producer:
    """Has several batches of several partitions under way. One with acks of all is idempotent."""

    def __init__(self, seen: Seen, name: str, acks: int, promises: dict[TopicPartition, Promise]) -> None:
        self.name = name
        self.is_done = False
        self._seen = seen
        self._acks = acks
        self._promises = promises
        self._made = 0

    async def run(self, process: Process) -> None:
        chance, seen = process.chance, self._seen
        async with connected(process) as client:
            producer = client.producer(
                acks=self._acks,
                delivery_timeout_s=chance.choice((1.5, 5.0, 60.0)),
                compression=chance.choice(("none", "none", "lz4")),
                batch_bytes=chance.choice((200, 2000)),
            )
            open_sends: dict[asyncio.Future[Produced], None] = {}
            while not seen.is_stopping:
                for partition in chance.sample(list(self._promises), chance.randint(1, len(self._promises))):
                    for _ in range(chance.randint(1, 4)):
                        if len(open_sends) < UNDER_WAY_MAX:
                            future = self._send(process, producer, partition)
                            open_sends[future] = None
                            future.add_done_callback(open_sends.pop)
                await asyncio.sleep(chance.expovariate(1 / 0.1))
            await producer.flush()
        self.is_done = True

    def _send(self, process: Process, producer: Any, partition: TopicPartition) -> asyncio.Future[Produced]:
        topic, index = partition
        value = f"{self.name}.{self._made}" + "." * process.chance.choice((0, 0, 0, 0, 100, 100, 1500, 6000))
        self._made += 1
        is_idempotent = self._acks == -1
        write = Write(
            value,
            self._seen.number(partition),
            self.name,
            self._seen.simulation.now,
            promise=self._promises[partition],
            at_most_once=is_idempotent or self._acks == 0,
            in_order=is_idempotent,
        )
        self._seen.history.writes.append(write)
        future: asyncio.Future[Produced] = producer.send_soon(topic, value.encode(), partition=index)
        if self._acks:
            sent(self._seen, write, future)
        return future


class Consumer:
    """Reads along. Told that what it read is gone, it starts a new session there."""

    def __init__(
        self, seen: Seen, name: str, partitions: list[TopicPartition], isolation_level: str = "read_uncommitted"
    ) -> None:
        self.name = name
        self._seen = seen
        self._partitions = partitions
        self._isolation_level = isolation_level
        self._sessions = dict.fromkeys(partitions, 0)
        self._ends: dict[TopicPartition, tuple[float, int]] = {}

    async def run(self, process: Process) -> None:
        chance, seen = process.chance, self._seen
        async with connected(process) as client:
            consumer = client.consumer(
                auto_offset_reset="none",
                isolation_level=self._isolation_level,
                fetch_max_wait_ms=chance.choice((30, 300)),
                partition_bytes_max=chance.choice((500, 1 << 20)),
            )
            consumer.assign(self._partitions)
            for topic, index in self._partitions:
                consumer.seek(topic, index, 0)
            # What a poll brings was asked for after the last answer came, and within the time-outs of a fetch.
            drained = before_last = seen.simulation.now
            while not seen.is_stopping:
                try:
                    records = await consumer.poll(timeout_s=chance.choice((0.05, 0.5)))
                except LogTruncated as told:
                    self._again(consumer, told, told.divergent_offset or 0)
                except NoOffset as told:
                    self._again(consumer, told, 0)
                except Refused as refused:
                    seen.simulation.event(f"{self.name} can't read: {refused}")
                else:
                    start = max(before_last, drained - FETCH_SECONDS_MAX)
                    if records:
                        before_last = drained
                    drained = seen.simulation.now
                    for partition, entries in _by_partition(records):
                        session, number = self._sessions[partition], seen.number(partition)
                        seen.history.polls.append(Poll(self.name, session, number, start, drained, entries))
                if chance.random() < 0.1:
                    await self._look(consumer, chance.choice(self._partitions))
                if chance.random() < 0.1:
                    await asyncio.sleep(chance.expovariate(1 / 0.1))

    def _again(self, consumer: Any, told: NoOffset, offset: int) -> None:
        self._seen.simulation.event(f"{self.name} is told: {told}")
        self._sessions[told.topic, told.partition] += 1
        consumer.seek(told.topic, told.partition, offset)

    async def _look(self, consumer: Any, partition: TopicPartition) -> None:
        """The high watermark goes back only when a machine has lost something."""
        start = self._seen.simulation.now
        try:
            end = (await consumer.end_offsets([partition]))[partition]
        except HeadraceError:
            return
        seen_at, before = self._ends.get(partition, (start, 0))
        has_lost = any(seen_at <= loss.at <= self._seen.simulation.now for loss in self._seen.simulation.losses)
        if end < before and not has_lost:
            self._seen.wrong(f"the end of {partition} went back from {before} to {end}")
        self._ends[partition] = (start, end)


def _by_partition(records: list[ConsumedRecord]) -> Iterator[tuple[TopicPartition, list[Entry]]]:
    found: dict[TopicPartition, list[Entry]] = {}
    for record in records:
        found.setdefault((record.topic, record.partition), []).append(Entry(record.offset, text_of(record)))
    yield from found.items()


def text_of(record: ConsumedRecord) -> str:
    return "" if record.value is None else bytes(record.value).decode()


async def read_all(
    client: Any, partition: TopicPartition, isolation_level: str = "read_uncommitted"
) -> list[ConsumedRecord]:
    """Everything in a partition, once there is no trouble."""
    consumer = client.consumer(auto_offset_reset="none", isolation_level=isolation_level)
    try:
        end = (await consumer.end_offsets([partition]))[partition]
        consumer.assign([partition])
        consumer.seek(*partition, 0)
        records: list[ConsumedRecord] = []
        while await consumer.position(*partition) < end:
            records += await consumer.poll(timeout_s=2.0)
        return records
    finally:
        await consumer.close()


class LastReader:
    """After the trouble: reads everything, and looks offsets up by time."""

    def __init__(self, seen: Seen, name: str, partitions: dict[TopicPartition, int]) -> None:
        self.name = name
        self._seen = seen
        self._partitions = partitions

    async def run(self, process: Process) -> None:
        seen = self._seen
        # With acks=1 what was acknowledged is visible when the acks=all before it is on the disk, and no sooner.
        await asyncio.sleep(SYNC_SECONDS_MAX)
        async with connected(process, operation_timeout_s=30.0) as client:
            for partition, number in self._partitions.items():
                start = seen.simulation.now
                records = await read_all(client, partition)
                entries = [Entry(record.offset, text_of(record)) for record in records]
                poll = Poll(self.name, 0, number, start, seen.simulation.now, entries, reads_to_end=True)
                seen.history.polls.append(poll)
                if records:
                    await self._look_up(process, client, partition, records)

    async def _look_up(
        self, process: Process, client: Any, partition: TopicPartition, records: list[ConsumedRecord]
    ) -> None:
        consumer = client.consumer()
        timestamp_ms = process.chance.choice(records).timestamp_ms + process.chance.choice((0, 0, 1))
        found = (await consumer.offsets_for_times({partition: timestamp_ms}))[partition].offset
        right = next((record.offset for record in records if record.timestamp_ms >= timestamp_ms), -1)
        if found != right:
            self._seen.wrong(f"the first offset of {partition} from {timestamp_ms} on is {right}, and not {found}")


class IdTaker:
    """Takes producer ids: nobody gets one that another has (hazard 7)."""

    def __init__(self, seen: Seen, name: str) -> None:
        self.name = name
        self._seen = seen
        self._taken: dict[int, None] = {}

    async def run(self, process: Process) -> None:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=2**31 - 1)
        async with connected(process) as client:
            while not self._seen.is_stopping:
                try:
                    response = await client.admin.request(request)
                except HeadraceError:
                    continue
                if response.error_code == Error.NONE:
                    if response.producer_id in self._taken:
                        self._seen.wrong(f"producer id {response.producer_id} was given twice")
                    self._taken[response.producer_id] = None
                await asyncio.sleep(process.chance.expovariate(1 / 0.3))
