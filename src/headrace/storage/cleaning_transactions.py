"""Which transactions a walk over a log is in: those that were aborted, and whose markers are still needed.

A marker is needed as long as a batch of its transaction is in the log, an empty one too: without the marker, a restart
would take that transaction for an open one, and a reader of committed records would wait for its end for ever. And an
aborted transaction is in the index as long as its marker is needed: a reader that hears of it skips what its producer
wrote until it meets the marker.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush
from struct import Struct
from typing import Final

from headrace.protocol.batch import TRANSACTIONAL_BIT, Batch
from headrace.protocol.control import ControlType
from headrace.protocol.records import records_of
from headrace.storage.transaction_index import AbortedTransaction

_CONTROL_KEY: Final = Struct(">hh")
_MARKER_BYTES_MAX: Final = 1 << 20


class CleaningTransactions:
    """Told of every batch in the order of the log. Holds the transactions that overlap here, and no others."""

    __slots__ = ("_aborted", "_coming", "_committed", "_entries", "_known_before", "marked")

    def __init__(self, entries: Iterator[AbortedTransaction]) -> None:
        """`entries` are those of the transaction indexes, in the order of their markers."""
        self._entries = entries
        self._coming: list[tuple[int, AbortedTransaction]] = []  # a heap by first offset
        self._known_before = 0
        """All aborted transactions that begin before this offset are known."""
        self._aborted: dict[int, tuple[AbortedTransaction, bool]] = {}  # by producer: and whether a batch was met
        self._committed: set[int] = set()
        self.marked: AbortedTransaction | None = None
        """What belongs into the index with the marker that `is_marker_needed` was asked about last."""

    def is_aborted(self, batch: Batch) -> bool:
        """Whether a batch of records is part of an aborted transaction."""
        if not batch.attributes & TRANSACTIONAL_BIT:
            return False
        self._reach(batch)
        found = self._aborted.get(batch.producer_id)
        if found is None:
            self._committed.add(batch.producer_id)
            return False
        if not found[1]:
            self._aborted[batch.producer_id] = found[0], True
        return True

    def is_marker_needed(self, batch: Batch) -> bool:
        """Whether a control batch must stay. A marker that ends a transaction of which no batch is left need not."""
        self.marked = None
        kind = _control_type(batch)
        if kind is None:
            return False  # emptied by Kafka's cleaner
        if kind == ControlType.ABORT:
            self._reach(batch)
            aborted, was_met = self._aborted.pop(batch.producer_id, (None, False))
            self.marked = aborted if was_met else None
            return was_met
        if kind == ControlType.COMMIT:
            is_needed = batch.producer_id in self._committed
            self._committed.discard(batch.producer_id)
            return is_needed
        return True

    def _reach(self, batch: Batch) -> None:
        last_offset = batch.last_offset
        while self._known_before <= last_offset:
            entry = next(self._entries, None)
            if entry is None:
                self._known_before = last_offset + 1  # no other will come
                break
            # After its marker nothing was undecided before this offset, so whatever ends later begins there or later.
            self._known_before = entry.last_stable_offset
            heappush(self._coming, (entry.first_offset, entry))
        while self._coming and self._coming[0][0] <= last_offset:
            _, aborted = heappop(self._coming)
            if aborted.last_offset >= batch.base_offset:
                self._aborted[aborted.producer_id] = aborted, False


def _control_type(batch: Batch) -> int | None:
    """None for a batch without records."""
    keys = records_of(batch, _MARKER_BYTES_MAX).keys()
    for key in keys:
        if key is not None and len(key) >= _CONTROL_KEY.size:
            kind: int = _CONTROL_KEY.unpack_from(key)[1]
            return kind
        return ControlType.UNKNOWN
    return None
