# cython: language_level=3, annotation_typing=False, nonecheck=True
"""Group commit: all that waits for a sync shares one, off the loop, while appends go on.

A wait joins the group that is being collected. When the worker is free, the group goes to it as one job; its answers
come back to the loop in one call. What is appended meanwhile collects in the next group.

A group of a few files goes to the kernel, where that can sync by itself (`storage/kernel_syncs.py`), else to a worker.
A group that touched many files is synced at once (`Disk.sync_all`) when that is cheaper than one file after another, by
what either took lately: 100 files cost 13 to 25 ms one by one and 0.6 to 1.7 ms at once, even beside a writer of other
data for which it has to wait too (docs/decisions/0020-group-commit.md). A thread without the interpreter does that,
where there is one (`storage/file_system_syncs.py`).

Write-behind: whoever appended a megabyte says so, and its write-back starts, so that a sync of a small file never waits
for a large one's pages.

A failed sync is told once to all that wait, takes the directory offline and is never tried again: the kernel has
dropped the pages, and a second sync would say yes (hazard 8).
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeAlias

from headrace.metrics.histogram import Histogram
from headrace.named_tuple import NamedTuple
from headrace.storage.disk import Disk, DiskError, File, FileVanished, SyncFailed
from headrace.storage.workers import Workers
from headrace.storage.write_behind import WriteBehind

if TYPE_CHECKING:
    from headrace.storage.kernel_syncs import Syncs

FILES_AT_ONCE_MIN: Final = 8
"""Fewer are synced one by one: at once, they would wait for whatever else is being written to the device."""

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
        "_is_scheduled",
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
        behind: Workers | None = None,
        syncs: Syncs | None = None,
    ) -> None:
        """`workers` run one job at a time, and so do those that write `behind`, which are the same when there are none.

        `call_soon` is the loop's; `clock` counts seconds, from any start.
        `on_offline` is called once, on the loop, after all that waited have been told.
        """
        self._disk = disk
        self._workers = workers
        self._call_soon = call_soon
        self._clock = clock
        self._on_offline = on_offline
        self._behind = WriteBehind(behind or workers, self._rest)
        self._syncs = syncs
        self._costs = Costs()
        self._group = Group()
        self._running: Group | None = None
        self._is_scheduled = False
        self._resting: list[Callable[[], None]] = []
        self.latency = Histogram()
        """Of the groups, as long as the worker took for each."""
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
            self._schedule()

    def sync_names(self, directory: str) -> None:
        """Names in a directory changed: no wait from now on is over before they are durable."""
        self._group.directories[directory] = None

    def write_behind(self, file: File, position: int, size: int) -> None:
        """Starts the write-back of a range that nobody waits for."""
        self._behind.start(file, position, size)

    @property
    def is_idle(self) -> bool:
        """Nothing waits and nothing runs."""
        return self._running is None and not self._is_scheduled and self._behind.is_idle

    def rest(self, done: Callable[[], None]) -> None:
        """Calls `done` when nothing waits and nothing runs, and so no file is held."""
        self._resting.append(done)
        self._rest()

    def _rest(self) -> None:
        if self._resting and self.is_idle:
            resting, self._resting = self._resting, []
            for rested in resting:
                rested()

    def _schedule(self) -> None:
        # At the end of the loop's round, so that all appends of this round share the first group.
        self._is_scheduled = True
        if self._running is None:
            self._call_soon(self._start)

    def _start(self) -> None:
        group, self._group = self._group, Group()
        self._running = group
        self._is_scheduled = False
        self._beat()
        if self._syncs is not None and self._start_in_kernel(self._syncs, group):
            return
        disk, clock, costs = self._disk, self._clock, self._costs
        self._workers.run(lambda: group.commit(disk, clock, costs), self._committed)

    def _start_in_kernel(self, syncs: Syncs, group: Group) -> bool:
        if group.directories or self._disk.offline is not None:
            return False
        began = self._clock()
        if len(group.files) >= FILES_AT_ONCE_MIN:
            if not self._costs.prefer_at_once(len(group.files)):
                return False
            descriptor = self._disk.fileno()
            return descriptor is not None and syncs.start_all(
                descriptor, lambda error: self._synced(began, error, at_once=True)
            )
        descriptors = [file.fileno() for file in group.files]
        known = [descriptor for descriptor in descriptors if descriptor is not None]
        return len(known) == len(descriptors) and syncs.start(known, lambda error: self._synced(began, error))

    def _synced(self, began: float, error: int, at_once: bool = False) -> None:
        """The kernel has synced the files of the group, or not."""
        group, disk = self._running, self._disk
        assert group is not None, "what is synced was running"
        if not error and disk.offline is not None:  # since it began: nothing is promised any more
            self._committed(None, SyncFailed(disk.offline.path, disk.offline.reason))
            return
        if not error:
            self._committed(Outcome(len(group.files), at_once, self._clock() - began), None)
            return
        path = "" if at_once else next(iter(group.files)).path
        failure = SyncFailed(disk.full_path(path), os.strerror(error))
        disk.go_offline(failure)
        self._committed(None, failure)

    def _committed(self, outcome: Outcome | None, error: BaseException | None) -> None:
        group, self._running = self._running, None
        assert group is not None, "a job that ended was running"
        self._beat()
        if outcome is not None:
            self._costs = self._costs.learn(outcome)
            self.groups += 1
            self.latency.observe(int(outcome.seconds * 1e9))
            self.synced_files += outcome.files
            self.synced_at_once += outcome.at_once
        elif not isinstance(error, SyncFailed):
            self._group.inherit(group)  # not synced, and not lost either: the next group does it
        failure = error if isinstance(error, DiskError) or error is None else _unexpected(self._disk, error)
        if self._is_scheduled and not isinstance(failure, SyncFailed):
            self._start()  # before the replies, so that the device works meanwhile
        group.release()
        group.tell(failure)
        if isinstance(failure, SyncFailed):
            self._go_offline(failure)
        self._rest()

    def _beat(self) -> None:
        """A sync begins, or has ended."""
        beats = self._disk.sync_beats
        beats[0] = (beats[0] + 1) & 0xFF

    def _go_offline(self, failure: SyncFailed) -> None:
        """What was collected meanwhile is told the same and not synced. `sync` refuses from now on."""
        group, self._group = self._group, Group()
        self._is_scheduled = False
        group.release()
        group.tell(failure)
        self._on_offline(failure)


class Outcome(NamedTuple):
    """What a job did and what it took."""

    files: int
    at_once: bool
    seconds: float


class Costs(NamedTuple):
    """What syncs took lately, in seconds."""

    file: float = 150e-6
    at_once: float = 500e-6

    def prefer_at_once(self, files: int) -> bool:
        return files >= FILES_AT_ONCE_MIN and files * self.file > self.at_once + files * _FILE_AT_ONCE_SECONDS

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
            self._sync_each(disk)
        return Outcome(count, at_once, clock() - start)

    def _sync_each(self, disk: Disk) -> None:
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
        for waiting in self.waiting:
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
