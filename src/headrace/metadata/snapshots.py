"""When snapshots of the metadata are written, and that they are written in steps which hold nobody up."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Final

from headrace.config.quorum import QuorumConfig
from headrace.metadata.loader import Loader
from headrace.metadata.snapshot import Versioned, records_of
from headrace.raft.checkpoints import SnapshotWriter
from headrace.raft.driver import Driver, Timer
from headrace.storage.disk import DiskError

logger = logging.getLogger(__name__)

RECORDS_A_STEP: Final = 500
LOOK_MS: Final = 60_000


class Snapshots:
    """One at a time, after so many bytes or so long. The image that is written does not change under it."""

    __slots__ = (
        "_bytes_since",
        "_call_later",
        "_config",
        "_driver",
        "_is_closed",
        "_is_due",
        "_last_ms",
        "_loader",
        "_look",
        "_now_ms",
    )

    def __init__(
        self,
        driver: Driver,
        loader: Loader,
        config: QuorumConfig,
        *,
        now_ms: Callable[[], int],
        call_later: Callable[[float, Callable[[], None]], Timer],
    ) -> None:
        self._driver = driver
        self._loader = loader
        self._config = config
        self._now_ms = now_ms
        self._call_later = call_later
        self._bytes_since = 0
        self._last_ms = now_ms()
        self._is_due = False
        """One is being written, or will be in the next turn of the loop."""
        self._is_closed = False
        self._look: Timer | None = call_later(LOOK_MS / 1000, self._look_after)

    def committed(self, size_bytes: int) -> None:
        self._bytes_since += size_bytes
        if self._bytes_since >= self._config.metadata_log_max_record_bytes_between_snapshots:
            self._soon()

    def loaded(self) -> None:
        """A snapshot was read: what is in it needs no other one."""
        self._bytes_since = 0

    def close(self) -> None:
        self._is_closed = True
        if self._look is not None:
            self._look.cancel()

    def _look_after(self) -> None:
        if self._is_closed:
            return
        interval_ms = self._config.metadata_log_max_snapshot_interval_ms
        if interval_ms and self._bytes_since and self._now_ms() >= self._last_ms + interval_ms:
            self._soon()
        self._clean()
        self._look = self._call_later(LOOK_MS / 1000, self._look_after)

    def _soon(self) -> None:
        if not self._is_due:
            self._is_due = True
            self._call_later(0, self._begin)  # not in the middle of a commit

    def _begin(self) -> None:
        if self._is_closed or self._driver.failure is not None:
            return
        if self._loader.is_in_transaction:  # the image is behind what is applied: the next commit asks again
            self._is_due = False
            return
        self._bytes_since = 0
        self._last_ms = self._now_ms()
        try:
            writer = self._driver.begin_snapshot()
        except DiskError as error:
            logger.error("no snapshot of the metadata: %s", error)
            self._is_due = False
            return
        if writer is None:
            self._is_due = False
            return
        self._step(writer, records_of(self._loader.image))

    def _step(self, writer: SnapshotWriter, records: Iterator[Versioned]) -> None:
        if self._is_closed or self._driver.failure is not None:
            return  # a start removes what is half written
        some = list(islice(records, RECORDS_A_STEP))
        try:
            if some:
                writer.append(some)
        except DiskError as error:
            logger.error("no snapshot of the metadata up to offset %d: %s", writer.id.offset, error)
            self._abandon(writer)
            return
        if len(some) < RECORDS_A_STEP:
            self._driver.freeze_snapshot(writer, self._written)
        else:
            self._call_later(0, lambda: self._step(writer, records))

    def _abandon(self, writer: SnapshotWriter) -> None:
        self._is_due = False
        try:
            writer.abandon()
        except DiskError as error:
            logger.error("what was written of a snapshot stays until the next start: %s", error)

    def _written(self, error: DiskError | None) -> None:
        self._is_due = False
        if error is None:
            self._clean()

    def _clean(self) -> None:
        if not self._is_closed:
            self._driver.clean(self._config.metadata_max_retention_bytes, self._config.metadata_max_retention_ms)
