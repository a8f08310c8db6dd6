"""The client and a whole node of ours: what a user sees of both together."""

from __future__ import annotations

import asyncio
import copy
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from headrace.broker.node import Node
from headrace.client import Client, Closed, LogTruncated, NewTopic, Produced, Unreachable
from headrace.errors import Error, Refused
from headrace.protocol.compression import Compression
from headrace.protocol.messages import ApiVersionsRequest
from headrace.testing.disk import FaultyDisk
from tests.broker.nodes import run
from tests.broker.nodes import running as node_running

TOPIC = "greetings"
PARTITION = (TOPIC, 0)
QUICK: dict[str, Any] = {"retry_backoff_s": 0.02, "reconnect_backoff_s": 0.02, "retry_backoff_max_s": 0.1}


def client_of(node: Node, **settings: Any) -> Client:
    return Client(
        f"127.0.0.1:{node.endpoints[0].port}",
        chance=random.Random(1),
        now_ms=lambda: 1_700_000_000_000,
        **(QUICK | settings),
    )


@asynccontextmanager
async def connected(partitions: int = 1) -> AsyncIterator[tuple[Node, Client]]:
    """A node with a topic, and a client of it."""
    async with node_running() as node, client_of(node) as client:
        await client.admin.create_topics([NewTopic(TOPIC, partitions)])
        yield node, client


async def read(client: Client, count: int, *partitions: tuple[str, int]) -> list[tuple[int, bytes | None]]:
    async with client.consumer(auto_offset_reset="earliest") as consumer:
        consumer.assign(partitions or [PARTITION])
        return [(record.offset, record.value) for record in [await anext(consumer) for _ in range(count)]]


def test_topics_are_made_described_listed_and_deleted() -> None:
    async def scenario() -> None:
        async with node_running() as node, client_of(node) as client:
            admin = client.admin
            ids = await admin.create_topics([NewTopic("a", 3, 1, {"retention.ms": "1000"}), "b"])
            assert await admin.list_topics() == ["a", "b"]
            described = await admin.describe_topics(["a"])
            assert described["a"].topic_id == ids["a"]
            assert sorted(described["a"].partitions) == [0, 1, 2]
            with pytest.raises(Refused, match="Topic a can't be created") as refused:
                await admin.create_topics(["a"])
            assert refused.value.error is Error.TOPIC_ALREADY_EXISTS
            with pytest.raises(Refused, match="can't be created"):
                await admin.create_topics(["not/a/name"])
            assert await admin.create_topics([NewTopic("c")], validate_only=True)
            await admin.delete_topics(["a"])
            assert await admin.list_topics() == ["b"]
            with pytest.raises(Refused, match="Topic a can't be deleted"):
                await admin.delete_topics(["a"])
            with pytest.raises(Refused, match="Topic c can't be described"):
                await admin.describe_topics(["c"])
            cluster = await admin.describe_cluster()
            assert [broker.port for broker in cluster.nodes] == [node.endpoints[0].port]
            asked = ApiVersionsRequest(client_software_name="a-test", client_software_version="1")
            assert (await admin.request(asked, cluster.nodes[0].node_id)).error_code == Error.NONE

    run(scenario())


@pytest.mark.parametrize("codec", list(Compression))
def test_records_come_back_as_they_were_sent_with_every_codec(codec: Compression) -> None:
    async def scenario() -> None:
        async with connected() as (_, client):
            producer = client.producer(compression=codec, batch_bytes=4096)
            headers = (("name", b"value"), ("nothing", None), ("", b""))
            sent = [
                producer.send_soon(TOPIC, None if number % 7 == 0 else b"%d" % number * 20, b"k", headers, 0, number)
                for number in range(1000)
            ]
            assert [(await future).offset for future in sent] == list(range(1000))
            consumer = client.consumer(auto_offset_reset="earliest")
            consumer.assign([PARTITION])
            for number in range(1000):
                record = await anext(consumer)
                assert (record.offset, record.timestamp_ms, record.key) == (number, number, b"k")
                assert record.value == (None if number % 7 == 0 else b"%d" % number * 20)
                assert tuple(record.headers) == headers

    run(scenario())


