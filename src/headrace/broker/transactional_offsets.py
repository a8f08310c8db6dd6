"""TxnOffsetCommit: how far a group has read, which counts when a transaction is committed.

The partition that the group's offsets are in is like any other that a transaction writes to: the coordinator of the
transaction says if it is in it, or adds it (transaction version 2). Else a commit that comes too late would leave a
transaction hanging, and with it the group (hazard 5).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from headrace.broker.offset_commits import require_room
from headrace.broker.produce_transactional import TopicPartition, Verifier
from headrace.broker.slot_reply import SlotReply
from headrace.coordinator.runtime import Runtime
from headrace.coordinator.state_topic import CONSUMER_OFFSETS
from headrace.errors import Error, Refused
from headrace.metrics.requests import ErrorCounts
from headrace.net.connection import Connection
from headrace.protocol import messages as m
from headrace.protocol.frame import Request
from headrace.protocol.message import Message
from headrace.replica.manager import Replicas
from headrace.replica.partition import Partition
from headrace.storage.verification import Verification

if TYPE_CHECKING:
    from headrace.coordinator.groups.shard import GroupShard

ADDS_SINCE: Final = 5
"""From this version on, the group is added to the transaction by the commit."""
ABORTABLE_SINCE: Final = 4
LOADING_SINCE: Final = 2
"""From this version on, producers know that a coordinator may be loading (KAFKA-7296)."""


class TransactionalOffsets:
    __slots__ = ("_errors", "_groups", "_replicas", "_verifier")

    def __init__(
        self, groups: Runtime[GroupShard], replicas: Replicas, verifier: Verifier, errors: ErrorCounts
    ) -> None:
        self._groups = groups
        self._replicas = replicas
        self._verifier = verifier
        self._errors = errors["TxnOffsetCommit"]

    def commit(self, connection: Connection, request: Request) -> None:
        body: m.TxnOffsetCommitRequest = request.body
        reply = _Reply(request, SlotReply(connection, request, refused, self._errors))
        index = self._groups.index_of(body.group_id)
        why = Error.COORDINATOR_NOT_AVAILABLE if index < 0 else self._groups.refusal(index)
        if not body.group_id:  # unlike commits without a transaction
            why = Error.INVALID_GROUP_ID
        elif body.producer_id < 0:
            why = Error.INVALID_PRODUCER_ID_MAPPING
        if why:
            reply.refuse(why)
            return
        try:
            require_room(self._groups, body)
            partition = self._replicas.find(CONSUMER_OFFSETS, index)
            self._verify(partition, request, reply)
        except Refused as refusal:
            reply.refuse(_told(refusal.error, request.version), refusal.text)

    def _verify(self, partition: Partition, request: Request, reply: _Reply) -> None:
        body: m.TxnOffsetCommitRequest = request.body
        producer_id, epoch, producers = body.producer_id, body.producer_epoch, partition.log.producers
        if producers.is_open(producer_id, epoch):
            self._commit(partition, request, reply, None)
            return
        verification = producers.verifications.begin(producer_id, epoch)
        adds = request.version >= ADDS_SINCE
        if not adds and not self._verifier.is_enabled:
            verification.is_verified = True
            self._commit(partition, request, reply, verification)
            return

        def answered(errors: Mapping[TopicPartition, Error]) -> None:
            error = errors.get((partition.topic, partition.index), Error.UNKNOWN_SERVER_ERROR)
            if error:
                producers.verifications.fail(producer_id, verification, Refused(error))
                reply.refuse(_told(error, request.version))
                return
            verification.is_verified = True
            self._commit(partition, request, reply, verification)

        self._verifier.verify(
            body.transactional_id,
            producer_id,
            epoch,
            [(partition.topic, partition.index)],
            adds=adds,
            answered=answered,
        )

    def _commit(self, partition: Partition, request: Request, reply: _Reply, verification: Verification | None) -> None:
        """Nothing comes between this and the append that a marker does not wait for."""
        body: m.TxnOffsetCommitRequest = request.body
        producers = partition.log.producers
        known = producers.producers.get(body.producer_id)
        if known is not None and body.producer_epoch < known.epoch:
            reply.refuse(Error.INVALID_PRODUCER_EPOCH)
            return
        try:
            producers.require_verified(body.producer_id, body.producer_epoch, verification)
        except Refused as refusal:
            reply.refuse(_told(refusal.error, request.version), refusal.text)
            return
        self._groups.ask(
            body.group_id,
            lambda shard, now_ms: shard.offsets.commit_in_transaction(body, request.version, reply, now_ms),
            reply,
        )


class _Reply:
    """Says to old producers what they know."""

    __slots__ = ("_reply", "_request")

    def __init__(self, request: Request, reply: SlotReply) -> None:
        self._request = request
        self._reply = reply

    def __call__(self, message: Message, /) -> None:
        self._reply(message)

    def refuse(self, error: Error, text: str | None = None, /) -> None:
        if error is Error.COORDINATOR_LOAD_IN_PROGRESS and self._request.version < LOADING_SINCE:
            error = Error.COORDINATOR_NOT_AVAILABLE
        self._reply.refuse(error, text)


def _told(error: Error, version: int) -> Error:
    """What the producer is told of what the transaction coordinator said, or the partition."""
    match error:
        case Error.PRODUCER_FENCED:
            return Error.INVALID_PRODUCER_EPOCH
        case Error.TRANSACTION_ABORTABLE if version < ABORTABLE_SINCE:
            return Error.INVALID_TXN_STATE
        case Error.NOT_LEADER_OR_FOLLOWER | Error.KAFKA_STORAGE_ERROR:
            return Error.NOT_COORDINATOR
        case Error.NETWORK_EXCEPTION | Error.COORDINATOR_NOT_AVAILABLE | Error.NOT_COORDINATOR:
            # Not of the group's coordinator, which this is: the producer is to ask here again.
            return Error.COORDINATOR_LOAD_IN_PROGRESS
        case Error.UNKNOWN_TOPIC_OR_PARTITION | Error.NOT_ENOUGH_REPLICAS | Error.REQUEST_TIMED_OUT:
            return Error.COORDINATOR_NOT_AVAILABLE
    return error


def refused(request: Request, error: Error, text: str | None) -> m.TxnOffsetCommitResponse:
    kind = m.TxnOffsetCommitResponse
    return kind(
        topics=[
            kind.TxnOffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    kind.TxnOffsetCommitResponsePartition(partition_index=part.partition_index, error_code=error)
                    for part in topic.partitions
                ],
            )
            for topic in request.body.topics
        ]
    )
