"""Loading a shard: its partition's log, from its start to its end, is replayed into it.

A worker reads, a chunk at a time; the loop replays in slices. What is appended meanwhile (markers of transactions) is
read too: the end is where the log ends when nothing is left to read.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Final

from headrace.coordinator.shard import ProducerStamp, Shard
from headrace.coordinator.slices import Slices
from headrace.errors import HeadraceError
from headrace.protocol.batch import Batch, scan
from headrace.protocol.control import ControlType, read_control
from headrace.protocol.records import records_of
from headrace.replica.partition import Partition
from headrace.storage.disk import IMPATIENT, ReadWouldWait
from headrace.storage.read import Fetched
from headrace.storage.workers import Workers

logger = logging.getLogger(__name__)

RECORDS_A_STEP: Final = 32
WARMINGS_MAX: Final = 3
"""What is still not in memory after so many tries is waited for."""
PROGRESS_EVERY_S: Final = 2.0

_BATCH_BYTES_MAX: Final = 1 << 30
"""Of the records of a batch, decompressed: the log's own leader wrote them."""


class LoadFailed(HeadraceError):
    pass


class Loading:
    """Of one shard. Calls `done` once, with what went wrong or None, unless it is cancelled before."""

    __slots__ = (
        "_bytes_max",
        "_done",
        "_is_cancelled",
        "_is_settled",
        "_next_offset",
        "_partition",
        "_progress_s",
        "_shard",
        "_slices",
        "_start_s",
        "_steps",
        "_time",
        "_warmings",
        "_workers",
        "records",
    )

    def __init__(
        self,
        partition: Partition,
        shard: Shard,
        slices: Slices,
        workers: Workers,
        time: Callable[[], float],
        bytes_max: int,
        steps: Callable[[], Iterator[None]],
        done: Callable[[Exception | None], None],
    ) -> None:
        """`steps` are those in which the shard settles when all was replayed."""
        self._partition = partition
        self._shard = shard
        self._slices = slices
        self._workers = workers
        self._time = time
        self._bytes_max = bytes_max
        self._steps = steps
        self._done = done
        self._is_settled = False
        self._next_offset = partition.log_start_offset
        self._warmings = 0
        self._is_cancelled = False
        self._start_s = self._progress_s = time()
        self.records = 0
        """Replayed so far."""

    def start(self) -> None:
        self._read()

    def cancel(self) -> None:
        self._is_cancelled = True

    @property
    def seconds(self) -> float:
        return self._time() - self._start_s

    # ---------------------------------------------------------------------------------------------------------- reading

    def _read(self) -> None:
        if self._is_cancelled:
            return
        partition = self._partition
        token = IMPATIENT.set(self._warmings < WARMINGS_MAX)
        try:
            if self._next_offset >= partition.log_end_offset:
                fetched = None
            else:
                fetched = partition.log.read(self._next_offset, self._bytes_max, partition.log_end_offset)
        except ReadWouldWait as cold:
            self._warmings += 1
            self._workers.run(cold.warm, self._warmed)
            return
        except HeadraceError as error:
            self._end(error)
            return
        finally:
            IMPATIENT.reset(token)
        self._warmings = 0
        if fetched is None or not fetched.size_bytes:  # the end, or a gap before it that compaction left
            if self._is_settled:
                self._end(None)
            else:
                self._is_settled = True
                self._slices.add(self._settle())
        else:
            self._tell()
            self._workers.run(_Take(fetched), self._was_read)

    def _warmed(self, result: None, error: BaseException | None) -> None:
        if error is not None:
            self._warmings = WARMINGS_MAX
        self._read()

    def _was_read(self, data: bytes | None, error: BaseException | None) -> None:
        if self._is_cancelled:
            return
        if data is None:
            self._end(error if isinstance(error, HeadraceError) else LoadFailed(f"It can't be read: {error}"))
        else:
            self._slices.add(self._replay(data))

    # -------------------------------------------------------------------------------------------------------- replaying

    def _replay(self, data: bytes) -> Iterator[None]:
        before = self._next_offset
        try:
            for batch in scan(data, partial=True):
                if batch.next_offset <= self._next_offset:
                    continue
                for _ in self._replay_batch(batch):
                    yield
                    if self._is_cancelled:
                        return
                self._next_offset = batch.next_offset
            if self._next_offset == before:
                raise LoadFailed(f"{self._partition} has no whole batch at offset {before}.")
        except Exception as error:
            if not isinstance(error, HeadraceError):
                logger.exception("%s can't be replayed at offset %d", self._partition, self._next_offset)
            self._end(error)
            return
        self._read()

    def _replay_batch(self, batch: Batch) -> Iterator[None]:
        shard, first = self._shard, self._next_offset
        stamp = ProducerStamp(batch.producer_id, batch.producer_epoch) if batch.is_transactional else None
        if batch.is_control:
            if batch.record_count and stamp is not None:
                for control in read_control(batch):
                    if control.type in (ControlType.COMMIT, ControlType.ABORT):
                        shard.replay_end(stamp, control.type is ControlType.COMMIT)
            return
        replay = shard.replay
        count = 0
        for offset, timestamp_ms, key, value, _ in records_of(batch, _BATCH_BYTES_MAX).decode():
            if offset < first or key is None:
                continue
            replay(key, value, offset, timestamp_ms, stamp)
            count += 1
            if not count % RECORDS_A_STEP:
                yield
        self.records += count
        yield

    def _settle(self) -> Iterator[None]:
        """The shard looks at what it has; then what was appended meanwhile is read."""
        try:
            for _ in self._steps():
                yield
                if self._is_cancelled:
                    return
        except Exception as error:
            logger.exception("%s can't be taken over", self._partition)
            self._end(error)
            return
        self._read()

    def _tell(self) -> None:
        now_s = self._time()
        if now_s - self._progress_s >= PROGRESS_EVERY_S:
            self._progress_s = now_s
            start, end = self._partition.log_start_offset, self._partition.log_end_offset
            logger.info(
                "loading %s: %d %% of its offsets, %d records so far",
                self._partition,
                100 * (self._next_offset - start) // max(1, end - start),
                self.records,
            )

    def _end(self, error: Exception | None) -> None:
        if not self._is_cancelled:
            self._is_cancelled = True
            self._done(error)


class _Take:
    """A job for a worker, which keeps its last one until the next comes: the bytes must not live on with it."""

    __slots__ = ("_fetched",)

    def __init__(self, fetched: Fetched) -> None:
        self._fetched: Fetched | None = fetched

    def __call__(self) -> bytes:
        fetched, self._fetched = self._fetched, None
        assert fetched is not None
        return fetched.take()
