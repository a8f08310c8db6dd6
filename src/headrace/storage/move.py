"""A log on its way from one log directory to another, while it is in use.

The copy is a log in a folder of its own (`-future`), which takes from the other what it does not have yet, a bounded
piece at a time. When it has everything, all of it durable that is durable in the other, and where it starts is written
down, it takes over the partition's name, and only when that is durable the old folder loses it: a crash in between
leaves the partition twice, and the one with more is kept. Anything before that leaves the copy, which is removed at the
next start.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from headrace.storage import names
from headrace.storage.checkpoints import Written
from headrace.storage.disk import DiskError
from headrace.storage.epochs import LeaderEpochs
from headrace.storage.flush import Flushed
from headrace.storage.log import Log
from headrace.storage.lookup import locate
from headrace.storage.names import Fate
from headrace.storage.read import Fetched
from headrace.storage.replay import producers_at

if TYPE_CHECKING:
    from headrace.storage.log_directory import LogDirectory

logger = logging.getLogger(__name__)


class Move:
    """`step` until it says that nothing is left, wait for `flush`, then `finish` as soon as it `is_complete`.

    Who does not want to wait for a read does a step in two: the files of `fetch` are read elsewhere, then `append`.
    """

    __slots__ = (
        "_clean_offset",
        "_truncations",
        "_written_start_offset",
        "copy",
        "is_durable",
        "source",
        "source_directory",
        "target_directory",
    )

    def __init__(
        self, source: Log, source_directory: LogDirectory, target_directory: LogDirectory, unique: str, now_ms: int
    ) -> None:
        assert source.topic_id is not None, "a partition has a topic id"
        self.source = source
        self.source_directory = source_directory
        self.target_directory = target_directory
        self.is_durable = False
        """It has been flushed since it began, so that its folder and its files are there to stay."""
        folder = names.marked_folder_name(source.topic, source.partition, Fate.FUTURE, unique)
        self.copy = target_directory.create(
            source.topic, source.partition, source.topic_id, folder=folder, is_future=True
        )
        self._begin(now_ms)

    def step(self, bytes_max: int, now_ms: int) -> int:
        """Copies up to about so many bytes; returns how many offsets are left to copy."""
        fetched = self.fetch(bytes_max, now_ms)
        if fetched is not None:
            self.append(fetched.take(), now_ms)
        return self.left

    def fetch(self, bytes_max: int, now_ms: int) -> Fetched | None:
        """What comes next, for `append`; None when nothing is left."""
        source, copy = self.source, self.copy
        if self._is_outdated:
            self._begin(now_ms)
        if not self.left:
            return None
        return source.read(max(copy.log_end_offset, source.log_start_offset), bytes_max, source.log_end_offset)

    def append(self, content: bytes, now_ms: int) -> None:
        """The bytes of the last `fetch`, unless the source has changed since."""
        if content and not self._is_outdated:
            self.copy.append_as_follower(memoryview(content), 2**31 - 1, now_ms)

    @property
    def left(self) -> int:
        """How many offsets the copy has yet to get."""
        return self.source.log_end_offset - self.copy.log_end_offset

    @property
    def is_in_last_segment(self) -> bool:
        """A step that got little did so because there was no more, and not because a segment ended."""
        return self.copy.log_end_offset > self.source.segments.active.base_offset

    @property
    def _is_outdated(self) -> bool:
        """What was copied may be of a history that is no more, or what comes next is deleted."""
        source, end_offset = self.source, self.copy.log_end_offset
        return self._truncations != source.truncations or (
            end_offset < source.log_start_offset and end_offset < self._first_offset()
        )

    def flush(self, flushed: Flushed = lambda error: None) -> None:
        """Makes what was copied durable."""

        def done(error: DiskError | None) -> None:
            self.is_durable = self.is_durable or error is None
            flushed(error)

        self.copy.flush(done)

    @property
    def is_complete(self) -> bool:
        """It has everything, and breaks no promise: what the source has on the disk, it has there too."""
        source, copy = self.source, self.copy
        return (
            self.is_durable
            and not self.left
            and self._truncations == source.truncations
            and self.is_start_durable
            and copy.flushed_offset >= source.flushed_offset
        )

    @property
    def is_start_durable(self) -> bool:
        """What was deleted from the source does not come back with the copy."""
        return self.source.log_start_offset <= max(self.copy.log_start_offset, self._written_start_offset)

    def write_start(self, done: Written) -> None:
        """Makes it so, away from the loop, unless more is deleted meanwhile."""
        start_offset = self.source.log_start_offset

        def written(error: BaseException | None) -> None:
            if error is None:
                self._written_start_offset = start_offset
            done(error)

        self.target_directory.expect(self.copy, start_offset, written)

    def finish(self) -> Log:
        """Puts the copy in the place of the source; returns it. Whoever holds the source lets go of it.

        The source goes by `leave`, when the copy's new name is durable.
        """
        assert self.is_complete, "a copy takes over when it has everything"
        source, copy = self.source, self.copy
        if source.log_start_offset > copy.log_start_offset:
            copy.log_start_offset = source.log_start_offset
        copy.epochs = LeaderEpochs(source.epochs.entries())
        copy.unsynced.use_epochs(copy.epochs)
        copy.producers = source.producers
        # What was copied is as clean as it was then, whatever was compacted since.
        copy.clean_offset = min(self._clean_offset, source.clean_offset, copy.checkpointed_recovery_point)
        copy.set_high_watermark(source.high_watermark)
        self.target_directory.adopt(copy)
        self.source_directory.let_go(source)
        logger.info("%s-%d has moved to %s", copy.topic, copy.partition, self.target_directory.root)
        return copy

    def leave(self) -> None:
        """Gives up the source, which nobody needs any more."""
        self.source_directory.delete(self.source)

    def cancel(self) -> None:
        """Gives up the copy."""
        self.target_directory.expect_no_more(self.copy)
        self.target_directory.delete(self.copy)

    def _begin(self, now_ms: int) -> None:
        """From the batch on that holds the source's first offset, with what was known of producers before it."""
        source, copy = self.source, self.copy
        self.is_durable = False
        self._written_start_offset = 0
        self._truncations = source.truncations
        self._clean_offset = source.clean_offset
        start_offset = self._first_offset()
        root = self.target_directory.root
        logger.info("the new copy of %s-%d in %s begins at offset %d", copy.topic, copy.partition, root, start_offset)
        copy.truncate_fully(start_offset, now_ms)
        copy.producers = producers_at(source.segments, source.snapshots, start_offset)
        copy.unsynced.wrote([copy.snapshots.write(copy.producers)], with_batches=True)

    def _first_offset(self) -> int:
        """Of the batch that holds the source's start, which may be in its middle."""
        source, start_offset = self.source, self.source.log_start_offset
        segment = source.segments[max(0, source.segments.number_at(start_offset))]
        first = locate(segment, start_offset)
        return start_offset if first is None else min(start_offset, first.base_offset)
