"""Produce: a producer's batches go to the logs of their partitions, and the reply tells where they are.

A request appends when it comes. With acks=1 it is answered at once; with acks=all, and with flush.messages=1, when what
it appended counts. With acks=0 there is no reply: on an error the connection closes, so that the producer notices.
A batch that must be opened or recompressed first goes to a worker, and the first batch of a transaction waits for its
coordinator; later batches of the partition wait behind it.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from headrace.broker.produce_reply import HeldBatch, PendingReply
from headrace.broker.produce_transactional import Unverified, Verifier, producer_of, verification_of, verify
from headrace.broker.repeated_produce import prepare
from headrace.errors import Error, Refused
from headrace.metadata.image import Image
from headrace.metadata.names import INTERNAL
from headrace.metrics.requests import RequestFigures
from headrace.net.connection import Connection
from headrace.protocol import messages as m
from headrace.protocol.batch import ATTRIBUTES_AT, MAGIC, TRANSACTIONAL_BIT
from headrace.protocol.batch_admission import RefusedBytes
from headrace.protocol.frame import Request
from headrace.protocol.record_admission import RefusedRecords
from headrace.replica.manager import Replicas
from headrace.replica.partition import Partition
from headrace.replica.waits import Waits
from headrace.storage.append import Appended, Prepared
from headrace.storage.workers import Workers

if TYPE_CHECKING:
    from headrace.broker.produce_reply import Answer, Waiting

logger = logging.getLogger(__name__)

_NO_ERROR: Final = Error.NONE
LEADERS_SINCE: Final = 10
"""From this version on, who asked the wrong broker is told the right one (KIP-951)."""
TOPIC_IDS_SINCE: Final = 13
SPARE_REPLIES_MAX: Final = 1000
OF_LOG: Final = frozenset(
    (
        Error.INVALID_PRODUCER_EPOCH,
        Error.INVALID_RECORD,
        Error.INVALID_TIMESTAMP,
        Error.INVALID_TXN_STATE,
        Error.OUT_OF_ORDER_SEQUENCE_NUMBER,
    )
)
"""The errors with which Kafka tells where the log starts: those of a log that has looked at a sound batch."""

_MAGIC_AT: Final = 16


class Produce:
    """`handle` is the handler. A request for one partition, which nearly all are, takes its reply from `_spare`."""

    __slots__ = ("_replicas", "_spare", "_verifier", "_workers", "errors", "figures", "now_ms", "waiting", "waits")

    def __init__(self, replicas: Replicas, workers: Workers, verifier: Verifier) -> None:
        """The workers open and recompress batches. The verifier asks the coordinators of transactions."""
        self._replicas = replicas
        self._workers = workers
        self._verifier = verifier
        self.waits: Waits = replicas.waits
        self.now_ms = replicas.now_ms
        self.figures: RequestFigures | None = None
        """Of the route. Requests that come again are prepared for when it is there."""
        self.errors: dict[int, int] = {}
        """How often each error was answered, by partition."""
        self.waiting = 0
        """Requests that are not answered yet."""
        self._spare: list[m.ProduceResponse] = []
        """Replies without errors, for one partition each, that were sent: making one takes longer than an append."""

    def handle(self, connection: Connection, request: Request) -> m.ProduceResponse | None:
        body: m.ProduceRequest = request.body
        acks, topics, now_ms = body.acks, body.topic_data, self.now_ms()
        waiting: list[Waiting] = []
        held: list[HeldBatch] = []
        if len(topics) == 1 and len(topics[0].partition_data) == 1:
            topic = topics[0]
            reply = self._spare.pop() if self._spare else _new_reply([1])
            topic_answer = reply.responses[0]
            topic_answer.name, topic_answer.topic_id = topic.name, topic.topic_id
            data, answer = topic.partition_data[0], topic_answer.partition_responses[0]
            is_refused = not self._answer(connection, request, topic, data, answer, reply, now_ms, waiting, held)
            if acks and not (is_refused or held or self.figures is None):
                prepare(self, connection, request, self.figures)
        else:
            reply = _new_reply([len(topic.partition_data) for topic in topics])
            is_refused = False
            for topic, topic_answer in zip(topics, reply.responses, strict=True):
                topic_answer.name, topic_answer.topic_id = topic.name, topic.topic_id
                for data, answer in zip(topic.partition_data, topic_answer.partition_responses, strict=True):
                    if not self._answer(connection, request, topic, data, answer, reply, now_ms, waiting, held):
                        is_refused = True
        if waiting or held:
            if held:
                verify(request, held, self._verifier)
            PendingReply(self, connection, request, reply, is_refused).wait_for(waiting, held)
            return None
        if not is_refused:
            self.give_back(reply)  # whoever called this encodes it before it calls again
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
        held: list[HeldBatch],
    ) -> bool:
        """Appends or holds one partition's batch, and fills its part of the reply in; False when it is refused."""
        version, acks = request.version, request.body.acks
        answer.index = data.index
        partition: Partition | None = None
        try:
            if not -1 <= acks <= 1:
                raise Refused(Error.INVALID_REQUIRED_ACKS, f"acks must be -1 (all), 0 or 1, and is {acks}.")
            partition = self.find(topic.name, topic.topic_id, data.index, version)
            records: Any = data.records
            if (
                records is not None
                and len(records) > ATTRIBUTES_AT
                and records[ATTRIBUTES_AT] & TRANSACTIONAL_BIT
                and records[_MAGIC_AT] == MAGIC
                and self._holds_transactional(partition, records, answer, request, now_ms, held)
            ):
                return True
            if (partition.held or partition.looks_inside) and self._holds(
                partition, records, answer, version, now_ms, held
            ):
                return True
            appended = partition.append(records, acks, now_ms, version)
        except Refused as refused:
            self._refuse(refused, topic.name, topic.topic_id, partition, answer, reply, version, connection)
            return False
        self._appended(partition, appended, answer, acks, waiting)
        return True

    def _holds(
        self,
        partition: Partition,
        records: memoryview | None,
        answer: Answer,
        version: int,
        now_ms: int,
        held: list[HeldBatch],
    ) -> HeldBatch | None:
        """Where others wait to append already, or the batch must be opened elsewhere first."""
        if partition.topic in INTERNAL:  # which are compacted, so that all that comes for them comes through here
            raise Refused(Error.INVALID_TOPIC_EXCEPTION, f"Only brokers write to {partition.topic}.")
        leaves = partition.log.rules.leaves_loop(records)
        if not leaves and not partition.held:
            return None
        part = HeldBatch(partition, records, answer)
        if leaves:
            self._prepare(part, version, now_ms)
        held.append(part)
        return part

    def _holds_transactional(
        self,
        partition: Partition,
        records: memoryview,
        answer: Answer,
        request: Request,
        now_ms: int,
        held: list[HeldBatch],
    ) -> bool:
        """The same for a batch of a transaction, of which the first has to be verified."""
        producer = producer_of(records, request.body.transactional_id)
        if producer is None:
            return False
        verification, asks = verification_of(partition, producer, request.version, self._verifier)
        if verification is None and not partition.held and not partition.looks_inside:
            return False
        part = self._holds(partition, records, answer, request.version, now_ms, held)
        if part is None:
            if verification is None or verification.is_verified:
                return False
            part = HeldBatch(partition, records, answer)
            held.append(part)
        part.identity, part.verification = producer[:2], verification
        if asks:
            part.on_verified = part.need()
        return True

    def append_held(
        self,
        held: HeldBatch,
        connection: Connection,
        request: Request,
        reply: m.ProduceResponse,
        waiting: list[Waiting],
    ) -> bool:
        """It is its turn: as `_answer`."""
        partition, version, acks = held.partition, request.version, request.body.acks
        now_ms = self.now_ms()
        try:
            held.require()
            records = memoryview(bytearray(held.records))
            appended = partition.append(records, acks, now_ms, version, held.prepared)
        except Refused as refused:
            self._refuse(
                refused, partition.topic, partition.topic_id, partition, held.answer, reply, version, connection
            )
            return False
        self._appended(partition, appended, held.answer, acks, waiting)
        return True

    def _prepare(self, held: HeldBatch, version: int, now_ms: int) -> None:
        done = held.need()

        def prepared(ready: Prepared | None, error: BaseException | None) -> None:
            held.prepared = ready
            if error is None or isinstance(error, Refused):
                done(error)
            else:
                logger.error("a batch of %s can't be prepared", held.partition, exc_info=error)
                done(Refused(Error.UNKNOWN_SERVER_ERROR, "The batch can't be opened; the broker's log tells why."))

        self._workers.run(partial(held.partition.log.rules.prepare, held.records, version, now_ms), prepared)

    def _refuse(
        self,
        refused: Refused,
        topic: str,
        topic_id: bytes,
        partition: Partition | None,
        answer: Answer,
        reply: m.ProduceResponse,
        version: int,
        connection: Connection,
    ) -> None:
        self.errors[refused.error] = self.errors.get(refused.error, 0) + 1
        if (traffic := self._replicas.traffic_of(topic, topic_id)) is not None:
            traffic.produce_errors += 1
        answer.error_code = refused.error
        answer.error_message = refused.text
        answer.base_offset = answer.log_append_time_ms = answer.log_start_offset = -1
        if partition is not None and refused.error in OF_LOG and not isinstance(refused, RefusedBytes | Unverified):
            answer.log_start_offset = partition.log_start_offset
        if isinstance(refused, RefusedRecords):
            answer.record_errors = [
                m.ProduceResponse.BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=why)
                for index, why in refused.record_errors
            ]
        if version >= LEADERS_SINCE and refused.error is Error.NOT_LEADER_OR_FOLLOWER:
            self._name_leader(topic, topic_id, answer, reply, connection.listener.name)

    def refused(
        self,
        refused: Refused,
        topic: str,
        topic_id: bytes,
        index: int,
        partition: Partition,
        version: int,
        connection: Connection,
    ) -> m.ProduceResponse:
        """The reply to a request for one partition whose append was refused."""
        reply, answer = _reply_for(topic, topic_id, index)
        self._refuse(refused, topic, topic_id, partition, answer, reply, version, connection)
        return reply

    def not_acknowledged(
        self, error: Error, text: str | None, topic: str, topic_id: bytes, index: int, appended: Appended
    ) -> m.ProduceResponse:
        """The reply to one whose batch was appended, and does not count, or not in time."""
        reply, answer = _reply_for(topic, topic_id, index)
        self.errors[error] = self.errors.get(error, 0) + 1
        answer.error_code = error
        answer.error_message = text
        answer.base_offset = appended.first_offset
        answer.log_append_time_ms = appended.log_append_time
        answer.log_start_offset = appended.log_start_offset
        return reply

    def _appended(
        self, partition: Partition, appended: Appended, answer: Answer, acks: int, waiting: list[Waiting]
    ) -> None:
        answer.error_code = _NO_ERROR
        answer.base_offset = appended.first_offset
        answer.log_append_time_ms = appended.log_append_time
        answer.log_start_offset = appended.log_start_offset
        if (acks != 1 or partition.syncs_each) and partition.must_wait(appended, acks):
            waiting.append((partition, appended, answer))

    def find(self, topic: str, topic_id: bytes, index: int, version: int) -> Partition:
        """The partition that a request of this version means. Raises Refused."""
        if version >= TOPIC_IDS_SINCE:
            return self._replicas.find_by_id(topic_id, index)
        return self._replicas.find(topic, index)

    # ---------------------------------------------------------------------------------------------------------- replies

    def give_back(self, reply: m.ProduceResponse) -> None:
        """It has no errors. Only those for one partition are of use again."""
        if (
            len(reply.responses) == 1
            and len(reply.responses[0].partition_responses) == 1
            and len(self._spare) < SPARE_REPLIES_MAX
        ):
            self._spare.append(reply)

    def _name_leader(
        self, topic: str, topic_id: bytes, answer: Answer, reply: m.ProduceResponse, listener: str
    ) -> None:
        image: Image = self._replicas.image
        known_id = topic_id if topic_id in image.topics else image.topic_ids.get(topic)
        state = None if known_id is None else image.partition(known_id, answer.index)
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


def _new_reply(partitions: list[int]) -> m.ProduceResponse:
    return m.ProduceResponse(
        responses=[
            m.ProduceResponse.TopicProduceResponse(
                partition_responses=[m.ProduceResponse.PartitionProduceResponse() for _ in range(count)]
            )
            for count in partitions
        ]
    )


def _reply_for(topic: str, topic_id: bytes, index: int) -> tuple[m.ProduceResponse, Answer]:
    reply = _new_reply([1])
    reply.responses[0].name, reply.responses[0].topic_id = topic, topic_id
    answer = reply.responses[0].partition_responses[0]
    answer.index = index
    return reply, answer
