"""The cleaner of a node: whose turn it is, and what is set aside and tried again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from headrace.config import CleanerConfig
from headrace.protocol.batch import Batch
from headrace.storage import names
from headrace.storage.cleaner import Cleaner
from headrace.storage.cleaning_job import (
    CleaningJob,
)
from headrace.storage.cleaning_work import InlineWork, Work
from headrace.storage.disk import Disk, DiskError, DiskFull
from headrace.testing.disk import Faults, FaultyDisk
from headrace.testing.workers import SteppedWorkers
from tests.storage.cleaning import COMPACT, KEYS, START_MS, Compacted


def dirty(**settings: Any) -> Compacted:
    real = Compacted(**settings)
    for number in range(20):
        real.put((KEYS[number % 3], b"%d" % number))
    real.roll()
    return real


def platter_disk(real: Compacted) -> FaultyDisk:
    assert isinstance(real.disk, FaultyDisk)
    return real.disk


# --------------------------------------------------------------------------------------------------------- whose turn


class Several:
    """Some logs, and a cleaner with some workers."""

    def __init__(self, *logs: Compacted, workers: int = 1, **settings: Any) -> None:
        self.logs = {real.log: real for real in logs}
        for number, real in enumerate(logs):
            real.log.topic = f"t{number}"
        self.workers = [SteppedWorkers() for _ in range(workers)]
        self.later: list[tuple[float, Callable[[], None]]] = []
        self.now_ms = START_MS
        self.jobs: list[CleaningJob] = []
        self.cleaner = Cleaner(
            lambda: [*self.logs],
            CleanerConfig(**settings),
            self._start,
            self.workers,
            now_ms=lambda: self.now_ms,
            call_later=lambda seconds, call: self.later.append((seconds, call)),
            secret=lambda: bytes(16),
        )

    def _start(self, job: CleaningJob, disk: Disk) -> Work:
        self.jobs.append(job)
        return InlineWork(job, disk)

    def step_until(self, is_over: Callable[[], bool]) -> None:
        while not is_over():
            busy = [workers for workers in self.workers if len(workers)]
            assert busy, "there is something to do"
            for workers in busy:
                workers.step()

    @property
    def running(self) -> list[str]:
        return [topic for topic, _ in self.cleaner.running]


def test_the_dirtiest_log_is_cleaned_first_and_as_many_at_once_as_there_are_workers() -> None:
    logs = [dirty() for _ in range(3)]
    logs[0].log.clean_offset = 15
    logs[2].log.clean_offset = 5
    several = Several(*logs, workers=2)
    several.cleaner.poll()
    assert several.running == ["t1", "t2"]
    several.step_until(lambda: several.cleaner.cleanings == 2)
    assert several.running == []
    assert several.later[-1][0] == 0
    several.later[-1][1]()
    assert several.running == ["t0"]


def test_a_log_that_is_not_compacted_or_not_due_is_left_alone() -> None:
    plain, quiet, offline = dirty(), dirty(), dirty()
    plain.log.configure(LogConfigOf.plain)
    quiet.log.configure(LogConfigOf.lazy)
    quiet.log.clean_offset = 15
    offline.log.offline = DiskError("t-0", "for a test")
    several = Several(plain, quiet, offline)
    several.cleaner.poll()
    assert several.running == []
    assert several.later[-1][0] == 15.0, "it looks again after log.cleaner.backoff.ms"


def test_each_cleaning_has_its_share_of_the_means() -> None:
    several = Several(
        dirty(),
        workers=2,
        log_cleaner_dedupe_buffer_size=1000,
        log_cleaner_io_buffer_size=100,
        log_cleaner_io_max_bytes_per_second=50.0,
    )
    several.cleaner.poll()
    (job,) = several.jobs
    assert (job.dedupe_buffer_bytes, job.io_buffer_bytes, job.bytes_per_second) == (500, 50, 25.0)


def test_it_does_nothing_where_it_is_not_wanted() -> None:
    several = Several(dirty(), log_cleaner_enable=False)
    several.cleaner.poll()
    assert (several.running, several.later) == ([], [])
    several.cleaner.configure(CleanerConfig())
    several.cleaner.poll()
    assert several.running == ["t0"]


def test_work_is_paced_by_the_rate_that_is_allowed() -> None:
    real = dirty(log_cleaner_io_max_bytes_per_second=1000.0, log_cleaner_io_buffer_size=200)
    real.cleaner.poll()
    waited = 0.0
    while not real.log.clean_offset:
        while len(real.workers):
            real.workers.step()
        real.later.sort(key=lambda entry: entry[0])
        if not real.log.clean_offset:
            pause_s, call = real.later.pop(0)
            real.now_ms += int(pause_s * 1000 + 1)
            waited += pause_s
            call()
    written = real.cleaner.last["t", 0].bytes_written
    read = 2 * real.cleaner.last["t", 0].bytes_read
    assert waited == pytest.approx((read + written) / 1000, rel=0.2)


# ---------------------------------------------------------------------------------------------------------- set aside


def test_a_damaged_segment_is_set_aside_with_the_reason_and_the_rest_goes_on() -> None:
    broken, sound = dirty(), dirty()
    platter_disk(broken).platter.flip_bit("t-0/00000000000000000000.log", 100)
    before = broken.disk.names("t-0")
    several = Several(broken, sound)
    several.cleaner.poll()
    several.step_until(lambda: bool(several.cleaner.set_aside) or several.cleaner.cleanings > 0)
    while several.later:
        several.later.pop(0)[1]()
        while any(len(workers) for workers in several.workers):
            several.step_until(lambda: not any(len(workers) for workers in several.workers))
        if several.cleaner.cleanings:
            break
    assert several.cleaner.cleanings == 1
    assert sound.log.clean_offset == 20
    aside = several.cleaner.set_aside["t0", 0]
    assert "00000000000000000000.log is damaged in bytes" in aside.reason
    assert aside.retry_ms is None
    assert several.cleaner.uncleanable_bytes() == broken.log.size_bytes
    assert broken.disk.names("t-0") == before, "nothing of it was changed"
    several.cleaner.forget(broken.log)
    assert not several.cleaner.set_aside


def test_a_batch_that_nobody_can_read_is_set_aside_with_what_to_do() -> None:
    real = dirty()
    content = bytearray(real.log.read(0, 1, 1).take())
    batch = Batch(memoryview(content))
    content[65] ^= 0xFF  # in its record, with a checksum that is right again
    batch._set_attributes(batch.attributes)
    node = platter_disk(real).platter.node("t-0/00000000000000000000.log")
    node.cached[: len(content)] = content
    real.clean()
    assert "has a batch at offset 0 that can't be compacted" in real.cleaner.set_aside["t", 0].reason
    assert "compact policy" in real.cleaner.set_aside["t", 0].reason


def test_what_may_be_better_later_is_tried_again_less_and_less_often() -> None:
    real = dirty()
    faults = platter_disk(real).faults
    faults.capacity_bytes = platter_disk(real).platter.used_bytes()
    waits = []
    for _ in range(11):
        real.clean()
        aside = real.cleaner.set_aside["t", 0]
        assert "the disk is full" in aside.reason
        assert aside.retry_ms is not None
        waits.append((aside.retry_ms - real.now_ms) // 1000)
        assert real.clean() == 0, "not before its time"
        real.now_ms = aside.retry_ms
    assert waits == [15, 30, 60, 120, 240, 480, 960, 1920, 3840, 3840, 3840]
    assert not [name for name in real.disk.names("t-0") if name.endswith(names.CLEANED)]
    faults.capacity_bytes = None
    real.clean()
    assert not real.cleaner.set_aside
    assert real.log.clean_offset == 20


@pytest.mark.parametrize("faults", [{"read_only": True}, {"unreadable": ("t-0",)}, {"forbidden": ("t-0",)}])
def test_what_an_operator_can_put_right_is_said_and_tried_again(faults: dict[str, Any]) -> None:
    real = dirty()
    expected = real.table()
    for name, value in faults.items():
        setattr(platter_disk(real).faults, name, value)
    real.clean()
    aside = real.cleaner.set_aside["t", 0]
    assert any(word in aside.reason for word in ("mount it for writing", "check the disk", "give the user"))
    assert aside.retry_ms is not None
    platter_disk(real).faults = Faults()
    real.now_ms = aside.retry_ms
    real.clean()
    assert not real.cleaner.set_aside
    assert real.table() == expected
    assert real.log.clean_offset == 20


def test_hazard_8_a_failed_sync_takes_the_log_directory_offline() -> None:
    real = dirty()
    disk = platter_disk(real)
    disk.faults.fail_sync_at = disk.syncs + 1
    expected = real.table()
    real.clean()
    assert len(real.sync_failures) == 1
    assert real.disk.offline is not None
    assert real.table() == expected
    assert real.clean() == 0, "nothing is tried on a disk that promises nothing"


@pytest.mark.parametrize("error", [DiskError, DiskFull])
def test_a_disk_call_that_fails_leaves_all_as_it_was_or_the_log_offline(error: type[DiskError]) -> None:
    calls = 0
    while True:
        calls += 1
        real = dirty()
        expected, disk = real.table(), platter_disk(real)
        disk.faults.errors_at_calls = {disk.calls + calls: error}
        real.clean()
        disk.faults.errors_at_calls = {}
        if real.log.offline is None:
            assert real.table() == expected, calls
        again = real.restart()
        assert again.table() == expected, calls
        again.clean()
        assert again.table() == expected, calls
        assert len(again.committed()) == 3
        if not real.cleaner.set_aside:
            break
    assert calls > 50


def test_a_damaged_transaction_index_is_made_anew_and_the_cleaning_tried_again() -> None:
    real = Compacted()
    real.put((b"a", b"1"))
    real.put((b"a", b"aborted"), producer=1, transactional=True)
    real.end(1, commit=False)
    real.roll()
    real.log.segments[0].forget_indexes()
    platter_disk(real).platter.node("t-0/00000000000000000000.txnindex").cached[:] = b"nonsense"
    real.clean()
    aside = real.cleaner.set_aside["t", 0]
    assert aside.retry_ms is not None
    real.now_ms = aside.retry_ms
    real.clean()
    assert real.table() == {b"a": b"1"}
    assert not real.cleaner.set_aside


def test_retention_may_take_segments_while_they_are_cleaned() -> None:
    real = dirty()
    real.cleaner.poll()
    for _ in range(3):
        real.workers.step()
    real.log.delete_before(20)
    real.log.retain(real.now_ms)
    real.clean()
    assert real.table() == {}
    assert not [name for name in real.disk.names("t-0") if name.endswith((names.CLEANED, names.SWAP))]


def test_a_log_that_is_forgotten_is_not_cleaned_to_the_end() -> None:
    real = dirty()
    before = real.log.segments[0]
    real.cleaner.poll()
    real.workers.step()
    real.cleaner.forget(real.log)
    real.log.configure(LogConfigOf.plain)
    while len(real.workers):
        real.workers.step()
    assert real.cleaner.running == []
    assert real.log.segments[0] is before
    assert not [name for name in real.disk.names("t-0") if name.endswith(names.CLEANED)]


def test_the_workers_may_change_while_some_are_busy() -> None:
    several = Several(dirty(), dirty(), dirty())
    several.cleaner.poll()
    busy, more = several.workers[0], SteppedWorkers()
    several.workers.append(more)
    several.cleaner.configure(CleanerConfig(), [more])
    several.cleaner.poll()
    assert several.running == ["t0", "t1"]
    several.step_until(lambda: several.cleaner.cleanings == 2)
    several.cleaner.poll()
    assert (len(busy), len(more)) == (0, 1)


def test_a_log_that_is_not_to_be_compacted_any_more_is_let_go() -> None:
    real = dirty()
    real.cleaner.poll()
    real.workers.step()
    before = real.log.segments[0]
    real.log.configure(LogConfigOf.plain)
    real.clean()
    assert real.log.segments[0] is before
    assert (real.log.clean_offset, real.cleaner.running) == (0, [])


def test_a_stopped_cleaner_begins_nothing() -> None:
    real = dirty()
    real.cleaner.poll()
    real.cleaner.stop()
    while len(real.workers):
        real.workers.step()
    real.cleaner.poll()
    assert real.cleaner.running == []
    assert real.log.clean_offset == 0


class LogConfigOf:
    plain = COMPACT.__class__(segment_bytes=700)
    lazy = COMPACT.__class__(cleanup_policy=("compact",), segment_bytes=700, min_cleanable_dirty_ratio=0.9)
