# cython: language_level=3, annotation_typing=False, nonecheck=True
"""Group commit: all that waits for a sync shares one, off the loop, while appends go on.

A wait joins the group that is being collected, which begins at the end of the loop's round. A thread without the
interpreter syncs it (`storage/syncs.py`): what begins while it is at another group it takes next, all of it together,
so that the disk never waits for the loop. Who waits is told in the order in which groups began.

A group that touched many files is synced at once, with all of the disk, when that is cheaper than one file after
another, by what either took lately: 100 files cost 13 to 25 ms one by one and 0.6 to 1.7 ms at once, even beside a
writer of other data for which it has to wait too (docs/decisions/0020-group-commit.md).

Names of files, and what such a thread can't do, are the job of a worker. It is alone: it begins when all groups before
it have ended, and the next one behind it.

Write-behind: whoever appended a megabyte says so, and its write-back starts, so that a sync of a small file never waits
for a large one's pages.

A failed sync is told once to all that wait, takes the directory offline and is never tried again: the kernel has
dropped the pages, and a second sync would say yes (hazard 8).
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeAlias

from headrace.metrics.histogram import Histogram
from headrace.named_tuple import NamedTuple
from headrace.storage.disk import Disk, DiskError, File, FileVanished, SyncFailed
from headrace.storage.headroom import Headroom
from headrace.storage.syncs import Ended, Outcome, Syncs
from headrace.storage.workers import Workers
from headrace.storage.write_behind import WritesBehind

if TYPE_CHECKING:
    from headrace.storage.segment import Segment

FILES_AT_ONCE_MIN: Final = 8
"""Fewer are synced each by itself: at once, they would wait for whatever else is being written to the device."""

FILES_AHEAD_MAX: Final = 13
"""A group of more waits for the ones that run: a loop that is so busy gets more done with larger groups."""

Waiting: TypeAlias = Callable[[DiskError | None], None]
"""Called on the loop: None when everything appended before the wait is durable."""

logger = logging.getLogger(__name__)


class Flusher:
    """Group commit of one log directory."""

    __slots__ = (
        "_behind",
        "_call_soon",
        "_clock",
        "_costs",
        "_disk",
        "_group",
        "_headroom",
        "_is_offline",
        "_is_scheduled",
        "_is_working",
        "_on_offline",
        "_resting",
        "_running",
        "_syncs",
        "_workers",
        "groups",
        "latency",
        "synced_at_once",
        "synced_files",
    )

    def __init__(
        self,
        disk: Disk,
        workers: Workers,
        *,
        call_soon: Callable[[Callable[[], None]], object],
        clock: Callable[[], float],
        on_offline: Callable[[SyncFailed], None],
        behind_of: Callable[[Disk], WritesBehind] | None = None,
        headroom_of: Callable[[Disk], Headroom] | None = None,
        syncs_of: Callable[[Disk, Ended], Syncs] | None = None,
    ) -> None:
        """`workers` run one job at a time. Where nobody else writes behind, it does not wait, and is done on the spot.

        `call_soon` is the loop's; `clock` counts seconds, from any start.
        `on_offline` is called once, on the loop, after all that waited have been told.
        """
        self._disk = disk
        self._workers = workers
        self._call_soon = call_soon
        self._clock = clock
        self._on_offline = on_offline
        self._behind = None if behind_of is None else behind_of(disk)
        self._headroom = None if headroom_of is None else headroom_of(disk)
        self._syncs = None if syncs_of is None else syncs_of(disk, self._ended)
        self._costs = Costs()
        self._group = Group()
        self._running: deque[Group] = deque()
        self._is_working = False
        self._is_scheduled = False
        self._is_offline = False
        self._resting: list[Callable[[], None]] = []
        self.latency = Histogram()
        """Of the syncs, each of one group or of several together."""
        self.groups = 0
        self.synced_files = 0
        self.synced_at_once = 0

    def sync(self, file: File, waiting: Waiting) -> None:
        """Calls `waiting` when what was written to the file before is durable. Raises when the disk is offline."""
        self._disk.promise()
        group = self._group
        if file not in group.files:
            file.hold()
            group.files[file] = None
        group.waiting.append(waiting)
        if not self._is_scheduled:
            # At the end of the loop's round, so that all appends of this round share a group.
            self._is_scheduled = True
            self._call_soon(self._start)

    def sync_names(self, directory: str) -> None:
        """Names in a directory changed: no wait from now on is over before they are durable."""
        self._group.directories[directory] = None

    def hurry(self) -> None:
        """What was collected begins now: this is the end of the round, or something that takes long comes before it."""
        if self._is_scheduled:
            self._start()

    def write_behind(self, file: File, position: int, size: int) -> None:
        """Starts the write-back of a range that nobody waits for."""
        if self._behind is not None:
            self._behind.start(file, position, size)
        else:
            file.start_writeback(position, size)

    def ahead_of(self, segment: Segment) -> None:
        """The segment has grown by a megabyte: memory for the next one may be got now."""
        if self._headroom is not None:
            self._headroom.ahead_of(segment)

    @property
    def is_idle(self) -> bool:
        """Nothing waits and nothing runs."""
        return not self._running and not self._is_scheduled

    def rest(self, done: Callable[[], None]) -> None:
        """Calls `done` when nothing waits and nothing runs, and so no file is held."""
        self._resting.append(done)
        self._rest()

    def sync_owed(self) -> None:
        """Syncs what a group could not, and no other has begun to since. Blocks; for who rests, at a stop."""
        group, self._group = self._group, Group()
        try:
            group.sync_each(self._disk)
        finally:
            group.release()

    def _rest(self) -> None:
        if self._resting and self.is_idle:
            resting, self._resting = self._resting, []
            for rested in resting:
                rested()

    def _start(self) -> None:
        """Begins the group that was collected, or leaves it to the end of one that has to end before."""
        if not self._is_scheduled or self._is_working:
            return
        group = self._group
        if self._start_syncs(group):
            self._running.append(group)
        elif self._running:
            return
        else:
            self._start_work(group)
        self._group = Group()
        self._is_scheduled = False

    def _start_syncs(self, group: Group) -> bool:
        if self._syncs is None or group.directories or self._disk.offline is not None:
            return False
        if self._running and len(group.files) > FILES_AHEAD_MAX:
            return False
        return self._syncs.start(group.files, self._costs.at_once_from)

    def _start_work(self, group: Group) -> None:
        self._running.append(group)
        self._is_working = True
        self._beat()
        disk, clock, costs = self._disk, self._clock, self._costs
        self._workers.run(lambda: group.commit(disk, clock, costs), self._worked)

    def _worked(self, outcome: Outcome | None, error: BaseException | None) -> None:
        self._is_working = False
        self._beat()
        self._ended(1, outcome, error)

    def _ended(self, count: int, outcome: Outcome | None, error: BaseException | None) -> None:
        """The first groups that run have ended."""
        groups = [self._running.popleft() for _ in range(count)]
        offline = self._disk.offline
        if error is None and offline is not None:  # since it began: nothing is promised any more
            outcome, error = None, SyncFailed(offline.path, offline.reason)
        if outcome is not None:
            self._costs = self._costs.learn(outcome)
            self.groups += 1
            self.latency.observe(int(outcome.seconds * 1e9))
            self.synced_files += outcome.files
            self.synced_at_once += outcome.at_once
        elif not isinstance(error, SyncFailed):
            for group in groups:  # not synced, and not lost either: the next group does it
                self._group.inherit(group)
        failure = error if isinstance(error, DiskError) or error is None else _unexpected(self._disk, error)
        if not isinstance(failure, SyncFailed):
            self._start()  # before the replies, so that the device works meanwhile
        for group in groups:
            group.release()
            group.tell(failure)
        if isinstance(failure, SyncFailed) and not self._is_offline:
            self._go_offline(failure)
        self._rest()

    def _beat(self) -> None:
        """A sync begins, or has ended."""
        beats = self._disk.sync_beats
        beats[0] = (beats[0] + 1) & 0xFF

    def _go_offline(self, failure: SyncFailed) -> None:
        """All others that wait are told the same, even those of groups that run. `sync` refuses from now on."""
        group, self._group = self._group, Group()
        self._is_scheduled = False
        self._is_offline = True
        group.release()
        for running in self._running:
            running.tell(failure)
        group.tell(failure)
        self._on_offline(failure)


class Costs(NamedTuple):
    """What syncs took lately, in seconds."""

    file: float = 150e-6
    at_once: float = 500e-6

    @property
    def at_once_from(self) -> int:
        """From so many files on it is cheaper to sync them at once."""
        return max(FILES_AT_ONCE_MIN, int(self.at_once / (self.file - _FILE_AT_ONCE_SECONDS)) + 1)

    def prefer_at_once(self, files: int) -> bool:
        return files >= self.at_once_from

    def learn(self, outcome: Outcome) -> Costs:
        """The newest sample counts an eighth, and a hiccup no more than twice what was expected.

        What was not tried is expected to take less and less, so that it is tried again when times have changed.
        """
        if outcome.at_once:
            seconds = outcome.seconds - outcome.files * _FILE_AT_ONCE_SECONDS
            return Costs(self.file, _nearer(self.at_once, seconds))
        if not outcome.files:
            return self
        return Costs(_nearer(self.file, outcome.seconds / outcome.files), _nearer(self.at_once, self.at_once / 2))


_FILE_AT_ONCE_SECONDS: Final = 6e-6
_LEAST_SECONDS: Final = 50e-6


def _nearer(expected: float, seconds: float) -> float:
    return expected + (min(max(seconds, _LEAST_SECONDS), 2 * expected) - expected) / 8


class Group:
    """What is synced together, and who waits for it."""

    __slots__ = ("directories", "files", "waiting")

    def __init__(self) -> None:
        self.files: dict[File, None] = {}
        self.directories: dict[str, None] = {}
        self.waiting: list[Waiting] = []

    def commit(self, disk: Disk, clock: Callable[[], float], costs: Costs) -> Outcome:
        """The job. Nobody changes the group any more."""
        start = clock()
        count = len(self.files) + len(self.directories)
        at_once = costs.prefer_at_once(count) and disk.sync_all()
        if not at_once:
            self.sync_each(disk)
        return Outcome(count, at_once, clock() - start)

    def sync_each(self, disk: Disk) -> None:
        for directory in self.directories:
            try:
                disk.sync_directory(directory)
            except FileVanished:
                continue  # the partition was deleted meanwhile, and its names with it
        for file in self.files:
            file.datasync()

    def inherit(self, other: Group) -> None:
        """Takes over what another group did not get synced."""
        self.directories |= other.directories
        for file in other.files:
            if file not in self.files:
                file.hold()
                self.files[file] = None

    def release(self) -> None:
        for file in self.files:
            file.release()

    def tell(self, failure: DiskError | None) -> None:
        told, self.waiting = self.waiting, []
        for waiting in told:
            try:
                waiting(failure)
            except Exception:
                logger.exception("a reply that waited for a sync failed")


def _unexpected(disk: Disk, error: BaseException) -> DiskError:
    """A defect of ours, or a crash in a simulation: nothing may be acknowledged."""
    if not isinstance(error, Exception):
        raise error
    logger.error("a group commit failed", exc_info=error)
    return DiskError(disk.root, str(error) or type(error).__name__)
