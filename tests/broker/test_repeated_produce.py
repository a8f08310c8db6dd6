"""A connection that produces to a partition again and again: the same answers as for a request that is decoded."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from headrace.broker import loggers, request_log
from headrace.broker.repeated_produce import TARGETS_MAX, RepeatedProduce
from headrace.errors import Error
from headrace.net.peer import Peer
from headrace.protocol import messages as m
from headrace.protocol.batch_builder import build
from headrace.testing.disk import FaultyDisk
from tests.broker import transactional
from tests.broker.nodes import ask, connected, create, run, running
from tests.broker.takes import noted_takes

VERSIONS = range(3, 14)
LOG = "broker.request_log"


@pytest.fixture(autouse=True)
def _levels() -> Iterator[None]:
    yield
    loggers.set_levels({LOG: None})


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Of each Produce on a connection that has produced: whether it was taken for the same with other records."""
    return noted_takes(monkeypatch, RepeatedProduce)


def request(
    records: bytes | bytearray | None,
    *,
    acks: int = 1,
    topic: tuple[str, bytes] = ("t", bytes(16)),
    index: int = 0,
    transactional_id: str | None = None,
) -> m.ProduceRequest:
    kind = m.ProduceRequest
    data = kind.PartitionProduceData(index=index, records=None if records is None else memoryview(records))
    named = kind.TopicProduceData(name=topic[0], topic_id=topic[1], partition_data=[data])
    return kind(acks=acks, timeout_ms=1000, transactional_id=transactional_id, topic_data=[named])


async def produce(peer: Peer, records: bytes | bytearray | None, version: int = 9, **more: Any) -> Any:
    """The part of the reply for the one partition."""
    response = await ask(peer, request(records, **more), version)
    (topic,) = response.responses
    (answer,) = topic.partition_responses
    return answer


def batch(*values: bytes, **more: Any) -> bytearray:
    return build([(None, value, (), 1_700_000_000_000) for value in values], **more)


def told(answer: Any) -> tuple[int, int, int, int, str | None]:
    return (
        answer.error_code,
        answer.base_offset,
        answer.log_append_time_ms,
        answer.log_start_offset,
        answer.error_message,
    )


async def end_of(peer: Peer, topic: str, index: int = 0) -> int:
    """Where the partition ends, as a reader sees it."""
    kind = m.ListOffsetsRequest
    partition = kind.ListOffsetsPartition(partition_index=index, timestamp=-1)
    asked = kind(replica_id=-1, topics=[kind.ListOffsetsTopic(name=topic, partitions=[partition])])
    response = await ask(peer, asked, 7)
    return int(response.topics[0].partitions[0].offset)


@pytest.mark.parametrize("acks", [1, -1])
@pytest.mark.parametrize("version", VERSIONS)
def test_batches_that_come_again_are_appended_and_answered(version: int, acks: int, taken: list[bool]) -> None:
    async def check() -> None:
        disk = FaultyDisk()
        async with running(disk) as node, connected(node) as peer:
            topic = ("t", await create(peer, "t", 2))
            expected = [0, 0]
            for number, size in enumerate((1, 20, 1, 200, 17_000, 3)):
                index = number % 2
                answer = await produce(peer, batch(*[b"v"] * size), version, acks=acks, topic=topic, index=index)
                start = 0 if version >= 5 else -1
                assert told(answer) == (Error.NONE, expected[index], -1, start, None)
                assert answer.index == index
                expected[index] += size
            assert taken == [False, True, True, True, True]
            assert [await end_of(peer, "t", index) for index in range(2)] == expected
        async with running(disk.restart()) as node, connected(node) as peer:
            assert [await end_of(peer, "t", index) for index in range(2)] == expected

    run(check())


def test_topics_of_any_name_take_turns_on_a_connection(taken: list[bool]) -> None:
    async def check() -> None:
        async with running() as node, connected(node) as peer:
            names = ["a", "bb", "long" * 50, "cc", "dddd", "too-many-lengths"]
            topics = {name: await create(peer, name) for name in names}
            for version in (9, 13):
                async with connected(node) as other:
                    taken.clear()
                    for round_ in range(3):
                        for topic in topics.items():
                            answer = await produce(other, batch(b"v"), version, topic=topic)
                            assert (answer.error_code, answer.base_offset) == (0, round_ + (3 if version == 13 else 0))
                    assert taken == [False] * 5 + ([True] * 5 + [version == 13]) * 2

    run(check())


