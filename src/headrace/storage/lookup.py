# cython: language_level=3, annotation_typing=False, nonecheck=True
"""Finding a batch in a segment: by offset, by time. Binary search in an index, then a short walk over headers.

The cost follows index.interval.bytes and the size of a batch, never what is stored. An index that leads to something
else than a batch is rebuilt on the spot, with a warning.
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections.abc import Iterator
from struct import Struct
from typing import TYPE_CHECKING, Final

from headrace.errors import ProtocolError
from headrace.named_tuple import NamedTuple
from headrace.protocol.batch import HEADER_SIZE_BYTES, MAGIC, Batch
from headrace.protocol.records import records_of
from headrace.storage import names
from headrace.storage.index import IndexDamaged
from headrace.storage.scan import LogDamaged

if TYPE_CHECKING:
    from headrace.storage.segment import Segment

logger = logging.getLogger(__name__)

WALK_BYTES: Final = 4096
_LOCATE: Final = Struct(">qi4xb6xi")  # base offset, length, magic, last offset delta
_LOCATE_BYTES: Final = _LOCATE.size
_LOG_OVERHEAD_BYTES: Final = 12

_unpack_location = _LOCATE.unpack_from


class Located(NamedTuple):
    """A batch, by its header."""

    position: int
    size_bytes: int
    base_offset: int
    last_offset: int


class Stamped(NamedTuple):
    """A record that was looked up by time."""

    timestamp: int
    offset: int
    leader_epoch: int


def locate(segment: Segment, offset: int) -> Located | None:
    """The first batch whose last offset is at or after `offset`; None when all are before it."""
    try:
        return _begun(segment, offset) or _locate(segment, offset)
    except LogDamaged:
        _rebuild(segment)
        return _locate(segment, offset)


def _begun(segment: Segment, offset: int) -> Located | None:
    """The batch that the next entry of the index leads to, if it begins with the offset, as it does for who reads on.

    A reply ends where an entry leads to, so this is one look at a header instead of two or more. Whatever else is there
    is left to who walks.
    """
    entry = segment.offset_index.first_from(offset)
    if entry is None:
        return None
    entry_offset, position = entry
    header = segment.file.read(position, _LOCATE_BYTES)
    if len(header) < _LOCATE_BYTES:
        return None
    base_offset, length, magic, delta = _unpack_location(header)
    size_bytes = length + _LOG_OVERHEAD_BYTES
    if base_offset != offset or magic != MAGIC or size_bytes < HEADER_SIZE_BYTES:
        return None
    if not 0 <= delta <= entry_offset - offset:
        return None
    return Located(position, size_bytes, base_offset, base_offset + delta)


def _locate(segment: Segment, offset: int) -> Located | None:
    entry_offset, position = segment.offset_index.lookup(offset)
    file = segment.file
    end = segment.size_bytes
    is_entry = position > 0
    while position + HEADER_SIZE_BYTES <= end:
        chunk = file.read(position, min(WALK_BYTES, end - position))
        last_at = len(chunk) - _LOCATE_BYTES
        at = 0
        while at <= last_at:
            base_offset, length, magic, delta = _unpack_location(chunk, at)
            last_offset = base_offset + delta
            size_bytes = length + _LOG_OVERHEAD_BYTES
            # Kafka's entry has the last offset of what was appended at its position, which may be several batches.
            if magic != MAGIC or size_bytes < HEADER_SIZE_BYTES or (is_entry and last_offset > entry_offset):
                raise _no_batch(segment, position + at)
            is_entry = False
            if last_offset >= offset:
                return Located(position + at, size_bytes, base_offset, last_offset)
            at += size_bytes
        if not at:
            break
        position += at
    return None


def headers(segment: Segment, position: int = 0, entry_offset: int | None = None) -> Iterator[tuple[int, Batch]]:
    """The batches from one at `position` on: where each is, and its header. Only the header is in its buffer.

    With the offset of the index entry that led here, the first batch is held against it.
    """
    end = segment.size_bytes
    while position + HEADER_SIZE_BYTES <= end:
        chunk = memoryview(segment.file.read(position, min(WALK_BYTES, end - position)))
        at = 0
        while at + HEADER_SIZE_BYTES <= len(chunk):
            try:
                batch = Batch(chunk, at)
            except ProtocolError as error:
                raise _no_batch(segment, position + at) from error
            if entry_offset is not None and not segment.base_offset <= batch.last_offset <= entry_offset:
                raise _no_batch(segment, position + at)
            entry_offset = None
            yield position + at, batch
            at += batch.size_bytes
        if not at:
            return
        position += at


def read_batch(segment: Segment, position: int, size_bytes: int) -> Batch:
    return Batch(memoryview(segment.file.read(position, size_bytes)))


def read_header(segment: Segment, position: int) -> Batch:
    return read_batch(segment, position, HEADER_SIZE_BYTES)


def first_at_or_after(
    segment: Segment, timestamp: int, start_offset: int, decompressed_bytes_max: int
) -> Stamped | None:
    """The first record with a timestamp at or after one, among those from `start_offset` on."""
    try:
        return _first_at_or_after(segment, timestamp, start_offset, decompressed_bytes_max)
    except LogDamaged:
        _rebuild(segment)
        return _first_at_or_after(segment, timestamp, start_offset, decompressed_bytes_max)


def _first_at_or_after(
    segment: Segment, timestamp: int, start_offset: int, decompressed_bytes_max: int
) -> Stamped | None:
    entry = max(_entry_before_time(segment, timestamp), segment.offset_index.lookup(start_offset), key=_position)
    for position, batch in headers(segment, entry[1], entry[0] if entry[1] else None):
        if batch.max_timestamp >= timestamp and batch.last_offset >= start_offset:
            found = _inside(segment, position, batch, timestamp, start_offset, decompressed_bytes_max)
            if found is not None:
                return found
    return None


def _entry_before_time(segment: Segment, timestamp: int) -> tuple[int, int]:
    """The entry of the offset index from which to walk to the first batch that reaches a timestamp.

    Timestamps of records go back and forth, and the time index has entries only where the largest one grew. So that
    batch lies behind the last entry below the timestamp and not behind the one after that, and there in the last
    interval of the offset index: by the end of the one before, the largest timestamp had not grown yet.
    """
    offset_index, time_index = segment.both_indexes()
    after = bisect_left(range(len(time_index)), timestamp, key=lambda entry: time_index[entry][0])
    if after == len(time_index):
        return offset_index[-1] if len(offset_index) else (segment.base_offset, 0)
    position = offset_index.lookup(time_index[after][1])[1]
    entry = bisect_left(range(len(offset_index)), position, key=lambda entry: offset_index[entry][1])
    return offset_index[entry - 1] if entry > 0 else (segment.base_offset, 0)


def latest(segment: Segment, decompressed_bytes_max: int) -> Stamped | None:
    """The first record that has the largest timestamp of the segment."""
    timestamp, offset = segment.max_timestamp
    if timestamp < 0:
        return None
    found = locate(segment, offset)
    if found is None:
        return None
    batch = read_batch(segment, found.position, found.size_bytes)
    record = records_of(batch, decompressed_bytes_max).latest()
    if record is None:  # only its header was left by a cleaning
        return latest_from(segment, segment.base_offset, decompressed_bytes_max)
    return Stamped(batch.max_timestamp, record[0], batch.partition_leader_epoch)


def latest_from(segment: Segment, start_offset: int, decompressed_bytes_max: int) -> Stamped | None:
    """The same among the records from an offset on, which takes a walk from there to the segment's end."""
    best: Stamped | None = None
    for position, header in headers(segment, segment.offset_index.lookup(start_offset)[1]):
        if header.last_offset < start_offset or (best is not None and header.max_timestamp <= best.timestamp):
            continue
        batch = read_batch(segment, position, header.size_bytes)
        for record in records_of(batch, decompressed_bytes_max).decode():
            if record.offset >= start_offset and (best is None or record.timestamp > best.timestamp):
                best = Stamped(record.timestamp, record.offset, header.partition_leader_epoch)
    return None if best is None or best.timestamp < 0 else best


