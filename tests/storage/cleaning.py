"""A log with a cleaner for the tests: on a disk in memory, stepped by hand, with a clock of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headrace.config import CleanerConfig, LogConfig
from headrace.protocol.batch import scan
from headrace.protocol.batch_builder import build
from headrace.protocol.compression import Compression
from headrace.protocol.control import build_marker
from headrace.protocol.kernel_types import Record
from headrace.protocol.records import records_of
from headrace.storage.cleaner import Cleaner
from headrace.storage.cleaning_work import InlineWork, StartWork
from headrace.storage.disk import Disk, SyncFailed
from headrace.storage.log import Log
from headrace.storage.producer_state import Origin
from headrace.storage.recovery import Saved
from headrace.testing.disk import FaultyDisk
from headrace.testing.workers import SteppedWorkers
from tests.storage.batches import batch
from tests.storage.logs import open_at

DAY_MS = 86_400_000
START_MS = 1_700_000_000_000
KEYS = [b"a", b"b", b"c", b"d", b"e", b"f"]
COMPACT = LogConfig(
    cleanup_policy=("compact",),
    segment_bytes=700,
    index_interval_bytes=100,
    file_delete_delay_ms=0,
    min_cleanable_dirty_ratio=0.0,
    delete_retention_ms=DAY_MS,
)


class Compacted:
    """A compacted log, whoever writes to it, and the cleaner that goes over it."""

    def __init__(
        self, disk: Disk | None = None, config: LogConfig = COMPACT, *, saved: Saved | None = None, **cleaner: Any
    ) -> None:
        self.disk = disk or FaultyDisk()
        self.now_ms = START_MS
        self.log = open_at(self.disk, config, saved, now_ms=self.now_ms)
        self.workers = SteppedWorkers()
        self.later: list[tuple[float, Callable[[], None]]] = []
        self.sync_failures: list[SyncFailed] = []
        self.disk.on_offline = self.sync_failures.append
        self.settings = dict(cleaner)
        start: StartWork = cleaner.pop("start", InlineWork)
        self.cleaner = Cleaner(
            lambda: [self.log],
            CleanerConfig(**cleaner),
            start,
            [self.workers],
            now_ms=lambda: self.now_ms,
            call_later=lambda seconds, call: self.later.append((seconds, call)),
            secret=lambda: b"sixteen secrets!",
        )
        self.sequences: dict[tuple[int, int], int] = {}

    # Writing

    def put(self, *pairs: tuple[bytes | None, bytes | None], producer: int = -1, epoch: int = 0, **header: Any) -> int:
        """Appends one batch of keys and values; returns its first offset."""
        if producer >= 0:
            header |= {"producer_id": producer, "producer_epoch": epoch}
            header["base_sequence"] = self.sequences.get((producer, epoch), 0)
        content = batch(
            *(value for _, value in pairs), key=None, timestamps=[self.now_ms + i for i in range(len(pairs))], **header
        )
        if any(key is not None for key, _ in pairs):
            content = keyed(pairs, self.now_ms, **header)
        appended = self.log.append_as_leader(memoryview(content), 0, self.now_ms)
        if producer >= 0:
            self.sequences[producer, epoch] = header["base_sequence"] + len(pairs)
        self.log.set_high_watermark(self.log.log_end_offset)
        return appended.first_offset

    def end(self, producer: int, *, commit: bool, epoch: int = 0) -> int:
        """Ends a transaction."""
        marker = build_marker(
            committed=commit, producer_id=producer, producer_epoch=epoch, coordinator_epoch=0, timestamp_ms=self.now_ms
        )
        appended = self.log.append_as_leader(memoryview(marker), 0, self.now_ms, Origin.COORDINATOR)
        self.log.set_high_watermark(self.log.log_end_offset)
        return appended.first_offset

    def roll(self) -> None:
        """Closes the active segment, and writes down that all is durable."""
        self.log.roll(self.now_ms)
        self.checkpoint()

    def checkpoint(self) -> None:
        self.log.flush(_raised)
        self.log.checkpointed(self.log.recovery_point, self.log.truncations)

    # Cleaning

    def clean(self) -> int:
        """Lets the cleaner do all that it wants to do now; returns how many steps that were."""
        self.cleaner.poll()
        steps = 0
        while len(self.workers) or self._go_on():
            if len(self.workers):
                self.workers.step()
                steps += 1
        return steps

    def _go_on(self) -> bool:
        """Calls what was to be called at once; leaves what waits."""
        due = [call for seconds, call in self.later if seconds <= 0]
        self.later = [(seconds, call) for seconds, call in self.later if seconds > 0]
        for call in due:
            call()
        return bool(due)

    # Reading

    def restart(self, *, power_lost: bool = False, clean: bool = False) -> Compacted:
        """What the next process finds."""
        assert isinstance(self.disk, FaultyDisk)
        log = self.log
        if clean:
            log.write_out()
            log.close()
            self.disk.sync_all()
        saved = Saved(
            clean,
            log.log_end_offset if clean else log.checkpointed_recovery_point,
            log.log_start_offset,
            log.high_watermark,
            log.clean_offset,
        )
        again = Compacted(self.disk.restart(power_lost=power_lost), log.config, saved=saved, **self.settings)
        again.now_ms = self.now_ms
        again.sequences = dict(self.sequences)
        again.log.set_high_watermark(again.log.log_end_offset)
        return again

    def committed(self, start: int = 0, bytes_max: int = 300) -> list[Record]:
        """What a reader of committed records gets, fetch by fetch."""
        reader = Reader(self.log, start, bytes_max)
        while reader.fetch():
            pass
        return reader.records

    def latest(self) -> dict[bytes | None, bytes | None]:
        """What each key has at last, tombstones too."""
        return {record.key: record.value for record in self.committed()}

    def table(self) -> dict[bytes | None, bytes]:
        """What a reader knows at the end: keys that were deleted are not in it."""
        return {key: value for key, value in self.latest().items() if value is not None}


class Reader:
    """Follows a log as a consumer of committed records does, by Kafka's way of skipping aborted ones."""

    def __init__(self, log: Log, offset: int = 0, bytes_max: int = 300) -> None:
        self.log = log
        self.offset = offset
        self.bytes_max = bytes_max
        self.records: list[Record] = []

    def fetch(self) -> bool:
        """False at the end."""
        offset = max(self.offset, self.log.log_start_offset)
        fetched = self.log.read(offset, self.bytes_max, self.log.last_stable_offset)
        aborted = sorted(self.log.aborted_in(offset, fetched.end_offset), key=lambda entry: entry.first_offset)
        before = self.offset
        skipped: set[int] = set()
        for found in scan(fetched.take(), partial=True):
            found.verify()
            while aborted and aborted[0].first_offset <= found.last_offset:
                skipped.add(aborted.pop(0).producer_id)
            if found.is_control:
                skipped.discard(found.producer_id)
            elif not (found.is_transactional and found.producer_id in skipped):
                records = records_of(found, 1 << 20).decode()
                self.records += [record for record in records if record.offset >= offset]
            self.offset = found.next_offset
        return self.offset > before


def keyed(pairs: tuple[tuple[bytes | None, bytes | None], ...], now_ms: int, **header: Any) -> bytearray:
    return build([(key, value, (), now_ms + i) for i, (key, value) in enumerate(pairs)], **header)


def codec(number: int) -> Compression:
    return list(Compression)[number % len(Compression)]


def _raised(error: Exception | None) -> None:
    if error is not None:
        raise error
