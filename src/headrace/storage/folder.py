"""What a log's folder holds when it is opened, after everything that a crash left half done is finished or undone."""

from __future__ import annotations

import logging
from typing import NamedTuple

from headrace.storage import names
from headrace.storage.disk import TEMPORARY_SUFFIX, FileStat
from headrace.storage.names import SegmentFile
from headrace.storage.place import Place
from headrace.storage.scan import SegmentScan
from headrace.storage.segment import Segment

logger = logging.getLogger(__name__)


class Stock(NamedTuple):
    segments: list[Segment]
    """Ascending, all of them closed."""
    snapshot_offsets: list[int]


def take_stock(place: Place) -> Stock:
    """Tidies up a folder and says what is in it, by one look at its names. Reads no segment, but for a swap's."""
    files = {
        found: (name, stat)
        for name, stat in place.disk.scan(place.folder).items()
        if not stat.is_directory and (found := _known(place, name)) is not None
    }
    _undo_cleaning(place, files)
    if any(file.mark == names.SWAP for file in files):
        _finish_swap(place, files)
    bases = sorted(file.base_offset for file in files if file.suffix == names.LOG)
    segments = []
    for base_offset in bases:
        stat = files[SegmentFile(base_offset, names.LOG, "")][1]
        segment = Segment(place, base_offset, stat.size, stat.modified_ms)
        transactions = files.get(SegmentFile(base_offset, names.TXN_INDEX, ""))
        segment.has_transaction_index = transactions is not None and transactions[1].size > 0
        segments.append(segment)
    known = set(bases)
    for file, (name, _) in files.items():
        if file.suffix not in (names.LOG, names.SNAPSHOT) and file.base_offset not in known:
            logger.warning("%s is an index of no segment, and removed", place.full_path(name))
            place.remove(name)
    return Stock(segments, sorted(file.base_offset for file in files if file.suffix == names.SNAPSHOT))


def _known(place: Place, name: str) -> SegmentFile | None:
    """Removes what means nothing any more: files that were deleted, and those that were not finished."""
    if name.endswith((names.DELETED, TEMPORARY_SUFFIX)):
        place.remove(name)
        return None
    return names.parse_segment_file(name)


def _undo_cleaning(place: Place, files: dict[SegmentFile, tuple[str, FileStat]]) -> None:
    """What the cleaner wrote and the log did not take goes.

    A swap begins by renaming all its files from `.cleaned` to `.swap`, the highest offsets first. As long as one is
    called `.cleaned`, those from its offset on that are called `.swap` are of a swap that had not begun for good.
    """
    cleaned = [file for file in files if file.mark == names.CLEANED]
    least = min((file.base_offset for file in cleaned), default=None)
    for file in list(files):
        is_unfinished = file.mark == names.SWAP and least is not None and file.base_offset >= least
        if file.mark == names.CLEANED or is_unfinished:
            place.remove(files.pop(file)[0])


def _finish_swap(place: Place, files: dict[SegmentFile, tuple[str, FileStat]]) -> None:
    """The new segments were whole: those that they were made from go, and they take their place."""
    for swap in [file for file in files if file.mark == names.SWAP and file.suffix == names.LOG]:
        name, stat = files[swap]
        logger.info("%s is swapped in, as a crash did not let it be before", place.full_path(name))
        end_offset = _end_of(place, name, stat.size, swap.base_offset)
        for file in list(files):
            if not file.mark and file.suffix != names.SNAPSHOT and swap.base_offset <= file.base_offset < end_offset:
                place.remove(files.pop(file)[0])
    for swap in [file for file in files if file.mark == names.SWAP]:
        name, stat = files.pop(swap)
        place.rename(name, name.removesuffix(names.SWAP))
        files[swap._replace(mark="")] = (name.removesuffix(names.SWAP), stat)


def _end_of(place: Place, name: str, size_bytes: int, base_offset: int) -> int:
    file = place.disk.open(place.path(name), read_only=True)
    try:
        scan = SegmentScan(file, size_bytes, base_offset)
        for _ in scan.batches():
            pass
        return max(scan.next_offset, base_offset + 1)
    finally:
        file.close()
