"""Wrong arguments: refused at once by the call that has them, in a sentence that names them, and with no effect."""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Callable
from typing import Any

import pytest

from headrace.client import Client, ConsumedRecord, Consumer, GroupConsumer, GroupMember, OffsetToCommit, WrongArgument
from headrace.client.settings import Settings
from headrace.protocol.messages import MetadataRequest
from tests.client.scripted import TOPIC, ScriptedBroker, running
from tests.net.loops import Run, on_every_loop

NOT_TEXT: tuple[Any, ...] = (b"t", None, 5, "", "\ud800", ["t"], "x" * 40_000)
NOT_WHOLE: tuple[Any, ...] = (-2, "1", None, 1.5, True, 2**70, b"1", [])
NOT_SECONDS: tuple[Any, ...] = (-1, "1", math.nan, math.inf, True, b"1", [])
NOT_PARTITIONS: tuple[Any, ...] = (None, 5, TOPIC, [TOPIC], [(TOPIC, "0")], [(b"t", 0)], [(TOPIC, -1)], [(TOPIC, 0, 0)])
NOT_FLAG: tuple[Any, ...] = (1, "yes", [])


async def refused(argument: str, call: Callable[..., Any], /, *given: Any, **named: Any) -> None:
    """Without waiting for anybody: a broker is not asked, no time-out passes."""

    async def called() -> None:
        result = call(*given, **named)
        if asyncio.iscoroutine(result):
            await result

    task = asyncio.ensure_future(called())
    await asyncio.sleep(0)
    assert task.done(), f"{argument} is not looked at: {given} {named}"
    with pytest.raises(WrongArgument, match=re.escape(argument)) as error:
        task.result()
    assert str(error.value).endswith(".")


@on_every_loop
def test_a_producer_looks_at_its_settings(run: Run) -> None:
    wrong: dict[str, tuple[Any, ...]] = {
        "acks": ("1", 5, None, True, 1.0, "none", b"all"),
        "idempotent": NOT_FLAG,
        "compression": ("foo", 9, None, b"gzip"),
        "linger_ms": NOT_SECONDS,
        "batch_bytes": (0, *NOT_WHOLE),
        "request_bytes_max": (0, *NOT_WHOLE),
        "buffer_bytes_max": (0, *NOT_WHOLE),
        "delivery_timeout_s": (0, None, *NOT_SECONDS),
        "partitioner": (5, "hash"),
        "transactional_id": ("t",),
    }

    async def scenario() -> None:
        async with running(ScriptedBroker()) as client:
            for name, values in wrong.items():
                for value in values:
                    await refused(name, client.producer, **{name: value})
            await refused("acks", client.producer, idempotent=True, acks=1)
            assert not client._made
            for acks in ("all", -1, 0, 1):
                client.producer(acks=acks)
            client.producer(compression="GZIP", idempotent=False, linger_ms=0, delivery_timeout_s=1)

    run(scenario())


@on_every_loop
def test_a_transactional_producer_looks_at_its_settings(run: Run) -> None:
    async def scenario() -> None:
        async with running(ScriptedBroker()) as client:
            make: Any = client.transactional_producer
            for value in NOT_TEXT:
                await refused("transactional_id", make, value)
            for value in (0, *NOT_WHOLE):
                await refused("transaction_timeout_ms", make, "t", transaction_timeout_ms=value)
            for value in NOT_FLAG:
                await refused("two_phase", make, "t", two_phase=value)
            await refused("acks", make, "t", acks=1)
            await refused("idempotent", make, "t", idempotent=False)
            producer: Any = make("t")
            for offsets in (None, 5, {TOPIC: 1}, {(TOPIC, 0): "1"}, {(TOPIC, 0): -1}, {(TOPIC, 0): None}):
                await refused("offsets", producer.send_offsets, offsets, GroupMember("g"))
            for metadata in (5, None, "\ud800"):
                to = {(TOPIC, 0): OffsetToCommit(0, metadata=metadata)}  # type: ignore[arg-type]
                await refused("metadata", producer.send_offsets, to, GroupMember("g"))
            await refused("group", producer.send_offsets, {(TOPIC, 0): 1}, "g")
            await refused("group_id", producer.send_offsets, {(TOPIC, 0): 1}, GroupMember(""))
            await refused("timeout_s", producer.close, "now")

    run(scenario())


