"""Rare troubles, scripted: lost answers, silence, epochs that run out, leaders that move, batches that are damaged."""

from __future__ import annotations

import asyncio
import random
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2 as murmur2_of_kafka_python

from headrace.client import NewTopic, Uncertain
from headrace.client.fetch_session import FetchSession, Wanted
from headrace.client.lane import Identity
from headrace.client.metadata import PartitionInfo, TopicInfo
from headrace.client.partitioner import DefaultPartitioner, murmur2
from headrace.errors import Error, HeadraceError, ProtocolError, Refused
from headrace.protocol.messages import FetchRequest
from tests.client.scripted import TOPIC, ScriptedBroker, running
from tests.net.loops import Run, on_every_loop

PARTITION = (TOPIC, 0)


def two_brokers() -> tuple[ScriptedBroker, ScriptedBroker]:
    first, second = ScriptedBroker(), ScriptedBroker()
    second.node_id, first.others, second.others = 8, [second], [first]
    second.leader = first
    return first, second


def take_over(old: ScriptedBroker, new: ScriptedBroker) -> None:
    """Another broker leads, which has everything that the leader before it had."""
    new.log, new.end = list(old.log), old.end
    new.sequences, new.kept = dict(old.sequences), dict(old.kept)
    new.leader_epoch = old.leader_epoch + 1
    old.leader = new.leader = new


@on_every_loop
def test_a_topic_that_is_there_after_a_lost_answer_was_made_by_it(run: Run) -> None:
    async def scenario() -> None:
        broker = ScriptedBroker()
        async with running(broker) as client:
            await client.admin.create_topics([NewTopic("new", partitions=2)])
            assert broker.created == {"new": 2}
            broker.created["other"] = 3
            with pytest.raises(Refused) as refused:
                await client.admin.create_topics([NewTopic("other", partitions=3)])
            assert refused.value.error is Error.TOPIC_ALREADY_EXISTS
            await client.admin.delete_topics(["new"])
            assert list(broker.created) == ["other"]
            with pytest.raises(Refused, match="can't be deleted"):
                await client.admin.delete_topics(["new"])

    run(scenario())


@on_every_loop
def test_a_cluster_that_asks_for_it_is_begun_with_again_at_the_bootstrap(run: Run) -> None:
    async def scenario() -> None:
        broker = ScriptedBroker()
        async with running(broker) as client:
            producer = client.producer()
            await producer.send(TOPIC, b"a")
            connections = broker.requests.count(18)
            broker.metadata_errors = [Error.REBOOTSTRAP_REQUIRED]
            await client._cluster.refresh()
            await producer.send(TOPIC, b"b")
            assert broker.requests.count(18) > connections
            assert broker.values == [b"a", b"b"]

    run(scenario())


@on_every_loop
@pytest.mark.parametrize("api_key", [0, 1, 2, 3, 18, 22, 23])
def test_a_request_that_is_never_answered_is_made_again(run: Run, api_key: int) -> None:
    async def scenario() -> None:
        broker = ScriptedBroker()
        broker.mute = {api_key: 1}
        async with running(broker, request_timeout_s=0.2, connect_timeout_s=0.2) as client:
            await client.producer().send(TOPIC, b"a")
            consumer = client.consumer(auto_offset_reset="earliest", fetch_max_wait_ms=0)
            consumer.assign([PARTITION])
            assert (await anext(consumer)).value == b"a"
            broker.leader_epoch += 1
            await client.producer().send(TOPIC, b"b")
            assert (await anext(consumer)).value == b"b"
            assert not broker.mute[api_key]
            assert broker.values == [b"a", b"b"]

    run(scenario())


@on_every_loop
def test_silence_past_the_delivery_time_out_is_uncertain(run: Run) -> None:
    async def scenario() -> None:
        broker = ScriptedBroker()
        async with running(broker, request_timeout_s=5) as client:
            producer = client.producer(delivery_timeout_s=0.2)
            await producer.send(TOPIC, b"a")
            broker.mute = {0: 1}
            with pytest.raises(Uncertain):
                await producer.send(TOPIC, b"b")

    run(scenario())


