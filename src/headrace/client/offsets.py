"""Lookups at the leaders of partitions: offsets by time, and where a leader epoch ends."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
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

__all__ = ["EARLIEST", "LATEST", "MAX_TIMESTAMP", "EpochEnd", "OffsetAt", "epoch_end", "list_offsets"]

LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
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
        error = await _list_once(cluster, times_ms, isolation_level, found)
        if error is None:
            return found
        if isinstance(error, Refused) and not error.error.retriable:
            raise error
        await cluster.wait_to_retry(backoff, deadline, error)
        cluster.refresh_soon()


async def _list_once(
    cluster: Cluster,
    times_ms: Mapping[TopicPartition, int],
    isolation_level: int,
    found: dict[TopicPartition, OffsetAt],
) -> HeadraceError | None:
    """One round over the leaders of what is not found yet. The last thing that went wrong, if any did."""
    failure: HeadraceError | None = None
    by_leader: dict[int, dict[str, list[int]]] = {}
    for topic, index in times_ms:
        if (topic, index) in found:
            continue
        try:
            await cluster.topic(topic, timeout_s=0)
        except HeadraceError as error:
            failure = error
            continue
        partition = cluster.metadata.leader(topic, index)
        if partition is None:
            text = f"{topic}-{index} has no leader at the moment, or does not exist."
            failure = Refused(Error.LEADER_NOT_AVAILABLE, text)
            cluster.refresh_soon()
        else:
            by_leader.setdefault(partition.leader_id, {}).setdefault(topic, []).append(index)
    for leader_id, topics in by_leader.items():
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
        except (Disconnected, Unreachable) as error:
            failure = error
            continue
        for answered in response.topics:
            for part in answered.partitions:
                code = Error.of(part.error_code)
                if code is Error.NONE:
                    found[answered.name, part.partition_index] = OffsetAt(
                        part.offset, part.timestamp, part.leader_epoch
                    )
                else:
                    where = f"{answered.name}-{part.partition_index}"
                    failure = Refused(code, f"No offset of {where} was found ({code.name}): {code.text}")
    return failure


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
