"""Syncs by the kernel: told once, when all files of a group are durable; what it can't do, a thread does."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import threading
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import uvloop

from headrace.storage import file_system_syncs, local_disk, sync_thread
from headrace.storage.disk import DiskError, SyncFailed
from headrace.storage.flusher import Costs, Flusher
from headrace.storage.kernel_syncs import DEPTH, KernelSyncs, Synced
from headrace.storage.local_disk import LocalDisk
from headrace.testing.workers import SteppedWorkers
from tests.plain_forms import plain_form

LOOPS = pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])


def run(new_loop: Callable[[], asyncio.AbstractEventLoop], scenario: Callable[[KernelSyncs], Awaitable[None]]) -> None:
    loop = new_loop()
    try:
        syncs = KernelSyncs(loop)
    except OSError:
        loop.close()
        pytest.skip("this system has no such calls")
    try:
        loop.run_until_complete(asyncio.wait_for(scenario(syncs), 30))
    finally:
        syncs.stop()
        loop.close()


def opened(folder: Path, count: int) -> list[int]:
    found = []
    for number in range(count):
        found.append(os.open(folder / str(number), os.O_RDWR | os.O_CREAT))
        os.write(found[-1], b"record")
    return found


@LOOPS
def test_a_group_is_told_once_when_all_of_it_is_durable(
    new_loop: Callable[[], asyncio.AbstractEventLoop], tmp_path: Path
) -> None:
    async def scenario(syncs: KernelSyncs) -> None:
        descriptors = opened(tmp_path, 7)
        told: list[int] = []
        for group in range(1, 40):
            assert syncs.start(descriptors[: group % 7 + 1], told.append)
            while len(told) < group:
                await asyncio.sleep(0.001)
        await asyncio.sleep(0.01)
        assert told == [0] * 39
        for descriptor in descriptors:
            os.close(descriptor)

    run(new_loop, scenario)


@LOOPS
def test_groups_may_be_under_way_together_and_more_than_fit_are_left_to_others(
    new_loop: Callable[[], asyncio.AbstractEventLoop], tmp_path: Path
) -> None:
    async def scenario(syncs: KernelSyncs) -> None:
        descriptors = opened(tmp_path, 8)
        told: list[int] = []
        for _ in range(DEPTH // 8):
            assert syncs.start(descriptors, told.append)
        assert not syncs.start(descriptors * 9, told.append)
        while len(told) < DEPTH // 8:
            await asyncio.sleep(0.001)
        assert syncs.start(descriptors * 8, told.append), "what ended has made room"
        while len(told) <= DEPTH // 8:
            await asyncio.sleep(0.001)
        assert not any(told)
        for descriptor in descriptors:
            os.close(descriptor)

    run(new_loop, scenario)


@LOOPS
def test_what_the_kernel_does_not_take_is_not_told(
    new_loop: Callable[[], asyncio.AbstractEventLoop], tmp_path: Path
) -> None:
    async def scenario(syncs: KernelSyncs) -> None:
        good, gone = opened(tmp_path, 2)
        os.close(gone)
        told: list[int] = []
        assert not syncs.start([good, gone], told.append)
        assert syncs.start([good], told.append)
        while not told:
            await asyncio.sleep(0.001)
        await asyncio.sleep(0.01)
        assert told == [0]
        os.close(good)

    run(new_loop, scenario)


class Recorded:
    """Syncs whose end the test decides."""

    def __init__(self, takes: bool = True) -> None:
        self.takes = takes
        self.begun: list[tuple[Sequence[int], Synced]] = []
        self.begun_all: list[Synced] = []

    def start_all(self, descriptor: int, synced: Synced) -> bool:
        if self.takes:
            self.begun_all.append(synced)
        return self.takes

    def start(self, descriptors: Sequence[int], synced: Synced) -> bool:
        if self.takes:
            self.begun.append((descriptors, synced))
        return self.takes


class Committing:
    """A flusher over a real folder, whose loop and workers the test moves."""

    def __init__(self, folder: Path, takes: bool = True) -> None:
        self.disk = LocalDisk(str(folder))
        self.syncs, self.workers = Recorded(takes), SteppedWorkers()
        self.soon: list[Callable[[], None]] = []
        self.told: list[DiskError | None] = []
        self.offline: list[SyncFailed] = []
        self.flusher = Flusher(
            self.disk,
            self.workers,
            call_soon=self.soon.append,
            clock=lambda: 0.0,
            on_offline=self.offline.append,
            syncs=self.syncs,
        )
        self.files = [self.disk.open(f"f{number}", create=True) for number in range(20)]

    def commit(self, files: int) -> None:
        for file in self.files[:files]:
            file.write(0, [b"record"])
            self.flusher.sync(file, self.told.append)
        for callback in self.soon:
            callback()
        self.soon.clear()


def test_a_small_group_goes_to_the_kernel_and_the_next_one_after_it(tmp_path: Path) -> None:
    committing = Committing(tmp_path)
    committing.commit(2)
    committing.commit(1)
    assert not len(committing.workers)
    (begun,) = committing.syncs.begun
    assert len(begun[0]) == 2
    begun[1](0)
    assert committing.told == [None, None]
    assert len(committing.syncs.begun) == 2
    committing.syncs.begun[1][1](0)
    assert committing.told == [None] * 3
    assert committing.flusher.is_idle


def test_names_and_what_the_kernel_does_not_take_go_to_the_workers(tmp_path: Path) -> None:
    committing = Committing(tmp_path)
    committing.flusher.sync_names("")
    committing.commit(1)
    assert len(committing.workers) == 1
    committing.workers.step()
    committing.syncs.takes = False
    for files in (20, 1):
        committing.commit(files)
        assert len(committing.workers) == 1
        committing.workers.step()
    assert committing.told == [None] * 22
    assert not committing.syncs.begun


def test_many_files_go_to_the_thread_of_their_file_system(tmp_path: Path) -> None:
    committing = Committing(tmp_path)
    committing.commit(20)
    committing.commit(1)
    assert not len(committing.workers)
    assert committing.told == []
    committing.syncs.begun_all[0](0)
    assert committing.told == [None] * 20
    assert committing.flusher.synced_at_once == 1
    committing.syncs.begun[0][1](0)
    assert committing.flusher.is_idle


def test_many_files_that_are_cheaper_one_by_one_go_to_the_workers(tmp_path: Path) -> None:
    committing = Committing(tmp_path)
    committing.flusher._costs = Costs(file=50e-6, at_once=1.0)
    committing.commit(20)
    assert not committing.syncs.begun_all
    assert len(committing.workers) == 1
    committing.workers.step()
    assert committing.told == [None] * 20


def test_hazard_8_a_sync_that_fails_in_the_kernel_takes_the_directory_offline(tmp_path: Path) -> None:
    committing = Committing(tmp_path)
    committing.commit(2)
    committing.commit(1)
    committing.syncs.begun[0][1](errno.EIO)
    assert [type(failure) for failure in committing.told] == [SyncFailed] * 3
    assert len(committing.offline) == 1
    assert len(committing.syncs.begun) == 1, "never tried again"
    with pytest.raises(SyncFailed):
        committing.commit(1)


def test_hazard_8_so_does_a_failed_sync_of_the_file_system(tmp_path: Path) -> None:
    committing = Committing(tmp_path)
    committing.commit(20)
    committing.syncs.begun_all[0](errno.EIO)
    assert [type(failure) for failure in committing.told] == [SyncFailed] * 20
    assert str(tmp_path) in str(committing.told[0])
    assert len(committing.offline) == 1
    with pytest.raises(SyncFailed):
        committing.commit(1)


# --- whole file systems -----------------------------------------------------------------------------------------------


FORMS = pytest.mark.parametrize(
    "form", [sync_thread, plain_form("storage/sync_thread.py")], ids=lambda form: form.__name__
)


@FORMS
@LOOPS
def test_a_file_system_is_synced_each_time_it_is_asked(
    new_loop: Callable[[], asyncio.AbstractEventLoop], form: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_system_syncs, "serve", form.serve)

    async def scenario(syncs: KernelSyncs) -> None:
        (tmp_path / "a").write_bytes(b"record")
        folder = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
        told: list[int] = []
        for number in range(1, 30):
            assert syncs.start_all(folder, told.append)
            assert not syncs.start_all(folder, told.append), "one at a time"
            while len(told) < number:
                await asyncio.sleep(0.001)
        assert told == [0] * 29
        os.close(folder)

    run(new_loop, scenario)


@FORMS
def test_hazard_8_a_sync_of_a_file_system_tells_what_went_wrong(
    form: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_system_syncs, "serve", form.serve)

    async def scenario(syncs: KernelSyncs) -> None:
        gone = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
        os.close(gone)
        told: list[int] = []
        assert syncs.start_all(gone + 1000, told.append)
        while not told:
            await asyncio.sleep(0.001)
        assert told == [errno.EBADF]

    run(asyncio.new_event_loop, scenario)


def test_hazard_8_a_disk_that_went_offline_while_it_was_synced_promises_nothing(tmp_path: Path) -> None:
    for files in (20, 2):
        committing = Committing(tmp_path)
        committing.commit(files)
        committing.commit(files)  # the next group
        committing.disk.go_offline(SyncFailed(committing.disk.root, "by somebody else"))
        under_way = committing.syncs.begun_all or [synced for _, synced in committing.syncs.begun]
        under_way[0](0)
        assert [type(failure) for failure in committing.told] == [SyncFailed] * 2 * files


def test_hazard_15_without_a_descriptor_for_its_thread_the_workers_sync(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.eventfd

    async def scenario(syncs: KernelSyncs) -> None:
        given = [real(0)]

        def eventfd(*_: int) -> int:
            if given:
                return given.pop()
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

        (first,) = given
        monkeypatch.setattr(os, "eventfd", eventfd)
        assert not syncs.start_all(os.open(tmp_path, os.O_RDONLY), print)
        with pytest.raises(OSError, match="Bad file"):
            os.fstat(first)
        monkeypatch.undo()
        told: list[int] = []
        assert syncs.start_all(os.open(tmp_path, os.O_RDONLY), told.append), "as soon as there are some again"
        while not told:
            await asyncio.sleep(0.001)

    run(asyncio.new_event_loop, scenario)


def test_nothing_is_begun_after_the_stop(tmp_path: Path) -> None:
    async def scenario(syncs: KernelSyncs) -> None:
        folder = os.open(tmp_path, os.O_RDONLY)
        told: list[int] = []
        assert syncs.start_all(folder, told.append)
        while not told:
            await asyncio.sleep(0.001)
        other = KernelSyncs(asyncio.get_running_loop())
        assert other.start_all(folder, told.append)
        while len(told) < 2:
            await asyncio.sleep(0.001)
        other.stop()
        assert not other.start_all(folder, told.append)

    run(asyncio.new_event_loop, scenario)


def test_two_file_systems_are_synced_side_by_side(tmp_path: Path) -> None:
    async def scenario(syncs: KernelSyncs) -> None:
        folders = [os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY) for _ in range(2)]
        told: list[int] = []
        assert all(syncs.start_all(folder, told.append) for folder in folders)
        while len(told) < 2:
            await asyncio.sleep(0.001)
        assert told == [0, 0]

    run(asyncio.new_event_loop, scenario)


def test_signals_do_not_end_the_thread(tmp_path: Path) -> None:
    """A handler without SA_RESTART, as Python's are, interrupts the call that waits to be asked."""

    async def scenario(syncs: KernelSyncs) -> None:
        folder = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
        told: list[int] = []
        assert syncs.start_all(folder, told.append)
        while not told:
            await asyncio.sleep(0.001)
        (thread,) = (thread for thread in threading.enumerate() if thread.name == file_system_syncs.THREAD)
        assert thread.ident is not None
        for _ in range(20):
            signal.pthread_kill(thread.ident, signal.SIGUSR2)
            await asyncio.sleep(0.001)
        assert syncs.start_all(folder, told.append)
        while len(told) < 2:
            await asyncio.sleep(0.001)
        assert told == [0, 0]
        os.close(folder)

    before = signal.signal(signal.SIGUSR2, lambda *_: None)
    try:
        run(asyncio.new_event_loop, scenario)
    finally:
        signal.signal(signal.SIGUSR2, before)


def test_the_stub_says_what_the_file_says() -> None:
    from tests.protocol.test_kernel import interface

    folder = Path(local_disk.__file__).parent
    assert interface(folder / "sync_thread.pyi") == interface(folder / "sync_thread.py")
