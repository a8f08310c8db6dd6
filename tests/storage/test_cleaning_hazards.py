"""Hazard 11: compaction races readers, open transactions, tombstones, truncations and crashes.

Each is shown to hold, and to be caught: with a defect planted, the same check fails.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from headrace.storage import cleaner, names
from headrace.storage.cleaning_job import CleaningJob, Replacement
from headrace.storage.cleaning_transactions import CleaningTransactions
from headrace.storage.disk import DiskError, File
from headrace.storage.log import Log
from headrace.storage.swap import swap_in
from headrace.testing.disk import Crash, FaultyDisk, Platter
from tests.storage.cleaning import DAY_MS, KEYS, Compacted, Reader

Check = Callable[[], None]
Plant = Callable[[pytest.MonkeyPatch], None]


def a_reader_in_the_middle_finishes_on_the_old_file() -> None:
    real = Compacted()
    for number in range(20):
        real.put((KEYS[number % 3], b"%d" % number))
    real.roll()
    expected = real.log.read(0, 1 << 20, 20).take()
    fetched = real.log.read(0, 1 << 20, 20)
    first = fetched.pieces[0]
    half = first.file.read(first.position, 50)
    real.clean()
    real.log.sweep()
    assert real.log.size_bytes < fetched.size_bytes
    rest = first.file.read(first.position + 50, first.size_bytes - 50)
    later = [piece.file.read(piece.position, piece.size_bytes) for piece in fetched.pieces[1:]]
    assert half + rest + b"".join(later) == expected
    fetched.release()
    assert isinstance(real.disk, FaultyDisk)
    assert real.disk.open_files <= len(real.log.segments), "the old files are closed when nobody reads them"


def an_open_transaction_replaces_nothing() -> None:
    real = Compacted()
    real.put((b"a", b"committed"))
    real.put((b"a", b"undecided"), producer=1, transactional=True)
    real.roll()
    real.put((b"x", b""))
    real.roll()
    real.clean()
    real.end(1, commit=False)
    assert real.table() == {b"a": b"committed", b"x": b""}


def a_follower_sees_what_was_deleted() -> None:
    real = Compacted()
    real.put((b"a", b"1"))
    real.put((b"b", b"1"))
    real.roll()
    follower = Reader(real.log, bytes_max=1)
    assert follower.fetch()
    real.put((b"a", None))
    real.roll()
    real.clean()
    real.now_ms += DAY_MS - 1
    real.put((b"b", b"2"))
    real.roll()
    real.clean()
    while follower.fetch():
        pass
    assert {record.key: record.value for record in follower.records} == {b"a": None, b"b": b"2"}


def a_record_does_not_come_back_after_a_crash() -> None:
    """A swap that was lost, behind an offset that says clean: the tombstone goes one day, the record never."""
    for seed in range(8):
        real = Compacted(FaultyDisk(Platter(seed)))
        real.put((b"a", b"old"))
        real.put((b"a", None))
        real.roll()
        real.clean()
        real = real.restart(power_lost=True)
        for _ in range(3):
            real.put((b"b", b""))
            real.roll()
            real.clean()
            real.now_ms += 2 * DAY_MS
        assert b"a" not in real.table()


def what_was_truncated_does_not_come_back() -> None:
    real = Compacted()
    real.put((b"a", b"1"), (b"b", b"1"))
    real.put((b"a", b"2"), (b"b", b"2"))
    real.roll()
    real.cleaner.poll()
    while not [name for name in real.disk.names("t-0") if name.endswith(names.TIME_INDEX + names.CLEANED)]:
        real.workers.step()
    real.log.truncate_to(2, real.now_ms)
    real.put((b"a", b"other"), (b"b", b"other"))
    real.roll()
    real.clean()
    assert real.table() == {b"a": b"other", b"b": b"other"}
    assert not real.cleaner.set_aside


def a_truncated_log_is_dirty_again() -> None:
    """Else what comes in the place of what was cut would never be compacted, and its tombstones dropped."""
    real = Compacted()
    real.put((b"a", b"1"))
    real.put((b"b", b"1"))
    real.put((b"c", b"1"))
    real.roll()
    real.clean()
    real.log.truncate_to(1, real.now_ms)
    real.put((b"a", None))
    real.put((b"d", b""))
    real.roll()
    for _ in range(3):
        real.put((b"d", b""))
        real.roll()
        real.clean()
        real.now_ms += 2 * DAY_MS
    assert real.table() == {b"d": b""}


def a_transaction_does_not_stay_open_without_its_marker() -> None:
    real = Compacted()
    real.put((b"a", b"1"), producer=1, transactional=True)
    real.end(1, commit=True)
    for _ in range(4):
        real.put((b"a", b"2"))
        real.roll()
        real.clean()
        real.now_ms += 2 * DAY_MS
    for name in real.disk.names("t-0"):
        if name.endswith(names.SNAPSHOT):
            assert isinstance(real.disk, FaultyDisk)
            real.disk.platter.vanish(f"t-0/{name}")
    again = real.restart()
    assert again.log.last_stable_offset == again.log.log_end_offset


def a_crash_at_any_call_leaves_the_old_segments_or_the_new_ones() -> None:
    """Of the process and of the machine; and what was left half done is done by the next cleaning."""
    calls = 0
    is_over = False
    while not is_over:
        calls += 1
        for power_lost in (False, True):
            real = several_segments(FaultyDisk(Platter(calls)))
            expected = real.table()
            assert isinstance(real.disk, FaultyDisk)
            real.disk.faults.crash_at_call = real.disk.calls + calls
            try:
                real.clean()
                real.disk.faults.crash_at_call = 0
                is_over = True
            except Crash:
                real = real.restart(power_lost=power_lost)
            found = [record.offset for record in real.committed()]
            assert found == sorted(set(found))
            assert real.table() == expected, (calls, power_lost)
            assert not leftovers(real)
            real.clean()
            assert real.table() == expected
            assert len(real.committed()) == len(expected) + 1  # a tombstone
            assert not real.cleaner.set_aside
    assert calls > 50, "the checks were many"


def several_segments(disk: FaultyDisk) -> Compacted:
    """Two groups of segments, an aborted transaction, a tombstone, a producer whose records are all replaced."""
    real = Compacted(disk)
    for number in range(12):
        real.put((KEYS[number % 3], b"%d" % number), producer=5)
    real.put((b"a", b"aborted"), producer=6, transactional=True)
    real.roll()
    real.end(6, commit=False)
    real.put((b"b", None))
    real.put((b"a", b"last"), (b"c", b"last"))
    real.roll()
    return real


def leftovers(real: Compacted) -> list[str]:
    return [name for name in real.disk.names("t-0") if name.endswith((names.CLEANED, names.SWAP))]


# -------------------------------------------------------------------------------------------------- the planted defects


def files_are_not_held(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(File, "hold", lambda self: None)
    patch.setattr(File, "release", lambda self: None)


def the_last_stable_offset_is_passed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Log, "last_stable_offset", property(lambda log: log.log_end_offset))


def tombstones_go_at_once(patch: pytest.MonkeyPatch) -> None:
    job_for = cleaner.job_for

    def hasty(*arguments: object) -> CleaningJob:
        job: CleaningJob = job_for(*arguments)  # type: ignore[arg-type]
        job.delete_retention_ms = 0
        return job

    patch.setattr(cleaner, "job_for", hasty)


def clean_counts_before_it_is_durable(patch: pytest.MonkeyPatch) -> None:
    flush = Log.flush

    def hasty(log: Log, flushed: Callable[[DiskError | None], None]) -> None:
        if "Cleaner" in flushed.__qualname__:
            flushed(None)
        else:
            flush(log, flushed)

    patch.setattr(Log, "flush", hasty)


def nobody_notices_a_truncation(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(cleaner._Running, "is_outdated", False)


def clean_offsets_stay(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("headrace.storage.truncation._lower_recovery_point", lambda *arguments: None)


def markers_go_first(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(CleaningTransactions, "is_marker_needed", lambda self, batch: False)


def old_segments_go_before_the_new_one_is_sure(patch: pytest.MonkeyPatch) -> None:
    def hasty(log: Log, new: Replacement, now_ms: int) -> bool:
        number = log.segments.number_at(new.base_offset)
        for segment in log.segments[number : number + len(new.base_offsets)]:
            segment.mark_deleted()
        return swap_in(log, new, now_ms)

    patch.setattr(cleaner, "swap_in", hasty)


HAZARDS: list[tuple[Check, Plant]] = [
    (a_reader_in_the_middle_finishes_on_the_old_file, files_are_not_held),
    (an_open_transaction_replaces_nothing, the_last_stable_offset_is_passed),
    (a_follower_sees_what_was_deleted, tombstones_go_at_once),
    (a_record_does_not_come_back_after_a_crash, clean_counts_before_it_is_durable),
    (what_was_truncated_does_not_come_back, nobody_notices_a_truncation),
    (a_truncated_log_is_dirty_again, clean_offsets_stay),
    (a_transaction_does_not_stay_open_without_its_marker, markers_go_first),
    (a_crash_at_any_call_leaves_the_old_segments_or_the_new_ones, old_segments_go_before_the_new_one_is_sure),
]


@pytest.mark.parametrize("check", [check for check, _ in HAZARDS], ids=lambda check: check.__name__)
def test_hazard_11(check: Check) -> None:
    check()


@pytest.mark.parametrize(("check", "plant"), HAZARDS, ids=[plant.__name__ for _, plant in HAZARDS])
def test_hazard_11_is_caught_where(check: Check, plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    with pytest.raises((AssertionError, DiskError)):
        check()
