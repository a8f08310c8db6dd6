"""Group commit by a thread: groups begin while others run, are told in order, and fail together."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

import pytest

from headrace.storage.disk import Disk, DiskError, File, SyncFailed
from headrace.storage.flusher import Costs, Flusher
from headrace.storage.local_disk import LocalDisk
from headrace.storage.syncs import Ended, Outcome
from headrace.testing.workers import SteppedWorkers


class Recorded:
    """Syncs whose end the test decides."""

    def __init__(self, disk: Disk, ended: Ended) -> None:
        self.takes = True
        self.disk = disk
        self._ended = ended
        self.begun: list[tuple[list[str], int]] = []

    def start(self, files: Collection[File], at_once_from: int) -> bool:
        if self.takes:
            self.begun.append(([file.path for file in files], at_once_from))
        return self.takes

    def end(self, groups: int, error: int = 0) -> None:
        """The first of those that run, together."""
        files = {path for paths, _ in self.begun[:groups] for path in paths}
        del self.begun[:groups]
        if not error:
            self._ended(groups, Outcome(len(files), len(files) >= 8, 0.001), None)
            return
        failure = SyncFailed(self.disk.full_path(min(files)), os.strerror(error))
        self.disk.go_offline(failure)
        self._ended(groups, None, failure)


class Committing:
    """A flusher over a real folder, whose loop, syncs and workers the test moves."""

    def __init__(self, folder: Path) -> None:
        self.disk = LocalDisk(str(folder))
        self.workers = SteppedWorkers()
        self.soon: list[Callable[[], None]] = []
        self.told: list[DiskError | None] = []
        self.offline: list[SyncFailed] = []
        made: list[Recorded] = []

        def syncs_of(disk: Disk, ended: Ended) -> Recorded:
            made.append(Recorded(disk, ended))
            return made[0]

        self.flusher = Flusher(
            self.disk,
            self.workers,
            call_soon=self.soon.append,
            clock=lambda: 0.0,
            on_offline=self.offline.append,
            syncs_of=syncs_of,
        )
        (self.syncs,) = made
        self.files = [self.disk.open(f"f{number}", create=True) for number in range(20)]

    def ask(self, files: int) -> None:
        for file in self.files[:files]:
            file.write(0, [b"record"])
            self.flusher.sync(file, self.told.append)

    def commit(self, files: int) -> None:
        self.ask(files)
        self.round()

    def round(self) -> None:
        for callback in self.soon:
            callback()
        self.soon.clear()


@pytest.fixture
def committing(tmp_path: Path) -> Iterator[Committing]:
    made = Committing(tmp_path)
    yield made
    for file in made.files:
        file.close()
    made.disk.close()


def test_a_group_begins_while_another_runs_and_they_are_told_in_order(committing: Committing) -> None:
    committing.commit(2)
    committing.commit(1)
    committing.commit(3)
    assert [paths for paths, _ in committing.syncs.begun] == [["f0", "f1"], ["f0"], ["f0", "f1", "f2"]]
    assert not len(committing.workers)
    committing.syncs.end(1)
    assert committing.told == [None] * 2
    assert not committing.flusher.is_idle
    committing.syncs.end(2)
    assert committing.told == [None] * 6
    assert committing.flusher.is_idle
    assert committing.flusher.groups == 2, "syncs, of one group or of several"


def test_names_go_to_the_workers_when_what_runs_has_ended_and_nothing_overtakes_them(committing: Committing) -> None:
    committing.commit(1)
    committing.flusher.sync_names("")
    committing.commit(2)
    assert not len(committing.workers), "the group before it has not ended"
    committing.commit(3)
    assert len(committing.syncs.begun) == 1
    committing.syncs.end(1)
    assert committing.told == [None]
    assert len(committing.workers) == 1
    committing.commit(1)
    assert not committing.syncs.begun, "not beside the workers"
    committing.workers.step()
    assert committing.told == [None] * 6
    assert len(committing.syncs.begun) == 1
    committing.syncs.end(1)
    assert committing.told == [None] * 7
    assert committing.flusher.is_idle


def test_what_it_does_not_take_waits_for_its_turn_and_goes_to_the_workers(committing: Committing) -> None:
    committing.commit(1)
    committing.syncs.takes = False
    committing.commit(20)
    assert not len(committing.workers)
    committing.syncs.end(1)
    assert len(committing.workers) == 1
    committing.workers.step()
    assert committing.told == [None] * 21
    assert committing.flusher.is_idle


def test_a_group_of_many_files_collects_more_while_others_run(committing: Committing) -> None:
    committing.commit(1)
    committing.commit(20)
    committing.commit(20)
    assert len(committing.syncs.begun) == 1
    committing.syncs.end(1)
    assert committing.told == [None]
    ((paths, _),) = committing.syncs.begun
    assert len(paths) == 20
    committing.syncs.end(1)
    assert committing.told == [None] * 41
    assert committing.flusher.is_idle


def test_what_takes_long_lets_the_group_begin_before_it(committing: Committing) -> None:
    committing.flusher.hurry()
    assert not committing.syncs.begun
    committing.ask(1)
    committing.flusher.hurry()
    assert len(committing.syncs.begun) == 1
    committing.round()
    assert len(committing.syncs.begun) == 1, "nothing was left for the end of the round"
    committing.ask(2)
    committing.round()
    assert len(committing.syncs.begun) == 2


def test_from_how_many_files_on_is_learnt() -> None:
    assert Costs().at_once_from == 8
    assert Costs(file=56e-6, at_once=0.001).at_once_from == 21
    assert Costs(file=50e-6, at_once=1.0).at_once_from > 10_000


def test_hazard_8_a_failed_sync_is_told_to_all_that_wait_even_where_it_runs(committing: Committing) -> None:
    committing.commit(2)
    committing.commit(1)
    committing.ask(3)
    committing.syncs.end(1, errno.EIO)
    assert [type(failure) for failure in committing.told] == [SyncFailed] * 6
    assert len(committing.offline) == 1
    assert len(committing.syncs.begun) == 1, "nothing began since"
    with pytest.raises(SyncFailed):
        committing.commit(1)
    assert not committing.flusher.is_idle, "the files of the second group are held still"
    committing.syncs.end(1)
    assert len(committing.told) == 6
    assert len(committing.offline) == 1, "once"
    assert committing.flusher.is_idle


def test_hazard_8_groups_that_were_synced_with_one_that_failed_promise_nothing(committing: Committing) -> None:
    """The kernel tells of a failed write-back once, whoever asks first."""
    committing.commit(2)
    committing.commit(1)
    committing.syncs.end(2, errno.EIO)
    assert [type(failure) for failure in committing.told] == [SyncFailed] * 3
    assert len(committing.offline) == 1


def test_hazard_8_a_disk_that_went_offline_while_it_was_synced_promises_nothing(committing: Committing) -> None:
    committing.commit(2)
    committing.commit(2)
    committing.disk.go_offline(SyncFailed(committing.disk.root, "by somebody else"))
    committing.syncs.end(1)
    assert [type(failure) for failure in committing.told] == [SyncFailed] * 4
    committing.syncs.end(1)
    assert len(committing.offline) == 1
