"""The transaction coordinator's APIs: producers that start, partitions and groups that join, and ends of transactions.

Handlers ask the shard of the transactional id, and take no task: the reply has its place on the connection. What old
producers do not know they are told in words of their time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from headrace.broker.broker_calls import Answered, BrokerCalls
from headrace.broker.producer_ids import ProducerIds
from headrace.broker.slot_reply import SlotReply
from headrace.config.transactions import TransactionConfig
from headrace.coordinator.runtime import Runtime
from headrace.coordinator.shard import Outcome, Reply
from headrace.coordinator.state_topic import CONSUMER_OFFSETS, TRANSACTION_STATE, partition_for, partitions_of
from headrace.coordinator.transactions.responses import added_result, end_error, init_error
from headrace.coordinator.transactions.shard import TransactionShard
from headrace.coordinator.transactions.starting import refusal_of
from headrace.coordinator.transactions.transaction import EPOCH_BUMPS_SINCE, Identity, TopicPartition
from headrace.errors import Error
from headrace.metadata.image import Image
from headrace.metadata.names import INTERNAL
from headrace.metrics.requests import ErrorCounts
from headrace.net.connection import Connection
from headrace.protocol import messages as m
from headrace.protocol.frame import Request
from headrace.protocol.message import Message

ADD_BATCHED_SINCE: Final = 4
"""From this version on, AddPartitionsToTxn comes from brokers, for many transactions at once."""
ADD_VERSION: Final = 5
FENCED_SINCE: Final = 2
"""From this version of AddPartitionsToTxn, AddOffsetsToTxn and EndTxn on, producers know PRODUCER_FENCED."""
INIT_FENCED_SINCE: Final = 4
END_BUMPS_SINCE: Final = 5
"""From this version of EndTxn on, producers speak transaction version 2."""

Result = m.AddPartitionsToTxnResponse.AddPartitionsToTxnResult
Wanted = m.AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction


class Transactions:
    __slots__ = (
        "_add_errors",
        "_calls",
        "_config",
        "_create",
        "_end_errors",
        "_image",
        "_init_errors",
        "_offsets_errors",
        "_producer_ids",
        "_runtime",
    )

    def __init__(
        self,
        runtime: Runtime[TransactionShard],
        image: Callable[[], Image],
        producer_ids: ProducerIds,
        calls: BrokerCalls,
        create: Callable[[str, Callable[[], None]], None],
        config: Callable[[], TransactionConfig],
        errors: ErrorCounts,
    ) -> None:
        """`create` creates a state topic, and calls when it is there, or can't be."""
        self._runtime = runtime
        self._image = image
        self._producer_ids = producer_ids
        self._calls = calls
        self._create = create
        self._config = config
        self._init_errors = errors["InitProducerId"]
        self._add_errors = errors["AddPartitionsToTxn"]
        self._offsets_errors = errors["AddOffsetsToTxn"]
        self._end_errors = errors["EndTxn"]

    # ------------------------------------------------------------------------------------------------ a producer starts

    def init(self, connection: Connection, request: Request) -> None:
        """InitProducerId with a transactional id."""
        reply = SlotReply(connection, request, _refused_init, self._init_errors)
        answer = reply if request.version >= INIT_FENCED_SINCE else _OldWords(reply)
        body: m.InitProducerIdRequest = request.body
        # Whoever can never succeed is told so, and not to try again when there is a coordinator.
        if (error := refusal_of(body, self._config())) is not None:
            answer.refuse(error)
            return

        def ask() -> None:
            self._runtime.ask(
                body.transactional_id or "", lambda shard, now_ms: shard.init_producer_id(body, answer, now_ms), answer
            )

        self._producer_ids.when_at_hand(ask)

    # -------------------------------------------------------------------------------------------------- partitions join

    def add_partitions(self, connection: Connection, request: Request) -> None:
        body: m.AddPartitionsToTxnRequest = request.body
        reply = SlotReply(connection, request, _refused_add, self._add_errors)
        self._add(request.version, body, reply)

    def add(self, body: m.AddPartitionsToTxnRequest, answered: Answered) -> None:
        """For brokers, in the version that they speak."""
        self._add(ADD_VERSION, body, answered)

    def _add(self, version: int, body: m.AddPartitionsToTxnRequest, answered: Answered) -> None:
        wanted = body.transactions if version >= ADD_BATCHED_SINCE else [_only(body)]
        gathered = _Gathered(version, len(wanted), answered)
        if not wanted:
            answered(m.AddPartitionsToTxnResponse())

        def asks() -> Iterator[None]:
            for number, transaction in enumerate(wanted):
                self._add_one(version, transaction, _Part(gathered, number, transaction))
                yield

        self._runtime.ask_many(asks(), len(wanted))

    def _add_one(self, version: int, transaction: Wanted, reply: _Part) -> None:
        transactional_id, partitions = transaction.transactional_id, _partitions(transaction.topics)
        claimed = Identity(transaction.producer_id, transaction.producer_epoch)
        errors = self._unknown(partitions, is_client=version < ADD_BATCHED_SINCE)
        if errors:
            reply(added_result(transactional_id, errors))
        elif not transactional_id:
            reply.refuse(Error.INVALID_REQUEST)
        elif transaction.verify_only:
            self._runtime.ask(
                transactional_id,
                lambda shard, now_ms: shard.verify_partitions(transactional_id, claimed, partitions, reply, now_ms),
                reply,
            )
        else:
            client_version = EPOCH_BUMPS_SINCE if version >= ADD_BATCHED_SINCE else 0

            def add(shard: TransactionShard, now_ms: int) -> Outcome:
                return shard.add_partitions(
                    transactional_id, claimed, partitions, client_version, reply, reply.result, now_ms
                )

            self._runtime.ask(transactional_id, add, reply)

    def _unknown(self, partitions: Sequence[TopicPartition], *, is_client: bool) -> dict[TopicPartition, Error]:
        """The errors of all partitions, when one of them can't be added."""
        image, errors = self._image(), dict.fromkeys(partitions, Error.OPERATION_NOT_ATTEMPTED)
        is_fine = True
        for topic, index in partitions:
            found = image.topic(topic)
            if (is_client and topic in INTERNAL) or topic == TRANSACTION_STATE:
                errors[topic, index] = Error.TOPIC_AUTHORIZATION_FAILED
            elif found is None or index not in found.partitions:
                errors[topic, index] = Error.UNKNOWN_TOPIC_OR_PARTITION
            else:
                continue
            is_fine = False
        return {} if is_fine else errors

    def add_offsets(self, connection: Connection, request: Request) -> None:
        """AddOffsetsToTxn: a group, which stands for the partition that its offsets are in."""
        body: m.AddOffsetsToTxnRequest = request.body
        reply = SlotReply(connection, request, _refused_offsets, self._offsets_errors)
        answer = reply if request.version >= FENCED_SINCE else _OldWords(reply)
        if not body.transactional_id:
            reply.refuse(Error.INVALID_REQUEST)
        elif partitions_of(self._image(), CONSUMER_OFFSETS):
            self._add_offsets(body, answer)
        else:  # nobody has asked for the coordinator of a group yet
            self._create(CONSUMER_OFFSETS, lambda: self._add_offsets(body, answer))

    def _add_offsets(self, body: m.AddOffsetsToTxnRequest, answer: Reply) -> None:
        count = partitions_of(self._image(), CONSUMER_OFFSETS)
        if not count:
            answer.refuse(Error.COORDINATOR_NOT_AVAILABLE)
            return
        partition = (CONSUMER_OFFSETS, partition_for(body.group_id, count))
        claimed = Identity(body.producer_id, body.producer_epoch)

        def add(shard: TransactionShard, now_ms: int) -> Outcome:
            return shard.add_partitions(body.transactional_id, claimed, [partition], 0, answer, _offsets_added, now_ms)

        self._runtime.ask(body.transactional_id, add, answer)

    # ----------------------------------------------------------------------------------------------- a transaction ends

    def end(self, connection: Connection, request: Request) -> None:
        body: m.EndTxnRequest = request.body
        reply = SlotReply(connection, request, _refused_end, self._end_errors)
        answer = reply if request.version >= FENCED_SINCE else _OldWords(reply)
        if not body.transactional_id:
            reply.refuse(Error.INVALID_REQUEST)
            return
        version = EPOCH_BUMPS_SINCE if request.version >= END_BUMPS_SINCE else 0
        self._runtime.ask(body.transactional_id, lambda shard, now_ms: shard.end(body, version, answer, now_ms), answer)

    # ------------------------------------------------------------------------------- what partitions ask (see Verifier)

    def verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Sequence[TopicPartition],
        *,
        adds: bool,
        answered: Callable[[Mapping[TopicPartition, Error]], None],
    ) -> None:
        """Asks the coordinator, which the image says where it is."""
        image = self._image()
        topic = image.topic(TRANSACTION_STATE)
        if topic is None:
            answered(dict.fromkeys(partitions, Error.COORDINATOR_NOT_AVAILABLE))
            return
        leader = topic.partitions[partition_for(transactional_id, len(topic.partitions))].leader
        kind = m.AddPartitionsToTxnRequest
        topics: dict[str, list[int]] = {}
        for name, index in partitions:
            topics.setdefault(name, []).append(index)
        request = kind(
            transactions=[
                kind.AddPartitionsToTxnTransaction(
                    transactional_id=transactional_id,
                    producer_id=producer_id,
                    producer_epoch=producer_epoch,
                    verify_only=not adds,
                    topics=[
                        kind.AddPartitionsToTxnTopic(name=name, partitions=indexes) for name, indexes in topics.items()
                    ],
                )
            ]
        )
        self._calls.send(leader, request, lambda response: answered(_verified(partitions, response)))


