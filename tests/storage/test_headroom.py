"""Where memory is slow it is got ahead of what is appended (decision 0023)."""

from __future__ import annotations

import logging
import os
import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.config import LogConfig
from headrace.storage import disk_threads, headroom, local_disk, range_thread
from headrace.storage.disk import WRITE_BEHIND_BYTES, Disk, File
from headrace.storage.flush import DirectFlusher
from headrace.storage.headroom import AHEAD_BYTES, PATIENCE, Headroom, ThreadHeadroom
from headrace.storage.local_disk import WRITE_BACK_STEP_BYTES, LocalDisk
from headrace.storage.log import Log
from headrace.storage.scan import PAGE_BYTES
from headrace.storage.segment import FILE_BYTES_MAX, Segment
from headrace.testing.disk import FaultyDisk, Platter
from tests.plain_forms import plain_form
from tests.storage.batches import START_MS
from tests.storage.logs import SMALL, new_log, open_at, reopened, values_in
from tests.storage.long_files import LARGE, append, file_bytes, flush

AHEAD = 5000
MEGABYTE = WRITE_BEHIND_BYTES - 70
"""Of a record whose batch is as large as a topic takes."""


class Stretching(DirectFlusher):
    """Of a disk whose memory is slow."""

    def __init__(self, disk: Disk, ahead_bytes: int = AHEAD_BYTES) -> None:
        super().__init__(disk)
        self._ahead_bytes = ahead_bytes

    def ahead_of(self, segment: Segment) -> None:
        segment.stretch(self._ahead_bytes)


def stretched_log(config: LogConfig = LARGE) -> Log:
    """With some batches, and a file that ends behind them."""
    log = new_log(config)
    for _ in range(3):
        append(log)
    start, size = log.segments.active.stretch(AHEAD)
    assert (start, start + size) == (log.size_bytes, page_end(log.size_bytes + AHEAD))
    return log


def page_end(position: int) -> int:
    return (position + PAGE_BYTES - 1) // PAGE_BYTES * PAGE_BYTES


# ------------------------------------------------------------------------------------------- the file and its batches


def test_who_appends_by_megabytes_writes_within_the_file() -> None:
    disk = FaultyDisk()
    log = open_at(disk, LARGE, flusher=Stretching(disk))
    for _ in range(5):
        append(log, MEGABYTE)
        assert file_bytes(log) == page_end(log.size_bytes + AHEAD_BYTES)
    before = file_bytes(log)
    append(log, 2 * PAGE_BYTES)
    assert file_bytes(log) == before, "so little is no reason"
    assert len(values_in(log)) == 6


def test_only_what_is_new_of_it_is_told() -> None:
    log = stretched_log()
    end = file_bytes(log)
    assert log.segments.active.stretch(AHEAD) == (end, 0)
    assert log.segments.active.stretch(AHEAD - PAGE_BYTES) == (end, 0)
    append(log, PAGE_BYTES)
    assert log.segments.active.stretch(AHEAD) == (end, page_end(log.size_bytes + AHEAD) - end)


def test_no_file_is_longer_than_a_kafka_opens() -> None:
    log = new_log(LARGE)
    append(log)
    start, size = log.segments.active.stretch(FILE_BYTES_MAX)
    assert start + size == FILE_BYTES_MAX < 1 << 31


def test_a_segment_that_is_closed_ends_with_its_batches() -> None:
    log = stretched_log()
    log.roll(START_MS)
    closed = log.segments[0]
    assert closed.file.size() == closed.size_bytes
    append(log)
    log.segments.active.stretch(AHEAD)
    log.write_out()
    assert file_bytes(log) == log.segments.active.size_bytes


def test_a_cut_log_ends_with_its_batches() -> None:
    log = stretched_log()
    log.truncate_to(1, START_MS)
    assert file_bytes(log) == log.size_bytes
    assert log.segments.active.stretch(AHEAD)[0] == log.size_bytes


def test_who_syncs_a_little_there_is_padded_as_elsewhere() -> None:
    """A sync of what nothing was written to has to find blocks for it, and to write down which."""
    log = stretched_log()
    before = file_bytes(log)
    append(log)
    flush(log)
    assert log.segments.active.padded_end == PAGE_BYTES
    assert file_bytes(log) == before
    log.roll(START_MS)
    assert log.segments[0].file.size() == log.segments[0].size_bytes


def test_a_file_that_was_allocated_stays_as_long() -> None:
    log = new_log(LARGE.replace(segment_bytes=1 << 20, preallocate=True))
    append(log)
    assert log.segments.active.stretch(AHEAD)[1] == 0
    assert file_bytes(log) == 1 << 20