@on_every_loop
def test_a_record_that_no_broker_could_take_fails_its_own_send_alone(run: Run) -> None:
    wrong: dict[str, tuple[Any, ...]] = {
        "topic": (*NOT_TEXT, {"t": 1}),
        "value": ("text", 5, ["x"]),
        "key": ("text", 5),
        "partition": (-1, "0", 0.0, True, [0]),
        "timestamp_ms": ("now", 1.5, -2, 2**63, True),
        "headers": (5, "a", {"a": b"b"}, [("a", b"b", 1)], ["ab"], [5]),
        "the name of a header": ([(b"a", b"b")], [(None, b"b")], [("\ud800", b"b")]),
        "the value of a header": ([("a", "b")], [("a", 5)]),
    }

    async def scenario() -> None:
        broker = ScriptedBroker()
        broker.created = {"new": 1}
        async with running(broker) as client:
            producer = client.producer(delivery_timeout_s=5)
            beside = producer.send_soon(TOPIC, b"beside")
            for known in (False, True):
                for name, values in wrong.items():
                    argument = "headers" if "header" in name else name
                    for value in values:
                        record: dict[str, Any] = {"topic": TOPIC, "value": b"x", argument: value}
                        await refused(name, producer.send_soon, **record)
                        await refused(name, producer.send, **record)
                if not known:
                    await beside
            await producer.send(TOPIC, memoryview(b"after"), bytearray(b"k"), [("h", None), ("", b"1")], 0, 5)
            assert broker.values == [b"beside", b"after"]
            assert not producer._buffered_bytes
            await refused("size_bytes", producer.room, -1)
            # A name that can't be asked for would have spoiled the metadata for every other topic.
            assert set(client._cluster._wanted) == {TOPIC}
            assert (await client._cluster.topic("new")).name == "new"

    run(scenario())


@on_every_loop
def test_a_client_looks_at_its_settings(run: Run) -> None:
    address = "127.0.0.1:9"

    async def scenario() -> None:
        make: Any = Client
        value: Any
        for value in (5, None, [5], "", [], "127.0.0.1:abc", "127.0.0.1:0", "h:\u0661", ["\ud800:1"]):
            with pytest.raises(ValueError, match="address|UTF-8|bootstrap"):
                make(value)
        seconds = [name for name in Settings.__slots__ if name.endswith("_s")]
        assert len(seconds) == 8
        for name in seconds:
            for value in (None, *NOT_SECONDS):
                await refused(name, make, address, **{name: value})
        await refused("request_timeout_s", make, address, request_timeout_s=0)
        for value in (0, *NOT_WHOLE):
            await refused("response_bytes_max", make, address, response_bytes_max=value)
        for value in (None, 5, b"a", "\ud800"):
            await refused("client_id", make, address, client_id=value)
        await refused("chance", make, address, chance=5)
        await refused("now_ms", make, address, now_ms=5)

    run(scenario())
    with pytest.raises(WrongArgument, match="running event loop"):
        Client(address)


CONSUMER_SETTINGS: dict[str, tuple[Any, ...]] = {
    "auto_offset_reset": ("first", None, 0, b"latest"),
    "isolation_level": ("committed", None, 1),
    "fetch_min_bytes": NOT_WHOLE,
    "fetch_max_bytes": (0, *NOT_WHOLE),
    "fetch_max_wait_ms": NOT_WHOLE,
    "partition_bytes_max": (0, *NOT_WHOLE),
    "prefetch_bytes_max": (0, *NOT_WHOLE),
}
GROUP_SETTINGS: dict[str, tuple[Any, ...]] = {
    "protocol": ("new", None, 1),
    "instance_id": (b"i", 5, "", "\ud800"),
    "rack": (b"r", 5, "", "\ud800"),
    "assignor": (b"a", 5, ""),
    "auto_commit_s": (0, *NOT_SECONDS),
    "session_timeout_ms": (0, *NOT_WHOLE),
    "rebalance_timeout_ms": (0, *NOT_WHOLE),
    "heartbeat_s": (0, None, *NOT_SECONDS),
    "assigned": (None, 5),
    "revoked": (None, 5),
    "lost": (None, 5),
}


