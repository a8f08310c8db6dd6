"""Transactions: visible as a whole or not at all, once, and only by the newest producer of a transactional id."""

from __future__ import annotations

import asyncio

import pytest

from headrace.client import Client, Fenced, GroupMember, MustAbort, NewTopic, OffsetToCommit, TransactionalProducer
from tests.broker.nodes import run
from tests.client.beside_node import client_of, coordinating


async def visible(client: Client, topic: str = "out", partitions: int = 2) -> list[bytes]:
    """What a reader of committed records sees, up to the end of today's log."""
    async with client.consumer(auto_offset_reset="earliest", isolation_level="read_committed") as consumer:
        chosen = [(topic, index) for index in range(partitions)]
        consumer.assign(chosen)
        ends = await consumer.end_offsets(chosen)
        seen: list[bytes] = []
        while any([await consumer.position(*partition) < ends[partition] for partition in chosen]):
            seen += [record.value or b"" for record in await consumer.poll(timeout_s=0.05)]
        return sorted(seen)


async def fail_inside(producer: TransactionalProducer) -> None:
    async with producer.transaction():
        await producer.send("out", b"aborted too", partition=1)
        1 / 0  # noqa: B018  # of the caller's


def test_what_is_committed_is_visible_with_its_offsets_and_what_is_aborted_is_not() -> None:
    async def scenario() -> None:
        async with coordinating() as node, client_of(node) as client:
            await client.admin.create_topics([NewTopic("in", 1), NewTopic("out", 2)])
            producer = client.transactional_producer("t")
            async with producer.transaction():
                for number in range(4):
                    producer.send_soon("out", b"committed %d" % number, partition=number % 2)
                await producer.send_offsets({("in", 0): 4}, GroupMember("g"))
            await producer.begin()
            await producer.send("out", b"aborted", partition=0)
            await producer.send_offsets({("in", 0): OffsetToCommit(9)}, GroupMember("g"))
            await producer.abort()
            with pytest.raises(ZeroDivisionError):
                await fail_inside(producer)
            async with producer.transaction():
                pass  # nothing in it, and nobody told
            async with producer.transaction():
                producer.send_soon("out", b"last", partition=0)
            assert await visible(client) == [b"committed %d" % number for number in range(4)] + [b"last"]
            offsets = client.group_consumer("g")
            assert await offsets.committed([("in", 0)]) == {("in", 0): OffsetToCommit(4, -1, "")}

    run(scenario())


def test_a_new_producer_of_the_id_aborts_what_was_open_and_fences_the_old_one() -> None:
    async def scenario() -> None:
        async with coordinating() as node, client_of(node) as client:
            await client.admin.create_topics([NewTopic("out", 2)])
            old, new = client.transactional_producer("t"), client.transactional_producer("t")
            await old.begin()
            await old.send("out", b"left open", partition=0)
            async with new.transaction():
                await new.send("out", b"new", partition=0)
            with pytest.raises((Fenced, MustAbort)):
                await old.commit()
            with pytest.raises(Fenced):
                await old.abort()
            with pytest.raises(Fenced):
                await old.begin()
            assert await visible(client) == [b"new"]

    run(scenario())


def test_wrong_order_of_calls_is_a_clear_error() -> None:
    async def scenario() -> None:
        async with coordinating() as node, client_of(node) as client:
            producer = client.transactional_producer("t")
            with pytest.raises(ValueError, match="no transaction is open"):
                await producer.send("out", b"x")
            with pytest.raises(ValueError, match="no transaction is open"):
                await producer.commit()
            await producer.begin()
            with pytest.raises(ValueError, match="commit or abort"):
                await producer.begin()
            with pytest.raises(ValueError, match="not empty"):
                client.transactional_producer("")

    run(scenario())


async def must_abort(producer: TransactionalProducer, client: Client) -> None:
    """Of the broken transaction nothing is seen, and the next one works."""
    with pytest.raises(MustAbort):
        await producer.commit()
    await producer.abort()
    async with producer.transaction():
        producer.send_soon("out", b"after", partition=1)
    assert await visible(client) == [b"after"]


@pytest.mark.parametrize(("topic", "partition"), [("out", 7), ("no/name", 0)], ids=["a partition", "a topic"])
def test_a_record_for_what_is_not_there_breaks_the_transaction(topic: str, partition: int) -> None:
    """Else the offsets of what was read would be committed without what was made of it."""

    async def scenario() -> None:
        async with coordinating() as node, client_of(node) as client:
            await client.admin.create_topics([NewTopic("in", 1), NewTopic("out", 2)])
            producer = client.transactional_producer("t")
            await producer.begin()
            await producer.send("out", b"good", partition=0)
            await producer.send_offsets({("in", 0): 4}, GroupMember("g"))
            producer.send_soon(topic, b"lost", partition=partition)
            await must_abort(producer, client)

    run(scenario())


def test_a_refused_record_breaks_the_transaction_and_the_next_one_works() -> None:
    async def scenario() -> None:
        async with coordinating() as node, client_of(node) as client:
            await client.admin.create_topics([NewTopic("out", 2, configs={"max.message.bytes": "1000"})])
            producer = client.transactional_producer("t")
            await producer.begin()
            good, bad = (
                producer.send_soon("out", b"good", partition=0),
                producer.send_soon("out", bytes(5000), partition=1),
            )
            await asyncio.wait([good, bad])
            await must_abort(producer, client)

    run(scenario())


@pytest.mark.parametrize("commits", [True, False])
def test_a_prepared_transaction_is_ended_after_the_producer_is_gone(commits: bool) -> None:
    """Two-phase commit (KIP-939): whoever comes next finds what was prepared, and decides."""

    async def scenario() -> None:
        async with coordinating(transaction_two_phase_commit_enable="true") as node, client_of(node) as client:
            await client.admin.create_topics([NewTopic("out", 2)])
            async with client_of(node) as doomed:
                producer = doomed.transactional_producer("t", two_phase=True)
                assert await producer.recover() is None
                await producer.begin()
                await producer.send("out", b"prepared", partition=0)
                prepared = await producer.prepare()
            heir = client.transactional_producer("t", two_phase=True)
            assert await heir.recover() == prepared
            await (heir.commit() if commits else heir.abort())
            async with heir.transaction():
                heir.send_soon("out", b"next", partition=1)
            assert await visible(client) == ([b"next", b"prepared"] if commits else [b"next"])

    run(scenario())
