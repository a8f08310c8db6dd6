"""Producers of transactions in trouble, and transformers that read what they commit and write its image."""

from __future__ import annotations

import asyncio
import random

from headrace.client import (
    Client,
    ConsumedRecord,
    GroupConsumer,
    MustAbort,
    Produced,
    TransactionalProducer,
    Uncertain,
)
from headrace.errors import Error, HeadraceError
from headrace.testing.sim.history import Outcome, Promise, Write
from headrace.testing.sim.process import Process
from headrace.testing.sim.transactions import End, Transaction
from tests.sim.group_clients import group_settings
from tests.sim.node_clients import Seen, TopicPartition, connected, text_of

COMMITS_MAX = 200
FAILURES_MAX = 9
REQUEST_TIMEOUTS_S = (0.3, 1.0)
"""What is given up early may still arrive."""


class Transactor:
    """Writes to several partitions at once, and commits, aborts, or leaves it to whoever comes next."""

    def __init__(
        self,
        seen: Seen,
        name: str,
        transactional_id: str,
        partitions: list[TopicPartition],
        all_of: list[Transaction],
        users: dict[int, str],
    ) -> None:
        """`users` are shared by all of them: who has which producer id."""
        self.name = name
        self._seen = seen
        self._transactional_id = transactional_id
        self._partitions = partitions
        self._all = all_of
        self._users = users
        self._made = 0

    async def run(self, process: Process) -> None:
        chance, seen = process.chance, self._seen
        while not seen.is_stopping:
            request_timeout_s = chance.choice(REQUEST_TIMEOUTS_S)
            async with connected(process, operation_timeout_s=2.0, request_timeout_s=request_timeout_s) as client:
                producer = client.transactional_producer(
                    self._transactional_id if chance.random() < 0.7 else f"{self.name}-{self._made}",
                    transaction_timeout_ms=chance.choice((500, 6000)),
                    delivery_timeout_s=chance.choice((0.5, 5.0)),
                )
                try:
                    for _ in range(chance.randint(1, 12)):
                        if not seen.is_stopping:
                            await self._one(process, producer)
                        await asyncio.sleep(chance.expovariate(1 / 0.05))
                except (HeadraceError, ValueError) as error:
                    seen.simulation.event(f"{self.name} begins again: {error}")

    async def _one(self, process: Process, producer: TransactionalProducer) -> None:
        chance, seen = process.chance, self._seen
        await producer.begin()
        self._check_id(producer)
        self._made += 1
        transaction = Transaction(f"{self.name}.{self._made}")
        self._all.append(transaction)
        sends: list[tuple[Write, asyncio.Future[Produced]]] = []
        for number in range(chance.randint(1, 5)):
            partition = chance.choice(self._partitions)
            value = f"{transaction.name}.{number}"
            write = Write(value, seen.number(partition), self.name, seen.simulation.now, promise=Promise.ALL_MACHINES)
            write.visible_from = float("inf")
            seen.history.writes.append(write)
            transaction.attempts.append(value)
            sends.append((write, producer.send_soon(partition[0], value.encode(), partition=partition[1])))
            if chance.random() < 0.2:
                await asyncio.sleep(chance.expovariate(1 / 0.1))
        what = chance.choices(("commit", "abort", "leave"), (7, 2, 1))[0]
        if what == "leave":
            await asyncio.wait([future for _, future in sends], timeout=0.2)
            transaction.end = End.ABORTED  # nobody asks for its commit
        elif what == "abort":
            transaction.end = End.ABORTED
            await producer.abort()
        else:
            await producer.flush()
            transaction.commit_asked = seen.simulation.now
            for write, _ in sends:
                write.visible_from = seen.simulation.now
            transaction.end = await committed(producer, seen)
        for write, future in sends:
            _settle(write, future, transaction, seen)
        if what == "leave":
            raise Uncertain("it leaves its transaction open.")

    def _check_id(self, producer: TransactionalProducer) -> None:
        """Nobody gets a producer id that another has (hazard 7)."""
        identity = producer._sender.identity
        assert identity is not None
        user = producer._transaction.transactional_id
        if self._users.setdefault(identity.producer_id, user) != user:
            other = self._users[identity.producer_id]
            self._seen.wrong(f"producer id {identity.producer_id} of {other} was given to {user}")