@pytest.mark.parametrize("clean", [True, False])
def test_after_a_stop_it_is_no_damage(clean: bool, caplog: pytest.LogCaptureFixture) -> None:
    log = stretched_log()
    before = values_in(log)
    caplog.set_level(logging.INFO)
    log = reopened(log, clean=clean)
    assert values_in(log) == before
    assert file_bytes(log) == log.size_bytes
    assert not caplog.records


def test_on_a_tight_disk_nothing_is_stretched() -> None:
    log = new_log(LARGE)
    append(log)
    log.place.disk.is_tight = True
    assert log.segments.active.stretch(AHEAD) == (log.size_bytes, 0)
    assert file_bytes(log) == log.size_bytes


def test_a_full_disk_cuts_it_off_with_what_was_refused() -> None:
    log = stretched_log()
    before = values_in(log)
    disk = log.place.disk
    assert isinstance(disk, FaultyDisk)
    disk.faults.capacity_bytes = 0
    with pytest.raises(Exception, match="full"):
        append(log, AHEAD + 2 * PAGE_BYTES)
    assert file_bytes(log) == log.size_bytes
    disk.faults.capacity_bytes = None
    append(log)
    assert values_in(log)[:-1] == before


@given(st.integers(0, 1 << 32))
def test_hazard_8_what_was_synced_survives_a_loss_of_power(seed: int) -> None:
    """Pages that lie within the file may be lost or written in any order, and those that are synced are there."""
    chance = random.Random(seed)
    log = open_at(FaultyDisk(Platter(seed)), SMALL.replace(segment_bytes=40_000))
    for _ in range(3):
        synced = values_in(log)
        for _ in range(chance.randrange(40)):
            append(log, chance.randrange(1, 3000))
            if chance.random() < 0.4:
                log.segments.active.stretch(chance.randrange(20_000))
            if chance.random() < 0.3:
                flush(log)
                synced = values_in(log)
        disk = log.place.disk
        assert isinstance(disk, FaultyDisk)
        log = open_at(disk.restart(power_lost=True), log.config)
        assert values_in(log)[: len(synced)] == synced


# ------------------------------------------------------------------------------------------------------- when and who


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[LocalDisk]:
    opened = LocalDisk(str(tmp_path))
    yield opened
    opened.close()


