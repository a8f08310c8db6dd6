"""Log directories: what is in them (DescribeLogDirs), and moves from one to another (AlterReplicaLogDirs; KIP-113)."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable

from headrace.errors import Error, Refused
from headrace.net.connection import Connection
from headrace.protocol import messages as m
from headrace.protocol.frame import Request
from headrace.replica.manager import Replicas
from headrace.replica.moves import Moves
from headrace.storage.checkpoint import TopicPartition
from headrace.storage.disk import DiskError
from headrace.storage.log import Log
from headrace.storage.log_directory import LogDirectory

Described = m.DescribeLogDirsResponse.DescribeLogDirsResult
DescribedTopic = m.DescribeLogDirsResponse.DescribeLogDirsTopic
DescribedPartition = m.DescribeLogDirsResponse.DescribeLogDirsPartition


class LogDirs:
    __slots__ = ("_moves", "_replicas")

    def __init__(self, replicas: Replicas, moves: Moves) -> None:
        self._replicas = replicas
        self._moves = moves

    # --- describing ---------------------------------------------------------------------------------------------------

    def describe(self, connection: Connection, request: Request) -> m.DescribeLogDirsResponse:
        body: m.DescribeLogDirsRequest = request.body
        wanted: dict[TopicPartition, None] | None = None
        if body.topics is not None:
            wanted = {(topic.topic, index): None for topic in body.topics for index in topic.partitions}
        directories = self._replicas.directories
        results = [self._describe(directory, wanted) for directory in directories.all]
        results += [Described(error_code=Error.KAFKA_STORAGE_ERROR, log_dir=root) for root in directories.failed]
        return m.DescribeLogDirsResponse(results=results)

    def _describe(self, directory: LogDirectory, wanted: dict[TopicPartition, None] | None) -> Described:
        try:
            if directory.offline is not None:
                raise Refused(Error.KAFKA_STORAGE_ERROR)
            total_bytes, usable_bytes = directory.disk.total_bytes(), directory.disk.free_bytes()
        except (Refused, DiskError):
            return Described(error_code=Error.KAFKA_STORAGE_ERROR, log_dir=directory.root)
        logs: Iterable[Log]
        if wanted is None:
            logs = directory.logs.values()
        else:
            logs = [directory.logs[key] for key in wanted if key in directory.logs]
        topics: dict[str, list[DescribedPartition]] = {}
        for log in logs:
            lag = max(0, log.high_watermark - log.log_end_offset)
            topics.setdefault(log.topic, []).append(_described(log, lag, is_future=False))
        for move in self._replicas.directories.moves():
            copy = move.copy
            if move.target_directory is directory and (wanted is None or (copy.topic, copy.partition) in wanted):
                topics.setdefault(copy.topic, []).append(_described(copy, move.left, is_future=True))
        return Described(
            log_dir=directory.root,
            topics=[DescribedTopic(name=name, partitions=partitions) for name, partitions in topics.items()],
            total_bytes=total_bytes,
            usable_bytes=usable_bytes,
        )

    # --- moving -------------------------------------------------------------------------------------------------------

    def alter(self, connection: Connection, request: Request) -> m.AlterReplicaLogDirsResponse:
        """Begins moves. Of a partition that is to go to several directories, the last counts, as in Kafka."""
        body: m.AlterReplicaLogDirsRequest = request.body
        wanted: dict[str, dict[int, str]] = {}
        for one in body.dirs:
            for topic in one.topics:
                wanted.setdefault(topic.name, {}).update(dict.fromkeys(topic.partitions, one.path))
        kind = m.AlterReplicaLogDirsResponse
        return kind(
            results=[
                kind.AlterReplicaLogDirTopicResult(
                    topic_name=name,
                    partitions=[
                        kind.AlterReplicaLogDirPartitionResult(
                            partition_index=index, error_code=self._move(name, index, path)
                        )
                        for index, path in paths.items()
                    ],
                )
                for name, paths in wanted.items()
            ]
        )

    def _move(self, topic: str, index: int, path: str) -> Error:
        try:
            directory_id = self._directory(path).id
            self._moves.begin(self._replicas.find(topic, index), directory_id)
        except Refused as refused:
            # In this API, as it was before there were followers to ask.
            is_elsewhere = refused.error is Error.NOT_LEADER_OR_FOLLOWER
            return Error.REPLICA_NOT_AVAILABLE if is_elsewhere else refused.error
        return Error.NONE

    def _directory(self, path: str) -> LogDirectory:
        directories = self._replicas.directories
        root = posixpath.normpath(path)
        found = next((one for one in directories.all if one.root == root), None)
        if found is None and root not in directories.failed:
            raise Refused(Error.LOG_DIR_NOT_FOUND)
        if found is None or found.offline is not None:
            raise Refused(Error.KAFKA_STORAGE_ERROR)
        return found


def _described(log: Log, offset_lag: int, *, is_future: bool) -> DescribedPartition:
    return DescribedPartition(
        partition_index=log.partition, partition_size=log.size_bytes, offset_lag=offset_lag, is_future_key=is_future
    )
