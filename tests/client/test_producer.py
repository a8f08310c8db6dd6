"""What a producer does when brokers refuse, forget, and break off."""

from __future__ import annotations

import asyncio

import pytest

from headrace.client import BufferFull, NotSent, Producer, Uncertain, Unreachable
from headrace.client.client import Client
from headrace.errors import Error, Refused
from tests.client.scripted import TOPIC, Fault, ScriptedBroker, running
from tests.net.loops import Run, on_every_loop


def always(what: Error | str | None) -> Fault:
    return lambda _: what


async def send_in_batches(producer: Producer, count: int) -> list[int]:
    """Each record in a batch of its own, all under way at once."""
    futures = []
    for number in range(count):
        futures.append(producer.send_soon(TOPIC, b"%d" % number))
        await asyncio.sleep(0.001)
    return [produced.offset for produced in await asyncio.gather(*futures)]


@on_every_loop
def test_records_of_one_moment_share_a_batch_and_know_their_offsets(run: Run) -> None:
    async def scenario() -> None:
        broker = ScriptedBroker()
        async with running(broker) as client:
            producer = client.producer()
            futures = [producer.send_soon(TOPIC, b"%d" % number) for number in range(100)]
            assert [(await future).offset for future in futures] == list(range(100))
            assert len(broker.log) == 1

    run(scenario())


@on_every_loop
@pytest.mark.parametrize("fault", ["lost", "dropped", Error.NOT_LEADER_OR_FOLLOWER, Error.NOT_ENOUGH_REPLICAS])
def test_a_retry_keeps_its_sequence_and_nothing_is_doubled_or_reordered(run: Run, fault: Error | str) -> None:
    async def scenario() -> None:
        broker = ScriptedBroker()
        async with running(broker) as client:
            producer = client.producer()
            await producer.send(TOPIC, b"first")
            broker.faults = [always(None), always(fault), always(None), always(fault)]
            await send_in_batches(producer, 12)
            assert broker.values == [b"first", *(b"%d" % number for number in range(12))]
            assert {epoch for epoch, _, _ in broker.seen} == {0}

    run(scenario())


@on_every_loop
def test_why_records_are_sent_again_can_be_asked(run: Run) -> None:
    async def scenario() -> None:
        broker = ScriptedBroker()
        async with running(broker) as client:
            producer = client.producer()
            assert producer.refused is None
            broker.faults = [always(Error.KAFKA_STORAGE_ERROR)] * 3
            sending = asyncio.ensure_future(producer.send(TOPIC, b"v"))
            while producer.refused is None:
                await asyncio.sleep(0.001)
            assert producer.refused.error is Error.KAFKA_STORAGE_ERROR
            assert f"{TOPIC}-0" in str(producer.refused)
            await sending
            assert producer.refused is None

    run(scenario())


@on_every_loop
@pytest.mark.parametrize("error", [Error.OUT_OF_ORDER_SEQUENCE_NUMBER, Error.UNKNOWN_PRODUCER_ID])
def test_a_broker_that_forgot_the_producer_gets_a_new_epoch_from_sequence_0(run: Run, error: Error) -> None:
    async def scenario() -> None:
        broker = ScriptedBroker()
        async with running(broker) as client:
            producer = client.producer()
            await producer.send(TOPIC, b"a")
            broker.faults = [always(error)]
            await producer.send(TOPIC, b"b")
            assert broker.seen == [(0, 0, 1), (0, 1, 1), (1, 0, 1)]
            assert broker.values == [b"a", b"b"]

    run(scenario())


@on_every_loop
def test_a_refused_record_is_refused_and_those_behind_it_go_on_in_order(run: Run) -> None:
    async def scenario() -> None:
        broker = ScriptedBroker()
        async with running(broker) as client:
            producer = client.producer()
            await producer.send(TOPIC, b"a")
            broker.faults = [always(Error.INVALID_RECORD)]
            futures = []
            for value in (b"bad", b"b", b"c"):
                futures.append(producer.send_soon(TOPIC, value))
                await asyncio.sleep(0.001)
            with pytest.raises(Refused) as refused:
                await futures[0]
            assert refused.value.error is Error.INVALID_RECORD
            await asyncio.gather(*futures[1:])
            assert broker.values == [b"a", b"b", b"c"]

    run(scenario())


