"""Members of a group: every record is read by one of them, and nothing that was committed is read again."""

from __future__ import annotations

import asyncio

import pytest

from headrace.client import Client, Fenced, GroupConsumer, MustAbort, NewTopic, OffsetToCommit
from headrace.client.classic_membership import assign_ranges
from headrace.errors import Refused
from tests.broker.nodes import run
from tests.client.beside_node import client_of, coordinating

PROTOCOLS = pytest.mark.parametrize("protocol", ["consumer", "classic"])
RECORDS = 60


async def filled(client: Client, topic: str = "in", partitions: int = 4) -> list[bytes]:
    await client.admin.create_topics([NewTopic(topic, partitions)])
    values = [b"%d" % number for number in range(RECORDS)]
    producer = client.producer()
    await asyncio.gather(*(producer.send(topic, value, partition=int(value) % partitions) for value in values))
    return sorted(values)


def member(client: Client, protocol: str, **settings: object) -> GroupConsumer:
    return client.group_consumer(
        "a-group", protocol=protocol, auto_offset_reset="earliest", heartbeat_s=0.05, **settings
    )


async def read(consumer: GroupConsumer, seen: list[bytes], count: int) -> None:
    while len(seen) < count:
        seen += [record.value or b"" for record in await consumer.poll(timeout_s=0.1)]


@PROTOCOLS
def test_two_members_share_what_there_is_and_each_record_is_read_once(protocol: str) -> None:
    async def scenario() -> None:
        async with coordinating() as node, client_of(node) as client, client_of(node) as other:
            values = await filled(client)
            seen: list[bytes] = []
            first = member(client, protocol)
            first.subscribe(["in"])
            await read(first, seen, RECORDS)
            second = member(other, protocol)
            second.subscribe(["in"])
            while len(second.assignment) != 2 or len(first.assignment) != 2:
                seen += [record.value or b"" for record in await first.poll(timeout_s=0.02)]
                seen += [record.value or b"" for record in await second.poll(timeout_s=0.02)]
            assert sorted(seen) == values, "what was read before the rebalance was committed with it"
            assert sorted(first.assignment + second.assignment) == [("in", index) for index in range(4)]
            await first.close()
            while len(second.assignment) != 4:
                assert await second.poll(timeout_s=0.02) == []

    run(scenario())


@PROTOCOLS
def test_what_a_member_subscribes_to_while_it_joins_counts(protocol: str) -> None:
    async def scenario() -> None:
        async with coordinating(group_initial_rebalance_delay_ms="500") as node, client_of(node) as client:
            await client.admin.create_topics([NewTopic("a", 1), NewTopic("b", 1)])
            consumer = member(client, protocol)
            consumer.subscribe(["a"])
            await consumer.poll(timeout_s=0.2)  # in which a classic member waits for others
            consumer.subscribe(["a", "b"])
            async with asyncio.timeout(30):
                while len(consumer.assignment) != 2:
                    await consumer.poll(timeout_s=0.02)

    run(scenario())


@PROTOCOLS
def test_a_member_that_comes_back_goes_on_where_the_group_was(protocol: str) -> None:
    async def scenario() -> None:
        async with coordinating() as node, client_of(node) as client:
            values = await filled(client)
            seen: list[bytes] = []
            for _ in range(3):
                consumer = member(client, protocol, auto_commit_s=None)
                consumer.subscribe(["in"])
                await read(consumer, seen, min(RECORDS, len(seen) + 20))
                await consumer.commit()
                await consumer.close()
            assert sorted(seen) == values

    run(scenario())


@PROTOCOLS
def test_what_was_not_committed_is_read_again(protocol: str) -> None:
    async def scenario() -> None:
        async with coordinating() as node, client_of(node) as client:
            await filled(client)
            for _ in range(2):
                consumer = member(client, protocol, auto_commit_s=None)
                consumer.subscribe(["in"])
                seen: list[bytes] = []
                await read(consumer, seen, RECORDS)
                assert len(seen) == RECORDS
                await consumer.close()

    run(scenario())


