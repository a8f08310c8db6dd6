"""What is known of one transactional id, and how it stands in the log (Kafka's TransactionLogKey and Value). PURE."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, TypeAlias

from headrace.coordinator.shard import StateRecord
from headrace.coordinator.transactions.states import NEXT, PREPARED, Event, State
from headrace.named_tuple import NamedTuple
from headrace.plain import field, plain, replace
from headrace.protocol import messages as m
from headrace.protocol.shape import Kind
from headrace.protocol.state import decode_key, decode_value, encode_key, encode_value

NO_PRODUCER: Final = -1
NO_EPOCH: Final = -1
NO_TIME: Final = -1
EPOCH_MAX: Final = 2**15 - 1
NO_TIMEOUT_MS: Final = 2**31 - 1
"""Of a transaction that another coordinator decides over (KIP-939)."""
EPOCH_BUMPS_SINCE: Final = 2
"""Of transaction versions: from here on the epoch rises with each end (KIP-890)."""
FLEXIBLE_SINCE: Final = 1
"""Of transaction versions: from here on the log's records may have tagged fields."""

TopicPartition: TypeAlias = tuple[str, int]


class Identity(NamedTuple):
    """What a producer shows to be the one that it says."""

    producer_id: int
    producer_epoch: int

    @property
    def is_exhausted(self) -> bool:
        """The last epoch is never handed out: it is left for fencing the producer that has the one before."""
        return self.producer_epoch >= EPOCH_MAX - 1

    def bumped(self) -> Identity:
        return Identity(self.producer_id, min(self.producer_epoch + 1, EPOCH_MAX))


@plain
class Transaction:
    """A value: what happens to it makes another one."""

    transactional_id: str
    producer_id: int
    producer_epoch: int = NO_EPOCH
    """Of the transaction; once that is prepared, of its markers."""
    state: State = State.EMPTY
    timeout_ms: int = 0
    partitions: dict[TopicPartition, None] = field(default_factory=dict)
    """In the order in which they were added."""
    start_ms: int = NO_TIME
    update_ms: int = NO_TIME
    previous_producer_id: int = NO_PRODUCER
    """What the producer id was before the last that happened."""
    next_producer_id: int = NO_PRODUCER
    next_producer_epoch: int = NO_EPOCH
    """What the producer was told, when that is not what the transaction has: its epochs are used up, or it started
    again and kept the transaction that it had prepared."""
    client_version: int = 0
    """The transaction version that the producer spoke when the state was reached."""

    @property
    def client(self) -> Identity:
        """What the producer shows, or will once the transaction is complete."""
        if self.next_producer_id != NO_PRODUCER:
            return Identity(self.next_producer_id, max(self.next_producer_epoch, 0))
        return Identity(self.producer_id, self.producer_epoch)

    @property
    def is_kept(self) -> bool:
        """Its producer started again, and is to say how the transaction ends that it had prepared."""
        return self.state is State.ONGOING and self.next_producer_id != NO_PRODUCER

    @property
    def is_prepared(self) -> bool:
        return self.state in PREPARED

    @property
    def is_commit(self) -> bool:
        return self.state is State.PREPARE_COMMIT

    @property
    def is_two_phase(self) -> bool:
        return self.timeout_ms == NO_TIMEOUT_MS

    def is_timed_out(self, now_ms: int) -> bool:
        return self.state is State.ONGOING and not self.is_two_phase and self.start_ms + self.timeout_ms < now_ms

    # ---------------------------------------------------------------------------------------------- what happens to it

    def initialized(self, client: Identity, timeout_ms: int, now_ms: int) -> Transaction:
        """Its producer starts with this identity, and no transaction is open."""
        is_told_again = client == self.client
        return replace(
            self,
            state=self._next(Event.INITIALIZED),
            producer_id=client.producer_id,
            producer_epoch=client.producer_epoch,
            previous_producer_id=self.previous_producer_id if is_told_again else self.producer_id,
            next_producer_id=NO_PRODUCER,
            next_producer_epoch=NO_EPOCH,
            timeout_ms=timeout_ms,
            partitions={},
            start_ms=NO_TIME,
            update_ms=now_ms,
        )

    def kept(self, client: Identity, timeout_ms: int, now_ms: int) -> Transaction:
        """Its producer starts with this identity, and is to say what becomes of the transaction that is open."""
        return replace(
            self,
            state=self._next(Event.INITIALIZED),
            previous_producer_id=self.producer_id,
            next_producer_id=client.producer_id,
            next_producer_epoch=client.producer_epoch,
            timeout_ms=timeout_ms,
            update_ms=now_ms,
        )

    def added(self, partitions: Iterable[TopicPartition], client_version: int, now_ms: int) -> Transaction:
        return replace(
            self,
            state=self._next(Event.ADDED),
            previous_producer_id=self.producer_id,
            partitions=self.partitions | dict.fromkeys(partitions),
            start_ms=self.start_ms if self.state is State.ONGOING else now_ms,
            update_ms=now_ms,
            client_version=client_version,
        )

    def prepared(
        self, is_commit: bool, markers: Identity, client: Identity, client_version: int, now_ms: int
    ) -> Transaction:
        """It is decided. The markers have one identity; the producer has the other one, once it is complete."""
        is_other = client != markers
        return replace(
            self,
            state=self._next(Event.COMMITTED if is_commit else Event.ABORTED),
            producer_epoch=markers.producer_epoch,
            previous_producer_id=self.producer_id,
            next_producer_id=client.producer_id if is_other else NO_PRODUCER,
            next_producer_epoch=client.producer_epoch if is_other else NO_EPOCH,
            start_ms=self.start_ms if self.state is State.ONGOING else now_ms,
            update_ms=now_ms,
            client_version=client_version,
        )

    def completed(self, now_ms: int) -> Transaction:
        """All its markers are written."""
        client = self.client
        return replace(
            self,
            state=self._next(Event.MARKED),
            producer_id=client.producer_id,
            producer_epoch=client.producer_epoch,
            previous_producer_id=self.producer_id,
            next_producer_id=NO_PRODUCER,
            next_producer_epoch=NO_EPOCH,
            partitions={},
            update_ms=now_ms,
        )

    def _next(self, event: Event) -> State:
        return NEXT[self.state][event]