@pytest.mark.parametrize("acks", [0, 1, "all"])
def test_every_level_of_acknowledgement(acks: Any) -> None:
    async def scenario() -> None:
        async with connected() as (_, client):
            producer = client.producer(acks=acks)
            sent = [await producer.send(TOPIC, b"%d" % number) for number in range(10)]
            assert [produced.offset for produced in sent] == [-1] * 10 if acks == 0 else list(range(10))
            assert await read(client, 10) == [(number, b"%d" % number) for number in range(10)]

    run(scenario())


def test_a_fetch_that_waits_does_not_hold_up_a_producer_of_the_same_client() -> None:
    async def scenario() -> None:
        async with connected(2) as (_, client):
            consumer = client.consumer(auto_offset_reset="earliest", fetch_max_wait_ms=3_600_000)
            consumer.assign([PARTITION])
            assert await consumer.poll(timeout_s=0.1) == []  # by now a fetch waits at the broker
            producer = client.producer()
            for _ in range(3):
                await asyncio.wait_for(producer.send(TOPIC, b"x", partition=1), 20)
            assert await client.admin.list_topics() == [TOPIC]

    run(scenario())


def test_who_reads_and_who_writes_go_on_when_the_node_comes_back() -> None:
    async def scenario() -> None:
        disk = FaultyDisk()
        async with node_running(disk) as node:
            port = node.endpoints[0].port
            client = client_of(node)
            await client.admin.create_topics([TOPIC])
            producer, consumer = client.producer(), client.consumer(auto_offset_reset="earliest")
            consumer.assign([PARTITION])
            await producer.send(TOPIC, b"0")
            assert (await anext(consumer)).value == b"0"
        futures = [producer.send_soon(TOPIC, b"%d" % number) for number in range(1, 50)]
        await asyncio.sleep(0.05)
        async with node_running(disk, listeners=f"PLAINTEXT://127.0.0.1:{port}"):
            futures += [producer.send_soon(TOPIC, b"%d" % number) for number in range(50, 100)]
            assert [(await future).offset for future in futures] == list(range(1, 100))
            assert [(await anext(consumer)).value for _ in range(99)] == [b"%d" % number for number in range(1, 100)]
            await client.close()

    run(scenario())


@pytest.mark.parametrize("policy", ["none", "earliest", "latest"])
def test_hazard_2_what_a_power_cut_took_is_noticed_by_who_has_read_it(policy: Any) -> None:
    async def scenario() -> None:
        disk = FaultyDisk()
        async with node_running(disk) as node:
            port = node.endpoints[0].port
            client = client_of(node)
            await client.admin.create_topics([TOPIC])
            await client.producer().send(TOPIC, b"safe")
            unsafe = client.producer(acks=1)
            for _ in range(4):
                await unsafe.send(TOPIC, b"unsafe")
            consumer = client.consumer(auto_offset_reset=policy)
            consumer.assign([PARTITION])
            consumer.seek(*PARTITION, 0)
            assert len([await anext(consumer) for _ in range(5)]) == 5
            after = FaultyDisk(copy.deepcopy(disk.platter)).restart(power_lost=True)
        async with node_running(after, listeners=f"PLAINTEXT://127.0.0.1:{port}"):
            if policy == "none":
                with pytest.raises(LogTruncated) as cut:
                    await consumer.poll()
                assert cut.value.divergent_offset is not None
                assert cut.value.offset == 5 > cut.value.divergent_offset
                consumer.seek(*PARTITION, cut.value.divergent_offset)
            produced = await client.producer().send(TOPIC, b"new")
            record = await anext(consumer)
            assert (record.offset, record.value) == (produced.offset, b"new")
            await client.close()

    run(scenario())


def test_only_a_producers_topic_is_made_by_asking_for_it() -> None:
    async def scenario() -> None:
        async with node_running(auto_create_topics_enable="true") as node, client_of(node) as client:
            consumer = client.consumer(auto_offset_reset="earliest")
            consumer.assign([("mistyped", 0)])
            assert (await client.producer().send("made", b"x")).offset == 0
            assert (await client.producer().send("made-too", b"x")).offset == 0
            assert await consumer.poll(timeout_s=0.1) == []
            assert await client.admin.list_topics() == ["made", "made-too"]
            # It is there later, and is read from then on.
            await client.admin.create_topics(["mistyped"])
            await client.producer().send("mistyped", b"y")
            assert (await anext(consumer)).value == b"y"

    run(scenario())


