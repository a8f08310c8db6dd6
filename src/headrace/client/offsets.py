"""Lookups at the leaders of partitions: offsets by time, and where a leader epoch ends."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any, Final, NamedTuple

from headrace.client.cluster import Cluster
from headrace.client.errors import Unreachable
from headrace.errors import Error, HeadraceError, Refused
from headrace.net.peer import Disconnected
from headrace.protocol.messages import (
    ListOffsetsRequest,
    ListOffsetsResponse,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)

__all__ = [
    "EARLIEST",
    "LATEST",
    "MAX_TIMESTAMP",
    "TIME_MIN",
    "EpochEnd",
    "OffsetAt",
    "epoch_end",
    "learn_topics",
    "list_offsets",
    "list_offsets_once",
    "may_pass",
]

LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
TIME_MIN: Final = -6  # the least of the times by which Kafka means something special
TopicPartition = tuple[str, int]


class OffsetAt(NamedTuple):
    """What ListOffsets found; -1 as the offset when there is no such record."""

    offset: int
    timestamp_ms: int
    leader_epoch: int


class EpochEnd(NamedTuple):
    leader_epoch: int
    end_offset: int


async def list_offsets(
    cluster: Cluster, times_ms: Mapping[TopicPartition, int], isolation_level: int = 0
) -> dict[TopicPartition, OffsetAt]:
    """The first offset at or after a time in each partition; EARLIEST, LATEST and MAX_TIMESTAMP are times too."""
    found: dict[TopicPartition, OffsetAt] = {}
    backoff = cluster.backoff()
    deadline = asyncio.get_running_loop().time() + cluster.settings.operation_timeout_s
    while True:
        missing = {key: time_ms for key, time_ms in times_ms.items() if key not in found}
        found_now, failures = await list_offsets_once(cluster, missing, isolation_level)
        found |= found_now
        if not failures:
            return {key: found[key] for key in times_ms}
        for error in failures.values():
            if not may_pass(error):
                raise error
        cluster.refresh_soon()
        await cluster.wait_to_retry(backoff, deadline, next(iter(failures.values())))


def may_pass(error: HeadraceError) -> bool:
    """Whether the same may work later."""
    return error.error.retriable if isinstance(error, Refused) else isinstance(error, Disconnected | Unreachable)


async def list_offsets_once(
    cluster: Cluster, times_ms: Mapping[TopicPartition, int], isolation_level: int
) -> tuple[dict[TopicPartition, OffsetAt], dict[TopicPartition, HeadraceError]]:
    """One round over the leaders, all at once: what was found, and what went wrong with the rest."""
    await learn_topics(cluster, {topic for topic, _ in times_ms})
    found: dict[TopicPartition, OffsetAt] = {}
    failures: dict[TopicPartition, HeadraceError] = {}
    by_leader: dict[int, dict[str, list[int]]] = {}
    for topic, index in times_ms:
        partition = cluster.metadata.leader(topic, index)
        if partition is None:
            failures[topic, index] = cluster.why_no_leader(topic, index)
        else:
            by_leader.setdefault(partition.leader_id, {}).setdefault(topic, []).append(index)
    asked = (
        _ask_leader(cluster, leader_id, topics, times_ms, isolation_level, found, failures)
        for leader_id, topics in by_leader.items()
    )
    await asyncio.gather(*asked)
    return found, failures


async def learn_topics(cluster: Cluster, topics: Iterable[str]) -> None:
    unknown = [topic for topic in sorted(topics) if cluster.metadata.topics.get(topic) is None]
    for topic in unknown:
        cluster.want(topic)
    if unknown:
        with suppress(HeadraceError):  # what is not known afterwards is a failure of its own
            await cluster.refresh()


async def _ask_leader(
    cluster: Cluster,
    leader_id: int,
    topics: Mapping[str, list[int]],
    times_ms: Mapping[TopicPartition, int],
    isolation_level: int,
    found: dict[TopicPartition, OffsetAt],
    failures: dict[TopicPartition, HeadraceError],
) -> None:
    request = ListOffsetsRequest(
        replica_id=-1,
        isolation_level=isolation_level,
        topics=[_topic(cluster, topic, indexes, times_ms) for topic, indexes in topics.items()],
        timeout_ms=int(cluster.settings.request_timeout_s * 1000),
    )
    link = cluster.link(leader_id)
    try:
        if link is None:
            raise Unreachable(f"Broker {leader_id} is gone.")
        response: ListOffsetsResponse = await link.call(request)
    except HeadraceError as error:
        failures |= {(topic, index): error for topic, indexes in topics.items() for index in indexes}
        return
    for answered in response.topics:
        for part in answered.partitions:
            key, code = (answered.name, part.partition_index), Error.of(part.error_code)
            if code is Error.NONE:
                found[key] = OffsetAt(part.offset, part.timestamp, part.leader_epoch)
            else:
                text = f"No offset of {key[0]}-{key[1]} was found ({code.name}): {code.text}"
                failures[key] = Refused(code, text)
    for key in ((topic, index) for topic, indexes in topics.items() for index in indexes):
        if key not in found and key not in failures:
            failures[key] = Unreachable(f"Broker {leader_id} was asked for {key[0]}-{key[1]} and did not answer that.")


def _topic(
    cluster: Cluster, topic: str, indexes: Iterable[int], times_ms: Mapping[TopicPartition, int]
) -> ListOffsetsRequest.ListOffsetsTopic:
    return ListOffsetsRequest.ListOffsetsTopic(
        name=topic,
        partitions=[
            ListOffsetsRequest.ListOffsetsPartition(
                partition_index=index,
                current_leader_epoch=_epoch(cluster, topic, index),
                timestamp=times_ms[topic, index],
            )
            for index in indexes
        ],
    )


def _epoch(cluster: Cluster, topic: str, index: int) -> int:
    partition = cluster.metadata.leader(topic, index)
    return -1 if partition is None else partition.leader_epoch


async def epoch_end(cluster: Cluster, topic: str, index: int, leader_epoch: int) -> EpochEnd:
    """Where the greatest epoch up to `leader_epoch` ends in the leader's log (KIP-320). One try."""
    partition = cluster.metadata.leader(topic, index)
    link = None if partition is None else cluster.link(partition.leader_id)
    if partition is None or link is None:
        raise Refused(Error.LEADER_NOT_AVAILABLE, f"{topic}-{index} has no leader at the moment.")
    asked = OffsetForLeaderEpochRequest.OffsetForLeaderPartition(
        partition=index, current_leader_epoch=partition.leader_epoch, leader_epoch=leader_epoch
    )
    request = OffsetForLeaderEpochRequest(
        replica_id=-1, topics=[OffsetForLeaderEpochRequest.OffsetForLeaderTopic(topic=topic, partitions=[asked])]
    )
    response: OffsetForLeaderEpochResponse = await link.call(request)
    results: list[Any] = [part for answered in response.topics for part in answered.partitions]
    code = Error.of(results[0].error_code) if results else Error.UNKNOWN_SERVER_ERROR
    if code is not Error.NONE:
        raise Refused(
            code, f"The end of epoch {leader_epoch} of {topic}-{index} is not known ({code.name}): {code.text}"
        )
    return EpochEnd(results[0].leader_epoch, results[0].end_offset)
