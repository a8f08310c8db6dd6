"""Group commit: who waits is told when it is durable, in groups; a failed sync is told once and never tried again."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import uvloop
from hypothesis import given
from hypothesis import strategies as st

from headrace.storage.disk import Disk, DiskError, File, SyncFailed, TooManyOpenFiles
from headrace.storage.flusher import Costs, Flusher
from headrace.storage.local_disk import LocalDisk
from headrace.storage.syncs import Outcome
from headrace.storage.workers import WorkerThread
from headrace.testing.disk import Crash, FaultyDisk, Platter
from headrace.testing.syncs import WorkerSyncs
from headrace.testing.workers import SteppedWorkers

WAYS = pytest.mark.parametrize("by_thread", [False, True], ids=["by a worker", "by a thread"])


class Stepped:
    """A flusher whose loop and worker move when the test says so; by a thread, groups begin while others run."""

    def __init__(self, disk: FaultyDisk | None = None, by_thread: bool = False) -> None:
        self.disk = disk or FaultyDisk()
        self.workers = SteppedWorkers()
        self.soon: list[Callable[[], None]] = []
        self.told: list[tuple[str, DiskError | None]] = []
        self.offline: list[SyncFailed] = []
        self.now = 0.0
        self.flusher = Flusher(
            self.disk,
            self.workers,
            call_soon=self.soon.append,
            clock=lambda: self.now,
            on_offline=self.offline.append,
            syncs_of=(lambda disk, ended: WorkerSyncs(disk, self.workers, ended)) if by_thread else None,
        )

    def file(self, name: str) -> File:
        file = self.disk.open(name, create=True)
        self.disk.sync_directory("")
        return file

    def append(self, file: File, content: bytes, name: str = "") -> None:
        file.write(file.size(), [content])
        self.flusher.sync(file, lambda failure: self.told.append((name or file.path, failure)))

    def round(self) -> None:
        """The loop's round ends."""
        soon, self.soon[:] = list(self.soon), []
        for callback in soon:
            callback()

    def settle(self) -> None:
        while self.soon or len(self.workers):
            self.round()
            if len(self.workers):
                self.workers.step()

    def names(self) -> list[str]:
        return [name for name, _ in self.told]


def test_nobody_is_told_before_the_sync() -> None:
    stepped = Stepped()
    file = stepped.file("a")
    syncs = stepped.disk.syncs
    stepped.append(file, b"1")
    stepped.round()
    assert stepped.told == []
    assert stepped.disk.syncs == syncs
    tell = stepped.workers.end()
    assert stepped.disk.syncs == syncs + 1
    assert stepped.told == [], "they are told on the loop"
    tell()
    assert stepped.told == [("a", None)]
    assert stepped.flusher.is_idle


@WAYS
def test_all_appends_of_a_round_share_one_sync_of_each_file(by_thread: bool) -> None:
    stepped = Stepped(by_thread=by_thread)
    a, b = stepped.file("a"), stepped.file("b")
    syncs = stepped.disk.syncs
    for number in range(5):
        stepped.append(a, b"x", f"a{number}")
        stepped.append(b, b"x", f"b{number}")
    stepped.settle()
    assert stepped.disk.syncs == syncs + 2
    assert stepped.names() == ["a0", "b0", "a1", "b1", "a2", "b2", "a3", "b3", "a4", "b4"]
    assert stepped.flusher.groups == 1


def test_what_is_appended_during_a_sync_is_in_the_next_group_which_starts_at_once() -> None:
    stepped = Stepped()
    file = stepped.file("a")
    stepped.append(file, b"1", "first")
    stepped.round()
    stepped.append(file, b"2", "second")
    stepped.append(file, b"3", "third")
    stepped.round()
    assert len(stepped.workers) == 1, "one job at a time"
    stepped.workers.step()
    assert stepped.names() == ["first"]
    assert len(stepped.workers) == 1
    stepped.workers.step()
    assert stepped.names() == ["first", "second", "third"]
    assert stepped.flusher.is_idle


def test_it_rests_when_no_file_is_held_any_more() -> None:
    """Whoever stops waits for that: a sync that ends after the loop would leave its files open."""
    stepped = Stepped()
    file = stepped.file("a")
    rested: list[int] = []
    stepped.flusher.rest(lambda: rested.append(stepped.disk.open_files))
    assert rested == [1], "at once, when nothing runs"
    stepped.append(file, b"1")
    file.close()
    stepped.flusher.rest(lambda: rested.append(stepped.disk.open_files))
    stepped.round()
    assert rested == [1]
    stepped.settle()
    assert rested == [1, 0]