def first_from(segment: Segment, start_offset: int, decompressed_bytes_max: int) -> Stamped | None:
    """The first record from an offset on."""
    for position, header in headers(segment, segment.offset_index.lookup(start_offset)[1]):
        if header.last_offset >= start_offset:
            batch = read_batch(segment, position, header.size_bytes)
            for record in records_of(batch, decompressed_bytes_max).decode():
                if record.offset >= start_offset:
                    return Stamped(record.timestamp, record.offset, header.partition_leader_epoch)
    return None


def _no_batch(segment: Segment, position: int) -> LogDamaged:
    return LogDamaged(segment.full_path(), position, segment.size_bytes, "no record batch begins there")


def _rebuild(segment: Segment) -> None:
    logger.warning("%s", IndexDamaged(segment.full_path(names.INDEX), "leads to no batch"))
    segment.rebuild_indexes()


def _position(entry: tuple[int, int]) -> int:
    return entry[1]


def _inside(
    segment: Segment, position: int, header: Batch, timestamp: int, start_offset: int, decompressed_bytes_max: int
) -> Stamped | None:
    batch = read_batch(segment, position, header.size_bytes)
    records = records_of(batch, decompressed_bytes_max)
    if header.base_offset >= start_offset:
        record = records.first_at_or_after(timestamp)
        return None if record is None else Stamped(record[1], record[0], header.partition_leader_epoch)
    for found in records.decode():
        if found.offset >= start_offset and found.timestamp >= timestamp:
            return Stamped(found.timestamp, found.offset, header.partition_leader_epoch)
    return None
