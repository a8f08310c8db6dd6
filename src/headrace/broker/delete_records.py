"""DeleteRecords: the start of a log moves up, for good (KIP-107).

The reply waits until a loss of power can't bring the records back: who had them deleted may have had to.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Final

from headrace.broker.produce_reply import WAIT_MS_MIN
from headrace.broker.steps import THINGS_A_STEP
from headrace.errors import Error, Refused
from headrace.metadata.names import INTERNAL
from headrace.net.connection import Connection
from headrace.protocol import messages as m
from headrace.protocol.frame import Request
from headrace.replica.manager import Replicas
from headrace.storage.log_directory import LogDirectory

_NO_OFFSET: Final = -1
_HIGH_WATERMARK: Final = -1

Result = m.DeleteRecordsResponse.DeleteRecordsPartitionResult


class DeleteRecords:
    __slots__ = ("_replicas",)

    def __init__(self, replicas: Replicas) -> None:
        self._replicas = replicas

    async def handle(self, connection: Connection, request: Request) -> m.DeleteRecordsResponse:
        body: m.DeleteRecordsRequest = request.body
        waiting: dict[LogDirectory, list[Result]] = {}
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
        waiting: dict[LogDirectory, list[Result]],
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
        waiting.setdefault(directory, []).append(result)
        return result

    async def _durable(self, waiting: dict[LogDirectory, list[Result]], timeout_seconds: float) -> None:
        """Waits for one checkpoint of each directory, at most so long."""
        wait = asyncio.get_running_loop().create_future
        checkpoints: dict[LogDirectory, asyncio.Future[BaseException | None]] = {}
        for directory in waiting:
            future = checkpoints[directory] = wait()
            directory.checkpoint(partial(_tell, future))
        await asyncio.wait(checkpoints.values(), timeout=timeout_seconds)
        for directory, results in waiting.items():
            future = checkpoints[directory]
            error = Error.NONE
            if not future.done():
                error = Error.REQUEST_TIMED_OUT
            elif future.result() is not None:
                error = Error.KAFKA_STORAGE_ERROR
            for result in results:
                result.error_code = error


def _tell(future: asyncio.Future[BaseException | None], error: BaseException | None) -> None:
    if not future.done():
        future.set_result(error)