@on_every_loop
def test_hazard_14_a_record_whose_fate_is_unknown_is_uncertain_and_the_next_has_a_new_epoch(run: Run) -> None:
    async def scenario() -> None:
        broker = ScriptedBroker()
        async with running(broker) as client:
            producer = client.producer(delivery_timeout_s=0.5)
            await producer.send(TOPIC, b"a")
            broker.faults = [always("dropped")] * 1000
            with pytest.raises(Uncertain, match="may or may not be in the log"):
                await producer.send(TOPIC, b"maybe")
            broker.faults = []
            await producer.send(TOPIC, b"b")
            assert broker.seen[-1] == (1, 0, 1)

    run(scenario())


@on_every_loop
def test_a_batch_that_is_too_large_for_the_topic_is_split(run: Run) -> None:
    async def scenario() -> None:
        broker = ScriptedBroker()
        async with running(broker) as client:
            producer = client.producer()
            too_large: Fault = lambda batch: Error.MESSAGE_TOO_LARGE if batch.record_count > 2 else None  # noqa: E731
            broker.faults = [too_large] * 100
            futures = [producer.send_soon(TOPIC, b"%d" % number) for number in range(9)]
            assert [(await future).offset for future in futures] == list(range(9))
            assert broker.values == [b"%d" % number for number in range(9)]

    run(scenario())


@on_every_loop
def test_the_buffer_is_bounded_and_room_waits(run: Run) -> None:
    async def scenario() -> None:
        broker = ScriptedBroker()
        async with running(broker) as client:
            producer = client.producer(buffer_bytes_max=2000, batch_bytes=500)
            for _ in range(2000 // 121):
                producer.send_soon(TOPIC, b"x" * 100)
            with pytest.raises(BufferFull, match="await room"):
                producer.send_soon(TOPIC, b"x" * 100)
            await asyncio.gather(*(producer.send(TOPIC, b"y" * 100) for _ in range(50)))
            await producer.flush()
            assert broker.values.count(b"y" * 100) == 50

    run(scenario())


@on_every_loop
def test_what_was_never_sent_is_not_uncertain(run: Run) -> None:
    async def scenario() -> None:
        broker = ScriptedBroker()
        async with running(broker, operation_timeout_s=0.2) as client:
            producer = client.producer()
            with pytest.raises(Refused, match="There is no topic other"):
                await producer.send("other", b"x")
            with pytest.raises(Refused, match="has no partition 3"):
                await producer.send(TOPIC, b"x", partition=3)
            port = broker.port
        nobody = Client(f"127.0.0.1:{port}", operation_timeout_s=0.2)
        with pytest.raises(NotSent, match=f"No broker answers .127.0.0.1:{port}: "):
            await nobody.producer().send(TOPIC, b"x")
        with pytest.raises(Unreachable, match="check that the addresses are right"):
            await nobody.admin.list_topics()
        await nobody.close()

    run(scenario())


@on_every_loop
def test_a_broker_that_knows_no_new_versions_is_asked_in_old_ones(run: Run) -> None:
    async def scenario() -> None:
        broker = ScriptedBroker({0: (3, 7), 1: (4, 11), 2: (1, 5), 3: (0, 8), 18: (0, 2), 22: (0, 1), 23: (2, 3)})
        async with running(broker) as client:
            assert (await client.producer().send(TOPIC, b"x")).offset == 0
            consumer = client.consumer(auto_offset_reset="earliest")
            consumer.assign([(TOPIC, 0)])
            assert (await anext(consumer)).value == b"x"

    run(scenario())