async def committed(producer: TransactionalProducer, seen: Seen) -> End:
    """How a commit ended. What nobody answered is asked for again, until it is known."""
    for _ in range(COMMITS_MAX):
        try:
            await producer.commit()
            return End.COMMITTED
        except Uncertain:
            continue
        except MustAbort as error:
            # Of its own accord the producer never asks for a commit of what is broken.
            end = End.MAYBE if error.error is Error.TRANSACTION_ABORTABLE else End.ABORTED
            await producer.abort()
            return end
        except HeadraceError as error:
            seen.simulation.event(f"a commit ended with {error}")
            return End.MAYBE
    return End.MAYBE


def _settle(write: Write, future: asyncio.Future[Produced], transaction: Transaction, seen: Seen) -> None:
    is_acknowledged = future.done() and not future.cancelled() and future.exception() is None
    if is_acknowledged:
        transaction.attempts.remove(write.value)
        transaction.writes.append(write.value)
    if transaction.end is End.COMMITTED and is_acknowledged:
        write.outcome, write.end, write.offset = Outcome.ACKNOWLEDGED, seen.simulation.now, future.result().offset
    elif transaction.end is End.ABORTED:
        write.outcome = Outcome.REFUSED


class Transformer:
    """Copies what is committed in one topic to another, exactly once, as one of a group."""

    def __init__(self, seen: Seen, name: str, protocol: str, session_ms: int, all_of: list[Transaction]) -> None:
        self.name = name
        self._seen = seen
        self._settings = group_settings(protocol, session_ms)
        self._all = all_of
        self._made = 0
        self._failures = 0
        """In a row. Two that leave and join again after each of them may keep each other from ever being done."""

    async def run(self, process: Process) -> None:
        chance, seen = process.chance, self._seen
        while True:
            request_timeout_s = chance.choice(REQUEST_TIMEOUTS_S)
            async with connected(process, operation_timeout_s=2.0, request_timeout_s=request_timeout_s) as client:
                try:
                    await self._transform(process, client)
                except HeadraceError as error:
                    seen.simulation.event(f"{self.name} begins again: {error}")
                    self._failures += 1
            await asyncio.sleep(chance.expovariate(1 / 0.05) * 2 ** max(0, min(self._failures, FAILURES_MAX) - 3))

    async def _transform(self, process: Process, client: Client) -> None:
        async def assigned(partitions: list[TopicPartition]) -> None:
            begin = {partition: await consumer.position(*partition) for partition in partitions}
            self._seen.simulation.event(f"{self.name} gets {begin} in generation {consumer.member.generation}")

        consumer = client.group_consumer(
            "transformers", isolation_level="read_committed", assigned=assigned, **self._settings
        )
        consumer.subscribe(["source"])
        producer = client.transactional_producer(f"{self.name}-id", transaction_timeout_ms=2000)
        while True:
            records = await consumer.poll(process.chance.choice((1, 3, 20)), timeout_s=0.3)
            if records:
                await self._copy(process.chance, consumer, producer, records)

    async def _copy(
        self,
        chance: random.Random,
        consumer: GroupConsumer,
        producer: TransactionalProducer,
        records: list[ConsumedRecord],
    ) -> None:
        """All of it or nothing; whatever fails, another life begins from what is committed."""
        self._made += 1
        transaction = Transaction(f"{self.name}.{self._made}", end=End.ABORTED)
        self._all.append(transaction)
        await producer.begin()
        next_offsets: dict[TopicPartition, int] = {}
        for record in records:
            transaction.reads.append(text_of(record))
            producer.send_soon("image", record.value, partition=record.partition)
            next_offsets[record.topic, record.partition] = record.offset + 1
        if chance.random() < 0.15:  # what it has read may be somebody else's by then
            await asyncio.sleep(chance.expovariate(1 / 0.4))
        member = consumer.member
        await producer.send_offsets(next_offsets, member)
        if chance.random() < 0.15:
            await asyncio.sleep(chance.expovariate(1 / 0.4))
        elif chance.random() < 0.1:
            await consumer.close()  # whoever gets its partitions has to wait for the transaction (KIP-447)
            await asyncio.sleep(chance.expovariate(1 / 0.2))
        transaction.end = End.MAYBE
        self._seen.simulation.event(f"{transaction.name} of generation {member.generation} commits {next_offsets}")
        await producer.commit()
        transaction.end = End.COMMITTED
        self._failures = 0
        self._seen.simulation.event(f"{transaction.name} is committed")