def test_without_auto_creation_a_missing_topic_is_refused() -> None:
    async def scenario() -> None:
        running = node_running(auto_create_topics_enable="false")
        async with running as node, client_of(node, operation_timeout_s=0.3) as client:
            with pytest.raises(Refused, match="There is no topic missing"):
                await client.producer().send("missing", b"x")
            with pytest.raises(Refused, match="There is no topic absent"):
                await client.admin.list_offsets({("absent", 0): "latest"})
            consumer = client.consumer(auto_offset_reset="earliest")
            consumer.assign([("absent", 0)])
            with pytest.raises(Refused, match="There is no topic absent"):
                await consumer.position("absent", 0)

    run(scenario())


@pytest.mark.parametrize("policy", ["none", "earliest"])
def test_hazard_9_a_topic_made_again_under_its_name_is_not_read_on_in(policy: Any) -> None:
    async def scenario() -> None:
        async with connected() as (_, client):
            producer, consumer = client.producer(), client.consumer(auto_offset_reset=policy)
            for _ in range(3):
                await producer.send(TOPIC, b"old")
            consumer.assign([PARTITION])
            consumer.seek(*PARTITION, 0)
            assert [(await anext(consumer)).value for _ in range(3)] == [b"old"] * 3
            await client.admin.delete_topics([TOPIC])
            await client.admin.create_topics([TOPIC])
            for number in range(5):
                assert (await producer.send(TOPIC, b"new")).offset == number
            if policy == "none":
                with pytest.raises(LogTruncated, match="made again") as cut:
                    await consumer.poll()
                consumer.seek(*PARTITION, cut.value.divergent_offset or 0)
            assert [(await anext(consumer)).offset for _ in range(5)] == [0, 1, 2, 3, 4]

    run(scenario())


def test_positions_times_and_ends() -> None:
    async def scenario() -> None:
        async with connected(2) as (_, client):
            producer = client.producer()
            for number in range(10):
                await producer.send(TOPIC, b"%d" % number, partition=0, timestamp_ms=1000 * (number + 1))
            other = (TOPIC, 1)
            found = await client.admin.list_offsets({PARTITION: "latest", other: "earliest"})
            assert {key: at.offset for key, at in found.items()} == {PARTITION: 10, other: 0}
            found = await client.admin.list_offsets({PARTITION: 4500, other: 4500})
            assert [(at.offset, at.timestamp_ms) for at in found.values()] == [(4, 5000), (-1, -1)]
            found = await client.admin.list_offsets({PARTITION: "max_timestamp"})
            assert found[PARTITION].timestamp_ms == 10_000
            consumer = client.consumer(auto_offset_reset="latest")
            consumer.assign([PARTITION, other])
            assert await consumer.position(*PARTITION) == 10
            await consumer.seek_to_time(7500)
            assert [record.offset for record in await consumer.poll()] == [7, 8, 9]
            assert await consumer.position(*other) == 0
            assert await consumer.beginning_offsets([PARTITION, other]) == {PARTITION: 0, other: 0}
            # The last of many seeks counts, whichever fetch was on its way.
            for offset in (9, 0, 8, 2):
                consumer.seek(*PARTITION, offset)
            assert [(await anext(consumer)).offset for _ in range(8)] == list(range(2, 10))
            with pytest.raises(ValueError, match="assign it first"):
                consumer.seek("other", 0, 0)

    run(scenario())


def test_what_is_paused_is_not_given_out_and_does_not_starve_the_others() -> None:
    async def scenario() -> None:
        async with connected(2) as (_, client):
            producer, other = client.producer(), (TOPIC, 1)
            for index in (0, 1):
                for _ in range(20):
                    await producer.send(TOPIC, b"x" * 1000, partition=index)
            consumer = client.consumer(auto_offset_reset="earliest", prefetch_bytes_max=1000, partition_bytes_max=5000)
            consumer.assign([PARTITION])
            await anext(consumer)  # the rest of what was fetched is more than may be held
            consumer.pause(PARTITION)
            consumer.assign([PARTITION, other])
            assert [(await anext(consumer)).partition for _ in range(20)] == [1] * 20
            assert await consumer.poll(timeout_s=0.05) == []
            consumer.resume(PARTITION)
            assert [(await anext(consumer)).offset for _ in range(19)] == list(range(1, 20))
            consumer.assign([other])
            assert await consumer.position(*other) == 20
            assert consumer.assignment == [other]

    run(scenario())


