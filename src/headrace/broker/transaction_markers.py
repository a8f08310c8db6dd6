"""WriteTxnMarkers: a coordinator, or an administrator, tells partitions how transactions ended.

A marker is appended behind all that the partition has, never behind batches that wait to be verified: those are of a
transaction that ends with it, and are refused then (hazard 5). It is answered when it is committed.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from headrace.broker.broker_calls import Answered
from headrace.broker.slot_reply import SlotReply
from headrace.coordinator.runtime import Runtime
from headrace.coordinator.shard import ProducerStamp
from headrace.errors import Error, Refused
from headrace.metrics.requests import ErrorCounts
from headrace.net.connection import Connection
from headrace.protocol import messages as m
from headrace.protocol.control import build_marker
from headrace.protocol.frame import Request
from headrace.replica.manager import Replicas
from headrace.replica.waits import Wait

TIMEOUT_MS: Final = 30_000

Response = m.WriteTxnMarkersResponse
Answer = m.WriteTxnMarkersResponse.WritableTxnMarkerPartitionResult
Marker = m.WriteTxnMarkersRequest.WritableTxnMarker

_NOT_READY: Final = (
    Error.COORDINATOR_NOT_AVAILABLE,
    Error.COORDINATOR_LOAD_IN_PROGRESS,
    Error.NOT_COORDINATOR,
)


class MarkerWriter:
    __slots__ = ("_errors", "_replicas", "_runtimes")

    def __init__(self, replicas: Replicas, runtimes: Mapping[str, Runtime[Any]], errors: ErrorCounts) -> None:
        """The runtimes of the state topics write the markers of those, so that their shards hear of them."""
        self._replicas = replicas
        self._runtimes = runtimes
        self._errors = errors["WriteTxnMarkers"]

    def handle(self, connection: Connection, request: Request) -> None:
        self.write(request.body, SlotReply(connection, request, _refused, self._errors))

    def write(self, body: m.WriteTxnMarkersRequest, answered: Answered) -> None:
        waiting = _Waiting(self._replicas, answered)
        for marker in body.markers:
            topics = []
            for topic in marker.topics:
                answers = [Answer(partition_index=index) for index in topic.partition_indexes]
                for answer in answers:
                    self._write_one(marker, topic.name, answer, waiting)
                topics.append(Response.WritableTxnMarkerTopicResult(name=topic.name, partitions=answers))
            waiting.response.markers.append(
                Response.WritableTxnMarkerResult(producer_id=marker.producer_id, topics=topics)
            )
        waiting.begin()

    def _write_one(self, marker: Marker, topic: str, answer: Answer, waiting: _Waiting) -> None:
        index, now_ms = answer.partition_index, self._replicas.now_ms()
        batch = build_marker(
            committed=marker.transaction_result,
            producer_id=marker.producer_id,
            producer_epoch=marker.producer_epoch,
            coordinator_epoch=marker.coordinator_epoch,
            timestamp_ms=now_ms,
        )
        try:
            partition, runtime = self._replicas.find(topic, index), self._runtimes.get(topic)
            if runtime is None:
                appended = partition.append_own(memoryview(batch), now_ms, marker.transaction_version)
            else:
                appended = runtime.append_marker(
                    index,
                    batch,
                    ProducerStamp(marker.producer_id, marker.producer_epoch),
                    is_commit=marker.transaction_result,
                    transaction_version=marker.transaction_version,
                )
        except Refused as refused:
            answer.error_code = Error.NOT_LEADER_OR_FOLLOWER if refused.error in _NOT_READY else refused.error
            return
        offset = appended.last_offset + 1
        if partition.high_watermark < offset:
            answer.error_code = Error.REQUEST_TIMED_OUT  # until it is known better
            waiting.count += 1
            partition.when_committed(offset, partial(waiting.reached, answer))


class _Waiting:
    """A response that is sent when all its markers are committed, or its time is over."""

    __slots__ = ("_answered", "_replicas", "_timer", "count", "response")

    def __init__(self, replicas: Replicas, answered: Answered) -> None:
        self.response = Response()
        self.count = 1
        self._replicas = replicas
        self._answered: Answered | None = answered
        self._timer: Wait | None = None

    def begin(self) -> None:
        """Everything is appended."""
        self.count -= 1
        if self.count:
            self._timer = self._replicas.waits.after_ms(TIMEOUT_MS, self._send)
        else:
            self._send()

    def reached(self, answer: Answer, error: Error) -> None:
        if self._answered is None:
            return
        answer.error_code = error
        self.count -= 1
        if not self.count:
            self._send()

    def _send(self) -> None:
        answered, self._answered = self._answered, None
        if self._timer is not None:
            self._timer.cancel()
        if answered is not None:
            answered(self.response)


def _refused(request: Request, error: Error, text: str | None) -> m.WriteTxnMarkersResponse:
    body: m.WriteTxnMarkersRequest = request.body
    return Response(
        markers=[
            Response.WritableTxnMarkerResult(
                producer_id=marker.producer_id,
                topics=[
                    Response.WritableTxnMarkerTopicResult(
                        name=topic.name,
                        partitions=[
                            Answer(partition_index=index, error_code=error) for index in topic.partition_indexes
                        ],
                    )
                    for topic in marker.topics
                ],
            )
            for marker in body.markers
        ]
    )
