"""A file that is synced often is padded, so that a sync need not make it longer (decision 0020)."""

from __future__ import annotations

import logging
import random
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.storage.disk import File
from headrace.storage.log import Log
from headrace.storage.scan import PAGE_BYTES, SECTOR_BYTES, Damage
from headrace.storage.segment import GROWTH_BYTES_MAX, PADDING_BYTES
from headrace.storage.walk import Walk
from headrace.testing.disk import FaultyDisk, Platter
from tests.storage.batches import START_MS
from tests.storage.logs import SMALL, new_log, open_at, reopened, values_in
from tests.storage.long_files import LARGE, append, file_bytes, flush


def disk_of(log: Log) -> FaultyDisk:
    assert isinstance(log.place.disk, FaultyDisk)
    return log.place.disk


def test_who_syncs_a_little_at_a_time_writes_within_the_file() -> None:
    log = new_log(LARGE)
    sizes = []
    for _ in range(3000):
        append(log)
        flush(log)
        sizes.append(file_bytes(log))
        assert log.size_bytes <= sizes[-1] <= log.size_bytes + min(log.size_bytes, PADDING_BYTES) + PAGE_BYTES
        assert sizes[-1] % PAGE_BYTES == 0
    assert len(set(sizes)) < 15, "the file grows seldom"


def test_what_is_not_synced_is_not_padded() -> None:
    log = new_log(LARGE)
    for _ in range(100):
        append(log)
    assert file_bytes(log) == log.size_bytes


def test_who_syncs_much_at_a_time_is_not_padded() -> None:
    log = new_log(LARGE)
    for _ in range(10):
        append(log, GROWTH_BYTES_MAX)
        flush(log)
        assert file_bytes(log) == log.size_bytes


def test_a_flush_of_nothing_new_does_not_pad() -> None:
    """The file of a log that is as it was found, or was written out, stays as it is."""
    log = new_log(LARGE)
    append(log)
    flush(log)
    log.write_out()
    flush(log)
    assert file_bytes(log) == log.size_bytes
    log = reopened(log)
    flush(log)
    assert file_bytes(log) == log.size_bytes


@pytest.mark.parametrize("preallocate", [False, True])
def test_a_closed_segment_ends_with_its_batches(preallocate: bool) -> None:
    log = new_log(SMALL.replace(preallocate=preallocate))
    for _ in range(40):
        append(log)
        flush(log)
    assert len(log.segments) > 2
    for segment in log.segments[:-1]:
        assert segment.file.size() == segment.size_bytes
    log.write_out()
    assert file_bytes(log) == log.segments.active.size_bytes


def test_a_cut_log_is_padded_anew() -> None:
    log = new_log(LARGE)
    for _ in range(10):
        append(log)
        flush(log)
    log.truncate_to(4, START_MS)
    assert file_bytes(log) == log.size_bytes
    append(log)
    flush(log)
    assert file_bytes(log) == PAGE_BYTES
    assert [offset for offset, _ in values_in(log)] == list(range(5))


@pytest.mark.parametrize("free_bytes", [0, 1, 700])
def test_without_room_on_the_disk_it_is_synced_all_the_same(free_bytes: int) -> None:
    log = new_log(LARGE)
    append(log)
    disk = disk_of(log)
    disk.faults.capacity_bytes = disk.platter.used_bytes() + free_bytes
    flush(log)
    assert file_bytes(log) == log.size_bytes
    assert log.flushed_offset == 1
    disk.faults.capacity_bytes = None
    append(log)
    flush(log)
    assert file_bytes(log) == log.size_bytes, "it is not tried at each sync"
    log.roll(START_MS)
    append(log)
    flush(log)
    assert file_bytes(log) == PAGE_BYTES


def test_on_a_tight_disk_nothing_is_padded() -> None:
    log = new_log(LARGE)
    append(log)
    disk_of(log).is_tight = True
    flush(log)
    assert file_bytes(log) == log.size_bytes


@given(st.integers(0, 1 << 32))
def test_what_was_synced_survives_a_loss_of_power(seed: int) -> None:
    """Pages of the padding, or sectors, may be as they were, torn, or written, in any order."""
    chance = random.Random(seed)
    log = open_at(FaultyDisk(Platter(seed)), SMALL.replace(segment_bytes=20_000))
    for _ in range(3):
        synced = values_in(log)
        for _ in range(chance.randrange(40)):
            append(log, chance.randrange(1, 900))
            if chance.random() < 0.6:
                flush(log)
                synced = values_in(log)
        disk = disk_of(log).restart(power_lost=True)
        log = open_at(disk, log.config)
        found = values_in(log)
        assert found[: len(synced)] == synced


def test_after_a_crash_padding_is_no_damage(caplog: pytest.LogCaptureFixture) -> None:
    log = new_log(LARGE)
    for _ in range(50):
        append(log)
        flush(log)
    before = values_in(log)
    caplog.set_level(logging.INFO)
    log = reopened(log, clean=False)
    assert values_in(log) == before
    assert file_bytes(log) == log.size_bytes
    assert not caplog.records


@pytest.mark.parametrize("block_bytes", [SECTOR_BYTES, PAGE_BYTES])
@pytest.mark.parametrize("lost", [0, 1])
def test_hazard_8_a_lost_sector_among_written_ones_is_no_damage(block_bytes: int, lost: int) -> None:
    """A disk that writes sectors may have some of a page and not others when power goes."""
    log = new_log(LARGE)
    for _ in range(30):
        append(log)
        flush(log)
    synced, start = values_in(log), log.size_bytes
    for _ in range(40):
        append(log)
    node = disk_of(log).platter.node("t-0/00000000000000000000.log")
    assert len(node.durable) == len(node.cached), "no size is to be written"
    at = (start // block_bytes + lost) * block_bytes
    content = bytearray(node.cached)
    content[max(at, start) : at + block_bytes] = node.durable[max(at, start) : at + block_bytes]
    node.durable[:] = node.cached[:] = content
    node.unsynced.clear()
    log = open_at(disk_of(log).restart(), LARGE)
    assert values_in(log)[: len(synced)] == synced
    assert len(values_in(log)) < 70


@given(st.integers(0, 1 << 32))
def test_who_walks_while_a_node_appends_sees_no_damage(seed: int) -> None:
    chance = random.Random(seed)
    log = new_log(LARGE)
    for _ in range(chance.randrange(1, 50)):
        append(log, chance.randrange(300))
        flush(log)
    file = AppendedTo(log, chance)
    walk = Walk(cast(File, file), log.segments.active.file.size(), 0)
    offset = 0
    for found in walk():
        if isinstance(found, Damage):
            assert found.end == walk.size_bytes, "of the last batch there is more behind what was the end of the file"
            assert not found.is_followed
        else:
            assert found.base_offset == offset
            offset = found.next_offset


class AppendedTo:
    """The active segment's file, of which others read while a node appends to it."""

    def __init__(self, log: Log, chance: random.Random) -> None:
        self._file = log.segments.active.file
        self._log = log
        self._chance = chance

    def __getattr__(self, name: str) -> Any:
        if self._chance.random() < 0.5:
            for _ in range(self._chance.randrange(4)):
                append(self._log, self._chance.randrange(300))
            if self._chance.random() < 0.3:
                flush(self._log)
        return getattr(self._file, name)