def test_a_session_that_the_broker_forgot_is_begun_again() -> None:
    async def scenario() -> None:
        async with connected(3) as (_, client):
            producer, consumer = client.producer(), client.consumer(auto_offset_reset="earliest", fetch_max_wait_ms=10)
            consumer.assign([(TOPIC, index) for index in range(3)])
            for round_number in range(3):
                for index in range(3):
                    await producer.send(TOPIC, b"%d" % round_number, partition=index)
                got = [await anext(consumer) for _ in range(3)]
                assert sorted(record.partition for record in got) == [0, 1, 2]
                for session in consumer._fetcher._sessions.values():
                    assert session._session_id  # the node keeps sessions
                    session._session_id += 1000 + round_number
            consumer.assign([(TOPIC, 1)])
            await producer.send(TOPIC, b"last", partition=0)
            await producer.send(TOPIC, b"last", partition=1)
            assert (await anext(consumer)).partition == 1
            assert await consumer.poll(timeout_s=0.05) == []

    run(scenario())


def test_closing_ends_whoever_waits_for_records() -> None:
    async def scenario() -> None:
        async with connected() as (_, client):
            consumer = client.consumer()
            consumer.assign([PARTITION])

            async def iterate() -> list[Any]:
                return [record async for record in consumer]

            iterating, polling = asyncio.create_task(iterate()), asyncio.create_task(consumer.poll())
            await asyncio.sleep(0.05)
            await consumer.close()
            assert await iterating == []
            with pytest.raises(Closed, match="make another one"):
                await polling
            assert not client._made

    run(scenario())


def test_many_partitions_keep_their_order_and_none_starves() -> None:
    async def scenario() -> None:
        async with connected(40) as (_, client):
            producer = client.producer(batch_bytes=1000, request_bytes_max=3000, buffer_bytes_max=30_000)
            sends = [producer.send(TOPIC, b"%d" % n, partition=n % 40) for n in range(4000)]
            produced: list[Produced] = await asyncio.gather(*sends)
            assert sorted(p.offset for p in produced if p.partition == 39) == list(range(100))
            everything = [(TOPIC, index) for index in range(40)]
            values = await read(client, 4000, *everything)
            assert sorted(int(value or b"") for _, value in values) == list(range(4000))

    run(scenario())


def test_large_records_wait_for_room_and_do_not_spin() -> None:
    async def scenario() -> None:
        async with connected() as (_, client):
            producer = client.producer(batch_bytes=1000, buffer_bytes_max=250_000)
            big = [producer.send(TOPIC, b"x" * 100_000) for _ in range(10)]
            assert sorted(p.offset for p in await asyncio.gather(*big)) == list(range(10))

    run(scenario())


def test_what_no_broker_could_take_is_refused_when_it_is_sent() -> None:
    async def scenario() -> None:
        async with connected() as (_, client):
            producer: Any = client.producer()
            for wrong in ("text", 7, [b"x"]):
                with pytest.raises(ValueError, match="value is bytes or None"):
                    producer.send_soon(TOPIC, wrong)
                with pytest.raises(ValueError, match="header is bytes or None"):
                    producer.send_soon(TOPIC, b"x", headers=[("name", wrong)])
            for timestamp_ms in (1.5, 2**63, -2):
                with pytest.raises(ValueError, match="whole number of milliseconds"):
                    producer.send_soon(TOPIC, b"x", timestamp_ms=timestamp_ms)
            with pytest.raises(Refused, match="larger than request_bytes_max"):
                producer.send_soon(TOPIC, b"x" * (1 << 20))
            buffer = bytearray(b"first")
            future = producer.send_soon(TOPIC, memoryview(buffer))
            buffer[:] = b"other"
            await future
            assert await read(client, 1) == [(0, b"first")]

    run(scenario())


def test_a_node_that_is_gone_is_named() -> None:
    async def scenario() -> None:
        async with node_running() as node:
            client = client_of(node, operation_timeout_s=0.3)
            assert await client.admin.list_topics() == []
        with pytest.raises(Unreachable, match="check that the addresses are right"):
            await client.admin.create_topics(["x"])
        await client.close()

    run(scenario())