def _verified(
    partitions: Sequence[TopicPartition], response: m.AddPartitionsToTxnResponse | None
) -> dict[TopicPartition, Error]:
    if response is None:
        return dict.fromkeys(partitions, Error.NETWORK_EXCEPTION)
    if response.error_code:
        return dict.fromkeys(partitions, Error.of(response.error_code))
    return {
        (topic.name, found.partition_index): Error.of(found.partition_error_code)
        for result in response.results_by_transaction
        for topic in result.topic_results
        for found in topic.results_by_partition
    }


# ------------------------------------------------------------------------------------------------------------- replies


class _OldWords:
    """Tells producers that do not know PRODUCER_FENCED yet what they know."""

    __slots__ = ("_reply",)

    def __init__(self, reply: Reply) -> None:
        self._reply = reply

    def __call__(self, message: Message, /) -> None:
        if message.error_code == Error.PRODUCER_FENCED:  # type: ignore[attr-defined]
            message.error_code = Error.INVALID_PRODUCER_EPOCH  # type: ignore[attr-defined]
        self._reply(message)

    def refuse(self, error: Error, text: str | None = None, /) -> None:
        self._reply.refuse(error, text)


class _Gathered:
    """The response to AddPartitionsToTxn, which is there when all of its transactions are."""

    __slots__ = ("_answered", "_left", "_results", "version")

    def __init__(self, version: int, count: int, answered: Answered) -> None:
        self.version = version
        self._answered = answered
        self._results: list[Result] = [Result()] * count
        self._left = count

    def put(self, number: int, result: Result) -> None:
        if self.version < FENCED_SINCE:
            _use_old_words(result)
        self._results[number] = result
        self._left -= 1
        if not self._left:
            if self.version >= ADD_BATCHED_SINCE:
                self._answered(m.AddPartitionsToTxnResponse(results_by_transaction=self._results))
            else:
                topics = self._results[0].topic_results
                self._answered(m.AddPartitionsToTxnResponse(results_by_topic_v3_and_below=topics))


