"""What a log's folder holds when it is opened, after everything that a crash left half done is finished or undone."""

from __future__ import annotations

import logging

from headrace.named_tuple import NamedTuple
from headrace.storage import names
from headrace.storage.disk import TEMPORARY_SUFFIX
from headrace.storage.place import Place
from headrace.storage.scan import LogDamaged, SegmentScan
from headrace.storage.segment import Segment
from headrace.storage.truncation_point import TRUNCATION_POINT

logger = logging.getLogger(__name__)


class Stock(NamedTuple):
    segments: list[Segment]
    """Ascending, all of them closed."""
    snapshot_offsets: list[int]
    has_truncation_point: bool
    has_holes: bool
    has_aborted_counts: bool


class _Files:
    """The names of segments' files by what follows their 20 digits: thousands of names, and a few kinds."""

    __slots__ = ("has_aborted_counts", "has_holes", "has_truncation_point", "kinds", "place")

    def __init__(self, place: Place) -> None:
        self.place = place
        self.has_truncation_point = False
        self.has_holes = False
        self.has_aborted_counts = False
        self.kinds: dict[str, set[int]] = {}
        for name in place.disk.names(place.folder):
            if name.endswith((names.DELETED, TEMPORARY_SUFFIX)):
                place.remove(name)  # deleted, or not finished: it means nothing any more
            elif name[:20].isdigit():
                self.kinds.setdefault(name[20:], set()).add(int(name[:20]))
            elif name == TRUNCATION_POINT:
                self.has_truncation_point = True
            elif name == names.HOLES:
                self.has_holes = True
            elif name == names.ABORTED:
                self.has_aborted_counts = True

    def offsets(self, suffix: str, mark: str = "") -> list[int]:
        return sorted(self.kinds.get(suffix + mark, ()))

    def remove(self, base_offset: int, kind: str) -> None:
        self.kinds[kind].discard(base_offset)
        self.place.remove(names.segment_name(base_offset) + kind)

    def marked(self, mark: str) -> list[tuple[int, str]]:
        """Base offset and suffix of the files with a mark."""
        return [
            (base_offset, suffix)
            for suffix in names.SEGMENT_SUFFIXES
            for base_offset in sorted(self.kinds.get(suffix + mark, ()))
        ]


def take_stock(place: Place, *, is_clean: bool = False) -> Stock:
    """Tidies up a folder and says what is in it, by one look at its names. Reads no segment, but for a swap's.

    Raises LogDamaged when a segment is missing after a clean stop, by the indexes that it has left.
    """
    files = _Files(place)
    _undo_cleaning(files)
    _finish_swap(files)
    bases = files.offsets(names.LOG)
    with_transactions = set(files.offsets(names.TXN_INDEX))
    with_indexes = {*files.offsets(names.INDEX), *files.offsets(names.TIME_INDEX)}
    segments = []
    for base_offset in bases:
        stat = place.disk.stat(place.path(names.segment_name(base_offset) + names.LOG))
        segment = Segment(place, base_offset, stat.size, stat.modified_ms)
        segment.has_transaction_index = base_offset in with_transactions
        segment.has_index_files = base_offset in with_indexes
        segments.append(segment)
    known = set(bases)
    for suffix in (names.INDEX, names.TIME_INDEX, names.TXN_INDEX):
        for base_offset in files.offsets(suffix):
            if base_offset not in known:
                name = names.segment_name(base_offset) + suffix
                if is_clean and place.disk.stat(place.path(name)).size:
                    log_path = place.full_path(names.segment_name(base_offset) + names.LOG)
                    raise LogDamaged(log_path, 0, 0, f"the file is missing, and {name} was left by a clean stop")
                logger.warning("%s is an index of no segment, and removed", place.full_path(name))
                place.remove(name)
    snapshot_offsets = files.offsets(names.SNAPSHOT)
    return Stock(segments, snapshot_offsets, files.has_truncation_point, files.has_holes, files.has_aborted_counts)


def _undo_cleaning(files: _Files) -> None:
    """What the cleaner wrote and the log did not take goes.

    A swap begins by renaming all its files from `.cleaned` to `.swap`, the highest offsets first. As long as one is
    called `.cleaned`, those from its offset on that are called `.swap` are of a swap that had not begun for good.
    """
    cleaned = files.marked(names.CLEANED)
    if cleaned:
        least = min(base_offset for base_offset, _ in cleaned)
        for base_offset, suffix in files.marked(names.SWAP):
            if base_offset >= least:
                files.remove(base_offset, suffix + names.SWAP)
        for base_offset, suffix in cleaned:
            files.remove(base_offset, suffix + names.CLEANED)


def _finish_swap(files: _Files) -> None:
    """The new segments were whole: those that they were made from go, and they take their place."""
    place = files.place
    for base_offset in files.offsets(names.LOG, names.SWAP):
        name = names.segment_name(base_offset) + names.LOG + names.SWAP
        logger.info("%s is swapped in, as a crash did not let it be before", place.full_path(name))
        end_offset = _end_of(place, name, base_offset)
        for suffix in names.SEGMENT_SUFFIXES:
            for old in files.offsets(suffix):
                if base_offset <= old < end_offset:
                    files.remove(old, suffix)
    for base_offset, suffix in files.marked(names.SWAP):
        name = names.segment_name(base_offset) + suffix
        place.rename(name + names.SWAP, name)
        files.kinds.setdefault(suffix, set()).add(base_offset)


def _end_of(place: Place, name: str, base_offset: int) -> int:
    file = place.disk.open(place.path(name), read_only=True)
    try:
        scan = SegmentScan(file, file.size(), base_offset)
        for _ in scan.batches():
            pass
        return max(scan.next_offset, base_offset + 1)
    finally:
        file.close()
