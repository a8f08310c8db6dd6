"""What a partition knows of its producers: epochs, sequences and open transactions. PURE.

The log asks `check` before it writes a batch that has a producer id, and calls `apply` after; a batch without one costs
nothing. A follower, and a log that replays its batches, only applies: the leader has checked. The rules are Kafka's:

- A batch with the sequences of one of the producer's last five is a duplicate: the answer is where that one is.
- Otherwise its first sequence follows the last one (2^31-1 is followed by 0), or it is out of order.
- A new epoch begins at sequence 0, and an older epoch is fenced. A producer of which nothing is known may begin
  anywhere: its records may have expired (Kafka 4 never says UNKNOWN_PRODUCER_ID here).
- A marker ends the producer's transaction. It is fenced by the producer's epoch and by its coordinator's.

The last stable offset is the first one that a reader of committed records may not see yet: the start of the oldest
transaction that is open, or whose marker is not below the high watermark.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import Enum
from struct import Struct
from typing import Final

from headrace.errors import Error, Refused
from headrace.named_tuple import NamedTuple
from headrace.protocol.batch import CONTROL_BIT, NO_EPOCH, NO_SEQUENCE, NO_TIMESTAMP, TRANSACTIONAL_BIT, Batch
from headrace.protocol.control import ControlType, read_control
from headrace.storage.verification import Verification, Verifications

RECENT_BATCHES: Final = 5
NO_TRANSACTION: Final = -1
"""How far beyond transaction.max.timeout.ms an open transaction counts as hanging."""

_SEQUENCE_MASK: Final = 0x7FFFFFFF
_RECENT: Final = Struct(">iiqq")  # last sequence, offset delta, last offset, timestamp
_RECENT_BYTES: Final = _RECENT.size
_OLDER_BYTES: Final = (RECENT_BATCHES - 1) * _RECENT_BYTES
_STRICT_MARKER_VERSION: Final = 2  # transaction version 2: a marker's epoch is above its transaction's (KIP-890)

_pack_recent = _RECENT.pack


class Origin(Enum):
    """Who appends, and so what is checked: all of it, the epoch only, or nothing."""

    CLIENT = 0
    COORDINATOR = 1
    REPLICATION = 2


CLIENT: Final = Origin.CLIENT
COORDINATOR: Final = Origin.COORDINATOR
_REPLICATION: Final = Origin.REPLICATION
"""By names of their own: to look up a member of an enumeration takes as long as ten attributes."""


class AppendedBatch(NamedTuple):
    """A batch that is in the log: what a duplicate of it is answered with."""

    first_sequence: int
    last_sequence: int
    first_offset: int
    last_offset: int
    timestamp_ms: int


class CompletedTransaction(NamedTuple):
    """A transaction whose marker was appended at `last_offset`; an aborted one goes to the transaction index."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int
    is_aborted: bool


class Producer:
    """One producer id. The last five batches are packed, 24 bytes each, the oldest first: no object for a batch."""

    __slots__ = (
        "batches",
        "coordinator_epoch",
        "epoch",
        "is_active",
        "last_timestamp_ms",
        "next_sequence",
        "seen_ms",
        "transaction_offset",
    )

    def __init__(self) -> None:
        self.epoch = NO_EPOCH
        self.coordinator_epoch = -1
        self.next_sequence = 0
        self.last_timestamp_ms = NO_TIMESTAMP
        self.transaction_offset = NO_TRANSACTION
        self.batches = b""
        self.is_active = True
        """It has written since `remove_expired` last looked, which was at `seen_ms`."""
        self.seen_ms = 0

    def recent(self) -> list[AppendedBatch]:
        return [
            AppendedBatch(
                (last_sequence - delta) & _SEQUENCE_MASK, last_sequence, last_offset - delta, last_offset, time
            )
            if last_sequence != NO_SEQUENCE
            else AppendedBatch(NO_SEQUENCE, NO_SEQUENCE, last_offset - delta, last_offset, time)
            for last_sequence, delta, last_offset, time in _RECENT.iter_unpack(self.batches)
        ]

    @property
    def last_offset(self) -> int | None:
        """Of its last batch, which the cleaner leaves for its sequence; None when only a marker is known."""
        if not self.batches:
            return None
        last_offset: int = _RECENT.unpack_from(self.batches, len(self.batches) - _RECENT_BYTES)[2]
        return last_offset

    def duplicate_of(self, batch: Batch) -> AppendedBatch | None:
        first, last = batch.base_sequence, batch.last_sequence
        for appended in self.recent():
            if appended.first_sequence == first and appended.last_sequence == last:
                return appended
        return None

    def copy(self) -> Producer:
        other = Producer()
        for name in self.__slots__:
            setattr(other, name, getattr(self, name))
        return other


