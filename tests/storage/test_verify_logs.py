"""Verifying folders of ours: in use, after a clean stop, and after a crash at any call; it agrees with recovery."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headrace.config import LogConfig
from headrace.errors import HeadraceError
from headrace.protocol.control import build_marker
from headrace.storage import checkpoint
from headrace.storage.inventory import take_inventory
from headrace.storage.log import Log
from headrace.storage.producer_state import Origin
from headrace.storage.recovery import Saved
from headrace.storage.scan import LogDamaged
from headrace.storage.verify import verify
from headrace.storage.verify_report import Report, Severity
from headrace.testing.disk import Crash, Faults, FaultyDisk, Platter
from tests.storage.batches import START_MS, batch
from tests.storage.folders import cut, flip, put
from tests.storage.logs import FOLDER, open_at, reopened

CONFIG = LogConfig(segment_bytes=700, index_interval_bytes=100, file_delete_delay_ms=20, retention_bytes=4000)


class Life:
    """What a node does to one log, by a seed. What it would have in its checkpoints is kept here."""

    def __init__(self, disk: FaultyDisk, seed: int) -> None:
        self.disk = disk
        self.chance = random.Random(seed)
        self.now_ms = START_MS
        self.epoch = 0
        self.recovery_point = 0
        self.log_start_offset = 0
        self.log: Log | None = None

    def start(self) -> Log:
        self.log = open_at(self.disk, CONFIG, now_ms=self.now_ms, lower_recovery_point=self.lower)
        return self.log

    def lower(self, log: Log, offset: int, restart_offset: int | None) -> None:
        self.recovery_point = offset

    def step(self) -> None:
        log, chance = self.log, self.chance
        assert log is not None
        self.now_ms += chance.randrange(30)
        match chance.choices(
            ["append", "end", "lead", "roll", "truncate", "retain", "flush", "sweep"], [60, 10, 5, 5, 3, 5, 10, 2]
        )[0]:
            case "append":
                self.append(log, chance.choice([-1, -1, 7, 8, 9]))
            case "end":
                marker = build_marker(
                    committed=chance.random() < 0.5,
                    producer_id=chance.choice([8, 9]),
                    producer_epoch=0,
                    coordinator_epoch=0,
                    timestamp_ms=self.now_ms,
                )
                log.append_as_leader(memoryview(marker), self.epoch, self.now_ms, Origin.COORDINATOR)
            case "lead":
                self.epoch += chance.randrange(1, 4)
            case "roll":
                log.roll(self.now_ms)
            case "truncate":
                log.truncate_to(max(log.log_start_offset, log.log_end_offset - chance.randrange(12)), self.now_ms)
                self.log_start_offset = log.log_start_offset
            case "retain":
                log.set_high_watermark(log.log_end_offset)
                log.delete_before(chance.randrange(log.log_start_offset, log.log_end_offset + 1))
                log.retain(self.now_ms)
                self.log_start_offset = log.log_start_offset
            case "flush":
                log.flush(lambda error: None)
                self.recovery_point = log.recovery_point
                log.checkpointed(log.recovery_point, log.truncations)
            case "sweep":
                log.sweep(self.now_ms)

    def append(self, log: Log, producer_id: int) -> None:
        chance = self.chance
        count = chance.randrange(1, 4)
        header: dict[str, Any] = {}
        if producer_id >= 0:
            producer = log.producers.producers.get(producer_id)
            sequence = 0 if producer is None else producer.next_sequence
            header = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": sequence}
            header["transactional"] = producer_id > 7
        values = [b"v" * chance.randrange(80) for _ in range(count)]
        times = [self.now_ms + chance.randrange(-50, 50) for _ in range(count)]
        log.append_as_leader(memoryview(batch(*values, timestamps=times, **header)), self.epoch, self.now_ms)

    def stop(self) -> None:
        assert self.log is not None
        self.log.write_out()
        self.log.close()
        self.recovery_point = self.log.log_end_offset

    def verify(self, disk: FaultyDisk, *, clean: bool = False) -> Report:
        put(disk, checkpoint.RECOVERY_POINTS, b"0\n1\nt 0 %d\n" % self.recovery_point)
        put(disk, checkpoint.LOG_STARTS, b"0\n1\nt 0 %d\n" % self.log_start_offset)
        if clean:
            put(disk, ".kafka_cleanshutdown", b"")
        return next(verify(take_inventory(disk, FOLDER), deep=True))


@given(st.integers(0, 1 << 32))
def test_a_folder_is_sound_while_it_is_in_use_and_after_a_clean_stop(seed: int) -> None:
    life = Life(FaultyDisk(), seed)
    log = life.start()
    for number in range(120):
        life.step()
        if number % 20 == 0:
            report = life.verify(life.disk)
            assert {
                problem.what for problem in report.problems if "it waits to be removed" not in problem.what
            } == set()
            assert report.end_offset == log.log_end_offset
    life.stop()
    report = life.verify(life.disk, clean=True)
    assert report.is_sound, report.problems
    assert (report.segments, report.end_offset) == (len(log.segments), log.log_end_offset)


@given(st.integers(0, 1 << 32), st.integers(10, 1500), st.booleans())
@example(3477, 255, True)  # a truncation, a roll where it cut, and a loss of power: the indexes are of before the cut
@example(205206646, 176, True)
@example(1953241955, 342, True)
def test_after_a_crash_at_any_call_damage_is_told_if_and_only_if_recovery_finds_it(
    seed: int, crash_at_call: int, power_lost: bool
) -> None:
    life = Life(FaultyDisk(Platter(seed), Faults(crash_at_call=crash_at_call)), seed)
    try:
        life.start()
        for _ in range(120):
            life.step()
    except Crash:
        pass
    disk = life.disk.restart(power_lost=power_lost)
    if not disk.exists(FOLDER):
        return
    damage = {problem.path for problem in life.verify(disk).problems if problem.severity is Severity.DAMAGE}
    try:
        log = open_at(disk, CONFIG, Saved(False, life.recovery_point, life.log_start_offset), now_ms=life.now_ms)
    except LogDamaged as damaged:
        assert damaged.path.removeprefix("/disk/") in damage
        return
    assert damage == set()
    log.write_out()
    log.close()
    life.recovery_point = log.log_end_offset
    report = life.verify(disk, clean=True)
    assert report.is_sound, report.problems


@given(st.integers(0, 1 << 32), st.integers(0, 1 << 20), st.integers(0, 7))
def test_what_keeps_recovery_from_opening_a_log_is_found_beforehand(seed: int, place: int, bit: int) -> None:
    life = Life(FaultyDisk(), seed)
    life.start()
    for _ in range(80):
        life.step()
    disk = life.disk.restart()
    logs = [
        f"{FOLDER}/{name}" for name in disk.names(FOLDER) if name.endswith(".log") and disk.read(f"{FOLDER}/{name}")
    ]
    path = logs[place % len(logs)]
    flip(disk, path, place % disk.stat(path).size, bit)
    report = life.verify(disk)
    try:
        open_at(disk, CONFIG, Saved(False, life.recovery_point, life.log_start_offset), now_ms=life.now_ms)
    except LogDamaged as damaged:
        told = [problem for problem in report.problems if problem.severity is Severity.DAMAGE]
        assert (damaged.path.removeprefix("/disk/"), damaged.position) in {
            (problem.path, problem.position) for problem in told
        }
    except HeadraceError:
        assert not report.is_sound


@pytest.mark.parametrize("clean", [True, False])
def test_hazard_8_a_flipped_bit_in_the_last_base_offset_is_found(clean: bool) -> None:
    log = open_at(FaultyDisk(), CONFIG)
    for _ in range(3):
        log.append_as_leader(memoryview(batch(b"one")), 0, START_MS)
    log.write_out()
    disk = log.place.disk
    assert isinstance(disk, FaultyDisk)
    path = log.segments.active.path()
    flip(disk, path, disk.stat(path).size // 3 * 2 + 5)
    if clean:
        put(disk, ".kafka_cleanshutdown", b"")
    report = next(verify(take_inventory(disk, FOLDER)))
    (problem,) = (problem for problem in report.problems if "one bit of the first is wrong" in problem.what)
    assert problem.severity is (Severity.DAMAGE if clean else Severity.NOTE)


def test_hazard_8_the_advice_for_damage_says_what_is_given_up() -> None:
    log = open_at(FaultyDisk(), CONFIG)
    for _ in range(60):
        log.append_as_leader(memoryview(batch(b"v" * 100)), 0, START_MS)
    log.write_out()
    disk = log.place.disk
    assert isinstance(disk, FaultyDisk)
    first, second = log.segments[:2]
    flip(disk, first.path(), first.size_bytes - 5)
    put(disk, ".kafka_cleanshutdown", b"")
    lost = second.base_offset - 1
    problem = next(verify(take_inventory(disk, FOLDER))).problems[0]
    assert problem.position is not None
    assert (
        f"Else give up offsets {lost} to {lost}, which readers then pass over: stop the node, `truncate"
        in problem.advice
    )
    cut(disk, first.path(), problem.position)
    told = [problem.what for problem in next(verify(take_inventory(disk, FOLDER))).problems]
    assert any(f"offsets {lost} to {lost} should come next, and are not there" in what for what in told), told


def test_hazard_7_an_abort_that_was_truncated_is_not_in_the_index_after_a_crash() -> None:
    # Else records that a later transaction commits at these offsets would be taken for aborted.
    log = open_at(FaultyDisk(), CONFIG)
    first = batch(b"one", producer_id=8, producer_epoch=0, base_sequence=0, transactional=True)
    log.append_as_leader(memoryview(first), 0, START_MS)
    marker = build_marker(committed=False, producer_id=8, producer_epoch=0, coordinator_epoch=0, timestamp_ms=START_MS)
    log.append_as_leader(memoryview(marker), 0, START_MS, Origin.COORDINATOR)
    log.roll(START_MS)
    log.truncate_to(1, START_MS)
    log = reopened(log, clean=False)
    log = reopened(log, clean=True)
    assert log.aborted_in(0, 10) == []
    assert next(verify(take_inventory(log.place.disk, FOLDER))).is_sound
