"""The cleaner of a node: which log is compacted next, by whom, and what becomes of the result.

It lives on the loop and only decides. The work is done elsewhere (`cleaning_work`): a step is asked for through a
worker, and when it comes the log swaps a new segment in, or the cleaning is over. log.cleaner.threads is the number of
workers, and so of logs that are cleaned at once; each has its share of log.cleaner.dedupe.buffer.size, of
log.cleaner.io.buffer.size and of log.cleaner.io.max.bytes.per.second.

What can't be cleaned is set aside with the reason, and the rest goes on. What may be better later is tried again, after
log.cleaner.backoff.ms and then twice as long each time.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from headrace.config import CleanerConfig
from headrace.errors import HeadraceError, Refused
from headrace.named_tuple import NamedTuple
from headrace.storage.cleanable import Cleanable, cleanable, dirtiest
from headrace.storage.cleaning_job import (
    Cleaned,
    CleaningFailed,
    CleaningJob,
    Replacement,
    Source,
    Step,
    Trouble,
    Worked,
    trouble_of,
)
from headrace.storage.cleaning_work import StartWork, Work
from headrace.storage.disk import DiskError, SyncFailed
from headrace.storage.log import Log
from headrace.storage.replay import transaction_index
from headrace.storage.swap import remove_cleaned, swap_in
from headrace.storage.throttle import Throttle
from headrace.storage.workers import Workers

logger = logging.getLogger(__name__)

RETRY_DOUBLINGS_MAX: Final = 8
"""With a back-off of 15 s, at least every hour or so."""


class SetAside(NamedTuple):
    """Why a log is not cleaned."""

    reason: str
    retry_ms: int | None
    """When it is tried again; None when only a restart, other settings or `retry` change that."""
    failures: int


class Cleaner:
    """Compacts the logs that want it."""

    __slots__ = (
        "_call_later",
        "_config",
        "_idle",
        "_is_stopped",
        "_logs",
        "_now_ms",
        "_on_rest",
        "_poll_ms",
        "_running",
        "_secret",
        "_set_aside",
        "_start",
        "_throttle",
        "_workers",
        "cleanings",
        "last",
        "max_dirty_ratio",
    )

    def __init__(
        self,
        logs: Callable[[], Iterable[Log]],
        config: CleanerConfig,
        start: StartWork,
        workers: Sequence[Workers],
        *,
        now_ms: Callable[[], int],
        call_later: Callable[[float, Callable[[], None]], object],
        secret: Callable[[], bytes],
        on_rest: Callable[[], None] = lambda: None,
    ) -> None:
        """`workers` are as many as there may be cleanings at once. `call_later` is the loop's, in seconds.

        `secret` gives 16 random bytes. `on_rest` is called when there is nothing to clean.
        """
        self._logs = logs
        self._config = config
        self._start = start
        self._workers = list(workers)
        self._idle = list(workers)
        self._now_ms = now_ms
        self._call_later = call_later
        self._secret = secret
        self._on_rest = on_rest
        self._throttle = Throttle(config.log_cleaner_io_max_bytes_per_second)
        self._running: dict[Log, _Running] = {}
        self._set_aside: dict[Log, SetAside] = {}
        self._poll_ms: int | None = None
        self._is_stopped = False
        self.cleanings = 0
        self.last: dict[tuple[str, int], Cleaned] = {}
        """Of each log, what the last cleaning did."""
        self.max_dirty_ratio = 0.0

    # ------------------------------------------------------------------------------------------------- what others see

    @property
    def set_aside(self) -> Mapping[tuple[str, int], SetAside]:
        """The partitions that can't be cleaned, and why; for the metrics, and for operators."""
        return {(log.topic, log.partition): aside for log, aside in self._set_aside.items()}

    @property
    def running(self) -> list[tuple[str, int]]:
        return [(log.topic, log.partition) for log in self._running]

    def uncleanable_bytes(self) -> int:
        """What lies dirty in partitions that were set aside."""
        now_ms = self._now_ms()
        return sum(cleanable_of(log, now_ms).dirty_bytes for log in self._set_aside)

    def configure(self, config: CleanerConfig, workers: Sequence[Workers] | None = None) -> None:
        """Takes other settings, and other workers where their number changed, from the next cleaning on."""
        self._config = config
        self._throttle = Throttle(config.log_cleaner_io_max_bytes_per_second)
        if workers is not None:
            busy = [running.workers for running in self._running.values()]
            self._workers = list(workers)
            self._idle = [each for each in workers if each not in busy]

    def retry(self, log: Log) -> None:
        """Something changed about a log that was set aside."""
        self._set_aside.pop(log, None)

    def forget(self, log: Log) -> None:
        """A log is deleted, moved or closed: what is under way for it is for nothing."""
        self._set_aside.pop(log, None)
        self.last.pop((log.topic, log.partition), None)
        if (running := self._running.get(log)) is not None:
            running.cancel()

    def stop(self) -> None:
        """Begins nothing any more, and cancels what is under way."""
        self._is_stopped = True
        for running in self._running.values():
            running.cancel()

    # ------------------------------------------------------------------------------------------------- what comes next

    def poll(self) -> None:
        """Begins as many cleanings as there are idle workers, then looks again after log.cleaner.backoff.ms."""
        self._poll_ms = None
        if self._is_stopped or not self._config.log_cleaner_enable:
            return
        while self._idle and (found := self._next_log()) is not None:
            self._begin(*found)
        if not self._running:
            self._on_rest()
        self._poll_in(self._config.log_cleaner_backoff_ms)

    def _poll_in(self, pause_ms: int) -> None:
        """A call that comes sooner takes the place of the one that is due; that one does nothing then."""
        poll_ms = self._now_ms() + pause_ms
        if self._poll_ms is None or poll_ms < self._poll_ms:
            self._poll_ms = poll_ms
            self._call_later(pause_ms / 1000, lambda: self.poll() if self._poll_ms == poll_ms else None)

    def _next_log(self) -> tuple[Log, Cleanable] | None:
        now_ms = self._now_ms()
        logs = [log for log in self._logs() if log.config.compact]
        self._forget_missing(logs)
        candidates = [(log, cleanable_of(log, now_ms), log.config) for log in logs if self._may_clean(log, now_ms)]
        self.max_dirty_ratio = max((found.dirty_ratio for _, found, _ in candidates), default=0.0)
        return dirtiest(candidates)

    def _may_clean(self, log: Log, now_ms: int) -> bool:
        if log in self._running or log.offline is not None or log.place.disk.offline is not None:
            return False
        aside = self._set_aside.get(log)
        return aside is None or (aside.retry_ms is not None and now_ms >= aside.retry_ms)

    def _forget_missing(self, logs: list[Log]) -> None:
        if self._set_aside:
            here = set(logs)
            self._set_aside = {log: aside for log, aside in self._set_aside.items() if log in here}

    def _begin(self, log: Log, found: Cleanable) -> None:
        logger.info(
            "%s-%d is compacted from offset %d to %d",
            log.topic,
            log.partition,
            found.first_dirty_offset,
            found.end_offset,
        )
        workers = self._idle.pop()
        try:
            remove_cleaned(log.place)
            job = job_for(log, found, self._config, len(self._workers), self._now_ms(), self._secret())
        except HeadraceError as error:
            self._idle.append(workers)
            self._failed(log, error)
            return
        running = _Running(log, self._start(job, log.place.disk), workers)
        self._running[log] = running
        self._go_on(running)

    # -------------------------------------------------------------------------------------------------- what came of it

    def _go_on(self, running: _Running) -> None:
        def stepped(step: Step | None, error: BaseException | None) -> None:
            self._stepped(running, step, error)

        running.workers.run(running.work.next_step, stepped)

    def _stepped(self, running: _Running, step: Step | None, error: BaseException | None) -> None:
        log = running.log
        if error is not None:
            if not isinstance(error, Exception):
                raise error  # a crash in a simulation
            # What was cut under a cleaning looks to it like damage.
            self._end(running, None if running.is_cancelled or running.is_outdated else error)
        elif running.is_cancelled or running.is_outdated:
            running.cancel()
            if isinstance(step, Cleaned):
                self._end(running, None)
            else:
                self._go_on(running)  # the worker must be gone before another one may write
        elif isinstance(step, Worked):
            self._pace(running, step)
        elif isinstance(step, Replacement):
            self._swap(running, step)
        elif isinstance(step, Cleaned):
            try:
                log.flush(lambda failure: self._cleaned(running, step, failure))
            except (DiskError, Refused) as failure:
                self._end(running, failure)

    def _pace(self, running: _Running, step: Worked) -> None:
        pause_s = self._throttle.pause_s(step.bytes_read + step.bytes_written, self._now_ms() / 1000)
        if pause_s > 0:
            self._call_later(pause_s, lambda: self._go_on(running))
        else:
            self._go_on(running)

    def _swap(self, running: _Running, step: Replacement) -> None:
        log = running.log
        try:
            is_there = swap_in(log, step, self._now_ms())
        except DiskError as error:
            running.failure = error
            is_there = False
        if not is_there:
            running.cancel()
        self._go_on(running)

    def _cleaned(self, running: _Running, step: Cleaned, failure: DiskError | None) -> None:
        """The new names are durable. Only now may the log count as clean so far.

        Else a crash could bring old records back behind a tombstone that nobody looks at again, until it is dropped.
        """
        log = running.log
        if failure is not None or running.is_cancelled or running.is_outdated:
            self._end(running, failure)
            return
        log.clean_offset = step.end_offset
        self.cleanings += 1
        self.last[log.topic, log.partition] = step
        logger.info(
            "%s-%d is compacted to offset %d: %d of %d bytes are left",
            log.topic,
            log.partition,
            step.end_offset,
            step.bytes_written,
            step.bytes_read,
        )
        if step.oversized_batches:
            logger.warning(
                "%s-%d has %d batches that compaction made longer than max.message.bytes; clients get them as they are",
                log.topic,
                log.partition,
                step.oversized_batches,
            )
        self._set_aside.pop(log, None)
        self._end(running, None)

    def _end(self, running: _Running, error: Exception | None) -> None:
        log = running.log
        del self._running[log]
        if running.workers in self._workers:
            self._idle.append(running.workers)
        error = running.failure or error
        try:
            remove_cleaned(log.place)
        except HeadraceError as second:  # the folder of a deleted partition
            logger.debug("what the cleaning of %s left is not removed: %s", log.place.folder, second)
        if error is not None:
            self._failed(log, error)
        if not self._is_stopped:
            self._poll_in(0 if error is None else self._config.log_cleaner_backoff_ms)

    def _failed(self, log: Log, error: Exception) -> None:
        trouble = trouble_of(error)
        if trouble is Trouble.INDEX_DAMAGED and _rebuild_transaction_indexes(log):
            trouble = Trouble.TRANSIENT
        if isinstance(error, SyncFailed):
            log.place.disk.go_offline(error)  # whoever did the work, the sync that failed was of this disk (hazard 8)
        before = self._set_aside.get(log)
        failures = 1 if before is None else before.failures + 1
        retry_ms = None
        if trouble is Trouble.TRANSIENT:
            backoff_ms = max(1, self._config.log_cleaner_backoff_ms)
            retry_ms = self._now_ms() + (backoff_ms << min(failures - 1, RETRY_DOUBLINGS_MAX))
        self._set_aside[log] = SetAside(str(error), retry_ms, failures)
        logger.log(
            logging.ERROR if retry_ms is None else logging.WARNING,
            "%s-%d is not compacted%s: %s",
            log.topic,
            log.partition,
            "" if retry_ms is None else " for now",
            error,
            exc_info=error if trouble is Trouble.DEFECT and not isinstance(error, CleaningFailed) else None,
        )


