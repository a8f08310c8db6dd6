"""Walks the batches of a segment's file in large sequential reads, and verifies each: recovery, rebuilding, verifying.

A walk ends at the end of the file or at the first bytes that are no sound batch. What those bytes are decides what may
be done about them (hazard 8). A crash of the machine leaves a tail that is short, or pages of zeros where unsynced
bytes were: that is cut. Anything else with sound batches behind it is damage, and nothing of it is ever cut silently.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from headrace.errors import HeadraceError, ProtocolError
from headrace.named_tuple import NamedTuple
from headrace.protocol.batch import HEADER_SIZE_BYTES, Batch
from headrace.protocol.batch_crc import crc32c
from headrace.storage.disk import File
from headrace.storage.index import RELATIVE_OFFSET_MAX

CHUNK_BYTES: Final = 1 << 20
PAGE_BYTES: Final = 4096
SECTOR_BYTES: Final = 512
"""What a disk writes whole at least: of a page that was on its way, some may be as they were before."""
ZEROS_MIN: Final = 16
"""Fewer zeros in front of a page's end are no sign of a page that was lost: records have as many."""

_LOG_OVERHEAD_BYTES: Final = 12
_MAGIC: Final = b"\x02"
_MAGIC_AT: Final = 16
_CRC_AT: Final = 17
_CRC_FROM: Final = 21


class LogDamaged(HeadraceError):
    """Bytes of a segment that should be sound are not. The partition is offline until an operator decides."""

    def __init__(self, path: str, position: int, end: int, reason: str, given_up: str = "the rest of the file") -> None:
        self.path = path
        self.position = position
        self.end = end
        self.reason = reason
        super().__init__(
            f"{path} is damaged in bytes {position} to {end}: {reason}. Where other replicas have the partition, move "
            f"its folder away and restart; else give up {given_up} by `truncate -s {position} {path}`, and restart."
        )


class Damage(NamedTuple):
    """Bytes of a segment that are no sound batch."""

    position: int
    end: int
    """Where the next sound batch is, or the file ends."""
    reason: str
    is_followed: bool
    """There is a sound batch behind them in the same file."""
    is_lost_write: bool
    """They look as a crash of the machine leaves them: cut short, or with pages or sectors of zeros."""