def test_what_a_log_refuses_is_refused_with_the_same_words(taken: list[bool]) -> None:
    async def check() -> None:
        async with running() as node, connected(node) as used, connected(node) as fresh:
            topic = ("t", await create(fresh, "t", 1, max_message_bytes="1000"))
            await produce(used, batch(b"v"), topic=topic)
            damaged = batch(b"value")
            damaged[-1] ^= 1
            counted = batch(b"a", b"b")
            counted[57:61] = (1).to_bytes(4)
            for wrong in (damaged, batch(b"x" * 2000), counted, b"r" * 10, b"r" * 80, b"", None):
                for acks in (1, -1):
                    expected = told(await produce(fresh, wrong, acks=acks, topic=topic))
                    assert told(await produce(used, wrong, acks=acks, topic=topic)) == expected
                    assert expected[0] != Error.NONE
            assert any(taken)
            answer = await produce(used, batch(b"v"), topic=topic)
            assert (answer.error_code, answer.base_offset) == (0, 1)

    run(check())


def test_an_idempotent_producer_is_answered_once_more_what_it_was(taken: list[bool]) -> None:
    async def check() -> None:
        async with running() as node, connected(node) as peer:
            topic = ("t", await create(peer, "t"))
            made = await ask(peer, m.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000), 4)

            def numbered(sequence: int) -> bytearray:
                return batch(
                    b"v",
                    producer_id=made.producer_id,
                    producer_epoch=made.producer_epoch,
                    base_sequence=sequence,
                )

            for sequence in range(4):
                assert (await produce(peer, numbered(sequence), acks=-1, topic=topic)).base_offset == sequence
            answer = await produce(peer, numbered(2), acks=-1, topic=topic)
            assert (answer.error_code, answer.base_offset) == (0, 2)
            answer = await produce(peer, numbered(9), acks=-1, topic=topic)
            assert answer.error_code == Error.OUT_OF_ORDER_SEQUENCE_NUMBER
            assert taken == [True] * 5
            assert await end_of(peer, "t") == 4

    run(check())


@pytest.mark.parametrize("version", [9, 13])
def test_hazard_9_the_next_topic_of_the_name_is_another_one(version: int, taken: list[bool]) -> None:
    async def check() -> None:
        async with running() as node, connected(node) as peer:
            topic = ("t", await create(peer, "t", 2))
            for _ in range(2):
                assert not (await produce(peer, batch(b"v"), version, topic=topic, index=1)).error_code
            deletion = m.DeleteTopicsRequest(topics=[m.DeleteTopicsRequest.DeleteTopicState(name="t")], timeout_ms=5000)
            assert not (await ask(peer, deletion, 6)).responses[0].error_code
            gone = Error.UNKNOWN_TOPIC_ID if version == 13 else Error.UNKNOWN_TOPIC_OR_PARTITION
            assert (await produce(peer, batch(b"v"), version, topic=topic, index=1)).error_code == gone
            again = ("t", await create(peer, "t", 1))
            answer = await produce(peer, batch(b"v"), version, topic=topic, index=1)
            assert answer.error_code == gone, "it has one partition now"
            answer = await produce(peer, batch(b"v"), version, topic=again)
            assert (answer.error_code, answer.base_offset) == (0, 0)
            assert taken == [True, False, False, False]

    run(check())


def test_topics_whose_batches_are_looked_into_are_so_each_time(taken: list[bool]) -> None:
    async def check() -> None:
        async with running() as node, connected(node) as peer:
            topic = ("t", await create(peer, "t", cleanup_policy="compact"))
            for _ in range(2):
                answer = await produce(peer, batch(b"v"), topic=topic)
                assert answer.error_code == Error.INVALID_RECORD, "it has no key"
            keyed = build([(b"k", b"v", (), 1_700_000_000_000)])
            for offset in range(3):
                assert (await produce(peer, bytearray(keyed), topic=topic)).base_offset == offset
            assert (await produce(peer, batch(b"v"), topic=topic)).error_code == Error.INVALID_RECORD
            assert not any(taken)

    run(check())


def test_where_appends_wait_for_their_turn_it_waits_behind_them(taken: list[bool]) -> None:
    async def check() -> None:
        async with running() as node, connected(node) as peer:
            topic = ("t", await create(peer, "t"))
            for _ in range(2):
                assert not (await produce(peer, batch(b"v"), topic=topic)).error_code
            (partition,) = [found for found in node._replicas.hosted() if found.topic == "t"]  # type: ignore[union-attr]
            turn = partition.hold(lambda: None)
            asked = asyncio.ensure_future(produce(peer, batch(b"v"), topic=topic))
            await asyncio.sleep(0.05)
            assert (partition.log_end_offset, asked.done()) == (2, False)
            turn.release()
            assert (await asked).base_offset == 2
            assert taken == [True, False]
            assert (await produce(peer, batch(b"v"), topic=topic)).base_offset == 3
            assert taken == [True, False, True]

    run(check())


def test_append_time_is_told_where_the_topic_has_it(taken: list[bool]) -> None:
    async def check() -> None:
        async with running() as node, connected(node) as peer:
            topic = ("t", await create(peer, "t", message_timestamp_type="LogAppendTime"))
            times = [(await produce(peer, batch(b"v"), topic=topic)).log_append_time_ms for _ in range(3)]
            assert all(time > 0 for time in times)
            assert times == sorted(times)
            assert taken == [True, True]

    run(check())