@WAYS
def test_a_file_that_is_closed_meanwhile_is_synced_and_then_closed(by_thread: bool) -> None:
    stepped = Stepped(by_thread=by_thread)
    file = stepped.file("a")
    stepped.append(file, b"1")
    file.close()
    assert stepped.disk.open_files == 1
    stepped.settle()
    assert stepped.told == [("a", None)]
    assert stepped.disk.open_files == 0
    assert stepped.disk.restart(power_lost=True).read("a") == b"1"


def test_changed_names_are_durable_before_the_next_wait_is_over() -> None:
    for seed in range(30):
        stepped = Stepped(FaultyDisk(Platter(seed)))
        stepped.disk.make_directory("t-0")
        stepped.disk.sync_directory("")
        file = stepped.disk.open("t-0/a", create=True)
        stepped.flusher.sync_names("t-0")
        stepped.flusher.write_behind(file, 0, 1)
        stepped.settle()
        stepped.append(file, b"1")
        stepped.settle()
        assert stepped.told == [("t-0/a", None)]
        assert stepped.disk.restart(power_lost=True).read("t-0/a") == b"1"


def test_names_of_a_folder_that_is_gone_hold_up_nobody() -> None:
    stepped = Stepped()
    stepped.flusher.sync_names("gone-0")
    stepped.append(stepped.file("a"), b"1")
    stepped.settle()
    assert stepped.told == [("a", None)]


def test_write_behind_starts_the_write_back_and_syncs_nothing() -> None:
    stepped = Stepped()
    file = stepped.file("a")
    stepped.disk.trace = []
    stepped.flusher.write_behind(file, 0, 1 << 20)
    stepped.settle()
    assert stepped.disk.trace == ["start_writeback a"]


@WAYS
def test_many_files_are_synced_at_once(by_thread: bool) -> None:
    stepped = Stepped(by_thread=by_thread)
    files = [stepped.file(f"f{number:03}") for number in range(100)]
    stepped.disk.trace = []
    for file in files:
        stepped.append(file, b"1")
    stepped.disk.trace.clear()
    stepped.settle()
    assert stepped.disk.trace == ["sync_all "]
    assert len(stepped.told) == 100
    assert stepped.flusher.synced_at_once == 1
    survivor = stepped.disk.restart(power_lost=True)
    assert all(survivor.read(file.path) == b"1" for file in files)


def test_many_files_are_synced_one_by_one_where_the_system_can_not_do_it_at_once() -> None:
    stepped = Stepped()
    stepped.disk.faults.can_sync_all = False
    files = [stepped.file(f"f{number:03}") for number in range(20)]
    for file in files:
        stepped.append(file, b"1")
    stepped.settle()
    assert stepped.flusher.synced_at_once == 0
    survivor = stepped.disk.restart(power_lost=True)
    assert all(survivor.read(file.path) == b"1" for file in files)


def test_costs_are_learnt_and_a_hiccup_counts_little() -> None:
    costs = Costs()
    assert costs.prefer_at_once(100)
    assert not costs.prefer_at_once(1)
    assert costs.learn(Outcome(1, False, 10.0)).file < 2 * costs.file
    assert costs.learn(Outcome(0, False, 1.0)) == costs
    for _ in range(200):
        costs = costs.learn(Outcome(100, True, 0.5))
    assert not costs.prefer_at_once(100), "on a disk where that takes half a second"
    for _ in range(200):
        costs = costs.learn(Outcome(100, False, 0.015))
    assert costs.prefer_at_once(100), "but it is tried again"


# Failure


@WAYS
def test_hazard_8_a_failed_sync_is_told_to_all_that_wait_and_the_directory_is_offline(by_thread: bool) -> None:
    stepped = Stepped(by_thread=by_thread)
    a, b = stepped.file("a"), stepped.file("b")
    stepped.append(a, b"1")
    stepped.append(b, b"1")
    stepped.disk.faults.fail_sync_at = stepped.disk.syncs + 1
    stepped.round()
    stepped.append(a, b"2", "meanwhile")
    stepped.settle()
    assert stepped.names() == ["a", "b", "meanwhile"]
    assert all(isinstance(failure, SyncFailed) for _, failure in stepped.told)
    assert len(stepped.offline) == 1
    with pytest.raises(SyncFailed):
        stepped.append(a, b"3")
    assert len(stepped.told) == 3
    assert stepped.flusher.is_idle