class SegmentScan:
    """One walk over one file. `position` and `next_offset` say how far it came, `problem` why it went no further."""

    __slots__ = (
        "_file",
        "_is_misplaced",
        "base_offset",
        "end_offset",
        "has_holes",
        "next_offset",
        "position",
        "problem",
        "size_bytes",
    )

    def __init__(self, file: File, size_bytes: int, base_offset: int, position: int = 0) -> None:
        self._file = file
        self.size_bytes = size_bytes
        self.base_offset = base_offset
        self.position = position
        self.next_offset = base_offset
        self.problem: str | None = None
        self._is_misplaced = False
        self.has_holes = True
        """Offsets may jump, as where compaction has been; set by the first jump that is sure, too."""
        self.end_offset: int | None = None
        """Where the next segment begins, if there is one."""

    def batches(self, advanced: Callable[[int], None] | None = None, chunk_bytes: int = CHUNK_BYTES) -> Iterator[Batch]:
        """The sound batches in order; `position` is where the current one begins, its buffer is valid until the next.

        `advanced` hears after each read how many bytes it was.
        """
        size_bytes = self.size_bytes
        buffer = memoryview(bytearray(max(HEADER_SIZE_BYTES, min(chunk_bytes, size_bytes - self.position))))
        filled = 0  # of the buffer
        at = 0  # in the buffer, of the batch at self.position
        next_offset = self.next_offset
        offset_max = self.base_offset + RELATIVE_OFFSET_MAX
        while self.position < size_bytes:
            left = filled - at
            wanted = HEADER_SIZE_BYTES
            if left >= HEADER_SIZE_BYTES:
                try:
                    batch = Batch(buffer, at)
                except ProtocolError:
                    self.problem = "they are no header of a record batch"
                    return
                wanted = batch.size_bytes
                if left >= wanted:
                    base_offset = batch.base_offset
                    last_offset = base_offset + batch.last_offset_delta
                    if crc32c(buffer[at + _CRC_FROM : at + wanted]) != batch.crc:
                        self.problem = f"the record batch with base offset {base_offset} fails its CRC32C"
                        return
                    if not next_offset <= base_offset <= last_offset <= offset_max:
                        self.problem = f"they have offsets {base_offset} to {last_offset}, and {next_offset} is next"
                        self._is_misplaced = True
                        return
                    if base_offset != next_offset and not self.has_holes:
                        if self._is_bit_wrong(base_offset, next_offset, last_offset, self.position + wanted):
                            self.problem = (
                                f"they have offsets {base_offset} to {last_offset}, where {next_offset} is next: "
                                "one bit of the first is wrong"
                            )
                            return
                        self.has_holes = True
                    yield batch
                    next_offset = self.next_offset = last_offset + 1
                    self.position += wanted
                    at += wanted
                    continue
            if self.position + wanted > size_bytes:
                self.problem = f"a record batch needs {wanted} bytes, and the file ends before"
                return
            # The batch goes on beyond what was read: its beginning moves to the front, and the next read follows it.
            grown = buffer if wanted <= len(buffer) else memoryview(bytearray(wanted))
            grown[:left] = buffer[at:filled]
            buffer = grown
            found = self._file.read_into(
                self.position + left, buffer[left : min(len(buffer), size_bytes - self.position)]
            )
            filled = left + found
            at = 0
            if advanced is not None:
                advanced(found)
            if not found:
                self.problem = f"the file ends at byte {self.position + left} already"
                return

    def _is_bit_wrong(self, base_offset: int, next_offset: int, last_offset: int, end: int) -> bool:
        """Of a jump: it is what one flipped bit makes of the right offset, and nothing behind it comes after it.

        The base offset is not under the CRC32C. A jump by a power of two in a log without holes, which neither the next
        batch nor the next segment confirms, is one in the last batch, or in one whose followers are elsewhere.
        """
        flipped = base_offset ^ next_offset
        if flipped & (flipped - 1) or last_offset + 1 == self.end_offset:
            return False
        try:
            follower = Batch(memoryview(self._file.read(end, HEADER_SIZE_BYTES)))
        except ProtocolError:
            return True
        return follower.base_offset <= last_offset

    def damage(self) -> Damage | None:
        """What lies behind the last sound batch; None when that is nothing, or only the zeros of a padding."""
        if self.problem is None:
            return None
        rest = _Rest(self._file, self.position, self.size_bytes)
        has_lost_start = rest.has_lost_start(self.next_offset)
        if self._is_misplaced:
            # A sound batch in the wrong place: the base offset, here or before, is not under the CRC.
            return Damage(self.position, self.size_bytes, self.problem, is_followed=True, is_lost_write=has_lost_start)
        if not rest.has_content():
            return None
        found = rest.next_batch(self.next_offset, self.base_offset + RELATIVE_OFFSET_MAX)
        is_lost_write = rest.is_cut_short() if found is None else False
        return Damage(
            self.position,
            self.size_bytes if found is None else found,
            self.problem,
            found is not None,
            is_lost_write or has_lost_start or rest.has_lost_page(self.size_bytes if found is None else found),
        )


