"""Produce: a producer's batches go to the logs of their partitions, and the reply tells where they are.

A request appends when it comes. With acks=1 it is answered at once; with acks=all, and with flush.messages=1, when what
it appended counts. With acks=0 there is no reply: on an error the connection closes, so that the producer notices.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Final, TypeAlias

from headrace.errors import Error, Refused
from headrace.metadata.image import Image
from headrace.net.connection import Connection, Slot
from headrace.protocol import messages as m
from headrace.protocol.batch import MAGIC, TRANSACTIONAL_BIT
from headrace.protocol.frame import Request, write_response
from headrace.replica.manager import Replicas
from headrace.replica.partition import Partition
from headrace.replica.waits import Wait
from headrace.storage.append import Appended

LEADERS_SINCE: Final = 10
"""From this version on, who asked the wrong broker is told the right one (KIP-951)."""
TOPIC_IDS_SINCE: Final = 13
SPARE_REPLIES_MAX: Final = 1000

_MAGIC_AT: Final = 16
_ATTRIBUTES_AT: Final = 22  # the lower byte

Answer: TypeAlias = m.ProduceResponse.PartitionProduceResponse
Waiting: TypeAlias = tuple[Partition, Appended, Answer]
"""What was appended and does not count yet, and its part of the reply."""


class Produce:
    """`handle` is the handler. A request for one partition, which nearly all are, takes its reply from `_spare`."""

    __slots__ = ("_replicas", "_spare")

    def __init__(self, replicas: Replicas) -> None:
        self._replicas = replicas
        self._spare: list[m.ProduceResponse] = []
        """Replies without errors, for one partition each, that were sent: making one takes longer than an append."""

    def handle(self, connection: Connection, request: Request) -> m.ProduceResponse | None:
        body: m.ProduceRequest = request.body
        acks, topics, now_ms = body.acks, body.topic_data, self._replicas.now_ms()
        waiting: list[Waiting] = []
        if len(topics) == 1 and len(topics[0].partition_data) == 1:
            topic = topics[0]
            reply = self._spare.pop() if self._spare else _new_reply([1])
            topic_answer = reply.responses[0]
            topic_answer.name, topic_answer.topic_id = topic.name, topic.topic_id
            data, answer = topic.partition_data[0], topic_answer.partition_responses[0]
            is_refused = not self._answer(connection, request, topic, data, answer, reply, now_ms, waiting)
        else:
            reply = _new_reply([len(topic.partition_data) for topic in topics])
            is_refused = False
            for topic, topic_answer in zip(topics, reply.responses, strict=True):
                topic_answer.name, topic_answer.topic_id = topic.name, topic.topic_id
                for data, answer in zip(topic.partition_data, topic_answer.partition_responses, strict=True):
                    if not self._answer(connection, request, topic, data, answer, reply, now_ms, waiting):
                        is_refused = True
        if waiting:
            _Pending(self, connection.reserve(), request, reply, is_refused).wait_for(waiting, acks, body.timeout_ms)
            return None
        if not is_refused:
            self._give_back(reply)  # whoever called this encodes it before it calls again
        if acks == 0:
            if is_refused:
                connection.close()
            return None
        return reply

    def _answer(
        self,
        connection: Connection,
        request: Request,
        topic: m.ProduceRequest.TopicProduceData,
        data: m.ProduceRequest.PartitionProduceData,
        answer: Answer,
        reply: m.ProduceResponse,
        now_ms: int,
        waiting: list[Waiting],
    ) -> bool:
        """Appends one partition's batch and fills its part of the reply in; False when it is refused."""
        version, acks = request.version, request.body.acks
        answer.index = data.index
        try:
            partition, appended = self._append(topic, data, acks, version, now_ms)
        except Refused as refused:
            answer.error_code = refused.error
            answer.error_message = refused.text
            answer.base_offset = answer.log_append_time_ms = answer.log_start_offset = -1
            if version >= LEADERS_SINCE and refused.error is Error.NOT_LEADER_OR_FOLLOWER:
                self._name_leader(topic, answer, reply, connection.listener.name)
            return False
        answer.error_code = Error.NONE
        answer.base_offset = appended.first_offset
        answer.log_append_time_ms = appended.log_append_time
        answer.log_start_offset = appended.log_start_offset
        if (acks != 1 or partition.syncs_each) and partition.must_wait(appended, acks):
            waiting.append((partition, appended, answer))
        return True

    def _append(
        self,
        topic: m.ProduceRequest.TopicProduceData,
        data: m.ProduceRequest.PartitionProduceData,
        acks: int,
        version: int,
        now_ms: int,
    ) -> tuple[Partition, Appended]:
        if not -1 <= acks <= 1:
            raise Refused(Error.INVALID_REQUIRED_ACKS, f"acks must be -1 (all), 0 or 1, and is {acks}.")
        if version >= TOPIC_IDS_SINCE:
            partition = self._replicas.find_by_id(topic.topic_id, data.index)
        else:
            partition = self._replicas.find(topic.name, data.index)
        records: Any = data.records
        if (
            records is not None
            and len(records) > _ATTRIBUTES_AT
            and records[_ATTRIBUTES_AT] & TRANSACTIONAL_BIT
            and records[_MAGIC_AT] == MAGIC
        ):
            # What a transaction coordinator says of a producer that it never gave an id: nobody did, and without a
            # coordinator nobody would ever end the transaction.
            raise Refused(
                Error.INVALID_PRODUCER_ID_MAPPING, "This producer id belongs to no transactional id of this cluster."
            )
        return partition, partition.append(records, acks, now_ms, version)

    # ---------------------------------------------------------------------------------------------------------- replies

    def _give_back(self, reply: m.ProduceResponse) -> None:
        """It has no errors. Only those for one partition are of use again."""
        if (
            len(reply.responses) == 1
            and len(reply.responses[0].partition_responses) == 1
            and len(self._spare) < SPARE_REPLIES_MAX
        ):
            self._spare.append(reply)

    def _name_leader(
        self,
        topic: m.ProduceRequest.TopicProduceData,
        answer: Answer,
        reply: m.ProduceResponse,
        listener: str,
    ) -> None:
        image: Image = self._replicas.image
        topic_id = topic.topic_id if topic.topic_id in image.topics else image.topic_ids.get(topic.name)
        state = None if topic_id is None else image.partition(topic_id, answer.index)
        if state is None:
            return
        answer.current_leader = m.ProduceResponse.LeaderIdAndEpoch(
            leader_id=state.leader, leader_epoch=state.leader_epoch
        )
        leader = image.brokers.get(state.leader)
        endpoint = None if leader is None else leader.endpoint(listener)
        if (
            leader is not None
            and endpoint is not None
            and all(known.node_id != leader.id for known in reply.node_endpoints)
        ):
            reply.node_endpoints.append(
                m.ProduceResponse.NodeEndpoint(
                    node_id=leader.id, host=endpoint.host, port=endpoint.port, rack=leader.rack
                )
            )


