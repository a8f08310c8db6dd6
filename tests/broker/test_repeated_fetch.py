"""A connection that fetches again and again: the same answers as a fetch that is decoded from the start."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from headrace.broker.repeated_fetch import MISSES_MAX, RepeatedFetch
from headrace.errors import Error
from headrace.net.peer import Peer
from headrace.protocol import messages as m
from headrace.protocol.batch import scan
from headrace.protocol.batch_builder import build
from tests.broker.nodes import ask, connected, create, run, running
from tests.broker.takes import noted_takes

VERSIONS = range(4, 19)


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Of each fetch on a connection that has fetched: whether it was taken for the same."""
    return noted_takes(monkeypatch, RepeatedFetch)


async def produce(peer: Peer, count: int, partition: int = 0) -> None:
    for number in range(count):
        data = m.ProduceRequest.PartitionProduceData(index=partition, records=build([(None, b"%d" % number, (), 1)]))
        named = m.ProduceRequest.TopicProduceData(name="t", partition_data=[data])
        reply = await ask(peer, m.ProduceRequest(acks=1, timeout_ms=10_000, topic_data=[named]), 9)
        assert not reply.responses[0].partition_responses[0].error_code


def request(topic_id: bytes, offsets: dict[int, int], **fields: Any) -> m.FetchRequest:
    kind = m.FetchRequest
    parts = [
        kind.FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=1 << 20)
        for index, offset in offsets.items()
    ]
    topics = [kind.FetchTopic(topic="t", topic_id=topic_id, partitions=parts)] if parts else []
    body = kind(max_wait_ms=0, min_bytes=1, max_bytes=1 << 20, topics=topics)
    for name, value in fields.items():
        setattr(body, name, value)
    return body


def found_in(reply: m.FetchResponse) -> dict[int, list[int]]:
    """Which offsets came, by partition."""
    assert not reply.error_code
    found = {}
    for topic in reply.responses:
        for part in topic.partitions:
            assert not part.error_code
            found[part.partition_index] = [batch.base_offset for batch in scan(part.records or b"")]
    return found


@pytest.mark.parametrize("version", VERSIONS)
def test_each_fetch_gets_what_is_at_its_own_offsets(version: int, taken: list[bool]) -> None:
    async def check() -> None:
        async with running() as node, connected(node) as peer:
            topic_id = await create(peer, "t", 2)
            await produce(peer, 5, 0)
            await produce(peer, 3, 1)
            for first, second in ((0, 0), (3, 1), (5, 2), (1, 3)):
                reply = await ask(peer, request(topic_id, {0: first, 1: second}), version)
                assert found_in(reply) == {0: list(range(first, 5)), 1: list(range(second, 3))}
            assert taken == [True, True, True]

    run(check())


@pytest.mark.parametrize("version", [7, 12, 17])
def test_a_session_counts_each_of_them(version: int, taken: list[bool]) -> None:
    async def check() -> None:
        async with running() as node, connected(node) as peer:
            topic_id = await create(peer, "t", 2)
            await produce(peer, 5)
            reply = await ask(peer, request(topic_id, {0: 0, 1: 0}, session_epoch=0), version)
            session_id = reply.session_id
            assert session_id
            for epoch in range(1, 5):
                reply = await ask(
                    peer, request(topic_id, {0: epoch}, session_id=session_id, session_epoch=epoch), version
                )
                assert found_in(reply) == {0: list(range(epoch, 5))}
            # Its epoch was that of the one before.
            reply = await ask(peer, request(topic_id, {0: 0}, session_id=session_id, session_epoch=4), version)
            assert reply.error_code == Error.INVALID_FETCH_SESSION_EPOCH
            reply = await ask(peer, request(topic_id, {0: 2}, session_id=session_id, session_epoch=5), version)
            assert found_in(reply) == {0: [2, 3, 4]}
            assert taken == [True] * 5

    run(check())


def test_one_that_waits_is_not_changed_by_the_next(taken: list[bool]) -> None:
    async def check() -> None:
        async with running() as node, connected(node) as peer, connected(node) as other:
            topic_id = await create(peer, "t", 1)
            await produce(other, 3)
            assert found_in(await ask(peer, request(topic_id, {0: 0}, max_wait_ms=20_000), 12)) == {0: [0, 1, 2]}
            waiting = asyncio.ensure_future(ask(peer, request(topic_id, {0: 3}, max_wait_ms=20_000), 12))
            behind = asyncio.ensure_future(ask(peer, request(topic_id, {0: 1}, max_wait_ms=20_000), 12))
            while len(taken) < 2:
                await asyncio.sleep(0.001)
            await produce(other, 1)
            assert found_in(await waiting) == {0: [3]}
            assert found_in(await behind)[0][:2] == [1, 2]
            assert taken == [True, True]

    run(check())


def test_errors_are_told_and_counted(taken: list[bool]) -> None:
    async def check() -> None:
        async with running() as node, connected(node) as peer:
            topic_id = await create(peer, "t", 1)
            await produce(peer, 1)
            for _ in range(3):
                reply = await ask(peer, request(topic_id, {0: 100}), 12)
                assert reply.responses[0].partitions[0].error_code == Error.OFFSET_OUT_OF_RANGE
            assert found_in(await ask(peer, request(topic_id, {0: 0}), 12)) == {0: [0]}
            await ask(peer, m.DeleteTopicsRequest(topic_names=["t"], timeout_ms=5_000), 5)
            reply = await ask(peer, request(topic_id, {0: 0}), 12)
            assert reply.responses[0].partitions[0].error_code == Error.UNKNOWN_TOPIC_OR_PARTITION
            assert taken == [True] * 4

    run(check())


def test_another_request_is_learnt_when_the_known_one_is_not_sent_any_more(taken: list[bool]) -> None:
    async def check() -> None:
        async with running() as node, connected(node) as peer:
            topic_id = await create(peer, "t", 2)
            await produce(peer, 2, 1)
            await ask(peer, request(topic_id, {0: 0}), 12)
            for _ in range(MISSES_MAX + 1):
                assert found_in(await ask(peer, request(topic_id, {1: 1}), 12)) == {1: [1]}
            assert not any(taken)
            taken.clear()
            for _ in range(3):
                assert found_in(await ask(peer, request(topic_id, {1: 1}), 12)) == {1: [1]}
            assert taken == [True] * 3

    run(check())


def test_what_is_said_once_is_not_kept(taken: list[bool]) -> None:
    """A full fetch that opens a session, and one that forgets partitions."""

    async def check() -> None:
        async with running() as node, connected(node) as peer:
            topic_id = await create(peer, "t", 1)
            reply = await ask(peer, request(topic_id, {0: 0}, session_epoch=0), 12)
            forgotten = [m.FetchRequest.ForgottenTopic(topic="t", partitions=[0])]
            await ask(
                peer,
                request(topic_id, {}, session_id=reply.session_id, session_epoch=1, forgotten_topics_data=forgotten),
                12,
            )
            assert found_in(await ask(peer, request(topic_id, {0: 0}), 12)) == {0: []}
            assert not taken, "nothing was known by then"

    run(check())