@pytest.fixture(params=["compiled", "plain"])
def form(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module as it is installed, and as it stands."""
    if request.param == "compiled":
        return disk_threads
    plain = plain_form("storage/disk_threads.py")
    monkeypatch.setattr(headroom, "serve_headroom", plain.serve_headroom)
    monkeypatch.setattr(range_thread, "ask_range", plain.ask_range)
    return plain


def grown_log(disk: LocalDisk) -> Log:
    log = open_at(disk, LARGE)
    append(log, MEGABYTE)
    return log


def test_where_memory_is_at_hand_no_file_is_longer(disk: LocalDisk) -> None:
    log, ahead = grown_log(disk), ThreadHeadroom(disk)
    for _ in range(3):
        ahead.ahead_of(log.segments.active)
    assert file_bytes(log) == log.size_bytes
    ahead.stop()


def test_where_it_was_slow_what_comes_next_is_in_memory(form: Any, disk: LocalDisk) -> None:
    log, ahead = grown_log(disk), ThreadHeadroom(disk)
    disk.slow_beats[0] += 1
    segment = log.segments.active
    ahead.ahead_of(segment)
    ahead.stop()
    assert not [thread for thread in threading.enumerate() if thread.name == headroom.THREAD]
    assert file_bytes(log) == page_end(log.size_bytes + AHEAD_BYTES)
    if segment.file.is_cached(0, 1) is None:
        pytest.skip("this system can't tell what is in memory")
    assert segment.file.is_cached(log.size_bytes, AHEAD_BYTES)
    before = values_in(log)
    append(log, MEGABYTE)
    assert values_in(log)[:-1] == before


def test_it_ends_when_memory_was_long_at_hand_and_goes_on_when_it_is_slow_again(
    disk: LocalDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[int, int]] = []
    # Nothing is begun, so that the next may be asked for.
    monkeypatch.setattr(range_thread.RangeThread, "ask", lambda self, file, *asked_for: asked.append(asked_for))
    segment: Any = SimpleNamespace(stretch=lambda ahead_bytes: (0, ahead_bytes), file=None)
    disk.slow_beats[0] = 255
    ahead: Headroom = ThreadHeadroom(disk)
    disk.slow_beats[0] = 0
    for _ in range(PATIENCE + 10):
        ahead.ahead_of(segment)
    assert asked == [(0, AHEAD_BYTES)] * PATIENCE
    disk.slow_beats[0] += 1
    for _ in range(PATIENCE // 2):
        ahead.ahead_of(segment)
    disk.slow_beats[0] += 1
    for _ in range(PATIENCE + 10):
        ahead.ahead_of(segment)
    assert len(asked) == PATIENCE + PATIENCE // 2 + PATIENCE


def test_it_is_asked_for_one_range_at_a_time(form: Any, disk: LocalDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever keeps the processor from it keeps a file as it is, and a stop waits for one range at most."""
    blocked, serve = threading.Event(), form.serve_headroom
    monkeypatch.setattr(headroom, "serve_headroom", lambda *asked: blocked.wait(30) and serve(*asked))
    log, ahead = grown_log(disk), ThreadHeadroom(disk)
    disk.slow_beats[0] += 1
    ahead.ahead_of(log.segments.active)
    end = file_bytes(log)
    append(log, MEGABYTE)
    ahead.ahead_of(log.segments.active)
    assert file_bytes(log) == end
    blocked.set()
    until = time.monotonic() + 30
    while file_bytes(log) == end and time.monotonic() < until:
        time.sleep(0.001)
        ahead.ahead_of(log.segments.active)
        disk.slow_beats[0] ^= 1
    assert file_bytes(log) == page_end(log.size_bytes + AHEAD_BYTES)
    ahead.stop()


@pytest.mark.parametrize("is_begun", [True, False])
def test_a_thread_that_ended_by_itself_harms_nobody(
    is_begun: bool, form: Any, disk: LocalDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(headroom, "serve_headroom", lambda *asked: None)
    log, ahead = grown_log(disk), ThreadHeadroom(disk)
    disk.slow_beats[0] += 1
    ahead.ahead_of(log.segments.active)
    if is_begun:
        while any(thread.name == headroom.THREAD for thread in threading.enumerate()):
            time.sleep(0.001)
        append(log, MEGABYTE)
        ahead.ahead_of(log.segments.active)
    ahead.stop()


@pytest.mark.parametrize(("ns_a_byte", "slow"), [(0.5, False), (3, True)])
@pytest.mark.parametrize("is_synced_beside", [False, True])
def test_a_large_write_that_takes_long_is_told(
    ns_a_byte: float, slow: bool, is_synced_beside: bool, disk: LocalDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = 4 * WRITE_BACK_STEP_BYTES
    took = iter([0, int(size * ns_a_byte)])
    monkeypatch.setattr(local_disk, "thread_time_ns", lambda: next(took))
    file = disk.open("a", create=True)
    disk.slow_beats[0] = 255
    disk.sync_beats[0] += 2 * is_synced_beside
    assert file.write(0, [bytes(size)]) == size
    assert disk.slow_beats[0] == (0 if slow else 255)
    file.write(0, [bytes(WRITE_BACK_STEP_BYTES)])  # no clock is read for so little
    file.close()


def test_the_thread_tells_when_memory_was_slow(form: Any, disk: LocalDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it has brought into memory already is there at once."""
    file = disk.open("a", create=True)
    file.truncate(64 << 20)
    descriptor = file.fileno()
    assert descriptor is not None
    beats, is_free = bytearray([7]), bytearray(1)
    for _ in range(2):  # whatever it is the first time, the second time it is in memory
        asked, to = os.pipe()
        beats[0] = 7
        form.ask_range(to, descriptor, 0, 64 << 20)
        form.ask_range(to, -1, 0, 0)
        form.serve_headroom(asked, beats, is_free)
        os.close(asked)
        os.close(to)
    assert beats[0] == 7
    assert is_free[0] == 1
    if form is not disk_threads:
        ticks = iter(range(0, 1 << 40, 1 << 30))
        monkeypatch.setattr(form, "time", SimpleNamespace(thread_time_ns=lambda: next(ticks)))
        asked, to = os.pipe()
        form.ask_range(to, descriptor, 0, 1 << 20)
        os.close(to)
        form.serve_headroom(asked, beats, is_free)
        os.close(asked)
        assert beats[0] == 8
    file.close()


def test_a_file_that_is_gone_does_no_harm(form: Any, disk: LocalDisk) -> None:
    """Its number may be nobody's, a pipe's or a folder's by then, and the file may be shorter."""
    asked, to = os.pipe()
    folder = os.open(disk.root, os.O_RDONLY)
    gone = os.dup(folder)
    os.close(gone)
    file: File = disk.open("a", create=True)
    numbers = (gone, folder, asked, file.fileno())
    for number in numbers:
        assert number is not None
        form.ask_range(to, number, 1 << 40, 1 << 20)
    form.ask_range(to, gone, 0, 1 << 20)
    form.ask_range(to, -1, 0, 0)
    beats = bytearray(1)
    form.serve_headroom(asked, beats, bytearray(1))
    assert beats[0] == 0, "what could not be done was not slow"
    file.close()
    for end in (asked, to, folder):
        os.close(end)