class _Pending:
    """A reply that waits until what was appended counts on all its partitions, or until its time is over."""

    __slots__ = ("_count", "_has_errors", "_produce", "_reply", "_request_id", "_slot", "_timer", "_version")

    def __init__(
        self, produce: Produce, slot: Slot, request: Request, reply: m.ProduceResponse, has_errors: bool
    ) -> None:
        self._produce = produce
        self._slot: Slot | None = slot
        self._version = request.version
        self._request_id = request.correlation_id
        self._reply = reply
        self._has_errors = has_errors
        self._count = 0
        self._timer: Wait | None = None

    def wait_for(
        self,
        waiting: list[Waiting],
        acks: int,
        timeout_ms: int,
    ) -> None:
        self._count = len(waiting)
        self._timer = self._produce._replicas.waits.after_ms(timeout_ms, self._timed_out)
        for partition, appended, answer in waiting:
            answer.error_code = Error.REQUEST_TIMED_OUT  # until it is known better
            partition.when_acknowledged(appended, acks, partial(self._reached, answer))

    def _reached(self, answer: Answer, error: Error) -> None:
        if self._slot is None:
            return
        answer.error_code = error
        if error:
            answer.error_message = error.text
            self._has_errors = True
        self._count -= 1
        if not self._count:
            assert self._timer is not None
            self._timer.cancel()
            self._send()
            if not self._has_errors:
                self._produce._give_back(self._reply)

    def _timed_out(self) -> None:
        if self._slot is not None:
            self._send()

    def _send(self) -> None:
        slot, self._slot = self._slot, None
        assert slot is not None
        slot.fill(write_response(self._reply, self._version, self._request_id))


def _new_reply(partitions: list[int]) -> m.ProduceResponse:
    return m.ProduceResponse(
        responses=[
            m.ProduceResponse.TopicProduceResponse(
                partition_responses=[m.ProduceResponse.PartitionProduceResponse() for _ in range(count)]
            )
            for count in partitions
        ]
    )
