"""Batches of transactions in a produce request, and how the first one of a transaction is verified (KIP-890).

Once a transaction is open in a partition its batches go the straight way of all others. The first one is held while the
coordinator is asked whether the partition is in the transaction; producers of transaction version 2 (Produce v12) have
it added by that. See `storage.verification`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from struct import Struct
from typing import Final, Protocol, TypeAlias

from headrace.broker.produce_reply import HeldBatch
from headrace.errors import Error, Refused
from headrace.named_tuple import NamedTuple
from headrace.protocol import messages as m
from headrace.protocol.batch import HEADER_SIZE_BYTES, NO_PRODUCER
from headrace.protocol.frame import Request
from headrace.replica.partition import Partition
from headrace.storage.verification import Verification

ABORTABLE_SINCE: Final = 11
"""From this version of Produce on, producers know TRANSACTION_ABORTABLE."""
ADDS_SINCE: Final = 12
"""From this version on, a partition is added to the transaction by what is produced to it."""

_PRODUCER: Final = Struct(">qhi")
_PRODUCER_AT: Final = 43

TopicPartition: TypeAlias = tuple[str, int]


class Unverified(Refused):
    """A batch whose transaction can't be verified, which Kafka finds before it asks any log."""


class Producer(NamedTuple):
    producer_id: int
    producer_epoch: int
    first_sequence: int


class Verifier(Protocol):
    """Asks the transaction coordinator, wherever that is."""

    @property
    def is_enabled(self) -> bool:
        """transaction.partition.verification.enable"""

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
        """Are these partitions in the transaction? With `adds` they are from now on. `answered` gets an error for each,
        which may be before this returns."""


def producer_of(records: memoryview, transactional_id: str | None) -> Producer | None:
    """Who wrote a batch of a transaction; None when that can't be read, and the log will say why. Raises Refused.

    Every batch needs the transactional id with it, not only the first: by that id the producer may write at all.
    """
    if len(records) < HEADER_SIZE_BYTES:
        return None
    if transactional_id is None:
        raise Refused(
            Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "A batch of a transaction came without its transactional id."
        )
    found = Producer(*_PRODUCER.unpack_from(records, _PRODUCER_AT))
    return found if found.producer_id > NO_PRODUCER else None


def is_open(partition: Partition, records: memoryview, transactional_id: str | None) -> bool:
    """Whether the transaction of a batch is open in its partition, so that nothing is to be asked before the append."""
    if transactional_id is None or len(records) < HEADER_SIZE_BYTES:
        return False
    producer_id, epoch, _ = _PRODUCER.unpack_from(records, _PRODUCER_AT)
    return partition.log.producers.is_open(producer_id, epoch)


def verification_of(
    partition: Partition, producer: Producer, version: int, verifier: Verifier
) -> tuple[Verification | None, bool]:
    """What a batch has to wait for, and whether it is the first to do so: then the coordinator is to be asked.

    None when its transaction is open. Raises Refused.
    """
    producer_id, epoch, sequence = producer
    producers = partition.log.producers
    if producers.is_open(producer_id, epoch):
        return None, False
    partition.require_leader()
    known = producers.producers.get(producer_id)
    if known is not None and epoch < known.epoch:
        raise Unverified(
            Error.INVALID_PRODUCER_EPOCH,
            f"Producer {producer_id} has epoch {epoch}, and epoch {known.epoch} has been seen.",
        )
    adds, verifications = version >= ADDS_SINCE, producers.verifications
    pending = verifications.pending(producer_id, epoch)
    if pending is None and adds and sequence and (known is None or known.epoch != epoch):
        raise Refused(
            Error.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"The first batch of producer {producer_id} with epoch {epoch} has sequence {sequence}, and not 0.",
        )
    verification = verifications.begin(producer_id, epoch, sequence)
    if not adds and not verifier.is_enabled:
        verification.is_verified = True
    return verification, pending is None and not verification.is_verified


def verify(request: Request, held: Sequence[HeldBatch], verifier: Verifier) -> None:
    """Asks the coordinator once for all batches of a request that have to be verified."""
    asking = [part for part in held if part.on_verified is not None]
    if not asking:
        return
    body: m.ProduceRequest = request.body
    identities = {part.identity: None for part in asking}
    if len(identities) > 1 or asking[0].identity is None:
        for part in asking:
            _answer(part, Refused(Error.INVALID_PRODUCER_ID_MAPPING, "The batches are of more than one producer."))
        return
    producer_id, epoch = asking[0].identity

    def answered(errors: Mapping[TopicPartition, Error]) -> None:
        for part in asking:
            error = errors.get((part.partition.topic, part.partition.index), Error.UNKNOWN_SERVER_ERROR)
            _answer(part, _refusal(error, request.version))

    verifier.verify(
        body.transactional_id or "",
        producer_id,
        epoch,
        list({(part.partition.topic, part.partition.index): None for part in asking}),
        adds=request.version >= ADDS_SINCE,
        answered=answered,
    )


def _answer(part: HeldBatch, refused: Refused | None) -> None:
    verification, done, identity = part.verification, part.on_verified, part.identity
    assert verification is not None
    assert done is not None
    assert identity is not None
    if refused is None:
        verification.is_verified = True
    else:
        part.partition.log.producers.verifications.fail(identity[0], verification, refused)
    done(refused)


_TRY_AGAIN: Final = (
    Error.CONCURRENT_TRANSACTIONS,
    Error.NETWORK_EXCEPTION,
    Error.COORDINATOR_LOAD_IN_PROGRESS,
    Error.COORDINATOR_NOT_AVAILABLE,
    Error.NOT_COORDINATOR,
)


def _refusal(error: Error, version: int) -> Refused | None:
    """What a producer is told: errors of a coordinator mean other things to it, or nothing."""
    if not error:
        return None
    if error in _TRY_AGAIN:
        # Every producer tries again after this one, and does not look for other leaders first.
        return Unverified(Error.NOT_ENOUGH_REPLICAS, f"The transaction can't be verified at the moment: {error.name}.")
    if error is Error.PRODUCER_FENCED:
        return Unverified(Error.INVALID_PRODUCER_EPOCH, "Another producer has taken the transactional id over.")
    if error is Error.TRANSACTION_ABORTABLE and version < ABORTABLE_SINCE:
        return Unverified(Error.INVALID_TXN_STATE, "The partition is not in the producer's transaction.")
    return Unverified(error)
