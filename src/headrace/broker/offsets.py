"""ListOffsets and OffsetForLeaderEpoch: where a partition begins and ends, and what was written when, and by whom.

A lookup by time may have to read what is not in memory: a worker brings it there, and the lookup is done again. It is
on the loop itself, where nothing changes under it.
"""

from __future__ import annotations

import logging
from collections import Counter
from typing import Final

from headrace.broker.fetch_read import impatient
from headrace.broker.response_errors import count_errors
from headrace.errors import Error, HeadraceError, ProtocolError, Refused
from headrace.net.connection import Connection, Slot
from headrace.protocol.frame import Request, write_response
from headrace.protocol.messages import (
    ListOffsetsRequest,
    ListOffsetsResponse,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)
from headrace.replica.manager import Replicas
from headrace.replica.partition import Partition
from headrace.storage.disk import ReadWouldWait
from headrace.storage.lookup import Stamped
from headrace.storage.scan import LogDamaged
from headrace.storage.workers import Workers

logger = logging.getLogger(__name__)

LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
EARLIEST_LOCAL: Final = -4
LATEST_TIERED: Final = -5
EARLIEST_PENDING_UPLOAD: Final = -6
SINCE_VERSION: Final = {
    LATEST: 1,
    EARLIEST: 1,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}
"""The special timestamps, and the first version that has each."""
EPOCH_VERSION: Final = 4
NOT_AVAILABLE_VERSION: Final = 5
CONSUMER: Final = -1
DEBUGGING_CONSUMER: Final = -2
READ_COMMITTED: Final = 1
NOTHING: Final = Stamped(-1, -1, -1)
WARMINGS_MAX: Final = 1000

PartitionResponse = ListOffsetsResponse.ListOffsetsPartitionResponse
EpochEndOffset = OffsetForLeaderEpochResponse.EpochEndOffset


class Offsets:
    """The handlers. `workers` read what is not in memory."""

    __slots__ = ("errors", "replicas", "workers")

    def __init__(self, replicas: Replicas, workers: Workers) -> None:
        self.replicas = replicas
        self.workers = workers
        self.errors: dict[int, int] = {}
        """How often ListOffsets answered each error; the router counts in it too."""

    def list(self, connection: Connection, request: Request) -> ListOffsetsResponse | None:
        return Listing(self, connection, request).advance()

    def for_leader_epoch(self, connection: Connection, request: Request) -> OffsetForLeaderEpochResponse:
        body: OffsetForLeaderEpochRequest = request.body
        return OffsetForLeaderEpochResponse(
            topics=[
                OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult(
                    topic=topic.topic,
                    partitions=[self._end_of_epoch(topic.topic, asked) for asked in topic.partitions],
                )
                for topic in body.topics
            ]
        )

    def _end_of_epoch(self, topic: str, asked: OffsetForLeaderEpochRequest.OffsetForLeaderPartition) -> EpochEndOffset:
        """A reader that was further has read what is not in the log any more: it goes back to there (KIP-101, 320)."""
        try:
            partition = self.replicas.find(topic, asked.partition)
            partition.require_leader(asked.current_leader_epoch)
        except Refused as refused:
            return EpochEndOffset(partition=asked.partition, error_code=refused.error)
        epoch, end_offset = partition.end_offset_for(asked.leader_epoch)
        return EpochEndOffset(partition=asked.partition, leader_epoch=epoch, end_offset=end_offset)