class _Running:
    __slots__ = ("_folder", "_truncations", "failure", "is_cancelled", "log", "work", "workers")

    def __init__(self, log: Log, work: Work, workers: Workers) -> None:
        self.log = log
        self.work = work
        self.workers = workers
        self.is_cancelled = False
        self.failure: Exception | None = None
        self._folder = log.place.folder
        self._truncations = log.truncations

    @property
    def is_outdated(self) -> bool:
        """The log was truncated since the job was made, or given up, or is not to be compacted any more.

        What a truncation cut must not come back, and what came in its place may be other records at the same offsets.
        """
        log = self.log
        return log.truncations != self._truncations or log.place.folder != self._folder or not log.config.compact

    def cancel(self) -> None:
        if not self.is_cancelled:
            self.is_cancelled = True
            self.work.cancel()


def cleanable_of(log: Log, now_ms: int) -> Cleanable:
    """What may be cleaned of a log.

    Not what a restart after a crash would verify: it makes the producers' state anew from there on, and compacted
    batches would tell it less than the snapshots do that it leaves aside (hazard 7).
    """
    return cleanable(
        log.segments,
        clean_offset=log.clean_offset,
        log_start_offset=log.log_start_offset,
        log_end_offset=log.log_end_offset,
        stable_offset=min(log.last_stable_offset, log.checkpointed_recovery_point),
        config=log.config,
        now_ms=now_ms,
    )


