"""What of a log may be cleaned, how dirty it is, which log comes first, and which segments are cleaned into one. PURE.

A log is clean up to where the last cleaning came. The rest is dirty, and of that only whole closed segments are cleaned
which lie before the last stable offset, before what a restart would verify, and which have no record that is younger
than min.compaction.lag.ms.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from typing import Final, Protocol, TypeVar

from headrace.config import LogConfig
from headrace.named_tuple import NamedTuple
from headrace.storage.cleaning_job import Source
from headrace.storage.index import RELATIVE_OFFSET_MAX

INT64_MAX: Final = 2**63 - 1
GROUP_SEGMENTS_MAX: Final = 16
"""A swap renames four or five files for each of them, in one go on the loop: 70 renames take 1.5 ms."""


class Aging(Protocol):
    """What is asked of a segment; a timestamp may cost a read, so it is asked only where a setting needs it."""

    @property
    def base_offset(self) -> int: ...

    @property
    def size_bytes(self) -> int: ...

    def largest_timestamp(self) -> int: ...

    def first_timestamp(self) -> int: ...


class Cleanable(NamedTuple):
    """What a cleaning of a log would do now."""

    first_dirty_offset: int
    end_offset: int
    segments: int
    """How many may be cleaned, from the first on."""
    clean_bytes: int
    dirty_bytes: int
    overdue_ms: int
    """By how much max.compaction.lag.ms is exceeded; 0 when it is not."""

    @property
    def dirty_ratio(self) -> float:
        total = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total if total else 0.0

    def is_due(self, config: LogConfig) -> bool:
        return self.dirty_bytes > 0 and (self.overdue_ms > 0 or self.dirty_ratio > config.min_cleanable_dirty_ratio)


def cleanable(
    segments: Sequence[Aging],
    *,
    clean_offset: int,
    log_start_offset: int,
    log_end_offset: int,
    stable_offset: int,
    config: LogConfig,
    now_ms: int,
) -> Cleanable:
    """`segments` ends with the active one. Nothing at or behind `stable_offset` may be touched."""
    first_dirty_offset = clean_offset
    if not log_start_offset <= clean_offset <= log_end_offset:
        first_dirty_offset = log_start_offset  # it was truncated, or its beginning deleted
    count = bisect_right(segments, stable_offset, lo=1, key=_base_offset) - 1
    dirty = min(count, bisect_right(segments, first_dirty_offset, lo=1, key=_base_offset) - 1)
    if config.min_compaction_lag_ms > 0:
        youngest_ms = now_ms - config.min_compaction_lag_ms
        for number in range(dirty, count):
            if segments[number].largest_timestamp() > youngest_ms:
                count = number
                break
    overdue_ms = 0
    if config.max_compaction_lag_ms < INT64_MAX:
        oldest_ms = now_ms - config.max_compaction_lag_ms
        for number in range(dirty, count):
            if (first_ms := segments[number].first_timestamp()) > 0:
                overdue_ms = max(overdue_ms, oldest_ms - first_ms)
    return Cleanable(
        first_dirty_offset,
        max(segments[count].base_offset, first_dirty_offset),
        count,
        sum(segments[number].size_bytes for number in range(min(dirty, count))) if dirty < count else 0,
        sum(segments[number].size_bytes for number in range(dirty, count)),
        overdue_ms,
    )


def _base_offset(segment: Aging) -> int:
    return segment.base_offset


Log = TypeVar("Log")


def dirtiest(candidates: Iterable[tuple[Log, Cleanable, LogConfig]]) -> tuple[Log, Cleanable] | None:
    """The log that has the largest dirty part, of those that are due."""
    best: tuple[Log, Cleanable] | None = None
    for log, found, config in candidates:
        if found.is_due(config) and (best is None or found.dirty_ratio > best[1].dirty_ratio):
            best = log, found
    return best


def grouped(
    sources: Sequence[Source],
    *,
    end_offset: int,
    segment_bytes: int,
    segment_index_bytes: int,
    index_bytes: Callable[[Source], tuple[int, int]],
) -> list[list[Source]]:
    """Neighbours that go into one segment, whose files and offsets stay within the limits even if all records stay."""
    groups: list[list[Source]] = []
    size = offset_index = time_index = 0
    for number, source in enumerate(sources):
        last_offset = (sources[number + 1].base_offset if number + 1 < len(sources) else end_offset) - 1
        source_indexes = index_bytes(source)
        group = groups[-1] if groups else None
        if (
            group is not None
            and len(group) < GROUP_SEGMENTS_MAX
            and size + source.size_bytes <= segment_bytes
            and offset_index + source_indexes[0] <= segment_index_bytes
            and time_index + source_indexes[1] <= segment_index_bytes
            and (not source.size_bytes or last_offset - group[0].base_offset <= RELATIVE_OFFSET_MAX)
        ):
            group.append(source)
        else:
            groups.append([source])
            size = offset_index = time_index = 0
        size += source.size_bytes
        offset_index += source_indexes[0]
        time_index += source_indexes[1]
    return groups
