"""The checkpoints of a log directory: what they have to say of its logs, and when it is written down.

One is written at a time, away from the loop, and tells of all logs together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from headrace.errors import HeadraceError
from headrace.storage.checkpoint import CLEANED, HIGH_WATERMARKS, LOG_STARTS, RECOVERY_POINTS, TopicPartition
from headrace.storage.checkpoint_files import CheckpointFiles, Contents
from headrace.storage.disk import Disk, SyncFailed
from headrace.storage.expected_starts import ExpectedStarts
from headrace.storage.last_stop import CHECKPOINTS
from headrace.storage.log import Log
from headrace.storage.reopening import OfflineLog
from headrace.storage.workers import Workers

Written: TypeAlias = Callable[[BaseException | None], None]
"""Hears when a checkpoint is durable, or why it is not."""


class Checkpoints:
    __slots__ = (
        "_disk",
        "_ended",
        "_expected",
        "_files",
        "_go_offline",
        "_is_writing",
        "_logs",
        "_now_ms",
        "_offline_logs",
        "_waiting",
        "_why_offline",
        "_workers",
    )

    def __init__(
        self,
        disk: Disk,
        workers: Workers,
        now_ms: Callable[[], int],
        *,
        logs: Mapping[TopicPartition, Log],
        offline_logs: Mapping[TopicPartition, OfflineLog],
        expected: ExpectedStarts,
        why_offline: Callable[[], HeadraceError | None],
        go_offline: Callable[[HeadraceError], None],
        ended: Callable[[], None],
    ) -> None:
        """`why_offline` and `go_offline` are the directory's; `ended` is called on the loop after each job."""
        self._disk = disk
        self._workers = workers
        self._now_ms = now_ms
        self._logs = logs
        self._offline_logs = offline_logs
        self._expected = expected
        self._why_offline = why_offline
        self._go_offline = go_offline
        self._ended = ended
        self._files = CheckpointFiles(disk, {})
        self._is_writing = False
        self._waiting: list[Written] = []
        """Who wants to hear of the next one."""

    @property
    def is_idle(self) -> bool:
        return not self._is_writing

    def found(self, offsets: Mapping[str, Mapping[TopicPartition, int]]) -> None:
        """What the files say at a start."""
        self._files = CheckpointFiles(self._disk, offsets)

    def write(self, done: Written | None = None) -> None:
        """Writes down how far the logs have come, away from the loop. `done` hears when what is so now is durable.

        One is written at a time. Those that wait for the next share it; who does not wait is content with the one that
        is under way.
        """
        why_offline = self._why_offline()
        if why_offline is not None:
            waiting, self._waiting = self._waiting, []
            for told in [*waiting, done]:
                if told is not None:
                    told(why_offline)
            return
        if done is not None:
            self._waiting.append(done)
        if self._is_writing:
            return
        self._is_writing = True
        waiting, self._waiting = self._waiting, []
        logs = [(log, *log.offer_recovery_point()) for log in self._logs.values()]
        job = self._files.writer(self.contents())

        def written(result: None, error: BaseException | None) -> None:
            self._is_writing = False
            if error is None:
                for log, recovery_point, truncations in logs:
                    if self._logs.get((log.topic, log.partition)) is log:
                        log.checkpointed(recovery_point, truncations)
            elif isinstance(error, SyncFailed):
                self._go_offline(error)
            elif isinstance(error, HeadraceError):
                problem = f"the checkpoints of {self._disk.root} can't be written"
                self._disk.refusals.note(problem, error, self._now_ms())
            for told in waiting:
                told(error)
            if self._waiting:
                self.write(self._waiting.pop())
            self._ended()
            if error is not None and not isinstance(error, HeadraceError):
                raise error

        self._workers.run(job, written)

    def write_starts(self) -> None:
        """Makes durable where the logs start. Blocks."""
        self._files.writer(self.contents(), [LOG_STARTS])()

    def forget(self, key: TopicPartition) -> None:
        """Before a log is made: the one of its name that was deleted. Blocks if they know it."""
        logs, offline_logs, expected = self._logs, self._offline_logs, self._expected.by_partition()
        self._files.forget(key, lambda known: known in logs or known in expected or known in offline_logs)

    def contents(self) -> Contents:
        """What they have to say now."""
        logs, expected = self._logs, self._expected.by_partition()
        found = {
            RECOVERY_POINTS: {key: log.recovery_point for key, log in logs.items()},
            # Also where the first segment says the same: those before it may be back after a loss of power.
            LOG_STARTS: {key: start for key, start in expected.items() if start and key not in logs}
            | {key: log.log_start_offset for key, log in logs.items() if log.log_start_offset},
            HIGH_WATERMARKS: {key: log.high_watermark for key, log in logs.items()},
            CLEANED: {key: log.clean_offset for key, log in logs.items() if log.config.compact},
        }
        for key, offline in self._offline_logs.items():
            saved = offline.saved
            kept = (saved.recovery_point, saved.log_start_offset, saved.high_watermark, saved.clean_offset)
            for name, offset in zip(CHECKPOINTS, kept, strict=True):
                if offset:
                    found[name][key] = offset
        return found
