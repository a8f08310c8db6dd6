"""Log directories of brokers: what is in them, and moves from one to another."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from headrace.client.admin.calls import Calls, TopicPartition, by_topic, check
from headrace.client.arguments import mapping, partition, refuse, text, whole, wholes
from headrace.client.arguments import partitions as checked_partitions
from headrace.errors import Error
from headrace.protocol.messages import (
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)

__all__ = ["LogDirCalls", "LogDirInfo", "ReplicaInfo"]


class ReplicaInfo(NamedTuple):
    """A partition's log in a directory."""

    topic: str
    partition: int
    size_bytes: int
    offset_lag: int
    """How many records it has yet to get; of a leader 0."""
    is_future: bool
    """It is a copy on its way from another directory, which it will replace."""


@dataclass(slots=True)
class LogDirInfo:
    broker_id: int
    path: str
    error: Error = Error.NONE
    total_bytes: int = -1
    """Of the volume that the directory is on; -1 where the broker does not say."""
    usable_bytes: int = -1
    replicas: list[ReplicaInfo] = field(default_factory=list)

    @property
    def size_bytes(self) -> int:
        return sum(replica.size_bytes for replica in self.replicas)


class LogDirCalls(Calls):
    __slots__ = ()

    async def describe_log_dirs(
        self, broker_ids: Iterable[int] | None = None, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[int, list[LogDirInfo]]:
        """The log directories of brokers, or of all, with the logs of partitions, or of all."""
        topic = DescribeLogDirsRequest.DescribableLogDirTopic
        wanted = None if partitions is None else by_topic(checked_partitions("partitions", partitions))
        if broker_ids is not None:
            broker_ids = wholes("broker_ids", broker_ids)
        request = DescribeLogDirsRequest(
            topics=None
            if wanted is None
            else [topic(topic=name, partitions=indexes) for name, indexes in wanted.items()]
        )

        async def ask(broker_id: int) -> list[LogDirInfo]:
            response: DescribeLogDirsResponse = await self._cluster.call(request, broker_id)
            check(response.error_code, None, f"Broker {broker_id} does not tell its log directories")
            return [_directory(broker_id, result) for result in response.results]

        return await self._at_brokers(broker_ids, ask)

    async def alter_replica_log_dirs(self, moves: Mapping[tuple[str, int, int], str]) -> None:
        """Begin to move replicas, by (topic, partition, broker), to the directories of these paths.

        `describe_log_dirs` shows a copy on its way as a future replica. A partition that is not there yet will be made
        in its directory. Refused when one could not: the others may have.
        """
        kind = AlterReplicaLogDirsRequest
        brokers: dict[int, dict[str, list[TopicPartition]]] = {}
        moves = mapping("moves", moves, "paths by topic, partition and broker, such as {('letters', 0, 1): '/logs'}")
        for key, path in moves.items():
            if not isinstance(key, tuple) or len(key) != 3:
                refuse("each of moves", "of a topic, a partition and a broker, such as ('letters', 0, 1)", key)
            partition("each of moves", key[:2])
            whole("the broker of each of moves", key[2])
            text("the path of each of moves", path)
        for (topic, index, broker_id), path in moves.items():
            brokers.setdefault(broker_id, {}).setdefault(path, []).append((topic, index))

        async def ask(broker_id: int) -> AlterReplicaLogDirsResponse:
            request = kind(
                dirs=[
                    kind.AlterReplicaLogDir(
                        path=path,
                        topics=[
                            kind.AlterReplicaLogDirTopic(name=topic, partitions=indexes)
                            for topic, indexes in by_topic(partitions).items()
                        ],
                    )
                    for path, partitions in brokers[broker_id].items()
                ]
            )
            response: AlterReplicaLogDirsResponse = await self._cluster.call(request, broker_id)
            return response

        for broker_id, response in (await self._at_brokers(brokers, ask)).items():
            for moved in response.results:
                for part in moved.partitions:
                    name = f"{moved.topic_name}-{part.partition_index}"
                    path = moves[moved.topic_name, part.partition_index, broker_id]
                    check(part.error_code, None, f"{name} can't move to {path} on broker {broker_id}")


def _directory(broker_id: int, result: DescribeLogDirsResponse.DescribeLogDirsResult) -> LogDirInfo:
    return LogDirInfo(
        broker_id,
        result.log_dir,
        Error.of(result.error_code),
        result.total_bytes,
        result.usable_bytes,
        [
            ReplicaInfo(topic.name, part.partition_index, part.partition_size, part.offset_lag, part.is_future_key)
            for topic in result.topics
            for part in topic.partitions
        ],
    )
