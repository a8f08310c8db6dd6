"""What nobody thought of: a defect inside, a callback that raises, who gives up waiting. Nobody waits for ever."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from headrace.client import Client, Closed, NotSent, OffsetToCommit, Produced, Uncertain, WrongArgument
from headrace.client.cluster import Cluster
from headrace.client.group_offsets import GroupOffsets
from headrace.client.sender import Sender
from headrace.errors import HeadraceError
from tests.broker.nodes import run as run_node
from tests.client.beside_node import client_of, coordinating
from tests.client.scripted import TOPIC, ScriptedBroker, running
from tests.client.test_groups import PROTOCOLS, RECORDS, filled, member, read
from tests.net.loops import Run, on_every_loop


def broken(*_: object, **__: object) -> Any:
    raise ZeroDivisionError("a defect")


async def broken_soon(*_: object, **__: object) -> Any:
    await asyncio.sleep(0)
    raise ZeroDivisionError("a defect")


@on_every_loop
@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("_look_at", NotSent),
        ("_sendable", NotSent),
        ("_leader", NotSent),
        ("_send_to", NotSent),
        ("_send_request", NotSent),
        ("_put_on_wire", Uncertain),
        ("_take_answers", Uncertain),
        ("_settle", Uncertain),
    ],
)
def test_a_defect_of_the_sender_fails_what_it_has_in_hand_and_no_more(
    run: Run, monkeypatch: pytest.MonkeyPatch, where: str, expected: type[HeadraceError]
) -> None:
    async def scenario() -> None:
        broker = ScriptedBroker()
        async with running(broker) as client:
            producer = client.producer()
            await producer.send(TOPIC, b"before")
            with monkeypatch.context() as patch:
                patch.setattr(Sender, where, broken)
                futures = [producer.send_soon(TOPIC, b"%d" % number) for number in range(3)]
                await producer.flush()
                for future in futures:
                    with pytest.raises(expected, match="a defect"):
                        future.result()
            await producer.send(TOPIC, b"after")
            assert broker.values[0] == b"before"
            assert broker.values[-1] == b"after"
            assert not producer._buffered_bytes

    run(scenario())


@on_every_loop
@pytest.mark.parametrize("where", ["topic", "call_any"])
def test_a_defect_on_the_way_to_a_first_send_fails_it(run: Run, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    async def scenario() -> None:
        broker = ScriptedBroker()
        async with running(broker) as client:
            producer = client.producer()
            if where == "call_any":  # for a producer id
                await client._cluster.topic(TOPIC)
            with monkeypatch.context() as patch:
                patch.setattr(Cluster, where, broken_soon)
                with pytest.raises(NotSent, match="a defect"):
                    await producer.send(TOPIC, b"x")
            await producer.send(TOPIC, b"y")
            assert broker.values == [b"y"]
            assert not producer._buffered_bytes

    run(scenario())


@on_every_loop
def test_a_partitioner_that_fails_fails_its_record_alone(run: Run) -> None:
    choices: dict[bytes | None, Any] = {b"none": None, b"text": "0", b"list": [0], b"float": 0.0, b"good": 0}

    def choose(_: object, key: Any, __: int) -> Any:
        return broken() if key == b"raise" else choices[key]

    async def scenario() -> None:
        broker = ScriptedBroker()
        async with running(broker) as client:
            producer = client.producer(partitioner=choose)
            for _ in range(2):  # at first the topic is not known yet
                futures = {key: producer.send_soon(TOPIC, key, key) for key in (*choices, b"raise") if key}
                await producer.flush()
                for key, future in futures.items():
                    if key == b"good":
                        assert future.result().partition == 0
                    else:
                        with pytest.raises(NotSent, match="partitioner failed"):
                            future.result()
            assert broker.values == [b"good", b"good"]
            assert not producer._buffered_bytes

    run(scenario())


@on_every_loop
def test_a_record_whose_topic_nobody_tells_of_is_given_up_at_its_delivery_time_out(run: Run) -> None:
    async def scenario() -> None:
        broker = ScriptedBroker()
        broker.mute = {3: 1000}
        async with running(broker, request_timeout_s=3600, operation_timeout_s=3600) as client:
            with pytest.raises(NotSent, match="nobody said in time"):
                await client.producer(delivery_timeout_s=0.2).send(TOPIC, b"x")

    run(scenario())


@on_every_loop
def test_who_gives_up_waiting_takes_nothing_back_and_holds_up_nobody(run: Run) -> None:
    async def scenario() -> None:
        broker = ScriptedBroker()
        async with running(broker) as client:
            producer = client.producer(linger_ms=50)
            sends = [asyncio.ensure_future(producer.send(TOPIC, b"%d" % number)) for number in range(3)]
            flush = asyncio.ensure_future(producer.flush())
            await asyncio.sleep(0)
            sends[1].cancel()
            flush.cancel()
            ends = await asyncio.gather(*sends, flush, return_exceptions=True)
            assert [type(end) for end in ends] == [
                Produced,
                asyncio.CancelledError,
                Produced,
                asyncio.CancelledError,
            ]
            assert not producer._sender.hurried
            assert broker.values == [b"0", b"1", b"2"]
            assert not producer._buffered_bytes

    run(scenario())


@on_every_loop
def test_what_is_closed_says_so_and_can_be_closed_again(run: Run) -> None:
    async def scenario() -> None:
        broker = ScriptedBroker()
        async with running(broker) as client:
            producer, transactional = client.producer(), client.transactional_producer("t")
            consumer, of_group = client.consumer(auto_offset_reset="earliest"), client.group_consumer("g")
            await producer.send(TOPIC, b"x")
            consumer.assign([(TOPIC, 0)])
            await consumer.poll()
            for one in (producer, transactional, consumer, of_group, client):
                await asyncio.gather(one.close(), one.close())
                await one.close()
            with pytest.raises(NotSent, match="closed"):
                await producer.send(TOPIC, b"x")
            await producer.flush()
            await producer.room()
            partition = (TOPIC, 0)
            calls: list[Any] = [
                *(
                    lambda call=call: call()
                    for call in (transactional.begin, transactional.commit, transactional.abort)
                ),
                *(lambda call=call: call() for call in (transactional.prepare, transactional.recover)),
                *(lambda one=one: one.poll() for one in (consumer, of_group)),
                lambda: consumer.position(*partition),
                lambda: consumer.end_offsets([partition]),
                of_group.commit,
                lambda: of_group.commit({partition: 1}),
                lambda: of_group.committed([partition]),
                client.admin.list_topics,
                lambda: client.admin.describe_topics([TOPIC]),
                lambda: client.admin.create_topics(["new"]),
                lambda: client.admin.list_offsets({partition: "latest"}),
                client.connect,
            ]
            for call in calls:
                with pytest.raises(Closed, match="closed: make another"):
                    await call()
            now: list[Any] = [
                lambda: consumer.assign([partition]),
                lambda: consumer.seek(TOPIC, 0, 0),
                lambda: consumer.pause(partition),
                lambda: of_group.subscribe([TOPIC]),
                client.producer,
                lambda: client.transactional_producer("t"),
                client.consumer,
                lambda: client.group_consumer("g"),
            ]
            for call in now:
                with pytest.raises(Closed, match="closed: make another"):
                    call()
            assert [record async for record in consumer] == []

    run(scenario())


def test_a_client_is_of_no_use_in_another_loop() -> None:
    async def make() -> Client:
        return Client("127.0.0.1:9")

    async def use(client: Client) -> None:
        for call in (client.connect, client.admin.list_topics):
            with pytest.raises(WrongArgument, match="another event loop"):
                await call()
        with pytest.raises(WrongArgument, match="another event loop"):
            client.producer()

    client = asyncio.run(make())
    asyncio.run(use(client))


@on_every_loop
def test_a_client_that_could_not_close_all_has_closed_the_rest(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        async with running(ScriptedBroker()) as client:
            client.producer()
            consumer = client.group_consumer("g")
            monkeypatch.setattr(consumer._membership.__class__, "leave", broken_soon)
            with pytest.raises(ZeroDivisionError):
                await client.close()
            assert client._cluster.is_closed
            assert consumer._is_closed

    run(scenario())


@PROTOCOLS
@pytest.mark.parametrize("callback", ["assigned", "revoked"])
def test_a_callback_that_fails_is_told_to_who_polls(protocol: str, callback: str) -> None:
    async def scenario() -> None:
        async with coordinating() as node, client_of(node) as client:
            await filled(client)
            settings: dict[str, Any] = {callback: broken_soon}
            consumer = member(client, protocol, **settings)
            consumer.subscribe(["in"])
            if callback == "revoked":
                await read(consumer, [], RECORDS)
                consumer.subscribe(["another"])
            with pytest.raises(HeadraceError, match=f"callback `{callback}` failed") as failure:
                await consumer.poll()
            assert isinstance(failure.value.__cause__, ZeroDivisionError)
            await consumer.close()

    run_node(scenario())


def test_a_commit_that_was_not_made_is_made_by_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether it failed, or who asked for it was cancelled."""
    real = GroupOffsets.commit

    async def refused(*_: object) -> None:
        raise HeadraceError("not now")

    async def silent(*_: object) -> None:
        await asyncio.Event().wait()

    async def scenario() -> None:
        async with coordinating() as node, client_of(node) as client:
            await filled(client, partitions=1)
            consumer = member(client, "consumer", auto_commit_s=None)
            consumer.subscribe(["in"])
            await read(consumer, [], RECORDS)
            monkeypatch.setattr(GroupOffsets, "commit", refused)
            with pytest.raises(HeadraceError, match="not now"):
                await consumer.commit()
            monkeypatch.setattr(GroupOffsets, "commit", silent)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(consumer.commit(), 0.01)
            monkeypatch.setattr(GroupOffsets, "commit", real)
            await consumer.commit()
            assert (await consumer.committed([("in", 0)]))["in", 0].offset == RECORDS

    run_node(scenario())


