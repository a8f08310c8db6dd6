"""The batches of one partition on their way: their order, their sequences, and what may be sent now. No I/O.

With idempotence every batch gets its sequence when it is first sent, and keeps sequence and bytes for every other try.
A batch that is sent again goes alone, so that nothing overtakes it. When a sequence is lost for good, the lane waits
until nothing is on the wire and begins at 0 in a new epoch (KIP-360).
"""

from __future__ import annotations

import asyncio
from typing import Final, NamedTuple

from headrace.client.errors import Uncertain
from headrace.errors import Error, HeadraceError
from headrace.protocol.batch import NO_EPOCH, NO_PRODUCER, NO_SEQUENCE
from headrace.protocol.batch_builder import build
from headrace.protocol.compression import Compression
from headrace.protocol.kernel_types import Fields

__all__ = ["Identity", "Lane", "Outgoing", "Produced"]

BATCHES_IN_FLIGHT_MAX: Final = 5
NEVER: Final = float("inf")
_SEQUENCE_MASK: Final = 0x7FFFFFFF


class Identity(NamedTuple):
    producer_id: int
    epoch: int


class Produced(NamedTuple):
    """Where a record is. The offset is -1 when nobody said (acks=0, or an old duplicate)."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int


class Outgoing:
    """A batch of records, from its first record to its acknowledgement."""

    __slots__ = (
        "attempts",
        "deadline",
        "due",
        "futures",
        "identity",
        "is_done",
        "is_doubtful",
        "is_open",
        "last_error",
        "order",
        "records",
        "sequence",
        "size_bytes",
        "wire",
    )

    def __init__(self, order: tuple[int, ...], due: float, deadline: float) -> None:
        self.order = order
        self.due = due
        self.deadline = deadline
        self.records: list[Fields] = []
        self.futures: list[asyncio.Future[Produced]] = []
        self.size_bytes = 0
        self.attempts = 0
        self.is_doubtful = False
        """An attempt ended without word on whether the batch is in the log."""
        self.is_done = False
        self.is_open = True
        """It takes more records: until it is sent for the first time."""
        self.last_error: Error | None = None
        self.identity: Identity | None = None
        self.sequence = NO_SEQUENCE
        self.wire: bytearray | None = None

    def encode(self, compression: Compression, is_transactional: bool = False) -> bytearray:
        if self.wire is None:
            identity = self.identity or Identity(NO_PRODUCER, NO_EPOCH)
            self.wire = build(
                self.records,
                compression=compression,
                producer_id=identity.producer_id,
                producer_epoch=identity.epoch,
                base_sequence=self.sequence,
                transactional=is_transactional,
            )
        return self.wire

    def forget_sequence(self) -> None:
        self.identity, self.sequence, self.wire = None, NO_SEQUENCE, None

    def split(self) -> list[Outgoing]:
        """Two halves in its place: the batch was larger than the topic allows."""
        middle = len(self.records) // 2
        halves = []
        for number, part in enumerate((slice(0, middle), slice(middle, None))):
            half = Outgoing((*self.order, number), self.due, self.deadline)
            half.records, half.futures = self.records[part], self.futures[part]
            half.size_bytes = self.size_bytes // 2
            half.is_open = False
            halves.append(half)
        halves[1].size_bytes = self.size_bytes - halves[0].size_bytes
        return halves

    def succeed(self, topic: str, partition: int, base_offset: int, log_append_time_ms: int) -> None:
        self.is_done = True
        offset, step = (base_offset, 1) if base_offset >= 0 else (-1, 0)
        new = tuple.__new__  # the constructor that a NamedTuple gets costs twice as much
        for record, future in zip(self.records, self.futures, strict=True):
            if not future.done():
                timestamp_ms = record[3] if log_append_time_ms < 0 else log_append_time_ms
                future.set_result(new(Produced, (topic, partition, offset, timestamp_ms)))
            offset += step

    def fail(self, error: HeadraceError) -> None:
        self.is_done = True
        for future in self.futures:
            if not future.done():
                future.set_exception(error)
                future.exception()  # whoever does not wait for it has chosen not to know


class Lane:
    __slots__ = (
        "_next_order",
        "acknowledged_sequence",
        "flying",
        "identity",
        "index",
        "is_ready",
        "is_unresolved",
        "next_sequence",
        "queue",
        "retry_at",
        "topic",
        "wake_at",
        "wants_reset",
    )

    def __init__(self, topic: str, index: int) -> None:
        self.topic = topic
        self.index = index
        self.queue: list[Outgoing] = []
        """What is to be sent, in order; the last one may still grow."""
        self.flying: list[Outgoing] = []
        """What was sent and has no answer."""
        self.identity: Identity | None = None
        self.next_sequence = 0
        self.acknowledged_sequence = 0
        """The sequence after the last acknowledged one."""
        self.is_unresolved = False
        """A batch was given up whose sequence the broker may or may not have."""
        self.wants_reset = False
        """A sequence is missing for good: a new epoch is needed."""
        self.retry_at = 0.0
        self.is_ready = False
        """It waits for its turn in a request."""
        self.wake_at = NEVER
        """When it is to be looked at again, at the latest."""
        self._next_order = 0

    @property
    def is_idle(self) -> bool:
        return not self.queue and not self.flying

    def add(self, fields: Fields, size_bytes: int, future: asyncio.Future[Produced], batch_bytes: int) -> bool:
        """Put a record into the open batch; False when there is none with room for it."""
        if not self.queue:
            return False
        last = self.queue[-1]
        if not last.is_open or last.size_bytes + size_bytes > batch_bytes:
            return False
        last.records.append(fields)
        last.futures.append(future)
        last.size_bytes += size_bytes
        return True

    def add_batch(self, due: float, deadline: float) -> Outgoing:
        """A new batch behind the others, for the records that come from now on."""
        batch = Outgoing((self._next_order,), due, deadline)
        self._next_order += 1
        self.queue.append(batch)
        return batch

    def next_due(self, now: float) -> float:
        """The next moment at which something is due without anything else happening."""
        due = NEVER
        if self.queue:
            head = self.queue[0]
            for when in (self.retry_at, head.due, head.deadline):
                if now < when < due:
                    due = when
        for batch in self.flying:
            if not batch.is_done and batch.deadline < due:
                due = batch.deadline
        return due

    def is_overdue(self, now: float) -> bool:
        """A batch may have passed its delivery time-out. They are as old as their order says."""
        return any(batch.deadline <= now for batch in (*self.flying[:1], *self.queue[:1]))

    def settle(self) -> bool:
        """When nothing is on the wire: whether the sequences must begin again in a new epoch."""
        if self.flying:
            return False
        if self.is_unresolved and not self._has_sequenced():
            self.is_unresolved = False
            if self.acknowledged_sequence != self.next_sequence:
                self.wants_reset = True
        return self.wants_reset

    def may_adopt(self, current: Identity) -> bool:
        """Another partition's trouble bumped the epoch: take it over when no batch has a sequence of the old one."""
        return self.identity != current and not self.flying and not self._has_sequenced()

    def restart(self, identity: Identity) -> list[Outgoing]:
        """Begin at sequence 0. The answer is what can't be sent under a new sequence, because it may be in the log."""
        self.identity = identity
        self.next_sequence = self.acknowledged_sequence = 0
        self.is_unresolved = self.wants_reset = False
        doubtful = [batch for batch in self.queue if batch.is_doubtful and batch.sequence != NO_SEQUENCE]
        self.queue = [batch for batch in self.queue if batch not in doubtful]
        for batch in self.queue:
            batch.forget_sequence()
        for batch in doubtful:
            batch.fail(Uncertain(f"A record for {self.topic}-{self.index} may or may not be in the log: {_LOST}"))
        return doubtful

    def sendable(self, now: float, is_hurried: bool, batch_bytes: int) -> Outgoing | None:
        if not self.queue or now < self.retry_at or self.wants_reset:
            return None
        head = self.queue[0]
        if head.attempts:
            return None if self.flying else head
        if self.is_unresolved or len(self.flying) >= BATCHES_IN_FLIGHT_MAX:
            return None
        if self.flying and self.identity is not None and not self.acknowledged_sequence:
            # A broker takes the first batch of a producer that it does not know, whatever its sequence: the second
            # would overtake a first that is refused.
            return None
        is_ready = len(self.queue) > 1 or is_hurried or now >= head.due or head.size_bytes >= batch_bytes
        return head if is_ready else None

    def send(self, batch: Outgoing, is_idempotent: bool) -> None:
        assert batch is self.queue[0]
        del self.queue[0]
        if is_idempotent and batch.sequence == NO_SEQUENCE:
            batch.identity, batch.sequence = self.identity, self.next_sequence
            self.next_sequence = (self.next_sequence + len(batch.records)) & _SEQUENCE_MASK
        batch.attempts += 1
        batch.is_open = False
        self.flying.append(batch)

    def landed(self, batch: Outgoing) -> None:
        """An answer came, or the link broke."""
        self.flying.remove(batch)

    def acknowledged(self, batch: Outgoing) -> None:
        if batch.identity is not None and batch.identity == self.identity:
            self.acknowledged_sequence = (batch.sequence + len(batch.records)) & _SEQUENCE_MASK

    def is_first_outstanding(self, batch: Outgoing) -> bool:
        """Nothing older of this lane waits for an answer or for another try."""
        return all(batch.order <= other.order for other in (*self.flying, *self.queue[:1]))

    def put_back(self, *batches: Outgoing) -> None:
        """To be sent again, before everything that is younger."""
        self.queue += batches
        self.queue.sort(key=lambda batch: batch.order)

    def gave_up(self, batch: Outgoing) -> None:
        if batch.sequence != NO_SEQUENCE and batch.identity == self.identity:
            self.is_unresolved = True

    def _has_sequenced(self) -> bool:
        return bool(self.queue) and any(batch.sequence != NO_SEQUENCE for batch in self.queue)


_LOST: Final = "it was sent, the answer was lost, and the producer had to begin a new epoch; read the log to find out."