@on_every_loop
def test_consumers_look_at_their_settings(run: Run) -> None:
    async def scenario() -> None:
        async with running(ScriptedBroker()) as client:
            of_group: Any = client.group_consumer
            for name, values in CONSUMER_SETTINGS.items():
                for value in values:
                    await refused(name, client.consumer, **{name: value})
            for name, values in (CONSUMER_SETTINGS | GROUP_SETTINGS).items():
                for value in values:
                    await refused(name, of_group, "g", **{name: value})
            for value in NOT_TEXT:
                await refused("group_id", of_group, value)
            assert not client._made

    run(scenario())


@on_every_loop
def test_a_consumer_looks_at_what_it_is_told_to_read(run: Run) -> None:
    async def scenario() -> None:
        broker = ScriptedBroker()
        async with running(broker) as client:
            await client.producer().send(TOPIC, b"a")
            for consumer in (client.consumer(auto_offset_reset="earliest"), client.group_consumer("g")):
                await look_at(consumer)
            reader = client.consumer(auto_offset_reset="earliest")
            reader.assign([(TOPIC, 0)])
            records: list[ConsumedRecord] = await reader.poll()
            assert [record.value for record in records] == [b"a"]

    async def look_at(consumer: Consumer) -> None:
        any_: Any = consumer
        consumer.assign([(TOPIC, 0)])
        for value in NOT_PARTITIONS:
            await refused("partition", any_.assign, value)
            await refused("partition", any_.end_offsets, value)
            await refused("partition", any_.beginning_offsets, value)
            if isinstance(value, list):
                for call in (any_.pause, any_.resume, any_.seek_to_end, any_.seek_to_beginning):
                    await refused("partition", call, *value)
                await refused("partition", any_.seek_to_time, 0, *value)
        assert consumer.assignment == [(TOPIC, 0)]
        for value in (-1, *NOT_WHOLE):
            if value != 2**70:
                await refused("offset", any_.seek, TOPIC, 0, value)
            await refused("timestamp_ms", any_.seek_to_time, value)
        await refused("leader_epoch", any_.seek, TOPIC, 0, 0, None)
        await refused("partition", any_.seek, TOPIC, "0", 0)
        await refused("topic", any_.position, b"t", 0)
        for times in (None, [(TOPIC, 0)], {(TOPIC, 0): "now"}, {(TOPIC, 0): -9}, {TOPIC: 0}):
            await refused("times_ms", any_.offsets_for_times, times)
        for value in (0, -1, None, "1", 1.5, True):
            await refused("max_records", any_.poll, value)
        for value in NOT_SECONDS:
            await refused("timeout_s", any_.poll, timeout_s=value)

    run(scenario())


@on_every_loop
def test_a_group_consumer_looks_at_topics_and_offsets(run: Run) -> None:
    async def scenario() -> None:
        async with running(ScriptedBroker()) as client:
            consumer: Any = client.group_consumer("g")
            for value in (TOPIC, b"t", None, 5, *([topic] for topic in NOT_TEXT)):
                await refused("topics", consumer.subscribe, value)
            await refused("nothing to subscribe to", consumer.subscribe)
            await refused("nothing to subscribe to", consumer.subscribe, [])
            for value in (b"t", 5, "", "\ud800"):
                await refused("pattern", consumer.subscribe, pattern=value)
            await refused("pattern", client.group_consumer("g", protocol="classic").subscribe, pattern="in.*")
            assert isinstance(consumer, GroupConsumer)
            assert consumer._membership._task is None
            for offsets in (5, [(TOPIC, 0)], {TOPIC: 1}, {(TOPIC, 0): "1"}, {(TOPIC, 0): -1}):
                await refused("offsets", consumer.commit, offsets)
            for value in NOT_PARTITIONS:
                await refused("partition", consumer.committed, value)

    run(scenario())


@on_every_loop
def test_a_request_that_can_not_be_written_is_no_failure_of_brokers(run: Run) -> None:
    async def scenario() -> None:
        async with running(ScriptedBroker()) as client:
            asked: Any = [MetadataRequest.MetadataRequestTopic(name=b"t")]  # type: ignore[arg-type]
            with pytest.raises(WrongArgument, match="name is a bytes"):
                await client.admin.request(MetadataRequest(topics=asked))
            await client.producer().send(TOPIC, b"x")

    run(scenario())
