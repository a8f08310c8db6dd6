"""ListOffsets and OffsetForLeaderEpoch: where a partition begins and ends, and what was written when, and by whom.

A lookup by time may have to read what is not in memory: a worker brings it there, and the lookup is done again. It is
on the loop itself, where nothing changes under it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Coroutine, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, cast

from headrace.broker.fetch_read import impatient
from headrace.broker.response_errors import count_errors
from headrace.broker.steps import THINGS_A_STEP, in_steps
from headrace.errors import Error, HeadraceError, ProtocolError, Refused
from headrace.metrics.requests import ErrorCounts
from headrace.net.connection import Connection, Slot
from headrace.protocol import messages as m
from headrace.protocol.frame import Request, write_response
from headrace.replica.manager import Replicas
from headrace.replica.partition import Partition
from headrace.storage.disk import ReadWouldWait
from headrace.storage.lookup import Stamped
from headrace.storage.scan import LogDamaged
from headrace.storage.workers import Workers

if TYPE_CHECKING:
    PartitionResponse = m.ListOffsetsResponse.ListOffsetsPartitionResponse
    EpochEndOffset = m.OffsetForLeaderEpochResponse.EpochEndOffset

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


class Offsets:
    """The handlers. `workers` read what is not in memory."""

    __slots__ = ("errors", "replicas", "workers")

    def __init__(self, replicas: Replicas, workers: Workers, errors: ErrorCounts) -> None:
        self.replicas = replicas
        self.workers = workers
        self.errors = errors["ListOffsets"]

    def list(self, connection: Connection, request: Request) -> m.ListOffsetsResponse | None:
        return Listing(self, connection, request).advance()

    def for_leader_epoch(
        self, connection: Connection, request: Request
    ) -> m.OffsetForLeaderEpochResponse | Coroutine[Any, Any, m.OffsetForLeaderEpochResponse]:
        topics = cast("m.OffsetForLeaderEpochRequest", request.body).topics

        def respond(found: Sequence[EpochEndOffset]) -> m.OffsetForLeaderEpochResponse:
            ends = iter(found)
            return m.OffsetForLeaderEpochResponse(
                topics=[
                    m.OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult(
                        topic=topic.topic, partitions=[*islice(ends, len(topic.partitions))]
                    )
                    for topic in topics
                ]
            )

        found = (self._end_of_epoch(topic.topic, asked) for topic in topics for asked in topic.partitions)
        return in_steps(found, sum(len(topic.partitions) for topic in topics), respond)

    def _end_of_epoch(
        self, topic: str, asked: m.OffsetForLeaderEpochRequest.OffsetForLeaderPartition
    ) -> EpochEndOffset:
        """A reader that was further has read what is not in the log any more: it goes back to there (KIP-101, 320)."""
        try:
            partition = self.replicas.find(topic, asked.partition)
            partition.require_leader(asked.current_leader_epoch)
        except Refused as refused:
            return m.OffsetForLeaderEpochResponse.EpochEndOffset(partition=asked.partition, error_code=refused.error)
        epoch, end_offset = partition.end_offset_for(asked.leader_epoch)
        return m.OffsetForLeaderEpochResponse.EpochEndOffset(
            partition=asked.partition, leader_epoch=epoch, end_offset=end_offset
        )


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
        "_twice",
        "_version",
        "_warmings",
    )

    def __init__(self, offsets: Offsets, connection: Connection, request: Request) -> None:
        body: m.ListOffsetsRequest = request.body
        self._offsets = offsets
        self._connection = connection
        self._version = request.version
        self._correlation_id = request.correlation_id
        self._is_client = body.replica_id == CONSUMER
        self._must_lead = body.replica_id != DEBUGGING_CONSUMER
        self._is_committed = body.isolation_level == READ_COMMITTED
        questions = [(topic.name, asked) for topic in body.topics for asked in topic.partitions]
        counts = Counter((name, asked.partition_index) for name, asked in questions)
        self._twice = {key for key, count in counts.items() if count > 1}
        # Who asks for a partition twice is told so once, as by Kafka.
        one_each = {(name, asked.partition_index): (name, asked) for name, asked in questions} if self._twice else None
        self._questions = questions if one_each is None else [*one_each.values()]
        self._answers: list[PartitionResponse] = []
        self._slot: Slot | None = None
        self._warmings = 0

    def advance(self) -> m.ListOffsetsResponse | None:
        """The reply, or None when it comes later, in a slot that was taken for it."""
        answered = len(self._answers)
        try:
            with impatient(self._warmings < WARMINGS_MAX):
                for topic, asked in self._questions[answered : answered + THINGS_A_STEP]:
                    self._answers.append(self._answer(topic, asked))
        except ReadWouldWait as cold:
            self._take_slot()
            self._offsets.workers.run(cold.warm, self._warmed)
            return None
        if len(self._answers) < len(self._questions):
            self._take_slot()
            asyncio.get_running_loop().call_soon(self._go_on)
            return None
        by_topic: dict[str, list[PartitionResponse]] = {}
        for (topic, _), answer in zip(self._questions, self._answers, strict=True):
            by_topic.setdefault(topic, []).append(answer)
        kind = m.ListOffsetsResponse.ListOffsetsTopicResponse
        return m.ListOffsetsResponse(topics=[kind(name=name, partitions=found) for name, found in by_topic.items()])

    def _warmed(self, result: None, error: BaseException | None) -> None:
        # What failed for the worker fails again here, where it is known which partition it is about.
        self._warmings = WARMINGS_MAX if error is not None else self._warmings + 1
        self._go_on()

    def _take_slot(self) -> None:
        if self._slot is None:
            self._slot = self._connection.reserve()

    def _go_on(self) -> None:
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

    def _answer(self, topic: str, asked: m.ListOffsetsRequest.ListOffsetsPartition) -> PartitionResponse:
        index, timestamp = asked.partition_index, asked.timestamp
        if (topic, index) in self._twice:
            return m.ListOffsetsResponse.ListOffsetsPartitionResponse(
                partition_index=index, error_code=Error.INVALID_REQUEST
            )
        if timestamp < 0 and self._version < SINCE_VERSION.get(timestamp, 2**15):
            return m.ListOffsetsResponse.ListOffsetsPartitionResponse(
                partition_index=index, error_code=Error.UNSUPPORTED_VERSION
            )
        try:
            partition = self._offsets.replicas.find(topic, index)
            if self._must_lead:
                partition.require_leader(asked.current_leader_epoch)
            found = self._find(partition, timestamp)
        except (HeadraceError, ProtocolError) as error:
            return m.ListOffsetsResponse.ListOffsetsPartitionResponse(
                partition_index=index, error_code=self._error_of(topic, index, error)
            )
        epoch = found.leader_epoch if self._version >= EPOCH_VERSION else -1
        return m.ListOffsetsResponse.ListOffsetsPartitionResponse(
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
