"""Holds the last entry of a time index against the batches of its segment: retention and lookups go by that entry.

Kafka's format has no checksum, and zeros or a file that was cut pass for an index. The largest timestamp of a closed
segment always has an entry. So none of its batches may have a later one, and the batch of the entry has that very one.
This looks at the first batch and at those from the last entry of the offset index on, a few reads whatever the size.
"""

from __future__ import annotations

from itertools import islice
from struct import Struct
from typing import TYPE_CHECKING, Final

from headrace.storage import lookup, names
from headrace.storage.disk import FileVanished
from headrace.storage.index import IndexDamaged
from headrace.storage.scan import LogDamaged

if TYPE_CHECKING:
    from headrace.protocol.batch import Batch
    from headrace.storage.segment import Segment

BATCHES_MAX: Final = 1000
"""With a large index.interval.bytes there are many behind the last entry of the offset index."""

_TIME_ENTRY: Final = Struct(">qi")
_OFFSET_ENTRY: Final = Struct(">ii")


def read_last_entry(segment: Segment) -> tuple[int, int] | None:
    """The last timestamp and its offset, from the end of the file: an index is not loaded for one entry.

    None where there is none, or what is there is no entry.
    """
    entry = _last_of(segment, names.TIME_INDEX, _TIME_ENTRY, is_strict=True)
    return (entry[0], segment.base_offset + entry[1]) if entry is not None and entry[0] >= 0 <= entry[1] else None


def check_last_entry(segment: Segment, timestamp: int, offset: int) -> None:
    """Raises IndexDamaged when the batches say otherwise. Without an entry, the timestamp is -1."""
    for _, first in islice(lookup.headers(segment), 1):
        _compare(segment, timestamp, offset, first)
    entry = _last_of(segment, names.INDEX, _OFFSET_ENTRY)
    entry_offset, position = entry if entry is not None else (0, 0)
    if not 0 <= position < max(segment.size_bytes, 1):
        raise IndexDamaged(segment.full_path(names.INDEX), "goes beyond its segment")
    try:
        count, last_offset = 0, segment.base_offset
        walk = lookup.headers(segment, position, segment.base_offset + entry_offset if position else None)
        for _, batch in islice(walk, BATCHES_MAX):
            _compare(segment, timestamp, offset, batch)
            count, last_offset = count + 1, batch.last_offset
    except LogDamaged as damaged:
        raise IndexDamaged(segment.full_path(names.INDEX), "leads to no batch") from damaged
    if 0 < count < BATCHES_MAX and offset > last_offset:
        raise IndexDamaged(segment.full_path(names.TIME_INDEX), "goes beyond its segment")


def confirm_last_entry(segment: Segment) -> bool:
    """Before a segment is deleted for its age: the whole index is sound, and its last entry is that of its batch.

    False when the indexes had to be made anew, so that the segment may be younger. Raises LogDamaged.
    """
    before = segment.max_timestamp
    if segment.is_active:
        return True
    timestamp, offset = segment.time_index.last_entry
    found = lookup.locate(segment, offset) if timestamp >= 0 else None
    if found is not None:
        batch = lookup.read_header(segment, found.position)
        if _differs(batch, timestamp):
            segment.distrust(IndexDamaged(segment.full_path(names.TIME_INDEX), "has another timestamp than its batch"))
    elif timestamp >= 0:
        segment.distrust(IndexDamaged(segment.full_path(names.TIME_INDEX), "goes beyond its segment"))
    return segment.max_timestamp == before


def _compare(segment: Segment, timestamp: int, offset: int, batch: Batch) -> None:
    if batch.max_timestamp > timestamp:
        reason = "does not reach the timestamps of its segment" if timestamp >= 0 else "has no entry for its segment"
    elif batch.base_offset <= offset <= batch.last_offset and _differs(batch, timestamp):
        reason = "has another timestamp than its batch"
    else:
        return
    raise IndexDamaged(segment.full_path(names.TIME_INDEX), reason)


def _differs(batch: Batch, timestamp: int) -> bool:
    """Of a batch that Kafka's cleaner left empty, the index keeps a timestamp that its header has no more."""
    return batch.max_timestamp != timestamp and batch.record_count > 0


def _last_of(segment: Segment, suffix: str, entry: Struct, *, is_strict: bool = False) -> tuple[int, int] | None:
    """Of an index file; None when it has no entry, or, if that matters, is not made of whole ones."""
    disk, path = segment.place.disk, segment.path(suffix)
    try:
        size_bytes = disk.stat(path).size
        cut = size_bytes % entry.size
        if size_bytes - cut <= 0 or (is_strict and cut):
            return None
        file = disk.open(path, read_only=True)
        try:
            first, second = entry.unpack(file.read(size_bytes - cut - entry.size, entry.size))
        finally:
            file.close()
    except FileVanished:
        return None
    return first, second
