"""What may be cleaned, which log comes first, what goes into one segment: decided without a disk."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.config import LogConfig
from headrace.storage.cleanable import GROUP_SEGMENTS_MAX, Cleanable, cleanable, dirtiest, grouped
from headrace.storage.cleaning_job import Source
from headrace.storage.throttle import Throttle

NOW_MS = 1_000_000


class Part(NamedTuple):
    base_offset: int
    size_bytes: int = 100
    first_ms: int = 0
    last_ms: int = 0

    def largest_timestamp(self) -> int:
        return self.last_ms

    def first_timestamp(self) -> int:
        return self.first_ms


SEGMENTS = [Part(0), Part(10), Part(20), Part(30), Part(40)]


def looked_at(segments: list[Part] = SEGMENTS, clean_offset: int = 0, stable: int = 45, **more: Any) -> Cleanable:
    start = more.pop("log_start_offset", 0)
    return cleanable(
        segments,
        clean_offset=clean_offset,
        log_start_offset=start,
        log_end_offset=50,
        stable_offset=stable,
        config=LogConfig(**more),
        now_ms=NOW_MS,
    )


@pytest.mark.parametrize(
    ("stable", "segments", "end_offset"),
    [(50, 4, 40), (45, 4, 40), (40, 4, 40), (39, 3, 30), (30, 3, 30), (29, 2, 20), (10, 1, 10), (9, 0, 0), (0, 0, 0)],
)
def test_whole_closed_segments_before_the_last_stable_offset_are_cleaned(
    stable: int, segments: int, end_offset: int
) -> None:
    found = looked_at(stable=stable)
    assert (found.segments, found.end_offset) == (segments, end_offset)
    assert found.dirty_bytes == 100 * segments


@pytest.mark.parametrize(
    ("clean_offset", "dirty_bytes", "clean_bytes"),
    [(0, 400, 0), (5, 400, 0), (10, 300, 100), (25, 200, 200), (39, 100, 300), (40, 0, 0), (50, 0, 0)],
)
def test_what_is_dirty_counts_by_whole_segments(clean_offset: int, dirty_bytes: int, clean_bytes: int) -> None:
    found = looked_at(clean_offset=clean_offset)
    assert found.first_dirty_offset == clean_offset
    assert (found.dirty_bytes, found.clean_bytes) == (dirty_bytes, clean_bytes)


def test_a_clean_offset_that_the_log_does_not_have_counts_for_nothing() -> None:
    assert looked_at(clean_offset=51).first_dirty_offset == 0
    assert looked_at(clean_offset=3, log_start_offset=15).first_dirty_offset == 15


def test_a_segment_with_a_record_younger_than_the_least_lag_stays_and_so_do_those_behind_it() -> None:
    aging = [Part(0, last_ms=500), Part(10, last_ms=NOW_MS - 99), Part(20, last_ms=5), Part(30)]
    assert looked_at(aging, min_compaction_lag_ms=100).end_offset == 10
    assert looked_at(aging, min_compaction_lag_ms=99).end_offset == 30
    assert looked_at(aging, 10, min_compaction_lag_ms=100).dirty_bytes == 0


def test_a_log_is_overdue_when_its_oldest_dirty_segment_is_older_than_the_most_lag() -> None:
    aging = [Part(0, first_ms=1), Part(10, first_ms=NOW_MS - 150), Part(20, first_ms=NOW_MS - 200), Part(30)]
    config = LogConfig(min_cleanable_dirty_ratio=1.0)
    assert looked_at(aging, 10, max_compaction_lag_ms=199).overdue_ms == 1
    assert looked_at(aging, 10, max_compaction_lag_ms=199).is_due(config)
    assert looked_at(aging, 10, max_compaction_lag_ms=200).overdue_ms == 0
    assert not looked_at(aging, 10, max_compaction_lag_ms=200).is_due(config)
    assert not looked_at(aging, 10).is_due(config)


def test_a_log_is_due_when_more_than_the_ratio_is_dirty() -> None:
    assert looked_at(clean_offset=20).dirty_ratio == 0.5
    assert not looked_at(clean_offset=20).is_due(LogConfig(min_cleanable_dirty_ratio=0.5))
    assert looked_at(clean_offset=20).is_due(LogConfig(min_cleanable_dirty_ratio=0.49))
    assert not looked_at(clean_offset=40).is_due(LogConfig(min_cleanable_dirty_ratio=0.0))
    assert looked_at([Part(0, size_bytes=0), Part(10)]).dirty_ratio == 0.0


def test_the_dirtiest_comes_first() -> None:
    config = LogConfig(min_cleanable_dirty_ratio=0.3)
    of_one = {offset: looked_at(clean_offset=offset) for offset in (10, 20, 30)}
    assert dirtiest([(offset, found, config) for offset, found in of_one.items()]) == (10, of_one[10])
    assert dirtiest([(30, of_one[30], config)]) is None
    assert dirtiest([]) is None


sizes = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 30), st.integers(0, 30)), min_size=1, max_size=40)


@given(sizes, st.integers(1, 2**30))
def test_groups_are_neighbours_and_keep_to_the_limits(parts: list[tuple[int, int, int]], offsets: int) -> None:
    sources = [Source(number * offsets, size, 0, False) for number, (size, _, _) in enumerate(parts)]
    indexes = {source.base_offset: part[1:] for source, part in zip(sources, parts, strict=True)}
    end_offset = len(parts) * offsets
    groups = grouped(
        sources,
        end_offset=end_offset,
        segment_bytes=100,
        segment_index_bytes=50,
        index_bytes=lambda source: indexes[source.base_offset],
    )
    assert [source for group in groups for source in group] == sources
    for group in groups:
        ends = [source.base_offset + offsets - 1 for source in group if source.size_bytes]
        assert len(group) == 1 or max(ends, default=0) - group[0].base_offset < 2**31
        assert len(group) == 1 or sum(source.size_bytes for source in group) <= 100
        for kind in (0, 1):
            assert len(group) == 1 or sum(indexes[source.base_offset][kind] for source in group) <= 50


def test_a_swap_takes_so_many_segments_and_no_more() -> None:
    sources = [Source(number, 1, 0, False) for number in range(3 * GROUP_SEGMENTS_MAX)]
    groups = grouped(
        sources,
        end_offset=len(sources),
        segment_bytes=1 << 30,
        segment_index_bytes=1 << 20,
        index_bytes=lambda source: (0, 0),
    )
    assert [len(group) for group in groups] == [GROUP_SEGMENTS_MAX] * 3


def test_a_throttle_keeps_to_its_rate_and_saves_nothing_up() -> None:
    throttle = Throttle(100)
    assert throttle.pause_s(50, 0.0) == 0.5
    assert throttle.pause_s(50, 0.5) == 0.5
    assert throttle.pause_s(10, 0.7) == pytest.approx(0.4)
    assert throttle.pause_s(10, 100.0) == pytest.approx(0.1)
    assert Throttle(1.7976931348623157e308).pause_s(1 << 30, 5.0) == 0.0