# ---------------------------------------------------------------------------------------------------------- in the log


def record_of(transaction: Transaction, transaction_version: int) -> StateRecord:
    """In the form that the cluster's transaction version allows."""
    value = m.TransactionLogValue(
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_status=transaction.state,
        transaction_partitions=None if transaction.state is State.EMPTY else by_topic(transaction.partitions),
        transaction_last_update_timestamp_ms=transaction.update_ms,
        transaction_start_timestamp_ms=transaction.start_ms,
    )
    # A producer that gets another id, or that kept a transaction, can't be told of in the old form.
    has_others = transaction.next_producer_id != NO_PRODUCER or transaction.previous_producer_id not in (
        NO_PRODUCER,
        transaction.producer_id,
    )
    version = 1 if transaction_version >= FLEXIBLE_SINCE or has_others else 0
    if version:
        value.previous_producer_id = transaction.previous_producer_id
        value.next_producer_id = transaction.next_producer_id
        value.next_producer_epoch = transaction.next_producer_epoch
        value.client_transaction_version = transaction.client_version
    return StateRecord(key_of(transaction.transactional_id), encode_value(value, version))


def key_of(transactional_id: str) -> bytes:
    return encode_key(m.TransactionLogKey(transactional_id=transactional_id))


def id_of(key: bytes) -> str | None:
    """The transactional id of a key; None when the key is of another kind."""
    found = decode_key(Kind.TRANSACTION, key)
    return found.transactional_id if isinstance(found, m.TransactionLogKey) else None


def transaction_of(transactional_id: str, value: bytes) -> Transaction:
    found = decode_value(Kind.TRANSACTION, m.TransactionLogKey(transactional_id=transactional_id), value)
    assert isinstance(found, m.TransactionLogValue)
    return Transaction(
        transactional_id,
        producer_id=found.producer_id,
        producer_epoch=found.producer_epoch,
        state=State(found.transaction_status),
        timeout_ms=found.transaction_timeout_ms,
        partitions={
            (topic.topic, index): None for topic in found.transaction_partitions or () for index in topic.partition_ids
        },
        start_ms=found.transaction_start_timestamp_ms,
        update_ms=found.transaction_last_update_timestamp_ms,
        previous_producer_id=found.previous_producer_id,
        next_producer_id=found.next_producer_id,
        next_producer_epoch=found.next_producer_epoch,
        client_version=found.client_transaction_version,
    )


def by_topic(partitions: Iterable[TopicPartition]) -> list[m.TransactionLogValue.PartitionsSchema]:
    topics: dict[str, list[int]] = {}
    for topic, index in partitions:
        topics.setdefault(topic, []).append(index)
    return [
        m.TransactionLogValue.PartitionsSchema(topic=topic, partition_ids=indexes) for topic, indexes in topics.items()
    ]
