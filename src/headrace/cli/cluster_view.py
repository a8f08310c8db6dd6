"""One look at a cluster: offsets, sizes, log directories. Whoever does not answer is left out, and named.

A table of a cluster is wanted most when something is wrong with it, so nothing here waits for a broker to come back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from headrace.client.offsets import EARLIEST, LATEST, MAX_TIMESTAMP
from headrace.errors import Error, HeadraceError
from headrace.protocol.messages import ListOffsetsRequest, ListOffsetsResponse

if TYPE_CHECKING:
    from headrace.client import Client, TopicInfo
    from headrace.client.admin import LogDirInfo

LOOK_TIMEOUT_S: Final = 10.0
_NO_EPOCH: Final = -1

TopicPartition = tuple[str, int]
Found = TypeVar("Found")


async def soon(asked: Awaitable[Found], who: str = "The cluster") -> Found:
    """The answer, or a HeadraceError when none comes in time."""
    try:
        async with asyncio.timeout(LOOK_TIMEOUT_S):
            return await asked
    except TimeoutError:
        raise HeadraceError(f"{who} did not answer within {LOOK_TIMEOUT_S:g} seconds.") from None


async def offsets(client: Client, topics: Iterable[TopicInfo], time_ms: int) -> dict[TopicPartition, int]:
    """The offset at a time, by partition; partitions that nobody leads or answers for are not there.

    For MAX_TIMESTAMP, the newest timestamp instead.
    """
    by_leader: dict[int, dict[str, list[int]]] = {}
    for topic in topics:
        for partition in topic.partitions.values():
            if partition.leader_id >= 0:
                by_leader.setdefault(partition.leader_id, {}).setdefault(topic.name, []).append(partition.partition)

    async def ask(broker: int, wanted: Mapping[str, Sequence[int]]) -> dict[TopicPartition, int]:
        asked = client.admin.request(_list_offsets(wanted, time_ms), broker)
        try:
            response: ListOffsetsResponse = await soon(asked, f"Broker {broker}")
        except HeadraceError:
            return {}
        return {
            (topic.name, part.partition_index): part.timestamp if time_ms == MAX_TIMESTAMP else part.offset
            for topic in response.topics
            for part in topic.partitions
            if part.error_code == Error.NONE
        }

    found: dict[TopicPartition, int] = {}
    for answer in await asyncio.gather(*(ask(broker, wanted) for broker, wanted in by_leader.items())):
        found |= answer
    return found


def _list_offsets(wanted: Mapping[str, Sequence[int]], time_ms: int) -> ListOffsetsRequest:
    partition = ListOffsetsRequest.ListOffsetsPartition
    return ListOffsetsRequest(
        replica_id=-1,
        timeout_ms=int(LOOK_TIMEOUT_S * 1000),
        topics=[
            ListOffsetsRequest.ListOffsetsTopic(
                name=name,
                partitions=[
                    partition(partition_index=index, current_leader_epoch=_NO_EPOCH, timestamp=time_ms)
                    for index in indexes
                ],
            )
            for name, indexes in wanted.items()
        ],
    )


class Span(NamedTuple):
    """Where a partition's log begins and ends."""

    start: int
    end: int

    @property
    def records(self) -> int:
        """As offsets count: what compaction removed and the markers of transactions are among them."""
        return max(0, self.end - self.start)


async def spans(client: Client, topics: Sequence[TopicInfo]) -> dict[TopicPartition, Span]:
    starts, ends = await asyncio.gather(offsets(client, topics, EARLIEST), offsets(client, topics, LATEST))
    return {key: Span(starts[key], ends[key]) for key in starts if key in ends}


async def log_dirs(client: Client, brokers: Iterable[int]) -> tuple[list[LogDirInfo], dict[int, HeadraceError]]:
    """The log directories of brokers, and why some brokers don't tell."""
    failures: dict[int, HeadraceError] = {}

    async def ask(broker: int) -> list[LogDirInfo]:
        try:
            return (await soon(client.admin.describe_log_dirs([broker]), f"Broker {broker}"))[broker]
        except HeadraceError as error:
            failures[broker] = error
            return []

    answers = await asyncio.gather(*(ask(broker) for broker in brokers))
    return [log_dir for answer in answers for log_dir in answer], failures


def leader_sizes(topics: Iterable[TopicInfo], found: Iterable[LogDirInfo]) -> dict[TopicPartition, int]:
    """The size of each partition, as its leader has it."""
    sizes = {
        (log_dir.broker_id, replica.topic, replica.partition): replica.size_bytes
        for log_dir in found
        for replica in log_dir.replicas
        if not replica.is_future
    }
    return {
        (topic.name, partition.partition): size
        for topic in topics
        for partition in topic.partitions.values()
        if (size := sizes.get((partition.leader_id, topic.name, partition.partition))) is not None
    }


def brokers_of(topics: Iterable[TopicInfo]) -> list[int]:
    """The brokers that lead something of these topics."""
    leaders = {partition.leader_id for topic in topics for partition in topic.partitions.values()}
    return sorted(leader for leader in leaders if leader >= 0)