@on_every_loop
def test_when_epochs_run_out_there_is_a_new_producer_id(run: Run) -> None:
    async def scenario() -> None:
        broker = ScriptedBroker()
        async with running(broker) as client:
            producer = client.producer()
            await producer.send(TOPIC, b"a")
            first = producer._sender.identity
            assert first is not None
            producer._sender.identity = Identity(first.producer_id, 32766)
            await producer.send(TOPIC, b"b")
            for value in (b"c", b"d"):
                broker.faults = [lambda _: Error.UNKNOWN_PRODUCER_ID]
                await producer.send(TOPIC, value)
            assert producer._sender.identity == Identity(first.producer_id + 1, 0)
            assert [epoch for epoch, *_ in broker.seen] == [0, 32766, 32766, 32767, 32767, 0]
            assert broker.values == [b"a", b"b", b"c", b"d"]

    run(scenario())


@on_every_loop
def test_a_producer_whose_id_somebody_else_uses_takes_another(run: Run) -> None:
    async def scenario() -> None:
        broker = ScriptedBroker()
        async with running(broker) as client:
            producer = client.producer()
            await producer.send(TOPIC, b"a")
            broker.faults = [lambda _: Error.INVALID_PRODUCER_EPOCH]
            futures = []
            for value in (b"b", b"c", b"d"):
                futures.append(producer.send_soon(TOPIC, value))
                await asyncio.sleep(0.001)
            await asyncio.gather(*futures)
            assert broker.values == [b"a", b"b", b"c", b"d"]
            assert broker.producer_id == 4713

    run(scenario())


@on_every_loop
def test_records_linger_until_the_batch_is_full_or_somebody_flushes(run: Run) -> None:
    async def scenario() -> None:
        broker = ScriptedBroker()
        async with running(broker) as client:
            producer = client.producer(linger_ms=3_600_000, batch_bytes=1000)
            future = producer.send_soon(TOPIC, b"a")
            await asyncio.sleep(0.05)
            assert not future.done()
            full = producer.send_soon(TOPIC, b"b" * 970)
            await future
            assert not full.done()
            await producer.flush()
            assert (await full).offset == 1
            assert len(broker.log) == 2
            quick = client.producer(linger_ms=1)
            assert (await quick.send(TOPIC, b"c")).offset == 2

    run(scenario())


@on_every_loop
def test_a_leader_that_moved_is_followed_by_its_own_word(run: Run) -> None:
    async def scenario() -> None:
        first, second = two_brokers()
        async with running(first) as client:
            producer = client.producer()
            await producer.send(TOPIC, b"a")
            asked = (*first.requests, *second.requests).count(3)
            take_over(first, second)
            await asyncio.gather(*(producer.send(TOPIC, value) for value in (b"b", b"c")))
            assert (first.values, second.values) == ([b"a"], [b"a", b"b", b"c"])
            assert (*first.requests, *second.requests).count(3) == asked  # no need to ask who leads (KIP-951)

    run(scenario())


@on_every_loop
@pytest.mark.parametrize("answers", [1, 2, 5])
@pytest.mark.parametrize("acks", [1, -1])
def test_who_leads_is_asked_until_somebody_does(run: Run, answers: int, acks: int) -> None:
    async def scenario() -> None:
        broker = ScriptedBroker()
        async with running(broker, retry_backoff_max_s=0.05) as client:
            producer = client.producer(delivery_timeout_s=3600, acks=acks, idempotent=acks == -1)
            await producer.send(TOPIC, b"a")
            broker.leaderless = answers
            broker.faults += 100 * [lambda batch: Error.UNKNOWN_TOPIC_OR_PARTITION if broker.leaderless else None]
            await producer.send(TOPIC, b"b")  # and nothing else, which would have it asked
            assert broker.values == [b"a", b"b"]
            assert broker.leaderless == 0

    run(scenario())


@on_every_loop
def test_a_reader_follows_the_leader(run: Run) -> None:
    async def scenario() -> None:
        first, second = two_brokers()
        async with running(first) as client:
            producer, consumer = client.producer(), client.consumer(auto_offset_reset="earliest", fetch_max_wait_ms=0)
            consumer.assign([PARTITION])
            await producer.send(TOPIC, b"a")
            assert (await anext(consumer)).value == b"a"
            take_over(first, second)
            await client.producer().send(TOPIC, b"b")
            record = await anext(consumer)
            assert (record.offset, record.value, record.leader_epoch) == (1, b"b", 2)
            assert 23 in second.requests  # the new leader was asked whether it has what was read (KIP-320)

    run(scenario())


