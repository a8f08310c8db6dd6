"""One segment: what is appended is found, by offset and by time, whatever happens to its indexes."""

from __future__ import annotations

import logging
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.protocol.batch import Batch
from headrace.storage import lookup, names
from headrace.storage.handles import Handles
from headrace.storage.index import IndexCache
from headrace.storage.lookup import Stamped
from headrace.storage.place import Place
from headrace.storage.scan import LogDamaged
from headrace.storage.segment import Segment
from headrace.testing.disk import FaultyDisk
from tests.storage.batches import START_MS, batch

BASE = 1000
INTERVAL = 200
INDEXES = (names.INDEX, names.TIME_INDEX)


class Record(NamedTuple):
    offset: int
    timestamp: int


def new_place(disk: FaultyDisk | None = None, capacity: int = 10) -> Place:
    disk = disk or FaultyDisk()
    disk.make_directory("t-0")
    return Place(disk, "t-0", Handles(capacity), IndexCache(1 << 20))


def filled(times: list[list[int]], gap: int = 0, place: Place | None = None) -> tuple[Segment, list[Record]]:
    """A segment with a batch for each list of times, and its records."""
    segment = Segment.create(place or new_place(), BASE, now_ms=5)
    records = []
    offset = BASE
    for batch_times in times:
        stamps = [START_MS + time for time in batch_times]
        content = batch(*[b"v" * 20] * len(stamps), timestamps=stamps, base_offset=offset, partition_leader_epoch=3)
        segment.append(content, [Batch(memoryview(content))], INTERVAL)
        records += [Record(offset + number, stamp) for number, stamp in enumerate(stamps)]
        offset += len(stamps) + gap
    return segment, records


def closed(segment: Segment) -> Segment:
    """As the next process finds it."""
    segment.persist_indexes()
    segment.deactivate(now_ms=7)
    stat = segment.place.disk.stat(segment.path())
    return Segment(segment.place, segment.base_offset, stat.size, stat.modified_ms)


some_times = st.lists(st.lists(st.integers(0, 30), min_size=1, max_size=3), min_size=1, max_size=40)


@given(some_times, st.integers(0, 2), st.booleans())
def test_every_offset_is_located_in_its_batch(times: list[list[int]], gap: int, is_closed: bool) -> None:
    segment, records = filled(times, gap)
    if is_closed:
        segment = closed(segment)
    last = records[-1].offset
    for offset in range(BASE, last + 3):
        found = lookup.locate(segment, offset)
        if offset > last:
            assert found is None
        else:
            expected = next(record.offset for record in records if record.offset >= offset)
            assert found is not None
            assert found.base_offset <= expected <= found.last_offset
            content = segment.file.read(found.position, found.size_bytes)
            assert Batch(memoryview(content)).base_offset == found.base_offset


@given(some_times, st.booleans(), st.integers(0, 100))
def test_the_first_record_at_or_after_a_time_is_found(times: list[list[int]], is_closed: bool, start: int) -> None:
    segment, records = filled(times)
    if is_closed:
        segment = closed(segment)
    start_offset = BASE + start % (len(records) + 1)
    for time in range(START_MS - 1, START_MS + 32):
        expected = next((r for r in records if r.timestamp >= time and r.offset >= start_offset), None)
        found = lookup.first_at_or_after(segment, time, start_offset, 1 << 20)
        assert found == (expected and Stamped(expected.timestamp, expected.offset, 3))


@given(some_times, st.booleans())
def test_the_latest_record_is_the_first_with_the_largest_time(times: list[list[int]], is_closed: bool) -> None:
    segment, records = filled(times)
    if is_closed:
        segment = closed(segment)
    latest = max(records, key=lambda record: (record.timestamp, -record.offset))
    assert lookup.latest(segment, 1 << 20) == Stamped(latest.timestamp, latest.offset, 3)
    assert segment.largest_timestamp() == latest.timestamp


