"""What the last stop of a log directory left for the next start: whether it was clean, and how far the logs had come.

A checkpoint that is missing or damaged is told of by name. After a clean stop of ours what it said is taken from
`closed_logs`; after any other, its logs go without.
"""

from __future__ import annotations

import logging
from typing import Final

from headrace.storage.checkpoint import (
    CLEANED,
    HIGH_WATERMARKS,
    LOG_STARTS,
    NOT_CLOSED,
    RECOVERY_POINTS,
    CheckpointDamaged,
    TopicPartition,
    read_offsets,
)
from headrace.storage.clean_shutdown import take_clean_shutdown
from headrace.storage.closed_logs import CLOSED_LOGS, ClosedLog, ClosedLogs, read_closed_logs
from headrace.storage.disk import Disk
from headrace.storage.recovery import Saved

logger = logging.getLogger(__name__)

SYNC_FAILED: Final = ".headrace_sync_failed"
"""A sync failed: until the machine starts anew, the page cache may hold what the device does not."""

CHECKPOINTS: Final = (RECOVERY_POINTS, LOG_STARTS, HIGH_WATERMARKS, CLEANED)

_CONSEQUENCES: Final = {
    RECOVERY_POINTS: "it is worked out from the logs",
    LOG_STARTS: "records that were deleted from the beginning of a segment may be back",
    HIGH_WATERMARKS: "the high watermarks are what the leaders say next",
    CLEANED: "compaction begins anew",
}


class LastStop:
    __slots__ = ("_closed", "broker_epoch", "is_clean", "lost_sync", "not_closed", "offsets")

    def __init__(self, disk: Disk, *, has_partitions: bool) -> None:
        """Takes the marker of a clean stop away, durably."""
        there = set(disk.names())
        shutdown = take_clean_shutdown(disk)
        self.lost_sync = SYNC_FAILED in there
        self.broker_epoch: int | None = None
        """Of a clean stop, None after another."""
        self._closed = ClosedLogs()
        if shutdown is not None:
            self.broker_epoch = shutdown.broker_epoch
            self._closed = read_closed_logs(disk, shutdown.closed_logs_crc)
        self.is_clean = shutdown is not None and not self.lost_sync
        self.not_closed: dict[TopicPartition, int] = {}
        """Partitions that were offline at the stop, each with 1 when a sync of it may have failed before."""
        try:
            self.not_closed = read_offsets(disk, NOT_CLOSED)
        except CheckpointDamaged as damaged:
            logger.warning("%s", damaged)
            self.is_clean = False  # it may be any of them
            self.broker_epoch = None
        # They are written one after another, so that where one is, all were, but for a crash at the first time.
        is_missed = has_partitions and (self.is_clean or not there.isdisjoint(CHECKPOINTS))
        self.offsets = {name: self._read(disk, name, there, is_missed) for name in CHECKPOINTS}
        """What each checkpoint says, by its name."""

    def _read(self, disk: Disk, name: str, there: set[str], is_missed: bool) -> dict[TopicPartition, int]:
        if is_missed and name not in there:
            if name == CLEANED and not any(self._closed.offsets(name).values()):
                return {}  # Kafka has it only where something was compacted
            problem = f"{disk.full_path(name)} is missing"
        else:
            try:
                found = read_offsets(disk, name)
            except CheckpointDamaged as damaged:
                problem = f"{damaged.path} is damaged: {damaged.reason}"
            else:
                if found or not self._closed or name not in there or disk.stat(name).size:
                    return found
                problem = f"{disk.full_path(name)} is empty"
        if self._closed:
            logger.warning("%s; what it said is taken from %s", problem, disk.full_path(CLOSED_LOGS))
            return self._closed.offsets(name)
        logger.warning("%s; %s", problem, _CONSEQUENCES[name])
        return {}

    def closed(self, key: TopicPartition) -> ClosedLog | None:
        """What a clean stop of ours left of a log; of one that was offline then, the stop before that."""
        return self._closed.get(key)

    def knows(self, key: TopicPartition) -> bool:
        """A checkpoint says that there was something in the log."""
        return any(offsets.get(key) for offsets in self.offsets.values())

    def saved(self, key: TopicPartition, closed: ClosedLog | None) -> Saved:
        points, starts, marks, cleaned = self.offsets.values()
        return Saved(
            self.is_clean and key not in self.not_closed,
            points.get(key, 0),
            starts.get(key, 0),
            marks.get(key, 0),
            clean_offset=cleaned.get(key, 0),
            lost_sync=self.lost_sync or bool(self.not_closed.get(key)),
            closed=closed,
        )
