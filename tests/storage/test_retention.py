"""Which segments go, by Kafka's rules."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from headrace.config import LogConfig
from headrace.storage.retention import expired


class Aged(NamedTuple):
    base_offset: int
    size_bytes: int
    timestamp: int

    def largest_timestamp(self) -> int:
        return self.timestamp


SEGMENTS = [Aged(0, 100, 1000), Aged(10, 100, 2000), Aged(20, 100, 3000), Aged(30, 50, 4000)]
KEEP = LogConfig(retention_ms=-1, retention_bytes=-1)


def count(
    config: LogConfig, *, now_ms: int = 10_000, high_watermark: int = 40, log_start_offset: int = 0, end: int = 40
) -> int:
    return expired(
        SEGMENTS,
        size_bytes=sum(segment.size_bytes for segment in SEGMENTS),
        log_start_offset=log_start_offset,
        high_watermark=high_watermark,
        log_end_offset=end,
        config=config,
        now_ms=now_ms,
    ).segments


def test_without_limits_nothing_goes() -> None:
    assert count(KEEP) == 0


@pytest.mark.parametrize(
    ("retention_ms", "gone"), [(9000, 0), (8999, 1), (7999, 2), (6999, 3), (5999, 4), (0, 4), (-1, 0)]
)
def test_segments_go_by_the_age_of_their_newest_record(retention_ms: int, gone: int) -> None:
    assert count(KEEP.replace(retention_ms=retention_ms)) == gone


@pytest.mark.parametrize(
    ("retention_bytes", "gone"), [(350, 0), (251, 0), (250, 1), (149, 2), (50, 3), (0, 4), (-1, 0)]
)
def test_segments_go_while_the_rest_holds_the_size(retention_bytes: int, gone: int) -> None:
    assert count(KEEP.replace(retention_bytes=retention_bytes)) == gone


@pytest.mark.parametrize(("start", "gone"), [(0, 0), (9, 0), (10, 1), (29, 2), (30, 3), (40, 3)])
def test_segments_below_the_start_go_whatever_the_policy(start: int, gone: int) -> None:
    assert count(KEEP.replace(cleanup_policy=("compact",)), log_start_offset=start) == gone


@pytest.mark.parametrize(("high_watermark", "gone"), [(0, 0), (9, 0), (10, 1), (30, 3), (39, 3), (40, 4)])
def test_nothing_at_or_beyond_the_high_watermark_goes(high_watermark: int, gone: int) -> None:
    assert count(KEEP.replace(retention_ms=0), high_watermark=high_watermark) == gone


def test_a_compacted_topic_keeps_its_age_and_size() -> None:
    assert count(LogConfig(cleanup_policy=("compact",), retention_ms=0, retention_bytes=0)) == 0


def test_a_segment_with_an_old_record_stays_behind_one_that_must_stay() -> None:
    segments = [Aged(0, 10, 9_999), Aged(10, 10, 1)]
    found = expired(
        segments,
        size_bytes=20,
        log_start_offset=0,
        high_watermark=20,
        log_end_offset=20,
        config=KEEP.replace(retention_ms=100),
        now_ms=10_000,
    )
    assert found == (0, "", 0)


def test_an_empty_active_segment_stays() -> None:
    segments = [Aged(0, 10, 1), Aged(10, 0, 1)]
    found = expired(
        segments,
        size_bytes=10,
        log_start_offset=0,
        high_watermark=10,
        log_end_offset=10,
        config=KEEP.replace(retention_ms=0),
        now_ms=10_000,
    )
    assert found.segments == 1
    assert "retention.ms=0" in found.reason
