# cython: language_level=3, annotation_typing=False, nonecheck=True
"""Reading a log: batches from an offset on, what was aborted among them, and offsets by time.

Every lookup is a binary search over segments, one in an index, and a short walk.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.errors import Error, Refused
from headrace.storage import lookup
from headrace.storage.lookup import Located, Stamped
from headrace.storage.read import Fetched, Piece
from headrace.storage.replay import transaction_index
from headrace.storage.transaction_index import AbortedTransaction

if TYPE_CHECKING:
    from headrace.storage.log import Log
    from headrace.storage.segment import Segment


def read(log: Log, offset: int, bytes_max: int, offset_max: int, min_one_batch: bool = True) -> Fetched:
    """Batches from the one that holds `offset`, up to `offset_max` (out) and about `bytes_max` bytes.

    The first batch comes whole, however large, unless `min_one_batch` says otherwise; the last may be cut. An offset
    that the log does not have is Refused; at its end, or at `offset_max`, there is nothing.
    """
    end_offset = log.log_end_offset
    if not log.log_start_offset <= offset <= end_offset:
        raise Refused(
            Error.OFFSET_OUT_OF_RANGE,
            f"{log.topic}-{log.partition} has offsets {log.log_start_offset} to {end_offset}, and {offset} was asked.",
        )
    if offset_max > end_offset:
        offset_max = end_offset
    if offset >= offset_max:
        return Fetched([], 0, offset)
    segments = log.segments
    known = log.read_end
    if known is not None and known[0] == offset and known[1] is segments.active and offset_max == end_offset:
        # Whoever reads along asks for what was appended since the last read: all of it is behind where that ended.
        _, segment, position = known
        size_bytes = segment.size_bytes - position
        if size_bytes <= bytes_max:
            file = segment.file
            file.hold()
            log.read_end = (end_offset, segment, segment.size_bytes)
            return Fetched([Piece(file, position, size_bytes)], size_bytes, end_offset)
    number = max(0, segments.number_at(offset))
    first = lookup.locate(segments[number], offset)
    while first is None:  # a gap that compaction left at a segment's end
        number += 1
        if number == len(segments):
            return Fetched([], 0, offset)
        first = lookup.locate(segments[number], offset)
    if first.base_offset >= offset_max:
        return Fetched([], 0, offset)
    budget = max(bytes_max, first.size_bytes) if min_one_batch else bytes_max
    return _gather(log, number, first, budget, offset_max)


def _gather(log: Log, number: int, first: Located, budget: int, offset_max: int) -> Fetched:
    segments = log.segments
    position = first.position
    pieces: list[Piece] = []
    size_bytes = 0
    while size_bytes < budget:
        segment = segments[number]
        segment_end = segments.end_offset(number, log.log_end_offset)
        end = segment.size_bytes if offset_max >= segment_end else _position_of(segment, offset_max)
        taken = min(end - position, budget - size_bytes)
        if taken > 0:
            file = segment.file
            file.hold()
            pieces.append(Piece(file, position, taken))
            size_bytes += taken
        if taken < end - position:
            fetched = Fetched(pieces, size_bytes, min(offset_max, segment_end))
            return _cut(segment, fetched, first.size_bytes if len(pieces) == 1 else 0)
        number += 1
        if offset_max <= segment_end or number == len(segments):
            if number == len(segments):
                log.read_end = (offset_max, segment, end)
            break
        position = 0
    return Fetched(pieces, size_bytes, min(offset_max, segment_end) if size_bytes else first.base_offset)


def _cut(segment: Segment, fetched: Fetched, bytes_min: int) -> Fetched:
    """The budget ends in the middle of a segment. Less than half of what is read from it is left out for that."""
    index = segment.offset_index
    piece = fetched.pieces[-1]
    cut_at = piece.position + piece.size_bytes
    entry = index.last_up_to(cut_at)
    start = index[entry][1] if entry >= 0 else 0
    whole_bytes = start - piece.position
    if whole_bytes >= max(1, bytes_min, piece.size_bytes // 2):
        fetched.size_bytes -= piece.size_bytes - whole_bytes
        piece.size_bytes = whole_bytes
        cut_at = start
    following = entry if cut_at == start and entry >= 0 else entry + 1
    if following < len(index):
        # No record before its position has a larger offset than it.
        fetched.end_offset = fetched.sent_offset = min(fetched.end_offset, index[following][0] + 1)
    if cut_at == start and entry > 0:
        fetched.sent_offset = index[entry - 1][0] + 1
    return fetched


def _position_of(segment: Segment, offset: int) -> int:
    """Where the batches before an offset end."""
    found = lookup.locate(segment, offset)
    return segment.size_bytes if found is None else found.position


def aborted_in(log: Log, start_offset: int, end_offset: int) -> list[AbortedTransaction]:
    """The aborted transactions that have records from `start_offset` (in) to `end_offset` (out), by their end.

    Their markers may come later: segments are asked until one says that no other transaction can reach back. Only
    those that have a transaction index are.
    """
    found: list[AbortedTransaction] = []
    segments = log.segments
    for number in segments.with_transactions(max(0, segments.number_at(start_offset))):
        index = transaction_index(segments, number, log.snapshots, segments.end_offset(number, log.log_end_offset))
        aborted, is_complete = index.aborted_in(start_offset, end_offset)
        found += aborted
        if is_complete:
            break
    return found


def by_timestamp(log: Log, timestamp: int) -> Stamped | None:
    """The first record at or after a time; None when all are before it."""
    segments = log.segments
    number = max(segments.number_reaching(timestamp), segments.number_at(log.log_start_offset))
    while number < len(segments):
        found = lookup.first_at_or_after(
            segments[number], timestamp, log.log_start_offset, log.options.decompressed_bytes_max
        )
        if found is not None:
            return found
        number += 1  # its newest records are before the log's start
    return None


def latest(log: Log) -> Stamped | None:
    """The first record with the largest timestamp, which is the first of all in a log without timestamps."""
    segment = log.segments.latest()
    largest = segment.max_timestamp[0]
    if largest < 0:
        return _first(log)
    found = lookup.latest(segment, log.options.decompressed_bytes_max)
    if found is None or found.timestamp < largest or found.offset < log.log_start_offset:
        return _latest_from_start(log)
    return found


def _latest_from_start(log: Log) -> Stamped | None:
    """The same when the newest were before the log's start, and are still in its first segment, or were compacted."""
    best: Stamped | None = None
    for segment in _segments_from_start(log):
        found = lookup.latest(segment, log.options.decompressed_bytes_max)
        if found is not None and found.offset < log.log_start_offset:
            found = lookup.latest_from(segment, log.log_start_offset, log.options.decompressed_bytes_max)
        if found is not None and (best is None or found.timestamp > best.timestamp):
            best = found
    return best or _first(log)


def _first(log: Log) -> Stamped | None:
    for segment in _segments_from_start(log):
        found = lookup.first_from(segment, log.log_start_offset, log.options.decompressed_bytes_max)
        if found is not None:
            return found
    return None


def _segments_from_start(log: Log) -> list[Segment]:
    return log.segments[max(0, log.segments.number_at(log.log_start_offset)) :]
