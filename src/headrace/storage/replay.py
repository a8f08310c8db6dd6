"""Producer state and aborted transactions from the batches themselves: after a truncation, a crash, a lost snapshot."""

from __future__ import annotations

import logging
from collections.abc import Iterator

from headrace.protocol.batch import Batch
from headrace.storage import lookup, names
from headrace.storage.index import IndexDamaged
from headrace.storage.producer_state import CompletedTransaction, ProducerState
from headrace.storage.scan import LogDamaged, SegmentScan
from headrace.storage.segment import Segment
from headrace.storage.segments import Segments
from headrace.storage.snapshots import Snapshots
from headrace.storage.transaction_index import AbortedTransaction, TransactionIndex

logger = logging.getLogger(__name__)


def producers_at(segments: Segments, snapshots: Snapshots, offset: int) -> ProducerState:
    """What was known of the producers when the log ended at `offset`: a snapshot, and what was appended after it."""
    number = segments.number_at(offset)
    known_offset = snapshots.latest_until(offset)
    # Kafka has none where the first segment begins, and where it begins nothing is known.
    is_missing = number > 0 and (known_offset is None or known_offset < segments[number].base_offset)
    state = snapshots.load(offset)
    if state is None or state.end_offset < segments[0].base_offset:
        state = ProducerState(segments[0].base_offset)
    for _, batch in batches_between(segments, state.end_offset, offset):
        if batch.producer_id >= 0:
            state.apply(batch)
    state.end_offset = offset
    if is_missing and len(state):
        name = names.segment_name(segments[number].base_offset) + names.SNAPSHOT
        path = segments[number].place.full_path(name)
        logger.warning("%s is missing; the producers are read from the log instead", path)
    return state


def batches_between(segments: Segments, start_offset: int, end_offset: int) -> Iterator[tuple[Segment, Batch]]:
    """The batches that have offsets from `start_offset` (in) to `end_offset` (out), verified."""
    number = max(0, segments.number_at(start_offset))
    while number < len(segments) and start_offset < end_offset:
        segment = segments[number]
        if segment.base_offset >= end_offset:
            return
        # An index would have to be there: only a walk that begins in the middle asks for it.
        begin = lookup.locate(segment, start_offset) if start_offset > segment.base_offset else None
        if begin is not None or start_offset <= segment.base_offset:
            scan = SegmentScan(segment.file, segment.size_bytes, segment.base_offset, begin.position if begin else 0)
            for batch in scan.batches():
                if batch.base_offset >= end_offset:
                    return
                yield segment, batch
            if scan.problem is not None:
                raise LogDamaged(segment.full_path(), scan.position, segment.size_bytes, scan.problem)
        number += 1


def rebuild_transaction_index(segments: Segments, number: int, snapshots: Snapshots, end_offset: int) -> None:
    """Makes the transaction index of one segment anew, with a warning that its damage caused."""
    segment = segments[number]
    state = producers_at(segments, snapshots, segment.base_offset)
    index = TransactionIndex(segment.base_offset)
    for _, batch in batches_between(segments, segment.base_offset, end_offset):
        if batch.producer_id >= 0 and (aborted := aborted_by(state.apply(batch))) is not None:
            index.append(aborted)
    segment.replace_transaction_index(index)
    segments.recount()


def transaction_index(segments: Segments, number: int, snapshots: Snapshots, end_offset: int) -> TransactionIndex:
    """That of a segment, rebuilt when it is damaged."""
    try:
        return segments[number].transaction_index
    except IndexDamaged as damaged:
        logger.warning("%s", damaged)
        rebuild_transaction_index(segments, number, snapshots, end_offset)
        return segments[number].transaction_index


def aborted_by(completed: CompletedTransaction | None) -> AbortedTransaction | None:
    """The entry for the transaction index, when a marker ended a transaction and aborted it."""
    if completed is None or not completed.is_aborted:
        return None
    return AbortedTransaction(
        completed.producer_id, completed.first_offset, completed.last_offset, completed.last_stable_offset
    )
