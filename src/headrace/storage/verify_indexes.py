"""The indexes of a segment held against its batches, as they are walked: each entry once, in one pass.

An index that is wrong is one problem, told by its first bad entry: lookups go astray, and a node rebuilds it all.
"""

from __future__ import annotations

from typing import Final, Generic, TypeVar

from headrace.protocol.batch import Batch
from headrace.storage.disk import Disk, DiskError, FileVanished
from headrace.storage.index import Index
from headrace.storage.offset_index import OffsetIndex
from headrace.storage.producer_state import read_marker
from headrace.storage.scan import Damage
from headrace.storage.time_index import NO_TIMESTAMP, TimeIndex
from headrace.storage.transaction_index import TransactionIndex
from headrace.storage.verify_report import Report

REBUILD: Final = "Nothing is lost: with the node stopped, remove it; the next start makes it anew from the log."
RECOVER: Final = (
    "With the node stopped, remove .kafka_cleanshutdown and recovery-point-offset-checkpoint from the log directory; "
    "the next start makes it anew from the log."
)

AnyIndex = TypeVar("AnyIndex", bound=Index)

_NEVER: Final = 2**63


class IndexFile(Generic[AnyIndex]):
    """An index file as it was before the walk began, so that what it points at is there although a node appends."""

    __slots__ = ("_bad", "_first", "index", "is_comparable", "is_missing", "is_needed", "is_settled", "path", "report")

    def __init__(
        self,
        kind: type[AnyIndex],
        disk: Disk,
        path: str,
        base_offset: int,
        report: Report,
        *,
        is_settled: bool,
        is_needed: bool,
    ) -> None:
        self.path = path
        self.report = report
        self.is_settled = is_settled
        """It must be right. Else it may lag behind its segment, or be ahead of it: the next start makes it anew."""
        self.is_needed = is_needed
        """It must be there."""
        self._bad = 0
        self._first: tuple[int, str] | None = None
        self.is_missing = False
        content = b""
        try:
            content = disk.read(path)
        except FileVanished:
            self.is_missing = True
        except DiskError as error:
            self.wrong(0, f"it can't be read ({error.reason})")
        whole = len(content) - len(content) % kind.ENTRY_BYTES
        if whole < len(content):
            self.wrong(whole // kind.ENTRY_BYTES, "its last entry is cut")
        if not is_settled:
            # Kafka maps the file of an active segment at its full size, with zeros behind the entries.
            used = len(content[:whole].rstrip(b"\0"))
            whole = -(-used // kind.ENTRY_BYTES) * kind.ENTRY_BYTES
        self.index, wrong = kind.take(content[:whole], base_offset)
        self.is_comparable = not self.is_missing and not self._bad and not wrong
        if wrong:
            self.wrong(self._first_disorder(), f"it {wrong}")
            self.index = kind(base_offset)  # nothing more can be said about its entries

    def wrong(self, entry: int, what: str) -> None:
        """Counts a bad entry; the first one is told."""
        self._bad += 1
        if self._first is None:
            self._first = entry, what

    def finish(self) -> None:
        """Tells what is wrong, if anything; not called where the segment went away meanwhile, and its index with it."""
        if not self.is_settled:
            return
        if self.is_missing and self.is_needed:
            advice = "Nothing is lost: a node makes it anew from the log when it needs it."
            self.report.repairable(self.path, "it is missing", advice)
        if self._first is None:
            return
        entry, what = self._first
        more = f" (and {self._bad - 1} more like it)" if self._bad > 1 else ""
        self.report.repairable(self.path, what + more, REBUILD, entry * self.index.ENTRY_BYTES)

    def _first_disorder(self) -> int:
        before: tuple[int, ...] = (self.index.base_offset - 1, -1)
        for entry in range(len(self.index)):
            found: tuple[int, ...] = self.index[entry]  # type: ignore[index]
            if found[0] <= before[0] or found[1] < before[1]:
                return entry
            before = found
        return 0


class OffsetIndexCheck:
    """Every entry points at the beginning of a batch that has its offset, or is of the same append."""

    __slots__ = ("_at", "_damaged_until", "_next", "file")

    def __init__(self, file: IndexFile[OffsetIndex]) -> None:
        self.file = file
        self._at = -1
        self._damaged_until = 0
        self._next = (0, 0)
        self._advance()

    def see(self, position: int, batch: Batch) -> None:
        while self._next[1] <= position:
            offset, entry_position = self._next
            if entry_position == position:
                if offset < batch.base_offset:
                    self.file.wrong(
                        self._at, f"an entry says offset {offset} for byte {position}, where {batch.base_offset} begins"
                    )
            elif entry_position >= self._damaged_until:
                self.file.wrong(self._at, f"an entry points at byte {entry_position}, where no batch begins")
            self._advance()

    def skip(self, damage: Damage) -> None:
        """What points into damage is not to blame."""
        self._damaged_until = max(self._damaged_until, damage.end)

    def finish(self, end_position: int) -> None:
        while self._at < len(self.file.index):
            position = self._next[1]
            if position >= max(end_position, self._damaged_until):
                self.file.wrong(self._at, f"an entry points at byte {position}, and the batches end at {end_position}")
            elif position >= self._damaged_until:
                self.file.wrong(self._at, f"an entry points at byte {position}, where no batch begins")
            self._advance()
        self.file.finish()

    def _advance(self) -> None:
        self._at += 1
        self._next = self.file.index[self._at] if self._at < len(self.file.index) else (_NEVER, _NEVER)


class TimeIndexCheck:
    """Every entry has the largest timestamp up to its offset, and the last entry of a closed segment that of all."""

    __slots__ = ("_at", "_is_blind", "_largest", "_next", "file")

    def __init__(self, file: IndexFile[TimeIndex]) -> None:
        self.file = file
        self._at = -1
        self._largest = NO_TIMESTAMP
        self._is_blind = False
        self._next = (0, 0)
        self._advance()

    def see(self, batch: Batch) -> None:
        before = self._largest
        if batch.max_timestamp > before:
            self._largest = batch.max_timestamp
        last_offset = batch.base_offset + batch.last_offset_delta
        while self._next[1] <= last_offset:
            timestamp, offset = self._next
            largest = self._largest if offset >= batch.base_offset else before
            if timestamp != largest and not self._is_blind:
                self.file.wrong(
                    self._at, f"an entry says timestamp {timestamp} for offset {offset}, and it is {largest}"
                )
            self._advance()

    def skip(self) -> None:
        """Behind damage nobody knows the largest timestamp."""
        self._is_blind = True

    def finish(self, next_offset: int) -> None:
        index = self.file.index
        if not self._is_blind:
            for entry in range(self._at, len(index)):
                self.file.wrong(
                    entry, f"an entry is of offset {index[entry][1]}, and the segment ends at {next_offset}"
                )
            last = index.last_timestamp_ms
            if self.file.is_settled and self.file.is_comparable and last < self._largest:
                self.file.wrong(
                    len(index), f"its last timestamp is {last}, and the largest of its segment {self._largest}"
                )
        self.file.finish()

    def _advance(self) -> None:
        self._at += 1
        self._next = self.file.index[self._at] if self._at < len(self.file.index) else (_NEVER, _NEVER)


class TransactionCheck:
    """The transactions of a partition as they end, segment by segment, against the transaction indexes."""

    __slots__ = ("_aborts", "_expected", "_open", "_report")

    def __init__(self, report: Report) -> None:
        self._report = report
        self._open: dict[int, int] = {}  # producer id -> first offset that has records
        self._aborts: dict[int, int] = {}  # offset of an abort marker in this segment -> producer id
        self._expected: dict[int, int] = {}  # those of them that have something to abort

    def see(self, batch: Batch) -> None:
        """A transactional batch."""
        producer_id = batch.producer_id
        if not batch.is_control:
            # The cleaner leaves batches without records behind, for their sequences: nothing to abort.
            if batch.record_count:
                self._open.setdefault(producer_id, batch.base_offset)
            return
        marker = read_marker(batch)
        if marker is None:
            return
        first_offset = self._open.pop(producer_id, None)
        if not marker.is_commit:
            self._aborts[batch.base_offset] = producer_id
            if first_offset is not None:
                self._expected[batch.base_offset] = first_offset

    def finish(self, file: IndexFile[TransactionIndex]) -> None:
        """At the end of a segment."""
        aborts, expected = self._aborts, self._expected
        self._aborts, self._expected = {}, {}
        for entry, aborted in enumerate(file.index):
            if aborts.get(aborted.last_offset) != aborted.producer_id:
                file.wrong(
                    entry,
                    f"an entry says that producer {aborted.producer_id} aborted at offset {aborted.last_offset}, "
                    "and no such marker is there",
                )
            expected.pop(aborted.last_offset, None)
        file.finish()
        if expected and file.is_settled and (file.is_comparable or file.is_missing):
            last_offset, first_offset = next(iter(expected.items()))
            more = f" (and {len(expected) - 1} more like it)" if len(expected) > 1 else ""
            self._report.damage(
                file.path,
                f"the transaction from offset {first_offset}, aborted at {last_offset}, is not in it{more}: consumers "
                "of committed records get aborted ones",
                RECOVER,
            )