@WAYS
def test_hazard_8_a_failed_sync_is_never_tried_again(by_thread: bool) -> None:
    """The kernel says yes to a second one. Whoever believed it would have acknowledged what is not there."""
    stepped = Stepped(by_thread=by_thread)
    file = stepped.file("a")
    stepped.disk.faults.fail_sync_at = stepped.disk.syncs + 1
    stepped.append(file, b"1", "first")
    stepped.round()
    stepped.append(file, b"2", "second")
    stepped.settle()
    syncs = stepped.disk.syncs
    with pytest.raises(SyncFailed):
        stepped.append(file, b"3", "third")
    stepped.settle()
    assert stepped.disk.syncs == syncs
    assert [name for name, failure in stepped.told if failure is None] == []
    assert not stepped.disk.restart(power_lost=True).read("a").startswith(b"1"), "and it is not there"


@WAYS
def test_hazard_8_a_failed_sync_of_all_files_at_once_is_a_failed_sync(by_thread: bool) -> None:
    stepped = Stepped(by_thread=by_thread)
    files = [stepped.file(f"f{number:03}") for number in range(50)]
    stepped.disk.faults.fail_sync_at = stepped.disk.syncs + 1
    for file in files:
        stepped.append(file, b"1")
    stepped.settle()
    assert len(stepped.told) == 50
    assert all(isinstance(failure, SyncFailed) for _, failure in stepped.told)
    assert len(stepped.offline) == 1


def test_a_sync_that_could_not_be_tried_is_told_and_done_by_the_next_group() -> None:
    stepped = Stepped()
    file = stepped.file("a")
    stepped.disk.make_directory("t-0")
    stepped.flusher.sync_names("")
    stepped.append(file, b"1", "first")
    stepped.disk.faults.errors_at_calls = {stepped.disk.calls + 1: TooManyOpenFiles}
    stepped.settle()
    assert [type(failure) for _, failure in stepped.told] == [TooManyOpenFiles]
    assert stepped.offline == []
    other = stepped.disk.open("a")
    stepped.append(other, b"2", "second")
    stepped.settle()
    assert stepped.told[1:] == [("second", None)]
    survivor = stepped.disk.restart(power_lost=True)
    assert survivor.read("a") == b"12"
    assert survivor.exists("t-0")


@WAYS
def test_a_reply_that_fails_does_not_keep_the_others_waiting(by_thread: bool) -> None:
    stepped = Stepped(by_thread=by_thread)
    file = stepped.file("a")

    def broken(failure: DiskError | None) -> None:
        raise ValueError("a defect elsewhere")

    stepped.flusher.sync(file, broken)
    stepped.append(file, b"1")
    stepped.settle()
    assert stepped.told == [("a", None)]


def test_a_defect_in_the_job_acknowledges_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    stepped = Stepped()
    file = stepped.file("a")
    stepped.append(file, b"1")
    monkeypatch.setattr(type(file), "datasync", lambda self: 1 / 0)
    stepped.settle()
    assert [type(failure) for _, failure in stepped.told] == [DiskError]


steps = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(0, 3)),
        st.tuples(st.just("roll"), st.integers(0, 3)),
        st.tuples(st.just("hurry"), st.just(0)),
        st.tuples(st.just("round"), st.just(0)),
        st.tuples(st.just("work"), st.just(0)),
    ),
    max_size=40,
)


