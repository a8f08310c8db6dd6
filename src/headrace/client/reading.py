"""One partition that is read: where it is given out, where it is fetched, and what lies between. No I/O."""

from __future__ import annotations

from collections import deque

from headrace.client.fetched import ConsumedRecord, Fetched
from headrace.client.metadata import NO_TOPIC_ID
from headrace.errors import HeadraceError, ProtocolError

__all__ = ["Reading"]


class Reading:
    __slots__ = (
        "_at",
        "_fetched",
        "_records",
        "buffered_bytes",
        "checked_epoch",
        "error",
        "failures",
        "fetch_epoch",
        "fetch_offset",
        "generation",
        "index",
        "is_busy",
        "is_paused",
        "last_failure",
        "position",
        "reset_to_ms",
        "retry_at",
        "topic",
        "topic_id",
    )

    def __init__(self, topic: str, index: int, reset_to_ms: int | None) -> None:
        self.topic = topic
        self.index = index
        self.topic_id = NO_TOPIC_ID
        """The topic that the position belongs to: one that was made again under the name is another (hazard 9)."""
        self.position = -1
        """The offset of the next record that is given out; -1 while it is not known."""
        self.fetch_offset = -1
        self.fetch_epoch = -1
        """The leader epoch of the last record before `fetch_offset`, as far as it is known."""
        self.checked_epoch = -1
        """The leader epoch under which `fetch_offset` is known to be in the leader's log."""
        self.reset_to_ms = reset_to_ms
        """Where to begin, as a time of ListOffsets, while there is no position."""
        self.buffered_bytes = 0
        self.error: HeadraceError | None = None
        """What the next poll raises when there is nothing to give out. Nothing is fetched meanwhile."""
        self.last_failure: HeadraceError | None = None
        """Why the last try failed, while it is tried again."""
        self.failures = 0
        self.retry_at = 0.0
        self.is_paused = False
        self.is_busy = False
        """A lookup or check of the position is under way."""
        self.generation = 0
        """Counts seeks: what was asked before one is of no use after it."""
        self._records: list[ConsumedRecord] = []
        self._at = 0
        self._fetched: deque[Fetched] = deque()

    def __str__(self) -> str:
        return f"{self.topic}-{self.index}"

    @property
    def has_records(self) -> bool:
        """There may be something to give out: a batch that was not opened may be of no use."""
        return self._at < len(self._records) or bool(self._fetched)

    def seek(self, offset: int, leader_epoch: int = -1, reset_to_ms: int | None = None) -> None:
        self.generation += 1
        self.topic_id = NO_TOPIC_ID
        self.position = self.fetch_offset = offset
        self.fetch_epoch = leader_epoch
        self.checked_epoch = -1
        self.reset_to_ms = reset_to_ms
        self.error = None
        self.is_busy = False
        self._drop()

    def add(self, fetched: Fetched, leader_epoch: int) -> bool:
        """Take over what was fetched from a leader. Whether it was of use."""
        if fetched.end_offset <= self.fetch_offset:
            return False
        self._fetched.append(fetched)
        self.buffered_bytes += fetched.size_bytes
        self.fetch_offset, self.fetch_epoch = fetched.end_offset, fetched.last_epoch
        # What a leader serves is in its own log: no need to ask it again until the next one leads.
        self.checked_epoch = leader_epoch
        return True

    def succeeded(self) -> None:
        self.failures, self.last_failure = 0, None

    def next(self) -> ConsumedRecord | None:
        """The next record, when its batch is open already."""
        if self._at >= len(self._records) or self.is_paused:
            return None
        record = self._records[self._at]
        self._at += 1
        self.position = record.offset + 1
        return record

    def take(self, count: int) -> list[ConsumedRecord]:
        """The next records, at most `count`. Batches are opened only now; one that can't be read is an `error`."""
        taken: list[ConsumedRecord] = []
        while len(taken) < count:
            if self._at >= len(self._records) and not self._open():
                break
            part = self._records[self._at : self._at + count - len(taken)]
            self._at += len(part)
            self.position = part[-1].offset + 1
            taken += part
        return taken

    def _open(self) -> bool:
        """Open batches until there is a record. Whether there is one."""
        while self._fetched:
            try:
                opened = self._fetched[0].next_batch(self.topic, self.index, self.position)
            except HeadraceError as error:
                # What comes after it must not be given out as if nothing were missing: it is fetched again.
                self.error = ProtocolError(f"{self} can't be read at offset {self.position}, seek past it: {error}")
                self.generation += 1
                self.fetch_offset, self.fetch_epoch = self.position, -1
                self._drop()
                return False
            if opened is None:
                self.buffered_bytes -= self._fetched.popleft().size_bytes
                continue
            records, next_offset = opened
            if records:
                self._records, self._at = records, 0
                return True
            self.position = max(self.position, next_offset)
        self._records, self._at = [], 0
        if self.position >= 0:
            self.position = max(self.position, self.fetch_offset)  # past what compaction left out
        return False

    def _drop(self) -> None:
        self._records, self._at, self.buffered_bytes = [], 0, 0
        self._fetched.clear()
