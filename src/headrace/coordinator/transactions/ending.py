"""Who may end a transaction, and what identity its markers and its producer have then. PURE.

A producer of transaction version 2 gets the next epoch with each end (KIP-890): its markers carry it too, so that they
fence whatever of the transaction is still on its way to a partition (hazard 5). When its epochs are used up it gets
another producer id.
"""

from __future__ import annotations

from headrace.coordinator.transactions.states import COMPLETED, ENDINGS, Claim, Ending
from headrace.coordinator.transactions.transaction import EPOCH_BUMPS_SINCE, EPOCH_MAX, Identity, Transaction
from headrace.errors import Error


def ending_of(transaction: Transaction, claimed: Identity, is_commit: bool, client_version: int) -> Ending | Error:
    """How a producer's request to end its transaction is answered."""
    claim = _claim_of(transaction, claimed, client_version)
    return claim if isinstance(claim, Error) else ENDINGS[transaction.state, claim][is_commit]


def _claim_of(transaction: Transaction, claimed: Identity, client_version: int) -> Claim | Error:
    client = transaction.client
    is_current = claimed == client
    if client_version < EPOCH_BUMPS_SINCE:
        claim = Claim.VERSION_1 if is_current else None
    else:
        claim = Claim.CURRENT if is_current else Claim.BEFORE if _is_retry(transaction, claimed) else None
    if claim is not None:
        return claim
    is_same = claimed.producer_id == client.producer_id
    return Error.PRODUCER_FENCED if is_same else Error.INVALID_PRODUCER_ID_MAPPING


def _is_retry(transaction: Transaction, claimed: Identity) -> bool:
    """It has the epoch before: the answer to its first request was lost."""
    if claimed.producer_epoch + 1 == transaction.client.producer_epoch:
        return claimed.producer_id == transaction.client.producer_id
    if transaction.is_prepared:  # its epochs are used up, and only the markers have the one that follows
        return claimed == Identity(transaction.producer_id, transaction.producer_epoch - 1)
    return (
        transaction.state in COMPLETED
        and transaction.producer_epoch == 0
        and claimed == Identity(transaction.previous_producer_id, EPOCH_MAX - 1)
    )


def needs_producer_id(transaction: Transaction, client_version: int) -> bool:
    """Its producer can have no further epoch, and ends a transaction."""
    return client_version >= EPOCH_BUMPS_SINCE and transaction.client.is_exhausted


def ended(
    transaction: Transaction,
    is_commit: bool,
    client_version: int,
    now_ms: int,
    *,
    is_fence: bool = False,
    new_producer_id: int | None = None,
) -> Transaction:
    """Decided, by its producer; or, as a fence, without it: then it has lost its epoch."""
    client = transaction.client
    markers = Identity(transaction.producer_id, transaction.producer_epoch)
    is_same = client.producer_id == markers.producer_id  # only who kept a transaction may have another
    if is_same:
        markers = client
    if is_fence or client_version >= EPOCH_BUMPS_SINCE:
        markers, client = markers.bumped(), client.bumped()
    if new_producer_id is not None:
        client = Identity(new_producer_id, 0)
    return transaction.prepared(is_commit, markers, client, client_version, now_ms)