def job_for(log: Log, found: Cleanable, config: CleanerConfig, shares: int, now_ms: int, secret: bytes) -> CleaningJob:
    """All that a cleaning needs to know of a log, and its share of the means."""
    end_offset = found.end_offset
    last_offsets = {}
    last_epochs = {}
    for producer_id, producer in log.producers:
        last_offset = producer.last_offset
        if last_offset is None:
            last_epochs[producer_id] = producer.epoch
        elif last_offset < end_offset:
            last_offsets[producer_id] = last_offset
    topic = log.config
    return CleaningJob(
        log.place.folder,
        [
            Source(segment.base_offset, segment.size_bytes, segment.modified_ms, segment.has_transaction_index)
            for segment in log.segments[: found.segments]
        ],
        found.first_dirty_offset,
        end_offset,
        now_ms,
        secret,
        aborted_after=log.aborted_in(end_offset, end_offset),
        last_offsets=last_offsets,
        last_epochs=last_epochs,
        delete_retention_ms=topic.delete_retention_ms,
        max_message_bytes=topic.max_message_bytes,
        segment_bytes=topic.segment_bytes,
        segment_index_bytes=topic.segment_index_bytes,
        index_interval_bytes=topic.index_interval_bytes,
        decompressed_bytes_max=log.options.decompressed_bytes_max,
        dedupe_buffer_bytes=config.log_cleaner_dedupe_buffer_size // shares,
        load_factor=config.log_cleaner_io_buffer_load_factor,
        io_buffer_bytes=config.log_cleaner_io_buffer_size // shares,
        bytes_per_second=config.log_cleaner_io_max_bytes_per_second / shares,
    )


def _rebuild_transaction_indexes(log: Log) -> bool:
    """The worker can't: it takes the log's producers. False when that is not possible either."""
    segments = log.segments
    try:
        for number in range(len(segments) - 1):
            if segments[number].has_transaction_index:
                segments[number].forget_indexes()
                transaction_index(segments, number, log.snapshots, segments.end_offset(number, log.log_end_offset))
    except HeadraceError as error:
        logger.error("%s-%d: %s", log.topic, log.partition, error)
        return False
    return True