class ProducerState:
    """All producers of one partition, up to `end_offset`, which the log sets with each append."""

    __slots__ = ("_ongoing", "_undecided", "end_offset", "first_unstable_offset", "producers", "verifications")

    def __init__(self, end_offset: int = 0) -> None:
        self.end_offset = end_offset
        self.producers: dict[int, Producer] = {}
        self.first_unstable_offset: int | None = None
        self.verifications = Verifications()
        # Both are in the order of the log: transactions by their first offset, decided ones by their marker's.
        self._ongoing: dict[int, int] = {}  # first offset -> producer id
        self._undecided: dict[int, int] = {}  # first offset -> offset of the marker, not below the high watermark yet

    # Before the write

    def check(self, batch: Batch, origin: Origin, transaction_version: int = 0) -> AppendedBatch | None:
        """None when the batch may be appended, else the batch that it repeats; Refused when it may not be."""
        producer = self.producers.get(batch.producer_id)
        if producer is None or origin is _REPLICATION:
            return None
        attributes = batch.attributes
        if attributes & CONTROL_BIT:
            self._check_marker(producer, batch, transaction_version)
            return None
        epoch = producer.epoch
        if batch.producer_epoch < epoch:
            raise Refused(
                Error.INVALID_PRODUCER_EPOCH,
                f"Producer {batch.producer_id} has epoch {batch.producer_epoch}, and epoch {epoch} has been seen.",
            )
        if origin is CLIENT:
            expected = producer.next_sequence if batch.producer_epoch == epoch else 0
            if batch.base_sequence != expected:
                duplicate = producer.duplicate_of(batch) if batch.producer_epoch == epoch else None
                if duplicate is not None:
                    return duplicate
                raise Refused(
                    Error.OUT_OF_ORDER_SEQUENCE_NUMBER,
                    f"Producer {batch.producer_id} (epoch {batch.producer_epoch}) sent sequence "
                    f"{batch.base_sequence}, and {expected} comes next.",
                )
        if producer.transaction_offset != NO_TRANSACTION and not attributes & TRANSACTIONAL_BIT:
            raise Refused(
                Error.INVALID_TXN_STATE,
                f"Producer {batch.producer_id} has a transaction open and sent a batch that is not part of it.",
            )
        return None

    def check_all(self, batches: Sequence[Batch], origin: Origin, transaction_version: int = 0) -> AppendedBatch | None:
        """The same for batches that are written together: each is checked as if those before it were there."""
        if len(batches) == 1:
            return self.check(batches[0], origin, transaction_version) if batches[0].producer_id >= 0 else None
        with_producer = [batch for batch in batches if batch.producer_id >= 0]
        known = {batch.producer_id: self.producers.get(batch.producer_id) for batch in with_producer}
        trial = ProducerState()
        trial.restore({producer_id: producer.copy() for producer_id, producer in known.items() if producer})
        for batch in with_producer:
            if duplicate := trial.check(batch, origin, transaction_version):
                return duplicate
            trial.apply(batch)
        return None

    def is_open(self, producer_id: int, producer_epoch: int) -> bool:
        """A transaction of the producer, with this epoch, has begun here and not ended."""
        producer = self.producers.get(producer_id)
        return (
            producer is not None and producer.transaction_offset != NO_TRANSACTION and producer.epoch == producer_epoch
        )

    def require_verified(self, producer_id: int, producer_epoch: int, verification: Verification | None) -> None:
        """Refuses a batch of a transaction that nobody would end here (hazard 5); see `verification`."""
        if self.is_open(producer_id, producer_epoch):
            return
        if verification is not None:
            if verification.refused is not None:
                raise verification.refused
            if verification.is_verified and self.verifications.is_current(producer_id, verification):
                return
        raise Refused(
            Error.INVALID_TXN_STATE, f"The transaction of producer {producer_id} that this batch belongs to has ended."
        )

    def _check_marker(self, producer: Producer, batch: Batch, transaction_version: int) -> None:
        epoch = batch.producer_epoch
        is_strict = transaction_version >= _STRICT_MARKER_VERSION
        # The same marker again, after its transaction ended, is a coordinator's retry and harmless.
        is_retry = epoch == producer.epoch and producer.transaction_offset == NO_TRANSACTION
        if epoch < producer.epoch or (is_strict and epoch == producer.epoch and not is_retry):
            raise Refused(
                Error.INVALID_PRODUCER_EPOCH,
                f"The transaction marker of producer {batch.producer_id} has epoch {epoch}, "
                f"and epoch {producer.epoch} has been seen.",
            )
        marker = read_marker(batch)
        if marker is not None and marker.coordinator_epoch < producer.coordinator_epoch:
            raise Refused(
                Error.TRANSACTION_COORDINATOR_FENCED,
                f"The transaction marker of producer {batch.producer_id} comes from coordinator epoch "
                f"{marker.coordinator_epoch}, and {producer.coordinator_epoch} has been seen.",
            )

    # After the write

    def apply(self, batch: Batch, transaction_version: int = 0) -> CompletedTransaction | None:
        """Takes in a batch with a producer id, checked or replayed; returns the transaction that it ended, if any.

        The version is the one that a marker is of, where that is known.
        """
        if batch.attributes & CONTROL_BIT:
            return self._apply_marker(batch, transaction_version)
        producer_id = batch.producer_id
        producer = self.producers.get(producer_id)
        if producer is None:
            producer = self.producers[producer_id] = Producer()
        if producer.epoch != batch.producer_epoch:
            producer.epoch = batch.producer_epoch
            producer.batches = b""
        delta = batch.last_offset_delta
        sequence = batch.base_sequence
        if sequence != NO_SEQUENCE:
            sequence = (sequence + delta) & _SEQUENCE_MASK
        base_offset = batch.base_offset
        timestamp_ms = batch.max_timestamp
        producer.batches = producer.batches[-_OLDER_BYTES:] + _pack_recent(
            sequence, delta, base_offset + delta, timestamp_ms
        )
        producer.next_sequence = (sequence + 1) & _SEQUENCE_MASK
        producer.last_timestamp_ms = timestamp_ms
        producer.is_active = True
        if batch.attributes & TRANSACTIONAL_BIT and producer.transaction_offset == NO_TRANSACTION:
            producer.transaction_offset = base_offset
            self._ongoing[base_offset] = producer_id
            self.verifications.end(producer_id)
            if self.first_unstable_offset is None:
                self.first_unstable_offset = base_offset
        return None

    def _apply_marker(self, batch: Batch, transaction_version: int) -> CompletedTransaction | None:
        marker = read_marker(batch)
        if marker is None:
            return None  # the cleaner emptied it: the whole transaction is gone
        producer_id = batch.producer_id
        is_strict = transaction_version >= _STRICT_MARKER_VERSION
        self.verifications.end(producer_id, batch.producer_epoch - 1 if is_strict else batch.producer_epoch)
        producer = self.producers.get(producer_id)
        if producer is None:
            producer = self.producers[producer_id] = Producer()
        if producer.epoch != batch.producer_epoch:
            producer.epoch = batch.producer_epoch
            producer.batches = b""
            producer.next_sequence = 0
        producer.coordinator_epoch = marker.coordinator_epoch
        producer.last_timestamp_ms = batch.max_timestamp
        producer.is_active = True
        first_offset = producer.transaction_offset
        if first_offset == NO_TRANSACTION:
            return None
        producer.transaction_offset = NO_TRANSACTION
        del self._ongoing[first_offset]
        last_offset = batch.base_offset
        self._undecided[first_offset] = last_offset
        last_stable_offset = next(iter(self._ongoing), last_offset + 1)
        return CompletedTransaction(producer_id, first_offset, last_offset, last_stable_offset, not marker.is_commit)

    def advance_high_watermark(self, high_watermark: int) -> None:
        """Markers below it are decided for good, and the last stable offset moves on."""
        if not self._undecided:
            return
        while self._undecided and self._undecided[first := next(iter(self._undecided))] < high_watermark:
            del self._undecided[first]
        self._find_first_unstable()

    # What readers, the cleaner and operators ask

    def last_stable_offset(self, high_watermark: int) -> int:
        unstable = self.first_unstable_offset
        return high_watermark if unstable is None or unstable > high_watermark else unstable

    def transaction_offset(self, producer_id: int) -> int | None:
        """Where the open transaction of a producer begins; None when there is none."""
        producer = self.producers.get(producer_id)
        return (
            None if producer is None or producer.transaction_offset == NO_TRANSACTION else producer.transaction_offset
        )

    def __iter__(self) -> Iterator[tuple[int, Producer]]:
        return iter(self.producers.items())

    def __len__(self) -> int:
        return len(self.producers)

    # Forgetting

    def remove_expired(self, now_ms: int, expiration_ms: int) -> None:
        """Forgets producers that were silent for producer.id.expiration.ms, unless they have a transaction open.

        Kafka goes by the timestamps of their records, so that a producer of old records is forgotten while it writes,
        and its retries with it (hazard 7). We go by when they wrote, to within the time from one call to the next.
        """
        expired = []
        for producer_id, producer in self.producers.items():
            if producer.is_active:
                producer.is_active = False
                producer.seen_ms = now_ms
            elif now_ms - producer.seen_ms >= expiration_ms and producer.transaction_offset == NO_TRANSACTION:
                expired.append(producer_id)
        for producer_id in expired:
            del self.producers[producer_id]

    def advance_log_start(self, log_start_offset: int) -> None:
        """Transactions that ended before the log's new start are past; producers stay known."""
        self.advance_high_watermark(log_start_offset)
        self.end_offset = max(self.end_offset, log_start_offset)

    def clear(self, end_offset: int) -> None:
        """Knows nothing any more: before a snapshot is loaded, or after the log was cut to nothing."""
        self.producers.clear()
        self._ongoing.clear()
        self._undecided.clear()
        self.first_unstable_offset = None
        self.end_offset = end_offset

    def restore(self, producers: dict[int, Producer]) -> None:
        """Takes in the producers of a snapshot, in place of those known before."""
        self.clear(self.end_offset)
        self.producers = producers
        open_transactions = [
            (producer.transaction_offset, producer_id)
            for producer_id, producer in producers.items()
            if producer.transaction_offset != NO_TRANSACTION
        ]
        self._ongoing = dict(sorted(open_transactions))
        self._find_first_unstable()

    def _find_first_unstable(self) -> None:
        starts = [*self._undecided]
        starts += [next(iter(self._ongoing))] if self._ongoing else []
        self.first_unstable_offset = min(starts, default=None)


class Marker(NamedTuple):
    is_commit: bool
    coordinator_epoch: int


def read_marker(batch: Batch) -> Marker | None:
    """What the control record of a transaction's end says; None when the cleaner left the batch empty."""
    for record in read_control(batch):
        if record.type in (ControlType.COMMIT, ControlType.ABORT):
            epoch: int = record.message.coordinator_epoch  # type: ignore[union-attr]
            return Marker(record.type is ControlType.COMMIT, epoch)
    return None
