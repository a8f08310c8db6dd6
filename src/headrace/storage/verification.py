"""Is this partition in the producer's transaction? Asked before the first batch of a transaction is taken. PURE.

A batch that comes after its transaction was aborted would open a transaction that nobody ever ends, and readers of
committed records would wait behind it for ever (hazard 5, KIP-890). So the first batch of a transaction is held while
the coordinator is asked. What it answers is of the moment when it was asked: a marker that is written meanwhile ends
the verification, and the batch is refused, even when the producer has begun its next transaction by then. Once a batch
is in the log the transaction is open, the markers of its end will come here, and nothing more is asked.

A producer of transaction version 2 has another epoch in each transaction, that of the markers of the one before. It may
begin the next one before those are written, and they do not end the question that was asked about it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from headrace.errors import Error, Refused

REMEMBERED_MAX: Final = 1_000
"""Verifications that failed and may be tried again, of one partition."""
NO_SEQUENCE: Final = -1
LAST_EPOCH: Final = 2**15 - 1


class Verification:
    """One question to the coordinator, for all that a producer sends to a partition until the answer comes."""

    __slots__ = ("first_sequence", "is_verified", "producer_epoch", "refused")

    def __init__(self, producer_epoch: int, first_sequence: int) -> None:
        self.producer_epoch = producer_epoch
        self.first_sequence = first_sequence
        """The lowest that has asked: it has to come first, or it would be out of order when it is tried again."""
        self.is_verified = False
        self.refused: Refused | None = None

    @property
    def is_pending(self) -> bool:
        return not self.is_verified and self.refused is None


class Verifications:
    """Those of one partition, by producer id. They end with the first batch of the transaction, or with its marker."""

    __slots__ = ("_by_producer", "_drop_at")

    def __init__(self) -> None:
        self._by_producer: dict[int, Verification] = {}
        self._drop_at = REMEMBERED_MAX
        """How many there are when those that failed are dropped."""

    def begin(self, producer_id: int, producer_epoch: int, first_sequence: int = NO_SEQUENCE) -> Verification:
        """The verification that a batch has to wait for. It is pending when another one has asked already.

        Refused when a batch that comes before this one could not be verified yet.
        """
        found = self._by_producer.get(producer_id)
        if found is not None and found.producer_epoch == producer_epoch:
            if found.is_pending:
                found.first_sequence = min(found.first_sequence, first_sequence)
                return found
            if first_sequence > found.first_sequence:
                raise Refused(
                    Error.OUT_OF_ORDER_SEQUENCE_NUMBER,
                    f"Producer {producer_id} sent sequence {first_sequence}, and {found.first_sequence} comes first: "
                    "it could not be verified before.",
                )
        made = self._by_producer[producer_id] = Verification(producer_epoch, first_sequence)
        if len(self._by_producer) > self._drop_at:
            self._drop_failed()
        return made

    def pending(self, producer_id: int, producer_epoch: int) -> Verification | None:
        """The one that waits for its answer."""
        found = self._by_producer.get(producer_id)
        return found if found is not None and found.is_pending and found.producer_epoch == producer_epoch else None

    def fail(self, producer_id: int, verification: Verification, refused: Refused) -> None:
        """The coordinator says no, or nothing. It is remembered while the producer may try again."""
        verification.refused = refused
        if not refused.error.retriable and self._by_producer.get(producer_id) is verification:
            del self._by_producer[producer_id]

    def is_current(self, producer_id: int, verification: Verification | None) -> bool:
        """It has not ended since."""
        return verification is not None and self._by_producer.get(producer_id) is verification

    def end(self, producer_id: int, last_epoch: int = LAST_EPOCH) -> None:
        """The transaction is open here, or has ended: that of this epoch, or of one before it."""
        found = self._by_producer.get(producer_id)
        if found is not None and found.producer_epoch <= last_epoch:
            del self._by_producer[producer_id]

    def _drop_failed(self) -> None:
        self._by_producer = {key: found for key, found in self._by_producer.items() if found.refused is None}
        # All may be pending, while the coordinator is slow: then each new one must not look at all of them again.
        self._drop_at = max(REMEMBERED_MAX, 2 * len(self._by_producer))

    def __iter__(self) -> Iterator[int]:
        return iter(self._by_producer)

    def __len__(self) -> int:
        return len(self._by_producer)