@given(st.integers(0, 2**32), steps, st.integers(0, 60), st.booleans())
def test_what_was_acknowledged_survives_a_loss_of_power_at_any_call(
    seed: int, script: list[tuple[str, int]], crash_at: int, by_thread: bool
) -> None:
    stepped = Stepped(FaultyDisk(Platter(seed)), by_thread)
    disk, flusher = stepped.disk, stepped.flusher
    disk.make_directory("t-0")
    disk.sync_directory("")
    acknowledged: dict[str, int] = {}
    open_files: dict[int, tuple[File, int]] = {}
    rolls = 0
    disk.faults.crash_at_call = disk.calls + crash_at if crash_at else 0

    def roll(partition: int) -> None:
        nonlocal rolls
        rolls += 1
        if partition in open_files:
            open_files[partition][0].close()
        open_files[partition] = (disk.open(f"t-0/{partition}-{rolls:03}", create=True), 0)
        flusher.sync_names("t-0")

    def append(partition: int) -> None:
        if partition not in open_files:
            roll(partition)
        file, size = open_files[partition]
        file.write(size, [b"record"])
        open_files[partition] = (file, size + 6)

        def told(failure: DiskError | None) -> None:
            assert failure is None
            acknowledged[file.path] = max(acknowledged.get(file.path, 0), size + 6)

        flusher.sync(file, told)

    try:
        for what, number in script:
            if what == "append":
                append(number)
            elif what == "roll":
                roll(number)
            elif what == "hurry":
                flusher.hurry()
            elif what == "round":
                stepped.round()
            elif len(stepped.workers):
                stepped.workers.step()
        stepped.settle()
        assert flusher.is_idle
    except Crash:
        pass
    survivor = disk.restart(power_lost=True)
    for path, size in acknowledged.items():
        assert survivor.read(path)[:size] == b"record" * (size // 6)


# On real threads and loops


@pytest.fixture(params=["asyncio", "uvloop"])
def loop(request: pytest.FixtureRequest) -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop() if request.param == "asyncio" else uvloop.new_event_loop()
    yield loop
    loop.close()


def test_jobs_run_in_order_in_one_other_thread_and_end_on_the_loop(loop: asyncio.AbstractEventLoop) -> None:
    workers = WorkerThread(loop.call_soon_threadsafe, "test")
    threads: list[int] = []
    ended: list[tuple[object, object, int]] = []

    def done(result: object, error: BaseException | None) -> None:
        ended.append((result, type(error), threading.get_ident()))
        if len(ended) == 4:
            loop.stop()

    def job(number: int) -> int:
        threads.append(threading.get_ident())
        return 10 // number

    for number in (1, 0, 2, 5):
        workers.run(lambda number=number: job(number), done)  # type: ignore[misc]
    loop.run_forever()
    me = threading.get_ident()
    nothing = type(None)
    assert ended == [(10, nothing, me), (None, ZeroDivisionError, me), (5, nothing, me), (2, nothing, me)]
    assert len(set(threads)) == 1
    assert me not in threads
    workers.stop()


def test_a_worker_whose_loop_is_closed_ends(loop: asyncio.AbstractEventLoop) -> None:
    workers = WorkerThread(loop.call_soon_threadsafe, "test")
    loop.close()
    workers.run(lambda: 1, lambda result, error: None)
    workers.stop()


def test_appends_on_a_real_disk_are_told_in_groups(loop: asyncio.AbstractEventLoop, tmp_path: Path) -> None:
    disk: Disk = LocalDisk(str(tmp_path))
    workers = WorkerThread(loop.call_soon_threadsafe, "flusher")
    flusher = Flusher(
        disk,
        workers,
        call_soon=loop.call_soon,
        clock=time.perf_counter,
        on_offline=lambda failure: pytest.fail(str(failure)),
    )
    files = [disk.open(f"f{number}", create=True) for number in range(40)]
    told: list[DiskError | None] = []

    async def produce() -> None:
        for number in range(400):
            file = files[number % 40]
            file.write(file.size(), [b"x" * 100])
            flusher.sync(file, told.append)
            if number % 100 == 0:
                flusher.write_behind(file, 0, 100)
            if number % 7 == 0:
                await asyncio.sleep(0)
        while not flusher.is_idle:
            await asyncio.sleep(0.001)

    loop.run_until_complete(produce())
    assert told == [None] * 400
    assert 1 <= flusher.groups < 400
    workers.stop()
    disk.close()


def test_a_disk_tells_while_a_sync_is_under_way() -> None:
    stepped = Stepped()
    file = stepped.file("a")
    assert file.sync_beats is stepped.disk.sync_beats
    assert stepped.disk.sync_beats == b"\0"
    stepped.append(file, b"1")
    assert stepped.disk.sync_beats == b"\0", "it has not begun"
    stepped.round()
    assert stepped.disk.sync_beats == b"\1"
    stepped.append(file, b"2")
    stepped.workers.step()
    assert stepped.disk.sync_beats == b"\3", "the next one has begun"
    stepped.settle()
    assert stepped.disk.sync_beats == b"\4"


def test_a_disk_tells_of_no_sync_after_one_that_failed() -> None:
    stepped = Stepped()
    file = stepped.file("a")
    for number in range(200):
        stepped.append(file, b"1")
        stepped.settle()
        assert stepped.disk.sync_beats[0] == (2 * number + 2) % 256
    stepped.disk.faults.fail_sync_at = stepped.disk.syncs + 1
    stepped.append(file, b"2")
    stepped.settle()
    assert stepped.offline
    assert not stepped.disk.sync_beats[0] & 1
