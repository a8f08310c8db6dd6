"""All sound batches of a file, those behind damage too: for the tools that show, verify and count what is there.

Recovery ends at the first damage (see `scan`); who looks for trouble wants to know all of it. Nothing here writes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from headrace.errors import ProtocolError
from headrace.protocol.batch import HEADER_SIZE_BYTES, Batch
from headrace.storage.disk import File
from headrace.storage.scan import PAGE_BYTES, Damage, SegmentScan

DECOMPRESSED_BYTES_MAX: Final = 256 << 20
"""Of one batch, for who looks inside: what is larger can't be read, and so can't fill the memory."""


class Walk:
    """One walk over one file. `position` is where the current batch begins, and where the sound ones end at last."""

    __slots__ = ("_file", "base_offset", "end_offset", "has_holes", "next_offset", "position", "size_bytes")

    def __init__(self, file: File, size_bytes: int, base_offset: int, position: int = 0) -> None:
        self._file = file
        self.size_bytes = size_bytes
        self.base_offset = base_offset
        self.position = position
        self.next_offset = base_offset
        """Behind the last sound batch; at a Damage, behind the last one before it."""
        self.has_holes = True
        self.end_offset: int | None = None
        """As those of `SegmentScan`."""

    def __call__(self, advanced: Callable[[int], None] | None = None) -> Iterator[Batch | Damage]:
        """The batches, and in their places the bytes that are none; a batch's buffer is valid until the next.

        `advanced` hears how many bytes were passed, all in all the size of the file.
        """
        passed = _Passed(self.position, advanced)
        resumed: SegmentScan | None = None
        while self.position < self.size_bytes:
            start = self.position
            passed.reached(start)
            scan, resumed = resumed or self._scan(start), None
            for batch in scan.batches(passed.read):
                self.position = scan.position
                yield batch
                self.next_offset = scan.next_offset
            self.position = resume = scan.position
            damage = scan.damage()
            if damage is None:
                break
            if self._has_grown(scan):
                resumed = self._scan(scan.position, scan)
                continue
            if damage.is_followed and damage.end == self.size_bytes:
                # A batch that is sound but for its offsets, which may be the fault of the one before. So it gets a
                # second try, without regard to what came before. Its length is under the CRC, and can be trusted.
                header = Batch(memoryview(self._file.read(damage.position, HEADER_SIZE_BYTES)))
                damage = damage._replace(end=damage.position + header.size_bytes)
                resume = damage.end if resume == start else resume
            else:
                resume = damage.end
            yield damage
            self.position = resume
        passed.reached(self.size_bytes)

    def _has_grown(self, scan: SegmentScan) -> bool:
        """A node has written since where the scan ended: in order, so that what was found behind it is not damage."""
        return next(self._scan(scan.position, scan).batches(chunk_bytes=PAGE_BYTES), None) is not None

    def _scan(self, position: int, before: SegmentScan | None = None) -> SegmentScan:
        """From a position on, where another may have come to; else which offset is next is only known at the start."""
        scan = SegmentScan(self._file, self.size_bytes, self.base_offset, position)
        scan.end_offset = self.end_offset
        if before is None:
            scan.has_holes = self.has_holes or position > 0
        else:
            scan.has_holes, scan.next_offset = before.has_holes, before.next_offset
        return scan


class _Passed:
    """Tells how far reading has come, each byte once, although damage makes it go back."""

    __slots__ = ("_advanced", "_position", "_told")

    def __init__(self, position: int, advanced: Callable[[int], None] | None) -> None:
        self._advanced = advanced
        self._position = position
        self._told = position

    def read(self, size_bytes: int) -> None:
        self.reached(self._position + size_bytes)

    def reached(self, position: int) -> None:
        self._position = position
        if position > self._told and self._advanced is not None:
            self._advanced(position - self._told)
        self._told = max(self._told, position)


def first_base_offset(file: File) -> int:
    """Where the offsets of a file begin, by its first batch: for a file whose name does not tell."""
    try:
        return max(0, Batch(memoryview(file.read(0, HEADER_SIZE_BYTES))).base_offset)
    except ProtocolError:
        return 0
