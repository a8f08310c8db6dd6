"""An error (no crash) at every disk call of what changes a log's segments: it goes on as if nothing was, or is offline.

After each, records are appended and flushed if the log takes them, and the next start must find what it promised.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

from headrace.config import LogConfig
from headrace.errors import Error, HeadraceError, Refused
from headrace.storage.disk import DiskError, DiskFull, TooManyOpenFiles
from headrace.storage.log import Log
from headrace.storage.recovery import Saved
from headrace.storage.scan import LogDamaged
from headrace.testing.disk import FaultyDisk, Platter
from tests.storage.batches import START_MS, batch
from tests.storage.logs import open_at, values_in
from tests.storage.nodes import TOPIC_ID, Node

COUNT = 20
CONFIG = LogConfig(segment_bytes=600, index_interval_bytes=100, retention_bytes=700, file_delete_delay_ms=10)
ERRORS = [DiskError, DiskFull, TooManyOpenFiles]

Values = list[tuple[int, bytes | None]]


def filled() -> tuple[FaultyDisk, Log, Values]:
    """Ten segments of two records each, all of them durable."""
    disk = FaultyDisk()
    log = open_at(disk, CONFIG)
    for number in range(COUNT):
        content = batch(b"%d" % number + b"v" * 150, timestamps=[START_MS + number])
        log.append_as_leader(memoryview(content), 1, START_MS)
    log.set_high_watermark(log.log_end_offset)
    log.flush(durable)
    log.checkpointed(log.recovery_point, log.truncations)
    return disk, log, values_in(log)


def durable(error: DiskError | None) -> None:
    assert error is None


def with_each_error(
    operation: Callable[[Log], object], kind: type[DiskError]
) -> Iterator[tuple[FaultyDisk, Log, Values, bool]]:
    """Once for each disk call of an operation, which fails: the log after it, and whether the operation raised."""
    call = 1
    while True:
        disk, log, values = filled()
        before = disk.calls
        disk.faults.errors_at_calls = {before + call: kind}
        has_raised = False
        try:
            operation(log)
        except HeadraceError:
            has_raised = True
        if disk.calls < before + call:
            return
        disk.faults.errors_at_calls = {}
        yield disk, log, values, has_raised
        call += 1


def append(log: Log, value: bytes) -> Values:
    """What is appended and flushed, which is nothing when the log is offline: then it says so."""
    if log.offline is None:
        offset = log.append_as_leader(memoryview(batch(value)), 2, START_MS).first_offset
        log.flush(durable)
        return [(offset, value)]
    with pytest.raises(Refused) as refused:
        log.append_as_leader(memoryview(batch(value)), 2, START_MS)
    assert refused.value.error is Error.KAFKA_STORAGE_ERROR
    return []


def restarted(disk: FaultyDisk, log: Log, *, power_lost: bool) -> Log:
    saved = Saved(False, log.checkpointed_recovery_point, 0, 0)
    return open_at(disk.restart(power_lost=power_lost), CONFIG, saved)


@pytest.mark.parametrize("power_lost", [False, True])
@pytest.mark.parametrize("kind", ERRORS)
def test_a_roll_that_fails_loses_nothing_that_is_flushed_after_it(kind: type[DiskError], power_lost: bool) -> None:
    for disk, log, values, _ in with_each_error(lambda log: log.roll(START_MS), kind):
        assert log.offline is None
        values += append(log, b"small")
        values += append(log, b"large" * 100)
        assert values_in(log) == values
        log = restarted(disk, log, power_lost=power_lost)
        assert values_in(log) == values
        assert log.log_end_offset == COUNT + 2


@pytest.mark.parametrize("kind", ERRORS)
def test_the_recovery_point_moves_on_at_the_next_roll_when_one_has_failed(kind: type[DiskError]) -> None:
    for _, log, _, _ in with_each_error(lambda log: log.roll(START_MS), kind):
        append(log, b"large" * 90)
        append(log, b"large" * 90)
        assert log.recovery_point == log.segments.active.base_offset == COUNT + 1
        assert not log.epochs.is_dirty


def test_a_new_segment_that_can_not_be_removed_after_a_failed_roll_takes_the_log_offline() -> None:
    disk, log, values = filled()
    disk.trace = []
    log.roll(START_MS)
    created = 1 + disk.trace.index(f"open {log.segments.active.path()}")
    disk, log, values = filled()
    # The size of the new file, and then its removal.
    disk.faults.errors_at_calls = {disk.calls + created + 1: DiskError, disk.calls + created + 2: DiskError}
    with pytest.raises(DiskError):
        log.roll(START_MS)
    assert log.offline is not None
    assert append(log, b"new") == []
    assert values_in(restarted(disk, log, power_lost=False)) == values


def leave_file(log: Log, offset: int, content: bytes) -> None:
    file = log.place.create(f"{offset:020}.log")
    file.write(0, [content])
    file.close()


@pytest.mark.parametrize("torn", [b"", b"\0\0\0\0\0\0\0\x15torn"])
def test_an_empty_segment_that_the_one_before_reaches_past_is_dropped(torn: bytes) -> None:
    disk, log, values = filled()
    values += append(log, b"new")
    leave_file(log, COUNT, b"")
    log.segments.active.file.write(log.segments.active.size_bytes, [torn])
    log = restarted(disk, log, power_lost=False)
    assert values_in(log) == values
    assert not disk.platter.find(f"t-0/{COUNT:020}.log")


def test_segments_that_have_the_same_offsets_are_damage() -> None:
    disk, log, _ = filled()
    append(log, b"new")
    leave_file(log, COUNT, bytes(batch(b"other", base_offset=COUNT)))
    with pytest.raises(LogDamaged, match="they have offsets from 20 on, with which .*20.log begins"):
        restarted(disk, log, power_lost=False)


def check_after(log: Log, disk: FaultyDisk, values: Values, *, power_lost: bool) -> None:
    """An online log has just these records, takes more, and has all of them after a restart."""
    assert log.offline is None
    assert values_in(log) == values
    values = values + append(log, b"new")
    assert values_in(log) == values
    log = restarted(disk, log, power_lost=power_lost)
    assert values_in(log) == values
    append(log, b"newer")


def check_offline(log: Log) -> None:
    """Whoever asks an offline log for anything hears why not."""
    assert append(log, b"new") == []
    askers: list[Callable[[], object]] = [
        lambda: log.flush(durable),
        lambda: log.roll(START_MS),
        lambda: log.retain(START_MS),
        lambda: log.truncate_to(3, START_MS),
        lambda: log.truncate_fully(3, START_MS),
    ]
    for ask in askers:
        with pytest.raises(Refused) as refused:
            ask()
        assert refused.value.error is Error.KAFKA_STORAGE_ERROR
    with suppress(Refused, DiskError):
        values_in(log)
    with suppress(Refused, DiskError):
        log.by_timestamp(START_MS + 5)


@pytest.mark.parametrize("power_lost", [False, True])
@pytest.mark.parametrize("kind", ERRORS)
@pytest.mark.parametrize("offset", [7, 8, 19, 0])
def test_a_truncation_that_fails_changes_nothing_or_takes_the_log_offline(
    kind: type[DiskError], offset: int, power_lost: bool
) -> None:
    offline = 0
    for disk, log, values, has_raised in with_each_error(lambda log: log.truncate_to(offset, START_MS), kind):
        if log.offline is None:
            check_after(log, disk, values if has_raised else values[:offset], power_lost=power_lost)
            continue
        offline += 1
        check_offline(log)
        assert log.recovery_point <= offset, "no checkpoint says that what is cut was durable"
        log = restarted(disk, log, power_lost=power_lost)
        assert values_in(log) == values[: log.log_end_offset]
        assert log.log_end_offset >= offset
        check_after(log, disk_of(log), values[: log.log_end_offset], power_lost=power_lost)
    assert offline


@pytest.mark.parametrize("power_lost", [False, True])
@pytest.mark.parametrize("kind", ERRORS)
@pytest.mark.parametrize("offset", [50, 20, 5])
def test_dropping_all_that_fails_changes_nothing_or_takes_the_log_offline(
    kind: type[DiskError], offset: int, power_lost: bool
) -> None:
    offline = 0
    for disk, log, values, has_raised in with_each_error(lambda log: log.truncate_fully(offset, START_MS), kind):
        if log.offline is None:
            check_after(log, disk, values if has_raised else [], power_lost=power_lost)
            continue
        offline += 1
        check_offline(log)
        assert log.recovery_point == 0
        log = restarted(disk, log, power_lost=power_lost)
        left = values_in(log)
        assert left == (values[: log.log_end_offset] if left else [])
        check_after(log, disk_of(log), left, power_lost=power_lost)
    assert offline


@pytest.mark.parametrize("kind", ERRORS)
def test_retention_that_fails_brings_nothing_back_at_a_restart(kind: type[DiskError]) -> None:
    starts = set()
    for disk, log, values, _ in with_each_error(lambda log: log.retain(START_MS), kind):
        start = log.log_start_offset
        starts.add(start)
        if log.offline is None:
            check_after(log, disk, values[start:], power_lost=False)
            continue
        check_offline(log)
        log = restarted(disk, log, power_lost=False)
        assert log.log_start_offset >= start
        assert values_in(log) == values[log.log_start_offset :]
    assert {0, 2, 14} <= starts


def disk_of(log: Log) -> FaultyDisk:
    assert isinstance(log.place.disk, FaultyDisk)
    return log.place.disk


@pytest.mark.parametrize("seed", range(20))
def test_what_a_full_disk_cut_off_does_not_come_back_inside_the_log(seed: int) -> None:
    """A part of a refused batch, at the end of a segment that is closed next, and before which a stop was clean."""
    node = Node([FaultyDisk(Platter(seed=seed))], config=CONFIG)
    first = node.directories.create("t", 0, TOPIC_ID)
    first.append_as_leader(memoryview(batch(b"first" * 30)), 2, START_MS)
    values = values_in(first)
    node.stop()
    node = node.restart(config=CONFIG)
    (disk,), log = node.disks, node.directories.log("t", 0)
    assert isinstance(disk, FaultyDisk)
    assert log is not None
    disk.faults.capacity_bytes = disk.platter.used_bytes() + 100
    with pytest.raises(Refused):
        append(log, b"refused" * 30)
    disk.faults.capacity_bytes = None
    log.append_as_leader(memoryview(batch(b"second" * 80)), 2, START_MS)
    assert len(log.segments) == 2
    disk.sync_directory("t-0")
    found = node.restart(power_lost=True, config=CONFIG).directories.log("t", 0)
    assert found is not None
    assert values_in(found)[:1] == values


def test_a_log_that_ends_before_its_start_has_nothing_of_its_old_segments_to_sync() -> None:
    disk, log, _ = filled()
    for number in range(COUNT):
        log.append_as_leader(memoryview(batch(b"%d" % number + b"v" * 150)), 1, START_MS)
    log = open_at(disk.restart(), CONFIG, Saved(log_start_offset=1000))
    assert (log.log_start_offset, log.log_end_offset) == (1000, 1000)
    log.append_as_leader(memoryview(batch(b"v")), 1, START_MS)
    log.flush(durable)
    assert log.flushed_offset == 1001