class _Part:
    """The reply for one transaction of them."""

    __slots__ = ("_gathered", "_number", "_wanted")

    def __init__(self, gathered: _Gathered, number: int, wanted: Wanted) -> None:
        self._gathered = gathered
        self._number = number
        self._wanted = wanted

    def __call__(self, message: Message, /) -> None:
        assert isinstance(message, Result)
        self._gathered.put(self._number, message)

    def refuse(self, error: Error, text: str | None = None, /) -> None:
        self(self.result(error))

    def result(self, error: Error) -> Result:
        return added_result(self._wanted.transactional_id, dict.fromkeys(_partitions(self._wanted.topics), error))


def _use_old_words(result: Result) -> None:
    for topic in result.topic_results:
        for found in topic.results_by_partition:
            if found.partition_error_code == Error.PRODUCER_FENCED:
                found.partition_error_code = Error.INVALID_PRODUCER_EPOCH


def _only(body: m.AddPartitionsToTxnRequest) -> Wanted:
    """What a request of the time before batches asks for, as one of a batch."""
    return Wanted(
        transactional_id=body.v3_and_below_transactional_id,
        producer_id=body.v3_and_below_producer_id,
        producer_epoch=body.v3_and_below_producer_epoch,
        topics=body.v3_and_below_topics,
    )


def _partitions(topics: Sequence[m.AddPartitionsToTxnRequest.AddPartitionsToTxnTopic]) -> list[TopicPartition]:
    return [(topic.name, index) for topic in topics for index in topic.partitions]


def _offsets_added(error: Error) -> m.AddOffsetsToTxnResponse:
    return m.AddOffsetsToTxnResponse(error_code=error)


def _refused_init(request: Request, error: Error, text: str | None) -> m.InitProducerIdResponse:
    return init_error(error)


def _refused_offsets(request: Request, error: Error, text: str | None) -> m.AddOffsetsToTxnResponse:
    return _offsets_added(error)


def _refused_end(request: Request, error: Error, text: str | None) -> m.EndTxnResponse:
    return end_error(error)


def _refused_add(request: Request, error: Error, text: str | None) -> m.AddPartitionsToTxnResponse:
    return m.AddPartitionsToTxnResponse(error_code=error)
