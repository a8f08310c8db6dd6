"""DeleteRecords: the start of a log moves up, for good (KIP-107).

The reply waits until a loss of power can't bring the records back: who had them deleted may have had to.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Final, TypeAlias

from headrace.broker.produce_reply import WAIT_MS_MIN
from headrace.broker.steps import THINGS_A_STEP
from headrace.errors import Error, Refused
from headrace.metadata.names import INTERNAL
from headrace.net.connection import Connection
from headrace.protocol import messages as m
from headrace.protocol.frame import Request
from headrace.replica.manager import Replicas
from headrace.storage.disk import DiskFull
from headrace.storage.log import Log
from headrace.storage.log_directory import LogDirectory
from headrace.storage.reserve import is_scarce

_NO_OFFSET: Final = -1
_HIGH_WATERMARK: Final = -1

Result = m.DeleteRecordsResponse.DeleteRecordsPartitionResult
Deleted: TypeAlias = tuple[Log, Result]
"""What lost records, and its part of the reply."""


class DeleteRecords:
    __slots__ = ("_replicas",)

    def __init__(self, replicas: Replicas) -> None:
        self._replicas = replicas

    async def handle(self, connection: Connection, request: Request) -> m.DeleteRecordsResponse:
        body: m.DeleteRecordsRequest = request.body
        waiting: dict[LogDirectory, list[Deleted]] = {}
        topics: dict[str, dict[int, Result]] = {}
        number = 0
        for topic in body.topics:
            results = topics.setdefault(topic.name, {})
            for wanted in topic.partitions:
                results[wanted.partition_index] = self._delete(topic.name, wanted, waiting)
                number += 1
                if not number % THINGS_A_STEP:
                    await asyncio.sleep(0)
        if waiting:
            # As a produce: Kafka waits for nothing with one replica, and so 0 is a time-out that clients have.
            await self._durable(waiting, max(body.timeout_ms, WAIT_MS_MIN) / 1000)
        return m.DeleteRecordsResponse(
            topics=[
                m.DeleteRecordsResponse.DeleteRecordsTopicResult(name=name, partitions=list(results.values()))
                for name, results in topics.items()
            ]
        )

    def _delete(
        self,
        topic: str,
        wanted: m.DeleteRecordsRequest.DeleteRecordsPartition,
        waiting: dict[LogDirectory, list[Deleted]],
    ) -> Result:
        index, offset = wanted.partition_index, wanted.offset
        result = Result(partition_index=index, low_watermark=_NO_OFFSET)
        try:
            partition = self._replicas.find(topic, index)
            if topic in INTERNAL:
                raise Refused(Error.INVALID_TOPIC_EXCEPTION)
            partition.require_leader()
            if not partition.log.config.delete:
                raise Refused(Error.POLICY_VIOLATION)
            if offset < 0 and offset != _HIGH_WATERMARK:
                raise Refused(Error.OFFSET_OUT_OF_RANGE)
            result.low_watermark = partition.log.delete_before(offset)
        except Refused as refused:
            result.error_code = refused.error
            return result
        directory = self._replicas.directories.directory_of(topic, index)
        assert directory is not None, "a partition in service has a directory"
        waiting.setdefault(directory, []).append((partition.log, result))
        return result

    async def _durable(self, waiting: dict[LogDirectory, list[Deleted]], timeout_seconds: float) -> None:
        """Waits for one checkpoint of each directory, at most so long."""
        writing = {
            directory: asyncio.ensure_future(_written(directory, [log for log, _ in deleted]))
            for directory, deleted in waiting.items()
        }
        await asyncio.wait(writing.values(), timeout=timeout_seconds)
        for directory, deleted in waiting.items():
            written = writing[directory]
            error = Error.NONE
            if not written.done():
                error = Error.REQUEST_TIMED_OUT
            elif written.result() is not None:
                error = Error.KAFKA_STORAGE_ERROR
            for _, result in deleted:
                result.error_code = error


async def _written(directory: LogDirectory, logs: list[Log]) -> BaseException | None:
    """On a full disk, which may be why records are deleted, their room is needed at once: to write this down, too."""
    error = await _checkpoint(directory)
    if not isinstance(error, DiskFull) and not is_scarce(directory.disk):
        return error
    there = asyncio.get_running_loop().create_future()
    directory.make_room(logs, partial(there.set_result, None))
    await there
    return error if error is None else await _checkpoint(directory)


async def _checkpoint(directory: LogDirectory) -> BaseException | None:
    written: asyncio.Future[BaseException | None] = asyncio.get_running_loop().create_future()
    directory.checkpoints.write(written.set_result)
    return await written