@PROTOCOLS
def test_hazard_13_a_transaction_does_not_commit_what_went_to_another_member_meanwhile(protocol: str) -> None:
    async def scenario() -> None:
        async with coordinating() as node, client_of(node) as client, client_of(node) as other:
            await filled(client)
            first = member(client, protocol, auto_commit_s=None)
            first.subscribe(["in"])
            given: dict[tuple[str, int], int] = {}
            while len(given) < 4:  # all of it by one call
                first.seek_to_beginning()
                given = {(at.topic, at.partition): at.offset + 1 for at in await first.poll(timeout_s=0.05)}
            second = member(other, protocol, auto_commit_s=None)
            second.subscribe(["in"])
            while len(second.assignment) != 2 or len(first.assignment) > 2:
                await second.poll(timeout_s=0.02)
            producer = client.transactional_producer("a-transform")
            await producer.begin()
            with pytest.raises(MustAbort, match="ILLEGAL_GENERATION"):
                await producer.send_offsets(given, first.member)
            await producer.abort()
            await first.poll(timeout_s=0.02)
            while len(first.assignment) != 2:
                await first.poll(timeout_s=0.02)
            await producer.begin()
            await producer.send_offsets(dict.fromkeys(first.assignment, 1), first.member)
            await producer.commit()

    run(scenario())


def test_a_partition_that_comes_back_is_not_read_before_what_was_read_of_it_is_done_with() -> None:
    """A coordinator may forget a generation that was not complete, and go on with the one before it."""

    async def scenario() -> None:
        async with coordinating() as node, client_of(node) as client:
            await filled(client)
            consumer = client.group_consumer("a-group", auto_commit_s=None, auto_offset_reset="earliest")
            await consumer.give([("in", 0)])
            read = await consumer.poll(max_records=3)
            consumer.lose([("in", 0)])
            giving = asyncio.create_task(consumer.give([("in", 0)]))
            assert not (await asyncio.wait([giving], timeout=0.5))[0]
            await consumer.commit({("in", 0): read[-1].offset + 1})
            assert consumer.assignment == []
            assert (await consumer.poll(max_records=1))[0].offset == read[-1].offset + 1
            await giving

    run(scenario())


@PROTOCOLS
def test_a_static_member_that_is_replaced_is_fenced(protocol: str) -> None:
    async def scenario() -> None:
        async with coordinating() as node, client_of(node) as client, client_of(node) as other:
            await filled(client)
            first = member(client, protocol, instance_id="i")
            first.subscribe(["in"])
            await read(first, [], RECORDS)
            if protocol == "consumer":  # there the first one must have left, for a while, or timed out
                await first.close()
            second = member(other, protocol, instance_id="i")
            second.subscribe(["in"])
            while not second.assignment:
                await second.poll(timeout_s=0.02)
            if protocol == "classic":
                with pytest.raises(Fenced):
                    await first.poll()

    run(scenario())


def test_topics_that_match_a_pattern_are_read_as_they_come() -> None:
    async def scenario() -> None:
        async with coordinating() as node, client_of(node) as client:
            await client.admin.create_topics([NewTopic("in-1", 1), NewTopic("other", 1)])
            consumer = member(client, "consumer")
            consumer.subscribe(pattern="in-.*")
            while consumer.assignment != [("in-1", 0)]:
                await consumer.poll(timeout_s=0.02)

    run(scenario())


def test_offsets_are_committed_and_told_without_being_a_member() -> None:
    async def scenario() -> None:
        async with coordinating() as node, client_of(node) as client:
            await filled(client)
            consumer = client.group_consumer("offsets-only")
            assert await consumer.committed([("in", 0)]) == {}
            await consumer.commit({("in", 0): OffsetToCommit(7, metadata="noted"), ("in", 1): 3})
            assert await consumer.committed([("in", 0), ("in", 1), ("in", 2)]) == {
                ("in", 0): OffsetToCommit(7, -1, "noted"),
                ("in", 1): OffsetToCommit(3, -1, ""),
            }
            with pytest.raises(Refused, match="UNKNOWN_TOPIC_OR_PARTITION"):
                await consumer.commit({("in", 99): 1})

    run(scenario())


def test_a_group_that_refuses_a_member_says_so_in_poll() -> None:
    async def scenario() -> None:
        async with coordinating() as node, client_of(node) as client:
            consumer = client.group_consumer("a-group", assignor="no-such-assignor")
            consumer.subscribe(["in"])
            with pytest.raises(Refused, match="UNSUPPORTED_ASSIGNOR"):
                await consumer.poll()
            with pytest.raises(ValueError, match="list of names"):
                consumer.subscribe("in")
            with pytest.raises(ValueError, match="new protocol"):
                client.group_consumer("b-group", protocol="classic").subscribe(pattern="in")

    run(scenario())


def test_ranges_are_as_even_as_they_can_be() -> None:
    assert assign_ranges({"b": ["x", "y"], "a": ["x"]}, {"x": 3, "y": 2}) == {
        "b": [("x", 2), ("y", 0), ("y", 1)],
        "a": [("x", 0), ("x", 1)],
    }