class Listing:
    """One ListOffsets under way."""

    __slots__ = (
        "_answers",
        "_connection",
        "_correlation_id",
        "_is_client",
        "_is_committed",
        "_must_lead",
        "_offsets",
        "_questions",
        "_slot",
        "_topics",
        "_twice",
        "_version",
        "_warmings",
    )

    def __init__(self, offsets: Offsets, connection: Connection, request: Request) -> None:
        body: ListOffsetsRequest = request.body
        self._offsets = offsets
        self._connection = connection
        self._version = request.version
        self._correlation_id = request.correlation_id
        self._is_client = body.replica_id == CONSUMER
        self._must_lead = body.replica_id != DEBUGGING_CONSUMER
        self._is_committed = body.isolation_level == READ_COMMITTED
        self._topics = body.topics
        self._questions = [(topic.name, asked) for topic in body.topics for asked in topic.partitions]
        counts = Counter((name, asked.partition_index) for name, asked in self._questions)
        self._twice = {key for key, count in counts.items() if count > 1}
        self._answers: list[PartitionResponse] = []
        self._slot: Slot | None = None
        self._warmings = 0

    def advance(self) -> ListOffsetsResponse | None:
        """The reply, or None when it comes later, in a slot that was taken for it."""
        try:
            with impatient(self._warmings < WARMINGS_MAX):
                while len(self._answers) < len(self._questions):
                    self._answers.append(self._answer(*self._questions[len(self._answers)]))
        except ReadWouldWait as cold:
            if self._slot is None:
                self._slot = self._connection.reserve()
            self._offsets.workers.run(cold.warm, self._warmed)
            return None
        answers = iter(self._answers)
        return ListOffsetsResponse(
            topics=[
                ListOffsetsResponse.ListOffsetsTopicResponse(
                    name=topic.name, partitions=[next(answers) for _ in topic.partitions]
                )
                for topic in self._topics
            ]
        )

    def _warmed(self, result: None, error: BaseException | None) -> None:
        # What failed for the worker fails again here, where it is known which partition it is about.
        self._warmings = WARMINGS_MAX if error is not None else self._warmings + 1
        if self._connection.is_closing:
            return
        try:
            response = self.advance()
            if response is not None:
                assert self._slot is not None
                count_errors(response, self._offsets.errors)
                self._slot.fill(write_response(response, self._version, self._correlation_id))
        except Exception:
            logger.exception("ListOffsets of %s failed; the connection is closed", self._connection)
            self._connection.abort()

    def _answer(self, topic: str, asked: ListOffsetsRequest.ListOffsetsPartition) -> PartitionResponse:
        index, timestamp = asked.partition_index, asked.timestamp
        if (topic, index) in self._twice:
            return PartitionResponse(partition_index=index, error_code=Error.INVALID_REQUEST)
        if timestamp < 0 and self._version < SINCE_VERSION.get(timestamp, 2**15):
            return PartitionResponse(partition_index=index, error_code=Error.UNSUPPORTED_VERSION)
        try:
            partition = self._offsets.replicas.find(topic, index)
            if self._must_lead:
                partition.require_leader(asked.current_leader_epoch)
            found = self._find(partition, timestamp)
        except (HeadraceError, ProtocolError) as error:
            return PartitionResponse(partition_index=index, error_code=self._error_of(topic, index, error))
        epoch = found.leader_epoch if self._version >= EPOCH_VERSION else -1
        return PartitionResponse(
            partition_index=index, timestamp=found.timestamp, offset=found.offset, leader_epoch=epoch
        )

    def _error_of(self, topic: str, index: int, error: HeadraceError) -> Error:
        if isinstance(error, Refused):
            if error.error is Error.OFFSET_NOT_AVAILABLE and self._version < NOT_AVAILABLE_VERSION:
                return Error.LEADER_NOT_AVAILABLE
            return error.error
        if isinstance(error, ProtocolError):
            # A producer's batch whose header is right and whose records can't be read. The log is as it came, and any
            # client can send such a batch and ask for it: that is no news for the operator.
            logger.debug("%s-%d has records that can't be read: %s", topic, index, error)
            return Error.CORRUPT_MESSAGE
        logger.error("%s-%d can't be looked up in: %s", topic, index, error)
        return Error.CORRUPT_MESSAGE if isinstance(error, LogDamaged) else Error.KAFKA_STORAGE_ERROR

    def _find(self, partition: Partition, timestamp: int) -> Stamped:
        log = partition.log
        if timestamp in (EARLIEST, EARLIEST_LOCAL):
            return Stamped(-1, log.log_start_offset, _first_epoch(partition))
        if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
            return NOTHING  # nothing has gone to a tier
        # Until the high watermark has come to where this leader began, it may be below what was committed (KIP-207).
        is_behind = self._is_client and partition.leader_epoch_start_offset > log.high_watermark
        if timestamp == LATEST:
            if is_behind:
                raise self._not_available(partition)
            return Stamped(-1, self._end(partition), partition.leader_epoch)
        found = log.latest() if timestamp == MAX_TIMESTAMP else log.by_timestamp(timestamp)
        if found is not None and found.offset < self._end(partition):
            return found
        if is_behind:
            raise self._not_available(partition)
        return NOTHING

    def _end(self, partition: Partition) -> int:
        """Where a reader of this kind stops."""
        log = partition.log
        if not self._is_client:
            return log.log_end_offset
        return log.last_stable_offset if self._is_committed else log.high_watermark

    def _not_available(self, partition: Partition) -> Refused:
        return Refused(
            Error.OFFSET_NOT_AVAILABLE,
            f"The high watermark of {partition} has not come to where its new leader began; try again.",
        )


def _first_epoch(partition: Partition) -> int:
    """The epoch of the first record; in an empty log the one that it will be written in."""
    log = partition.log
    epoch = log.epochs.epoch_for_offset(log.log_start_offset)
    return partition.leader_epoch if epoch < 0 and log.log_start_offset == log.log_end_offset else epoch
