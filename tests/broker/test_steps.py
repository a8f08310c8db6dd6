"""Requests about very many things: whoever asks meanwhile is served in between, and the answers are whole."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from headrace.broker import partitions, topic_metadata
from headrace.broker.steps import THINGS_A_STEP
from headrace.errors import Error
from headrace.protocol import messages as m
from headrace.replica.manager import Replicas
from tests.broker.nodes import ask, connected, create, run, running

COUNT = 6 * THINGS_A_STEP
LAST = COUNT - 1


def list_offsets() -> tuple[m.ListOffsetsRequest, int]:
    kind = m.ListOffsetsRequest
    asked = [kind.ListOffsetsPartition(partition_index=index, timestamp=-1) for index in range(COUNT)]
    return kind(replica_id=-1, topics=[kind.ListOffsetsTopic(name="t", partitions=asked)]), 7


def ends_of_epochs() -> tuple[m.OffsetForLeaderEpochRequest, int]:
    kind = m.OffsetForLeaderEpochRequest
    asked = [kind.OffsetForLeaderPartition(partition=index, leader_epoch=0) for index in range(COUNT)]
    return kind(replica_id=-1, topics=[kind.OffsetForLeaderTopic(topic="t", partitions=asked)]), 4


def producers() -> tuple[m.DescribeProducersRequest, int]:
    kind = m.DescribeProducersRequest
    return kind(topics=[kind.TopicRequest(name="t", partition_indexes=list(range(COUNT)))]), 0


def metadata() -> tuple[m.MetadataRequest, int]:
    kind = m.MetadataRequest
    names = ["t", *(f"none-{number}" for number in range(1, COUNT))]
    return kind(topics=[kind.MetadataRequestTopic(name=name) for name in names], allow_auto_topic_creation=False), 12


def topic_partitions() -> tuple[m.DescribeTopicPartitionsRequest, int]:
    kind = m.DescribeTopicPartitionsRequest
    names = [f"t{number or ''}" for number in range(COUNT)]
    return kind(topics=[kind.TopicRequest(name=name) for name in names], response_partition_limit=2000), 0


def delete_records() -> tuple[m.DeleteRecordsRequest, int]:
    kind = m.DeleteRecordsRequest
    asked = [kind.DeleteRecordsPartition(partition_index=index, offset=0) for index in range(COUNT)]
    return kind(topics=[kind.DeleteRecordsTopic(name="t", partitions=asked)], timeout_ms=10_000), 2


def delete_records_of_many_topics() -> tuple[m.DeleteRecordsRequest, int]:
    kind = m.DeleteRecordsRequest
    names = ["t", *(f"none-{number}" for number in range(1, COUNT))]
    asked = [kind.DeleteRecordsPartition(partition_index=0, offset=0)]
    return kind(topics=[kind.DeleteRecordsTopic(name=name, partitions=asked) for name in names], timeout_ms=10_000), 2


def codes(answers: Sequence[Any]) -> list[int]:
    return [answer.error_code for answer in answers]


UNKNOWN = Error.UNKNOWN_TOPIC_OR_PARTITION
EACH = [0] + [UNKNOWN] * LAST

CASES: list[tuple[Callable[[], tuple[Any, int]], Callable[[Any], object], object]] = [
    (list_offsets, lambda reply: codes(reply.topics[0].partitions), EACH),
    (list_offsets, lambda reply: reply.topics[0].partitions[LAST].partition_index, LAST),
    (ends_of_epochs, lambda reply: codes(reply.topics[0].partitions), EACH),
    (producers, lambda reply: codes(reply.topics[0].partitions), EACH),
    (metadata, lambda reply: codes(reply.topics), EACH),
    (topic_partitions, lambda reply: codes(reply.topics), EACH),
    (delete_records, lambda reply: sorted(codes(reply.topics[0].partitions)), EACH),
    (delete_records_of_many_topics, lambda reply: [topic.partitions[0].error_code for topic in reply.topics], EACH),
]


@pytest.mark.parametrize(("asked", "told", "expected"), CASES)
def test_others_are_served_in_between(
    asked: Callable[[], tuple[Any, int]],
    told: Callable[[Any], object],
    expected: object,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked: Counter[int] = Counter()
    """How many things were looked at, by the round of the loop."""
    now = [0]

    def noting(function: Callable[..., Any]) -> Callable[..., Any]:
        def noted(*arguments: Any) -> Any:
            looked[now[0]] += 1
            return function(*arguments)

        return noted

    async def count_rounds() -> None:
        while True:
            now[0] += 1
            await asyncio.sleep(0)

    async def check() -> None:
        async with running() as node, connected(node) as peer:
            await create(peer, "t")
            monkeypatch.setattr(Replicas, "find", noting(Replicas.find))
            for module in (topic_metadata, partitions):
                monkeypatch.setattr(module, "name_error", noting(topic_metadata.name_error))
            request, version = asked()
            rounds = asyncio.create_task(count_rounds())
            assert told(await ask(peer, request, version)) == expected
            rounds.cancel()
        assert sum(looked.values()) >= LAST
        assert max(looked.values()) <= 2 * THINGS_A_STEP, "some are looked at twice"

    run(check())
