"""What identity a producer gets that starts, or starts again (InitProducerId; KIP-360, KIP-890). PURE."""

from __future__ import annotations

from enum import Enum

from headrace.config.transactions import TransactionConfig
from headrace.coordinator.transactions.states import COMPLETED, State
from headrace.coordinator.transactions.transaction import (
    EPOCH_BUMPS_SINCE,
    EPOCH_MAX,
    NO_EPOCH,
    Identity,
    Transaction,
)
from headrace.errors import Error
from headrace.protocol import messages as m


class Start(Enum):
    """What a producer that starts gets."""

    NEXT_EPOCH = "the next epoch, which fences the producer before it"
    NEW_ID = "another producer id: the epochs of this one are used up"
    SAME = "what it was told before: the answer was lost"
    AFTER_ABORT = "nothing yet: the transaction that is open is aborted first"
    KEPT = "the next epoch, and the transaction that it had prepared"
    LATER = "nothing yet: the transaction before is not complete"


def refusal_of(body: m.InitProducerIdRequest, config: TransactionConfig) -> Error | None:
    """What is wrong with the request itself, whatever there is under its transactional id, and whoever is asked."""
    if body.enable_2pc and not config.transaction_two_phase_commit_enable:
        return Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    if body.keep_prepared_txn and not body.enable_2pc:
        return Error.INVALID_REQUEST
    if not body.enable_2pc and not 0 < body.transaction_timeout_ms <= config.transaction_max_timeout_ms:
        return Error.INVALID_TRANSACTION_TIMEOUT
    return None


def start_of(
    transaction: Transaction, expected: Identity | None, last_epoch: int, keeps_prepared: bool
) -> Start | Error:
    """`expected` is what the producer believes to have, and goes on with after an error; None when it is a new one."""
    client = transaction.client
    if expected is not None and not _may_be(transaction, expected):
        return Error.PRODUCER_FENCED
    if transaction.is_prepared:
        return Start.LATER
    if transaction.state is State.ONGOING:
        if expected is not None and expected != client:  # a zombie must not abort what its successor has begun
            return Error.PRODUCER_FENCED
        return Start.KEPT if keeps_prepared else Start.AFTER_ABORT
    if expected is None or expected == client:
        return Start.NEW_ID if client.is_exhausted else Start.NEXT_EPOCH
    return Start.SAME if expected.producer_epoch == last_epoch else Error.PRODUCER_FENCED


def _may_be(transaction: Transaction, expected: Identity) -> bool:
    if expected.producer_id == transaction.client.producer_id:
        return True
    return expected.producer_id == transaction.previous_producer_id and expected.is_exhausted


def last_epoch_of(transaction: Transaction) -> int:
    """The epoch before, when the last that happened was an end that raised it; -1 when that is not known."""
    if transaction.state not in COMPLETED or transaction.client_version < EPOCH_BUMPS_SINCE:
        return NO_EPOCH
    if transaction.producer_epoch == 0:
        return EPOCH_MAX - 1
    return transaction.producer_epoch - 1
