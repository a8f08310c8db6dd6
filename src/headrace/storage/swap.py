"""Putting a cleaned segment in the place of those that it was made from. Only the log does this, on its own thread.

The names tell how far it came, and after a crash `folder` undoes or finishes it by them:

1. The new files go from `.cleaned` to `.swap`. Until the last of them has, the swap has not begun, and is undone.
2. The old segments' files become `.deleted`. The new `.log.swap` says by its last batch which segments it stands for.
3. The new files lose their mark, the batches first.

Names in one directory become durable in the order in which they changed, and what is in the new files was durable
before. So no sync is needed in between, and all of it is some renames in one go. A reader in the middle has its file
open, and finishes on the old one (hazard 11).
"""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import TYPE_CHECKING

from headrace.storage import names
from headrace.storage.cleaning_job import Replacement
from headrace.storage.disk import DiskError, FileVanished
from headrace.storage.place import Place
from headrace.storage.segment import Segment

if TYPE_CHECKING:
    from headrace.storage.log import Log

logger = logging.getLogger(__name__)


def swap_in(log: Log, new: Replacement, now_ms: int) -> bool:
    """Puts the new segment in its place. False, and nothing has changed, when what it was made from is gone.

    The old segments must be as they were when the cleaning began: whoever calls knows that the log was not truncated.
    A DiskError leaves the log as it was, or offline, and the next start finishes it.
    """
    segments, place = log.segments, log.place
    number = segments.number_at(new.base_offset)
    old = segments[number : number + len(new.base_offsets)] if number >= 0 else []
    if [segment.base_offset for segment in old] != new.base_offsets or old[-1] is segments.active:
        remove_cleaned(place, new.base_offset)
        return False
    suffixes = [names.LOG, names.INDEX, names.TIME_INDEX] + [names.TXN_INDEX] * new.has_transaction_index
    name = names.segment_name(new.base_offset)
    replacement = Segment(place, new.base_offset, new.size_bytes, new.modified_ms)
    replacement.has_transaction_index = new.has_transaction_index
    try:
        log.note_holes()
        for suffix in suffixes:
            place.rename(name + suffix + names.CLEANED, name + suffix + names.SWAP)
    except DiskError:
        _remove(place, [name + suffix + mark for suffix in suffixes for mark in (names.SWAP, names.CLEANED)])
        raise
    try:
        doomed = old[0].mark_deleted()
        for segment in old[1:]:
            doomed += segment.mark_deleted() + log.snapshots.mark_deleted(segment.base_offset)
        for suffix in suffixes:
            place.rename(name + suffix + names.SWAP, name + suffix)
    except DiskError as error:
        if log.offline is None:
            log.offline = error
            logger.error("%s-%d is offline until a restart: %s", log.topic, log.partition, error)
        raise
    segments.replace(number, number + len(old), [replacement])
    log.unsynced.removed(old)
    with suppress(DiskError):  # else an index that was not needed any more is looked for in the batches once
        log.unsynced.wrote(log.aborted.note(new.base_offset, replacement.aborted_count()))
    log.doom(doomed, now_ms)
    logger.debug(
        "%s-%d has segment %d in place of %d with %d bytes more",
        log.topic,
        log.partition,
        new.base_offset,
        len(old),
        sum(segment.size_bytes for segment in old) - new.size_bytes,
    )
    return True


def remove_cleaned(place: Place, base_offset: int | None = None) -> None:
    """Removes what a cleaning wrote that is not taken: one segment, or all that is there.

    Before another cleaning begins, nothing of the last may be left: `folder` takes a `.swap` file for one of a swap
    that has not begun as long as a `.cleaned` one is there before it.
    """
    marked = [
        name
        for name in place.disk.names(place.folder)
        if (file := names.parse_segment_file(name)) is not None
        and file.mark == names.CLEANED
        and base_offset in (None, file.base_offset)
    ]
    _remove(place, marked)


def _remove(place: Place, file_names: list[str]) -> None:
    for name in file_names:
        try:
            place.remove(name)
        except FileVanished:
            continue