def test_a_commit_that_fails_after_its_partition_is_lost_is_not_made_later(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = asyncio.Event()

    async def slow(*_: object) -> None:
        await answer.wait()
        raise HeadraceError("too late")

    async def scenario() -> None:
        async with coordinating() as node, client_of(node) as client:
            consumer = client.group_consumer("g", auto_commit_s=None)
            consumer._done = {("in", 0): OffsetToCommit(5), ("in", 1): OffsetToCommit(6)}
            monkeypatch.setattr(GroupOffsets, "commit", slow)
            commit = asyncio.ensure_future(consumer.commit())
            await asyncio.sleep(0)
            consumer.lose([("in", 0)])
            answer.set()
            with pytest.raises(HeadraceError, match="too late"):
                await commit
            assert consumer._done == {("in", 1): OffsetToCommit(6)}

    run_node(scenario())


@on_every_loop
def test_who_gives_up_waiting_for_a_close_has_closed_all_the_same(run: Run) -> None:
    async def scenario() -> None:
        broker = ScriptedBroker()
        async with running(broker, request_timeout_s=3600) as client:
            producer = client.producer()
            await producer.send(TOPIC, b"x")
            broker.mute = {0: 1}
            maybe = producer.send_soon(TOPIC, b"y")
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(client.close(), 0.1)
            with pytest.raises(Uncertain, match="closed"):
                await maybe
            assert client._cluster.is_closed
            assert producer._sender.is_closed

    run(scenario())