@on_every_loop
def test_who_waits_for_a_broker_when_the_client_is_closed_is_told_so(run: Run) -> None:
    async def scenario() -> None:
        broker = ScriptedBroker()
        broker.mute = {18: 1000}
        async with running(broker) as client:
            waiting = [
                asyncio.create_task(client.admin.list_topics()),
                asyncio.create_task(client.admin.create_topics(["x"])),
                asyncio.create_task(client.admin.list_offsets({PARTITION: "latest"})),
            ]
            await asyncio.sleep(0.05)
            await client.close()
            for task in waiting:
                with pytest.raises(HeadraceError):
                    await task

    run(scenario())


@on_every_loop
def test_a_topic_that_is_asked_for_during_a_refresh_is_in_the_next_one(run: Run) -> None:
    async def scenario() -> None:
        broker = ScriptedBroker()
        async with running(broker) as client:
            cluster = client._cluster
            first = asyncio.create_task(cluster.refresh())
            await asyncio.sleep(0)
            cluster.want(TOPIC)
            await cluster.refresh()
            assert cluster.metadata.topics[TOPIC].partitions
            await first
            assert broker.requests.count(3) == 2

    run(scenario())


def test_a_session_asks_for_what_changed_and_forgets_what_is_gone() -> None:
    session, ids = FetchSession(), {name: name.encode() * 16 for name in "abc"}

    def ask(*wanted: tuple[str, int]) -> FetchRequest:
        request = FetchRequest()
        session.fill(request, {(name, 0): Wanted(ids[name], offset, 1, 100) for name, offset in wanted})
        return request

    def asked(request: FetchRequest) -> list[tuple[str, int]]:
        return [(topic.topic, part.fetch_offset) for topic in request.topics for part in topic.partitions]

    request = ask(("a", 0), ("b", 0))
    assert (request.session_id, request.session_epoch, asked(request)) == (0, 0, [("a", 0), ("b", 0)])
    session.answered(9)
    request = ask(("a", 5), ("b", 0))
    assert (request.session_id, request.session_epoch, asked(request)) == (9, 1, [("a", 5)])
    session.answered(9)
    ids["a"] = b"n" * 16  # made again under its name (KIP-516)
    request = ask(("a", 5), ("c", 1))
    assert (request.session_epoch, asked(request)) == (2, [("a", 5), ("c", 1)])
    gone = {(topic.topic, topic.topic_id): topic.partitions for topic in request.forgotten_topics_data}
    assert gone == {("a", b"a" * 16): [0], ("b", b"b" * 16): [0]}
    session.reset()
    request = ask(("a", 5))
    assert (request.session_id, request.session_epoch, asked(request)) == (0, 0, [("a", 5)])
    assert not request.forgotten_topics_data


@on_every_loop
def test_a_damaged_batch_is_not_skipped_and_hides_nothing_before_it(run: Run) -> None:
    async def scenario() -> None:
        broker = ScriptedBroker()
        async with running(broker) as client:
            producer = client.producer()
            for value in (b"a", b"b", b"c"):
                await producer.send(TOPIC, value)
            damaged = bytearray(broker.log[1])
            damaged[-1] ^= 1
            broker.batches_fetched = [bytes(broker.log[0]), bytes(damaged), bytes(broker.log[2])]
            consumer = client.consumer(auto_offset_reset="earliest")
            consumer.assign([PARTITION])
            assert [record.value for record in await consumer.poll()] == [b"a"]
            for _ in range(2):
                with pytest.raises(ProtocolError, match="topic-0 can't be read at offset 1, seek past it"):
                    await consumer.poll()
            consumer.seek(*PARTITION, 1)
            broker.batches_fetched = None
            assert [record.value for record in await consumer.poll()] == [b"b", b"c"]

    run(scenario())


@given(st.binary(max_size=40))
def test_keys_are_hashed_as_by_kafka_python(key: bytes) -> None:
    assert murmur2(key) == murmur2_of_kafka_python(key) & 0xFFFFFFFF


def test_records_without_a_key_stay_with_a_partition_for_a_batch_and_avoid_those_without_a_leader() -> None:
    led = {index: PartitionInfo(index, -1 if index == 2 else 1, 0, [1], [1], []) for index in range(4)}
    topic = TopicInfo("topic", partitions=led)
    partitioner = DefaultPartitioner(random.Random(1), sticky_bytes=1000)
    chosen = [partitioner(topic, None, 100) for _ in range(1000)]
    runs = [chosen[at : at + 10] for at in range(0, 1000, 10)]
    assert all(len(set(run)) == 1 for run in runs)
    assert all(before[0] != after[0] for before, after in pairwise(runs))
    assert set(chosen) == {0, 1, 3}
    assert partitioner(topic, b"21", 100) == (-973932308 & 0x7FFFFFFF) % 4