@pytest.mark.parametrize(
    ("suffix", "harm"),
    [
        *((suffix, harm) for suffix in INDEXES for harm in ("missing", "torn", "zeros", "swapped")),
        (names.INDEX, "astray"),  # of a timestamp that increases all the same, nobody could tell
    ],
)
def test_a_damaged_index_is_rebuilt_with_a_warning_that_names_it(
    suffix: str, harm: str, caplog: pytest.LogCaptureFixture
) -> None:
    segment, records = filled([[n, n + 1] for n in range(60)])
    segment = closed(segment)
    disk = segment.place.disk
    assert isinstance(disk, FaultyDisk)
    node = disk.platter.node(segment.path(suffix))
    whole = bytes(node.cached)
    if harm == "missing":
        disk.platter.vanish(segment.path(suffix))
    elif harm == "torn":
        del node.cached[-3:]
    elif harm == "zeros":
        node.cached[:] = bytes(len(whole))
    elif harm == "swapped":
        node.cached[:] = whole[24:48] + whole[:24] + whole[48:]
    else:
        node.cached[7] ^= 64  # positions that increase all the same, and lead astray
    with caplog.at_level(logging.WARNING):
        for record in records:
            found = lookup.locate(segment, record.offset)
            assert found is not None
            assert found.base_offset <= record.offset <= found.last_offset
            stamped = lookup.first_at_or_after(segment, record.timestamp, BASE, 1 << 20)
            assert stamped is not None
            assert stamped.timestamp == record.timestamp
    assert segment.full_path(suffix) in caplog.text
    assert len(disk.platter.node(segment.path(suffix)).cached) % 4 == 0


def test_a_segment_that_is_itself_damaged_says_where_and_what_to_do() -> None:
    segment, _ = filled([[n] for n in range(60)])
    segment = closed(segment)
    disk = segment.place.disk
    assert isinstance(disk, FaultyDisk)
    disk.platter.node(segment.path()).cached[8:12] = b"\0\0\0\1"
    with pytest.raises(
        LogDamaged, match=r"00000000000000001000.log is damaged in bytes 0 to .*no header of a record batch.*restart"
    ):
        lookup.locate(segment, BASE)


@given(some_times, st.integers(0, 100))
def test_what_is_cut_is_gone_and_what_stays_is_found(times: list[list[int]], where: int) -> None:
    segment, records = filled(times)
    offset = records[where % len(records)].offset
    found = lookup.locate(segment, offset)
    assert found is not None
    segment.cut(found.position, offset)
    for _, header in lookup.headers(segment, 0):
        segment.saw_timestamp(header.max_timestamp, header.last_offset)
    kept = [record for record in records if record.offset < found.base_offset]
    assert lookup.locate(segment, found.base_offset) is None
    for time in range(START_MS - 1, START_MS + 32):
        expected = next((r for r in kept if r.timestamp >= time), None)
        stamped = lookup.first_at_or_after(segment, time, BASE, 1 << 20)
        assert stamped == (expected and Stamped(expected.timestamp, expected.offset, 3))
    assert segment.largest_timestamp() == max((r.timestamp for r in kept), default=5)


def test_open_files_are_bounded_and_a_reader_keeps_its_own() -> None:
    place = new_place(capacity=3)
    disk = place.disk
    assert isinstance(disk, FaultyDisk)
    segments = []
    for number in range(8):
        segment = Segment.create(place, number * 100, now_ms=0)
        content = batch(b"v", base_offset=number * 100)
        segment.append(content, [Batch(memoryview(content))], INTERVAL)
        segments.append(segment)
    assert disk.open_files <= 3
    kept = segments[0].file
    kept.hold()
    for segment in segments * 3:
        assert lookup.locate(segment, segment.base_offset) is not None
        assert disk.open_files <= 4
    assert kept.read(0, 8) == bytes(8)
    kept.release()
    assert disk.open_files <= 3


def test_a_lower_limit_of_open_files_than_expected_is_lived_with() -> None:
    place = new_place(capacity=100)
    disk = place.disk
    assert isinstance(disk, FaultyDisk)
    disk.faults.open_files_max = 5
    segments = [Segment.create(place, number, now_ms=0) for number in range(20)]
    assert all(segment.file.size() == 0 for segment in segments)
    assert len(place.handles) <= 5
    assert place.handles.capacity <= 6, "one more is tried for now and then"
