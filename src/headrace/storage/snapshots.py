"""The producer snapshots of a log: one where each segment begins, and one where the log ended at a clean stop."""

from __future__ import annotations

import logging
from bisect import bisect_right, insort
from collections.abc import Iterable, Iterator
from contextlib import suppress

from headrace.storage import names
from headrace.storage.disk import FileVanished
from headrace.storage.place import Place
from headrace.storage.producer_snapshot import SnapshotDamaged, decode_snapshot, encode_snapshot
from headrace.storage.producer_state import ProducerState

logger = logging.getLogger(__name__)


class Snapshots:
    """Which there are, by their offset, ascending."""

    __slots__ = ("_offsets", "_place")

    def __init__(self, place: Place, offsets: Iterable[int] = ()) -> None:
        self._place = place
        self._offsets = sorted(offsets)

    def __iter__(self) -> Iterator[int]:
        return iter(self._offsets)

    @property
    def latest_offset(self) -> int | None:
        return self._offsets[-1] if self._offsets else None

    def latest_until(self, offset_max: int) -> int | None:
        """The largest offset of one that is not above another."""
        number = bisect_right(self._offsets, offset_max)
        return self._offsets[number - 1] if number else None

    def write(self, state: ProducerState) -> str:
        """Writes one of where the state is; returns its name. A torn one is found out by its CRC, and not used."""
        offset = state.end_offset
        name = names.segment_name(offset) + names.SNAPSHOT
        file = self._place.create(name)
        try:
            content = encode_snapshot(state)
            file.write(0, [content])
            file.truncate(len(content))
        finally:
            file.close()
        if offset not in self._offsets:
            insort(self._offsets, offset)
        return name

    def load(self, offset_max: int) -> ProducerState | None:
        """The producers at the largest offset not above one; a damaged snapshot is removed, with a warning."""
        while number := bisect_right(self._offsets, offset_max):
            offset = self._offsets[number - 1]
            name = names.segment_name(offset) + names.SNAPSHOT
            try:
                content = self._place.disk.read(self._place.path(name))
                return decode_snapshot(content, self._place.full_path(name), offset)
            except SnapshotDamaged as damaged:
                logger.warning("%s", damaged)
            except FileVanished:
                logger.warning(
                    "%s is missing; the producers are read from the log instead", self._place.full_path(name)
                )
            self.remove(offset)
        return None

    def remove(self, offset: int) -> None:
        self._offsets.remove(offset)
        with suppress(FileVanished):
            self._place.remove(names.segment_name(offset) + names.SNAPSHOT)

    def mark_deleted(self, offset: int) -> list[str]:
        """Renames the one of a segment that is deleted; returns its new name, if it was there."""
        if offset not in self._offsets:
            return []
        self._offsets.remove(offset)
        name = names.segment_name(offset) + names.SNAPSHOT
        try:
            self._place.rename(name, name + names.DELETED)
        except FileVanished:
            return []
        return [name + names.DELETED]

    def remove_above(self, offset: int) -> None:
        """After a truncation: what came later is not so."""
        for above in self._offsets[bisect_right(self._offsets, offset) :]:
            self.remove(above)

    def keep(self, base_offsets: Iterable[int]) -> None:
        """Removes those that no segment begins with, but for the latest."""
        kept = {*base_offsets, *self._offsets[-1:]}
        for stray in [offset for offset in self._offsets if offset not in kept]:
            self.remove(stray)