class _Rest:
    """The bytes of a file from the first bad one on, looked at in chunks."""

    __slots__ = ("end", "file", "start")

    def __init__(self, file: File, start: int, end: int) -> None:
        self.file = file
        self.start = start
        self.end = end

    def has_content(self) -> bool:
        return any(not is_zeros(chunk) for _, chunk in self._chunks(self.end))

    def next_batch(self, offset_min: int, offset_max: int) -> int | None:
        """The position of the first sound batch behind the first bad byte whose offsets could follow."""
        high_words = {(offset >> 32).to_bytes(4, "big") for offset in (offset_min, offset_max)}
        before = b""
        for position, chunk in self._chunks(self.end):
            if is_zeros(chunk):
                before = chunk[-_MAGIC_AT:]
                continue
            window = before + chunk
            window_at = position - len(before)
            found = window.find(_MAGIC, _MAGIC_AT)
            while found >= 0:
                batch_at = window_at + found - _MAGIC_AT
                if (
                    batch_at > self.start
                    and window[found - _MAGIC_AT : found - _MAGIC_AT + 4] in high_words
                    and self._is_sound(batch_at, offset_min, offset_max)
                ):
                    return batch_at
                found = window.find(_MAGIC, found + 1)
            before = window[-_MAGIC_AT:]
        return None

    def is_cut_short(self) -> bool:
        """The batch goes on beyond the end of the file, and not only because its length was spoilt."""
        head = self.file.read(self.start, min(HEADER_SIZE_BYTES, self.end - self.start))
        if len(head) < HEADER_SIZE_BYTES:
            return True
        size_bytes = int.from_bytes(head[8:12], "big", signed=True) + _LOG_OVERHEAD_BYTES
        if self.start + size_bytes <= self.end:
            return False
        crc = int.from_bytes(head[_CRC_AT:_CRC_FROM], "big")
        return crc32c(self.file.read(self.start + _CRC_FROM, self.end - self.start - _CRC_FROM)) != crc

    def has_lost_start(self, next_offset: int) -> bool:
        """Only a few bytes are in the sector where the batch begins, and they are zeros where its offset can't be.

        The sector had been written before with what comes before them, and the rest of the batch is in another one.
        """
        count = SECTOR_BYTES - self.start % SECTOR_BYTES
        return (
            count < ZEROS_MIN
            and any(next_offset.to_bytes(8)[:count])
            and not any(self.file.read(self.start, min(count, self.end - self.start)))
        )

    def has_lost_page(self, end: int) -> bool:
        """Some page up to `end` is zeros from some byte on to its end, or all of these bytes are zeros.

        Or a sector: one that was as it was before has nothing of these batches, and is zeros from the first of them on.
        """
        first = self.file.read(self.start, min(end - self.start, SECTOR_BYTES - self.start % SECTOR_BYTES))
        if len(first) >= ZEROS_MIN and not any(first):
            return True
        if self._has_lost_end(end):
            return True
        is_empty = True
        # Where the file ends, its last page does; and a batch that follows may begin with zeros in a page that is lost.
        is_page_end = end == self.end or not any(self.file.read(end, -end % PAGE_BYTES))
        for position, chunk in self._chunks(end):
            is_empty = is_empty and is_zeros(chunk)
            sectors = range(-position % SECTOR_BYTES, len(chunk) - SECTOR_BYTES + 1, SECTOR_BYTES)
            if any(chunk.startswith(_ZERO_SECTOR, at) for at in sectors):
                return True
            page_ends = [*range(PAGE_BYTES - position % PAGE_BYTES, len(chunk) + 1, PAGE_BYTES)]
            if is_page_end and position + len(chunk) == end:
                page_ends.append(len(chunk))
            for page_end in page_ends:
                page = chunk[max(0, page_end - PAGE_BYTES) : page_end]
                if len(page) - len(page.rstrip(b"\0")) >= min(ZEROS_MIN, len(page)):
                    return True
        return is_empty

    def _has_lost_end(self, end: int) -> bool:
        """The sector in which these bytes end has nothing of them, and of the batch that follows the first zeros."""
        last = self.file.read(max(self.start, end - end % SECTOR_BYTES), min(end % SECTOR_BYTES, end - self.start))
        return len(last) >= ZEROS_MIN and not any(last) and not any(self.file.read(end, -end % SECTOR_BYTES))

    def _is_sound(self, position: int, offset_min: int, offset_max: int) -> bool:
        try:
            batch = Batch(memoryview(self.file.read(position, HEADER_SIZE_BYTES)))
            if not offset_min <= batch.base_offset <= batch.last_offset <= offset_max:
                return False
            if position + batch.size_bytes > self.end:
                return False
            Batch(memoryview(self.file.read(position, batch.size_bytes))).verify()
        except ProtocolError:
            return False
        return True

    def _chunks(self, end: int) -> Iterator[tuple[int, bytes]]:
        """Aligned to pages, but for the first."""
        position = self.start
        while position < end:
            chunk_end = min(end, (position // CHUNK_BYTES + 1) * CHUNK_BYTES)
            chunk = self.file.read(position, chunk_end - position)
            if not chunk:
                return
            yield position, chunk
            position += len(chunk)


def is_zeros(chunk: bytes) -> bool:
    """By comparing, which is ten times as fast as counting: a preallocated segment may have a gigabyte of them."""
    return chunk == (_ZEROS if len(chunk) == CHUNK_BYTES else bytes(len(chunk)))


_ZEROS: Final = bytes(CHUNK_BYTES)
_ZERO_SECTOR: Final = bytes(SECTOR_BYTES)