def test_no_more_is_kept_of_a_connection_than_some_partitions(taken: list[bool]) -> None:
    async def check() -> None:
        async with running() as node, connected(node) as peer:
            topic = ("t", await create(peer, "t", TARGETS_MAX + 2))
            for _ in range(2):
                for index in range(TARGETS_MAX + 2):
                    assert not (await produce(peer, batch(b"v"), topic=topic, index=index)).error_code
            assert taken == [False] * (TARGETS_MAX + 1) + [True] * TARGETS_MAX + [False] * 2

    run(check())


def test_acks_0_and_what_is_in_no_transaction_go_the_long_way(taken: list[bool]) -> None:
    async def check() -> None:
        async with running() as node, connected(node) as peer:
            topic = ("t", await create(peer, "t"))
            assert not (await produce(peer, batch(b"v"), topic=topic)).error_code
            stray = batch(b"v", producer_id=5, producer_epoch=0, base_sequence=0, transactional=True)
            for _ in range(2):
                answer = await produce(peer, stray, topic=topic, acks=1)
                assert answer.error_code == Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
            assert taken == [False, False]

    run(check())


@pytest.mark.parametrize("version", [9, 12])
def test_hazard_5_of_a_transaction_only_what_follows_its_first_batch_goes_the_short_way(
    version: int, taken: list[bool]
) -> None:
    async def check() -> None:
        async with running() as node, connected(node) as peer:
            await create(peer, "t")
            who = await transactional.identity(peer)
            for round_ in range(3):
                if version < 12:
                    await transactional.add(peer, who, ("t", 0))
                taken.clear()
                for sequence in range(4):
                    first = 0 if version == 12 else round_ * 4
                    error = await transactional.produce(peer, who, b"v", first + sequence, version=version)
                    assert error == Error.NONE
                assert taken == ([True, True] if not round_ else [False, True, True, True])
                ended = await transactional.end(peer, who, commits=round_ != 1, version=5 if version == 12 else 4)
                assert ended.error_code == Error.NONE
                await transactional.settled(peer)
                if version == 12:
                    who = (ended.producer_id, ended.producer_epoch)
            assert len(await transactional.read(peer)) == 8
            if version < 12:
                taken.clear()
                late = await transactional.produce(peer, who, b"late", 12, version=version)
                assert late == Error.INVALID_TXN_STATE, "nobody would end it"
                assert taken == [False]

    run(check())


def test_they_are_counted_and_told_in_the_log_of_requests(taken: list[bool], caplog: pytest.LogCaptureFixture) -> None:
    async def check() -> None:
        async with running() as node, connected(node) as peer:
            topic = ("t", await create(peer, "t"))
            for acks in (1, -1):
                for _ in range(3):
                    await produce(peer, batch(b"v"), topic=topic, acks=acks)
            assert taken == [True, True, False, True, True]
            loggers.set_levels({LOG: "DEBUG"})
            caplog.clear()
            for acks in (1, -1):
                await produce(peer, batch(b"v"), topic=topic, acks=acks)
            found = [record.getMessage() for record in caplog.records if record.name == request_log.__name__]
            assert len(found) == 2
            assert all(line.startswith("Produce v9 of client 'a-test'") for line in found)
            assert all(line.endswith(", no error") for line in found)
            assert taken[5:] == [True, True]

    run(check())


def test_what_can_not_reach_the_disk_is_told_so(taken: list[bool]) -> None:
    async def check() -> None:
        disk = FaultyDisk()
        async with running(disk) as node, connected(node) as peer:
            topic = ("t", await create(peer, "t"))
            for _ in range(2):
                assert not (await produce(peer, batch(b"v"), topic=topic, acks=-1)).error_code
            (partition,) = [found for found in node._replicas.hosted() if found.topic == "t"]  # type: ignore[union-attr]
            partition._host = _Deaf()  # no flush comes to its end
            asked = asyncio.ensure_future(produce(peer, batch(b"v"), topic=topic, acks=-1))
            assert (await asked).error_code == Error.REQUEST_TIMED_OUT
            asked = asyncio.ensure_future(produce(peer, batch(b"v"), topic=topic, acks=-1))
            await asyncio.sleep(0.05)
            partition._fail(Error.KAFKA_STORAGE_ERROR)
            answer = await asked
            assert (answer.error_code, answer.base_offset) == (Error.KAFKA_STORAGE_ERROR, 3)
            assert answer.error_message == Error.KAFKA_STORAGE_ERROR.text
            assert taken == [True, True, True]

    run(check())


class _Deaf:
    def flush_soon(self, partition: object) -> None:
        pass

    def flush_now(self) -> None:
        pass

    def flush_again(self, partition: object) -> None:
        pass
