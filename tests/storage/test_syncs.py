"""Syncs by a thread: groups end in order, each told once, however they were synced; what it can't do, workers do."""

from __future__ import annotations

import asyncio
import ctypes
import errno
import os
import signal
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import uvloop

from headrace.storage import disk_threads, headroom, range_thread, syncs, write_behind
from headrace.storage.disk import File, SyncFailed
from headrace.storage.disk_threads import FILES_MAX
from headrace.storage.local_disk import LocalDisk
from headrace.storage.syncs import GROUPS_MAX, Outcome, ThreadSyncs
from headrace.storage.write_behind import ThreadWriteBehind
from tests.plain_forms import plain_form

LOOPS = pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
SERVING = ("serve_syncs", "serve_write_backs", "serve_headroom", "ask_sync", "ask_range", "hear")


@pytest.fixture(params=["compiled", "plain"])
def form(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module as it is installed, and as it stands."""
    if request.param == "compiled":
        return disk_threads
    plain = plain_form("storage/disk_threads.py")
    for module in (syncs, write_behind, headroom, range_thread):
        for name in SERVING:
            if hasattr(module, name):
                monkeypatch.setattr(module, name, getattr(plain, name))
    return plain


class Running:
    """Syncs on a real loop, and what they told."""

    def __init__(self, loop: asyncio.AbstractEventLoop, folder: Path) -> None:
        self.disk = LocalDisk(str(folder))
        self.told: list[tuple[int, Outcome | None, BaseException | None]] = []
        self.syncs = ThreadSyncs(loop, self.disk, lambda *told: self.told.append(told))

    def files(self, count: int) -> list[File]:
        found: list[File] = []
        for number in range(count):
            found.append(self.disk.open(str(number), create=True))
            found[-1].write(0, [b"record"])
        return found

    async def until(self, groups: int) -> None:
        while sum(count for count, _, _ in self.told) < groups:
            await asyncio.sleep(0.001)


def run(
    new_loop: Callable[[], asyncio.AbstractEventLoop], folder: Path, scenario: Callable[[Running], Awaitable[None]]
) -> None:
    loop = new_loop()
    running = Running(loop, folder)
    try:
        loop.run_until_complete(asyncio.wait_for(scenario(running), 30))
    finally:
        running.syncs.stop()
        running.disk.close()
        loop.close()


@LOOPS
def test_a_group_is_told_once_when_all_of_it_is_durable(
    new_loop: Callable[[], asyncio.AbstractEventLoop], form: Any, tmp_path: Path
) -> None:
    async def scenario(running: Running) -> None:
        files = running.files(FILES_MAX)
        for group in range(1, 40):
            asked = group % FILES_MAX + 1
            assert running.syncs.start(files[:asked], 0)
            await running.until(group)
            count, outcome, error = running.told[-1]
            assert (count, error) == (1, None)
            assert outcome is not None
            assert outcome[:2] == (asked, False)
            assert outcome.seconds > 0
        await asyncio.sleep(0.01)
        assert len(running.told) == 39

    run(new_loop, tmp_path, scenario)


@LOOPS
def test_groups_that_come_while_another_is_synced_are_synced_together(
    new_loop: Callable[[], asyncio.AbstractEventLoop], form: Any, tmp_path: Path
) -> None:
    async def scenario(running: Running) -> None:
        files = running.files(8)
        for number in range(GROUPS_MAX):
            assert running.syncs.start([files[number % 8]], 0)
        assert not running.syncs.start(files, 0), "more than it takes at a time"
        await running.until(GROUPS_MAX)
        assert len(running.told) < GROUPS_MAX
        assert all(error is None and outcome and outcome.files <= 8 for _, outcome, error in running.told)
        assert running.syncs.start(files, 0), "what ended has made room"
        await running.until(GROUPS_MAX + 1)

    run(new_loop, tmp_path, scenario)


def test_many_files_are_synced_at_once_also_when_they_come_in_several_groups(form: Any, tmp_path: Path) -> None:
    async def scenario(running: Running) -> None:
        files = running.files(100)
        assert running.syncs.start(files, 10)
        await running.until(1)
        assert [outcome and outcome[:2] for _, outcome, _ in running.told] == [(100, True)]
        assert not running.syncs.start(files, 200), "who wants them one by one asks others"
        assert not running.syncs.start(files, 0)
        # Several groups that are there when the thread looks: whether it looks before is the system's choice.
        descriptors = [descriptor for file in files if (descriptor := file.fileno()) is not None]
        for count, at_once in ((4, 0), (40, 1)):
            asked, ask = os.pipe()
            told, tell = os.pipe()
            for number in range(count):
                form.ask_sync(ask, descriptors[number : number + 2], 2, 8, descriptors[0])
            form.ask_sync(ask, [], 0, 0, -1)
            form.serve_syncs(asked, tell, bytearray(1))
            heard = form.hear(told)
            assert heard is not None
            assert heard[:4] == (count, count + 1, at_once, 0)
            for pipe in (asked, ask, told, tell):
                os.close(pipe)

    run(uvloop.new_event_loop, tmp_path, scenario)


def test_hazard_8_a_failed_sync_tells_which_file_and_takes_the_disk_offline(form: Any, tmp_path: Path) -> None:
    for count in (1, 2, 7):
        folder = tmp_path / str(count)

        async def scenario(running: Running, count: int = count, folder: Path = folder) -> None:
            files = running.files(count)
            read_end, write_end = os.pipe()  # which can't be synced
            victim = files[count // 2]
            known = victim.fileno()
            assert known is not None
            os.dup2(write_end, known)
            assert running.syncs.start(files, 0)
            await running.until(1)
            ((_, outcome, error),) = running.told
            assert outcome is None
            assert isinstance(error, SyncFailed)
            assert error.path == str(folder / victim.path)
            assert running.disk.offline is error
            os.close(read_end)
            os.close(write_end)

        run(asyncio.new_event_loop, folder, scenario)


def test_hazard_8_so_does_a_failed_sync_of_the_file_system(form: Any, tmp_path: Path) -> None:
    class NoFileSystem(LocalDisk):
        def fileno(self) -> int:
            return 100_000

    async def scenario(running: Running) -> None:
        running.syncs._disk = disk = NoFileSystem(str(tmp_path))
        assert running.syncs.start(running.files(20), 8)
        await running.until(1)
        ((_, _, error),) = running.told
        assert isinstance(error, SyncFailed)
        assert error.reason == os.strerror(errno.EBADF)
        assert disk.offline is error
        disk.close()

    run(asyncio.new_event_loop, tmp_path, scenario)


def test_without_a_sync_of_the_file_system_many_files_are_left_to_the_workers(form: Any, tmp_path: Path) -> None:
    class NoFileSystem(LocalDisk):
        def fileno(self) -> None:
            return None

    async def scenario(running: Running) -> None:
        running.syncs._disk = disk = NoFileSystem(str(tmp_path))
        files = running.files(FILES_MAX + 1)
        assert not running.syncs.start(files, 8)
        assert running.syncs.start(files[:-1], 8)
        await running.until(1)
        assert [outcome and outcome[:2] for _, outcome, _ in running.told] == [(FILES_MAX, False)]
        disk.close()

    run(asyncio.new_event_loop, tmp_path, scenario)


def test_hazard_8_a_thread_that_ends_by_itself_takes_the_disk_offline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends = threading.Event()
    monkeypatch.setattr(syncs, "serve_syncs", lambda *_: ends.wait(30))

    async def scenario(running: Running) -> None:
        files = running.files(1)
        assert running.syncs.start(files, 0)
        assert running.syncs.start(files, 0)
        ends.set()
        await running.until(2)
        ((_, outcome, error),) = running.told
        assert outcome is None
        assert isinstance(error, SyncFailed)
        assert running.disk.offline is error
        assert not running.syncs.start(files, 0)

    run(asyncio.new_event_loop, tmp_path, scenario)


def test_what_a_listener_does_wrong_loses_no_other_group(form: Any, tmp_path: Path) -> None:
    async def scenario(running: Running) -> None:
        files = running.files(1)
        asyncio.get_running_loop().set_exception_handler(lambda *_: None)
        told: list[int] = []

        def ended(count: int, outcome: Outcome | None, error: BaseException | None) -> None:
            told.append(count)
            raise ValueError("a defect elsewhere")

        running.syncs._ended = ended
        for _ in range(20):
            assert running.syncs.start(files, 0)
            time.sleep(0.002)  # the loop hears of several at once
        while sum(told) < 20:
            await asyncio.sleep(0.001)

    run(asyncio.new_event_loop, tmp_path, scenario)


def test_more_files_than_a_message_holds_are_refused(form: Any) -> None:
    assert (FILES_MAX, disk_threads.MESSAGES_MAX) == (13, 64), "arrays of C have sizes that follow from these"
    with pytest.raises(ValueError, match="too many"):
        form.ask_sync(-1, list(range(FILES_MAX + 1)), FILES_MAX + 1, 0, -1)


def test_a_stop_does_not_wait_for_a_process_that_was_forked(form: Any, tmp_path: Path) -> None:
    """It has both ends of the pipes, too."""

    async def scenario(running: Running) -> None:
        files = running.files(1)
        behind = ThreadWriteBehind(running.disk)
        behind.start(files[0], 0, 6)
        assert running.syncs.start(files, 0)
        await running.until(1)
        child = os.fork()
        if not child:
            time.sleep(20)
            os._exit(0)
        behind.stop()
        running.syncs.stop()
        assert os.waitpid(child, os.WNOHANG) == (0, 0), "it lives, and nobody waited for its end"
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)

    run(asyncio.new_event_loop, tmp_path, scenario)


def test_a_disk_tells_while_a_sync_is_under_way(form: Any, tmp_path: Path) -> None:
    async def scenario(running: Running) -> None:
        files = running.files(1)
        for number in range(1, 300):
            assert running.syncs.start(files, 0)
            await running.until(number)
            assert running.disk.sync_beats[0] == 2 * number % 256

    run(uvloop.new_event_loop, tmp_path, scenario)


def test_hazard_15_without_a_descriptor_for_its_thread_the_workers_sync(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.pipe

    async def scenario(running: Running) -> None:
        files = running.files(1)
        for left in (0, 1):
            given = [real() for _ in range(left)]
            opened = [descriptor for pair in given for descriptor in pair]

            def pipe(given: list[tuple[int, int]] = given) -> tuple[int, int]:
                if given:
                    return given.pop()
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

            with monkeypatch.context() as patch:
                patch.setattr(os, "pipe", pipe)
                assert not running.syncs.start(files, 0)
                behind = ThreadWriteBehind(running.disk)
                behind.start(files[0], 0, 6)  # a wish
                behind.stop()
            for descriptor in opened:
                with pytest.raises(OSError, match="Bad file"):
                    os.fstat(descriptor)
        assert running.syncs.start(files, 0), "as soon as there are some again"
        await running.until(1)

    run(asyncio.new_event_loop, tmp_path, scenario)


def test_nothing_is_begun_after_the_stop(tmp_path: Path) -> None:
    async def scenario(running: Running) -> None:
        files = running.files(1)
        before = len(os.listdir("/proc/self/fd")) if os.path.exists("/proc/self/fd") else 0
        other = ThreadSyncs(asyncio.get_running_loop(), running.disk, lambda *told: running.told.append(told))
        behind = ThreadWriteBehind(running.disk)
        assert other.start(files, 0)
        await running.until(1)
        behind.start(files[0], 0, 6)
        other.stop()
        behind.stop()
        assert not other.start(files, 0)
        behind.start(files[0], 0, 6)
        if before:
            assert len(os.listdir("/proc/self/fd")) == before, "and nothing is left open"

    run(asyncio.new_event_loop, tmp_path, scenario)


def test_a_stop_waits_for_what_was_asked_for(form: Any, tmp_path: Path) -> None:
    async def scenario(running: Running) -> None:
        for _ in range(GROUPS_MAX):
            assert running.syncs.start(running.files(1), 0)

    run(uvloop.new_event_loop, tmp_path, scenario)
    assert not [thread for thread in threading.enumerate() if thread.name in (syncs.THREAD, write_behind.THREAD)]


def test_signals_do_not_end_the_threads(form: Any, tmp_path: Path) -> None:
    """A handler without SA_RESTART, as Python's are, interrupts the call that waits to be asked."""

    async def scenario(running: Running) -> None:
        files = running.files(2)
        behind = ThreadWriteBehind(running.disk)
        behind.start(files[0], 0, 6)
        assert running.syncs.start(files, 0)
        await running.until(1)
        found = [thread for thread in threading.enumerate() if thread.name in (syncs.THREAD, write_behind.THREAD)]
        assert len(found) == 2
        for _ in range(20):
            for thread in found:
                assert thread.ident is not None
                signal.pthread_kill(thread.ident, signal.SIGUSR2)
            await asyncio.sleep(0.001)
        assert all(thread.is_alive() for thread in found)
        assert running.syncs.start(files, 0)
        await running.until(2)
        behind.stop()

    before = signal.signal(signal.SIGUSR2, lambda *_: None)
    try:
        run(asyncio.new_event_loop, tmp_path, scenario)
    finally:
        signal.signal(signal.SIGUSR2, before)


def test_more_write_backs_than_are_done_are_left_to_the_system(
    form: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loop is never kept waiting by the device."""
    blocked, serve = threading.Event(), form.serve_write_backs
    monkeypatch.setattr(write_behind, "serve_write_backs", lambda *asked: blocked.wait(30) and serve(*asked))
    disk = LocalDisk(str(tmp_path))
    file = disk.open("a", create=True)
    behind = ThreadWriteBehind(disk)
    for number in range(10_000):
        behind.start(file, number, 1)
    blocked.set()
    behind.stop()
    file.close()
    disk.close()


def test_what_was_appended_is_written_back_although_nobody_syncs_it(form: Any, tmp_path: Path) -> None:
    """Long before the system would do it by itself."""
    disk = LocalDisk(str(tmp_path))
    file = disk.open("a", create=True)
    behind = ThreadWriteBehind(disk)
    for number in range(20):
        file.write(number << 20, [b"x" * (1 << 20)])
        behind.start(file, number << 20, 1 << 20)
    behind.stop()
    descriptor = file.fileno()
    assert descriptor is not None
    until = time.monotonic() + 20  # the system waits for 30
    while (dirty := dirty_pages(descriptor)) and time.monotonic() < until:
        time.sleep(0.01)
    file.close()
    disk.close()
    if dirty is None:
        pytest.skip("this system can't tell")
    assert not dirty


def dirty_pages(descriptor: int) -> int | None:
    """Of a file, and those on their way to the disk; None where the system can't tell."""
    asked, told = (ctypes.c_uint64 * 2)(0, 0), (ctypes.c_uint64 * 5)()
    if ctypes.CDLL(None).syscall(451, descriptor, ctypes.byref(asked), ctypes.byref(told), 0):
        return None
    return int(told[1] + told[2])


def test_the_stub_says_what_the_file_says() -> None:
    from tests.protocol.test_kernel import interface

    folder = Path(syncs.__file__).parent
    assert interface(folder / "disk_threads.pyi") == interface(folder / "disk_threads.py")
