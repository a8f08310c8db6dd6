"""Which segments of a log are past retention. PURE: it looks at segments from the oldest on, and decides.

Kafka's rules: whole segments only, from the oldest on, up to the first that must stay, and none that has a record at
or beyond the high watermark, so that the log's start never passes it. An empty active segment stays.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from headrace.config import LogConfig
from headrace.named_tuple import NamedTuple


class Aging(Protocol):
    """What retention wants to know of a segment. Asking for the timestamp may cost a read, so it is asked last."""

    @property
    def base_offset(self) -> int: ...

    @property
    def size_bytes(self) -> int: ...

    def largest_timestamp(self) -> int:
        """Of its records; of its last change where no record has a timestamp."""


class Expired(NamedTuple):
    """The number of segments to delete, from the oldest on, why the last of them goes, and how many for their age."""

    segments: int
    reason: str
    by_time: int = 0


def expired(
    segments: Sequence[Aging],
    *,
    size_bytes: int,
    log_start_offset: int,
    high_watermark: int,
    log_end_offset: int,
    config: LogConfig,
    now_ms: int,
) -> Expired:
    """The cost follows the segments that go, not those that stay. `size_bytes` is that of them all."""

    def may_go(number: int) -> bool:
        is_last = number + 1 == len(segments)
        end_offset = log_end_offset if is_last else segments[number + 1].base_offset
        return end_offset <= high_watermark and not (is_last and not segments[number].size_bytes)

    count, reason, by_time = 0, "", 0
    while count + 1 < len(segments) and segments[count + 1].base_offset <= log_start_offset and may_go(count):
        size_bytes -= segments[count].size_bytes
        count += 1
        reason = f"it is below the log's start offset {log_start_offset}"
    if not config.delete:
        return Expired(count, reason)
    if config.retention_bytes >= 0:
        excess = size_bytes - config.retention_bytes
        while count < len(segments) and excess >= segments[count].size_bytes and may_go(count):
            excess -= segments[count].size_bytes
            count += 1
            reason = f"the rest holds retention.bytes={config.retention_bytes} without it"
    if config.retention_ms >= 0:
        while (
            count < len(segments)
            and may_go(count)
            and now_ms - segments[count].largest_timestamp() > config.retention_ms
        ):
            count += 1
            by_time += 1
            reason = f"its newest record is older than retention.ms={config.retention_ms}"
    return Expired(count, reason, by_time)
