"""Looking after the logs: retention, checkpoints, flush.ms, expired producers, compaction, logs that wait to be opened.

Each goes over many logs, so it goes in steps with a turn of the loop in between, and only when it is through does the
time to the next one begin.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Final

from headrace.config import StorageConfig
from headrace.config.setting import INT64_MAX
from headrace.errors import HeadraceError
from headrace.replica.manager import Replicas
from headrace.replica.reopenings import Reopenings
from headrace.replica.topic_settings import TopicSettings
from headrace.replica.waits import Wait, Waits

logger = logging.getLogger(__name__)

LOGS_A_STEP: Final = 50
FIRST_AFTER_MS: Final = 30_000
"""A node that has just started has other things to do, unless it is told to look more often than this."""
CHECKPOINT_MS_MIN: Final = 100
REMOVAL_PAUSE_MS: Final = 1000
FLUSH_CHECK_MS_MIN: Final = 10
FLUSH_CHECK_MS_MAX: Final = 5000


class Upkeep:
    __slots__ = (
        "_call_soon",
        "_config",
        "_flush_check",
        "_flush_pause_ms",
        "_is_stopped",
        "_removal",
        "_removal_due_ms",
        "_reopenings",
        "_replicas",
        "_settings",
        "_waits",
    )

    def __init__(
        self,
        replicas: Replicas,
        settings: TopicSettings,
        config: StorageConfig,
        waits: Waits,
        *,
        call_soon: Callable[[Callable[[], None]], object],
    ) -> None:
        self._replicas = replicas
        self._reopenings = Reopenings(replicas)
        self._settings = settings
        self._config = config
        self._waits = waits
        self._call_soon = call_soon
        self._flush_check: Wait | None = None
        """The next look for what flush.ms asks for, while none is under way."""
        self._flush_pause_ms = FLUSH_CHECK_MS_MAX
        self._removal: Wait | None = None
        """Of what was deleted and is due next."""
        self._removal_due_ms = 0
        self._is_stopped = False
        settings.on_changed = self._settings_changed
        for directory in replicas.directories.all:
            directory.removals.on_doomed = self._doomed

    def start(self) -> None:
        config = self._config
        self._every(config.log_retention_check_interval_ms, self._retain)
        self._every(config.producer_id_expiration_check_interval_ms, self._expire_producers)
        self._every(
            max(
                CHECKPOINT_MS_MIN,
                # All of them are written together, in one go of the worker.
                min(
                    config.log_flush_offset_checkpoint_interval_ms,
                    config.log_flush_start_offset_checkpoint_interval_ms,
                    config.replica_high_watermark_checkpoint_interval_ms,
                ),
            ),
            self._checkpoint,
        )
        self._check_flushes()
        self._remove_later()
        self._reopenings.start()
        if self._replicas.cleaner is not None:
            self._replicas.cleaner.poll()

    def configure(self, config: StorageConfig) -> None:
        """Takes other settings, as far as they can change while a node runs."""
        self._config = config

    def stop(self) -> None:
        """Begins nothing any more; what is under way ends at its next step."""
        self._is_stopped = True
        self._reopenings.stop()

    # ------------------------------------------------------------------------------------------------------ what is due

    def _retain(self) -> Iterator[None]:
        yield from self._replicas.directories.look_after()

    def _expire_producers(self) -> Iterator[None]:
        for directory in self._replicas.directories.online:
            yield from directory.expire_producers(self._config.producer_id_expiration_ms)

    def _checkpoint(self) -> Iterator[None]:
        self._replicas.directories.checkpoint()
        yield

    def _check_flushes(self) -> None:
        """flush.ms is a topic's, so how often to look follows the topic that asks for the least."""
        self._flush_check = None
        steps = iter(()) if self._settings.flush_ms_min() == INT64_MAX else self._replicas.directories.flush_due()
        self._run(steps, self._check_flushes_later)

    def _check_flushes_later(self) -> None:
        self._flush_pause_ms = min(max(self._settings.flush_ms_min() // 4, FLUSH_CHECK_MS_MIN), FLUSH_CHECK_MS_MAX)
        if not self._is_stopped:
            self._flush_check = self._waits.after_ms(self._flush_pause_ms, self._check_flushes)

    def _settings_changed(self) -> None:
        """A topic that asks to be flushed sooner does not wait for the next look of before."""
        if self._flush_check is not None and self._settings.flush_ms_min() // 4 < self._flush_pause_ms:
            self._flush_check.cancel()
            self._check_flushes_later()

    def _doomed(self, due_ms: int) -> None:
        """The folder of a deleted partition, or of one that has moved, goes when file.delete.delay.ms has passed."""
        if self._removal is not None:
            if self._removal_due_ms <= due_ms:
                return
            self._removal.cancel()
        if not self._is_stopped:
            self._removal_due_ms = due_ms
            self._removal = self._waits.after_ms(max(0, due_ms - self._replicas.now_ms()), self._remove)

    def _remove(self) -> None:
        self._removal = None
        self._run(self._remove_due(), self._remove_later)

    def _remove_due(self) -> Iterator[None]:
        for directory in self._replicas.directories.online:
            yield from directory.removals.remove_due(self._replicas.now_ms())

    def _remove_later(self) -> None:
        """What is not due yet; what could not be removed is tried again, but not at once."""
        due_ms = [found for one in self._replicas.directories.online if (found := one.removals.next_due_ms) is not None]
        if due_ms:
            self._doomed(max(min(due_ms), self._replicas.now_ms() + REMOVAL_PAUSE_MS))

    # ---------------------------------------------------------------------------------------------------- step by step

    def _every(self, interval_ms: int, work: Callable[[], Iterator[None]]) -> None:
        def begin() -> None:
            self._run(work(), lambda: self._after(interval_ms, begin))

        self._after(min(interval_ms, FIRST_AFTER_MS), begin)

    def _after(self, pause_ms: int, callback: Callable[[], None]) -> None:
        if not self._is_stopped:
            self._waits.after_ms(pause_ms, callback)

    def _run(self, steps: Iterator[None], then: Callable[[], None]) -> None:
        if self._is_stopped:
            return
        try:
            for _ in range(LOGS_A_STEP):
                next(steps)
        except StopIteration:
            then()
        except HeadraceError as error:  # a directory that went offline in between: the next time goes around it
            logger.error("the logs can't be looked after: %s", error)
            then()
        else:
            self._call_soon(lambda: self._run(steps, then))
