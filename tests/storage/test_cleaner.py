"""The cleaner of a node: whose turn it is, what is set aside and tried again, and the process that does the work."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.config import CleanerConfig, LogConfig
from headrace.protocol.batch import Batch
from headrace.storage import names
from headrace.storage.cleaner import Cleaner, cleanable_of, job_for
from headrace.storage.cleaner_worker import run
from headrace.storage.cleaning_job import (
    Cleaned,
    CleaningFailed,
    CleaningJob,
    Replacement,
    Step,
    Trouble,
    decode_line,
    encode_failure,
)
from headrace.storage.cleaning_work import CleaningProcesses, InlineWork, ProcessWork, Work
from headrace.storage.disk import Disk, DiskError, DiskFull, SyncFailed
from headrace.storage.local_disk import LocalDisk
from headrace.storage.log import Log
from headrace.storage.workers import WorkerThread
from headrace.testing.disk import Faults, FaultyDisk
from headrace.testing.workers import SteppedWorkers
from tests.storage.cleaning import COMPACT, KEYS, START_MS, Compacted, keyed
from tests.storage.logs import values_in
from tests.storage.nodes import TOPIC_ID, Node

DEADLINE_S = 60


def dirty(**settings: Any) -> Compacted:
    real = Compacted(**settings)
    for number in range(20):
        real.put((KEYS[number % 3], b"%d" % number))
    real.roll()
    return real


def platter_disk(real: Compacted) -> FaultyDisk:
    assert isinstance(real.disk, FaultyDisk)
    return real.disk


# --------------------------------------------------------------------------------------------------------- whose turn


class Several:
    """Some logs, and a cleaner with some workers."""

    def __init__(self, *logs: Compacted, workers: int = 1, **settings: Any) -> None:
        self.logs = {real.log: real for real in logs}
        for number, real in enumerate(logs):
            real.log.topic = f"t{number}"
        self.workers = [SteppedWorkers() for _ in range(workers)]
        self.later: list[tuple[float, Callable[[], None]]] = []
        self.now_ms = START_MS
        self.jobs: list[CleaningJob] = []
        self.cleaner = Cleaner(
            lambda: [*self.logs],
            CleanerConfig(**settings),
            self._start,
            self.workers,
            now_ms=lambda: self.now_ms,
            call_later=lambda seconds, call: self.later.append((seconds, call)),
            secret=lambda: bytes(16),
        )

    def _start(self, job: CleaningJob, disk: Disk) -> Work:
        self.jobs.append(job)
        return InlineWork(job, disk)

    def step_until(self, is_over: Callable[[], bool]) -> None:
        while not is_over():
            busy = [workers for workers in self.workers if len(workers)]
            assert busy, "there is something to do"
            for workers in busy:
                workers.step()

    @property
    def running(self) -> list[str]:
        return [topic for topic, _ in self.cleaner.running]


def test_the_dirtiest_log_is_cleaned_first_and_as_many_at_once_as_there_are_workers() -> None:
    logs = [dirty() for _ in range(3)]
    logs[0].log.clean_offset = 15
    logs[2].log.clean_offset = 5
    several = Several(*logs, workers=2)
    several.cleaner.poll()
    assert several.running == ["t1", "t2"]
    several.step_until(lambda: several.cleaner.cleanings == 2)
    assert several.running == []
    assert several.later[-1][0] == 0
    several.later[-1][1]()
    assert several.running == ["t0"]


def test_a_log_that_is_not_compacted_or_not_due_is_left_alone() -> None:
    plain, quiet, offline = dirty(), dirty(), dirty()
    plain.log.configure(LogConfigOf.plain)
    quiet.log.configure(LogConfigOf.lazy)
    quiet.log.clean_offset = 15
    offline.log.offline = DiskError("t-0", "for a test")
    several = Several(plain, quiet, offline)
    several.cleaner.poll()
    assert several.running == []
    assert several.later[-1][0] == 15.0, "it looks again after log.cleaner.backoff.ms"


def test_each_cleaning_has_its_share_of_the_means() -> None:
    several = Several(
        dirty(),
        workers=2,
        log_cleaner_dedupe_buffer_size=1000,
        log_cleaner_io_buffer_size=100,
        log_cleaner_io_max_bytes_per_second=50.0,
    )
    several.cleaner.poll()
    (job,) = several.jobs
    assert (job.dedupe_buffer_bytes, job.io_buffer_bytes, job.bytes_per_second) == (500, 50, 25.0)


def test_it_does_nothing_where_it_is_not_wanted() -> None:
    several = Several(dirty(), log_cleaner_enable=False)
    several.cleaner.poll()
    assert (several.running, several.later) == ([], [])
    several.cleaner.configure(CleanerConfig())
    several.cleaner.poll()
    assert several.running == ["t0"]


def test_work_is_paced_by_the_rate_that_is_allowed() -> None:
    real = dirty(log_cleaner_io_max_bytes_per_second=1000.0, log_cleaner_io_buffer_size=200)
    real.cleaner.poll()
    waited = 0.0
    while not real.log.clean_offset:
        while len(real.workers):
            real.workers.step()
        real.later.sort(key=lambda entry: entry[0])
        if not real.log.clean_offset:
            pause_s, call = real.later.pop(0)
            real.now_ms += int(pause_s * 1000 + 1)
            waited += pause_s
            call()
    written = real.cleaner.last["t", 0].bytes_written
    read = 2 * real.cleaner.last["t", 0].bytes_read
    assert waited == pytest.approx((read + written) / 1000, rel=0.2)


# ---------------------------------------------------------------------------------------------------------- set aside


def test_a_damaged_segment_is_set_aside_with_the_reason_and_the_rest_goes_on() -> None:
    broken, sound = dirty(), dirty()
    platter_disk(broken).platter.flip_bit("t-0/00000000000000000000.log", 100)
    before = broken.disk.names("t-0")
    several = Several(broken, sound)
    several.cleaner.poll()
    several.step_until(lambda: bool(several.cleaner.set_aside) or several.cleaner.cleanings > 0)
    while several.later:
        several.later.pop(0)[1]()
        while any(len(workers) for workers in several.workers):
            several.step_until(lambda: not any(len(workers) for workers in several.workers))
        if several.cleaner.cleanings:
            break
    assert several.cleaner.cleanings == 1
    assert sound.log.clean_offset == 20
    aside = several.cleaner.set_aside["t0", 0]
    assert "00000000000000000000.log is damaged in bytes" in aside.reason
    assert aside.retry_ms is None
    assert several.cleaner.uncleanable_bytes() == broken.log.size_bytes
    assert broken.disk.names("t-0") == before, "nothing of it was changed"
    several.cleaner.forget(broken.log)
    assert not several.cleaner.set_aside


def test_a_batch_that_nobody_can_read_is_set_aside_with_what_to_do() -> None:
    real = dirty()
    content = bytearray(real.log.read(0, 1, 1).take())
    batch = Batch(memoryview(content))
    content[65] ^= 0xFF  # in its record, with a checksum that is right again
    batch._set_attributes(batch.attributes)
    node = platter_disk(real).platter.node("t-0/00000000000000000000.log")
    node.cached[: len(content)] = content
    real.clean()
    assert "has a batch at offset 0 that can't be compacted" in real.cleaner.set_aside["t", 0].reason
    assert "compact policy" in real.cleaner.set_aside["t", 0].reason


def test_what_may_be_better_later_is_tried_again_less_and_less_often() -> None:
    real = dirty()
    faults = platter_disk(real).faults
    faults.capacity_bytes = platter_disk(real).platter.used_bytes()
    waits = []
    for _ in range(11):
        real.clean()
        aside = real.cleaner.set_aside["t", 0]
        assert "the disk is full" in aside.reason
        assert aside.retry_ms is not None
        waits.append((aside.retry_ms - real.now_ms) // 1000)
        assert real.clean() == 0, "not before its time"
        real.now_ms = aside.retry_ms
    assert waits == [15, 30, 60, 120, 240, 480, 960, 1920, 3840, 3840, 3840]
    assert not [name for name in real.disk.names("t-0") if name.endswith(names.CLEANED)]
    faults.capacity_bytes = None
    real.clean()
    assert not real.cleaner.set_aside
    assert real.log.clean_offset == 20


@pytest.mark.parametrize("faults", [{"read_only": True}, {"unreadable": ("t-0",)}, {"forbidden": ("t-0",)}])
def test_what_an_operator_can_put_right_is_said_and_tried_again(faults: dict[str, Any]) -> None:
    real = dirty()
    expected = real.table()
    for name, value in faults.items():
        setattr(platter_disk(real).faults, name, value)
    real.clean()
    aside = real.cleaner.set_aside["t", 0]
    assert any(word in aside.reason for word in ("mount it for writing", "check the disk", "give the user"))
    assert aside.retry_ms is not None
    platter_disk(real).faults = Faults()
    real.now_ms = aside.retry_ms
    real.clean()
    assert not real.cleaner.set_aside
    assert real.table() == expected
    assert real.log.clean_offset == 20


def test_hazard_8_a_failed_sync_takes_the_log_directory_offline() -> None:
    real = dirty()
    disk = platter_disk(real)
    disk.faults.fail_sync_at = disk.syncs + 1
    expected = real.table()
    real.clean()
    assert len(real.sync_failures) == 1
    assert real.disk.offline is not None
    assert real.table() == expected
    assert real.clean() == 0, "nothing is tried on a disk that promises nothing"


@pytest.mark.parametrize("error", [DiskError, DiskFull])
def test_a_disk_call_that_fails_leaves_all_as_it_was_or_the_log_offline(error: type[DiskError]) -> None:
    calls = 0
    while True:
        calls += 1
        real = dirty()
        expected, disk = real.table(), platter_disk(real)
        disk.faults.errors_at_calls = {disk.calls + calls: error}
        real.clean()
        disk.faults.errors_at_calls = {}
        if real.log.offline is None:
            assert real.table() == expected, calls
        again = real.restart()
        assert again.table() == expected, calls
        again.clean()
        assert again.table() == expected, calls
        assert len(again.committed()) == 3
        if not real.cleaner.set_aside:
            break
    assert calls > 50


def test_a_damaged_transaction_index_is_made_anew_and_the_cleaning_tried_again() -> None:
    real = Compacted()
    real.put((b"a", b"1"))
    real.put((b"a", b"aborted"), producer=1, transactional=True)
    real.end(1, commit=False)
    real.roll()
    real.log.segments[0].forget_indexes()
    platter_disk(real).platter.node("t-0/00000000000000000000.txnindex").cached[:] = b"nonsense"
    real.clean()
    aside = real.cleaner.set_aside["t", 0]
    assert aside.retry_ms is not None
    real.now_ms = aside.retry_ms
    real.clean()
    assert real.table() == {b"a": b"1"}
    assert not real.cleaner.set_aside


def test_retention_may_take_segments_while_they_are_cleaned() -> None:
    real = dirty()
    real.cleaner.poll()
    for _ in range(3):
        real.workers.step()
    real.log.delete_before(20)
    real.log.retain(real.now_ms)
    real.clean()
    assert real.table() == {}
    assert not [name for name in real.disk.names("t-0") if name.endswith((names.CLEANED, names.SWAP))]


def test_a_log_that_is_forgotten_is_not_cleaned_to_the_end() -> None:
    real = dirty()
    before = real.log.segments[0]
    real.cleaner.poll()
    real.workers.step()
    real.cleaner.forget(real.log)
    real.log.configure(LogConfigOf.plain)
    while len(real.workers):
        real.workers.step()
    assert real.cleaner.running == []
    assert real.log.segments[0] is before
    assert not [name for name in real.disk.names("t-0") if name.endswith(names.CLEANED)]


def test_the_workers_may_change_while_some_are_busy() -> None:
    several = Several(dirty(), dirty(), dirty())
    several.cleaner.poll()
    busy, more = several.workers[0], SteppedWorkers()
    several.workers.append(more)
    several.cleaner.configure(CleanerConfig(), [more])
    several.cleaner.poll()
    assert several.running == ["t0", "t1"]
    several.step_until(lambda: several.cleaner.cleanings == 2)
    several.cleaner.poll()
    assert (len(busy), len(more)) == (0, 1)


def test_a_log_that_is_not_to_be_compacted_any_more_is_let_go() -> None:
    real = dirty()
    real.cleaner.poll()
    real.workers.step()
    before = real.log.segments[0]
    real.log.configure(LogConfigOf.plain)
    real.clean()
    assert real.log.segments[0] is before
    assert (real.log.clean_offset, real.cleaner.running) == (0, [])


def test_a_stopped_cleaner_begins_nothing() -> None:
    real = dirty()
    real.cleaner.poll()
    real.cleaner.stop()
    while len(real.workers):
        real.workers.step()
    real.cleaner.poll()
    assert real.cleaner.running == []
    assert real.log.clean_offset == 0


class LogConfigOf:
    plain = COMPACT.__class__(segment_bytes=700)
    lazy = COMPACT.__class__(cleanup_policy=("compact",), segment_bytes=700, min_cleanable_dirty_ratio=0.9)


# ---------------------------------------------------------------------------------------------------------- the process


PROCESSES = CleaningProcesses()


@pytest.fixture
def on_disk(tmp_path: Path) -> Iterator[Compacted]:
    real = Compacted(LocalDisk(str(tmp_path)), COMPACT.replace(segment_bytes=8000))  # each one is synced
    for number in range(200):
        real.put((KEYS[number % 3], b"%d" % number + b"." * 100))
    real.roll()
    yield real
    PROCESSES.rest()
    real.log.close()
    real.disk.close()


def job_of(real: Compacted, **changes: Any) -> CleaningJob:
    log = real.log
    job = job_for(log, cleanable_of(log, START_MS), CleanerConfig(), 1, START_MS, os.urandom(16))
    for name, value in changes.items():
        setattr(job, name, value)
    return job


def steps_of(work: Work) -> list[Step]:
    steps = [work.next_step()]
    while not isinstance(steps[-1], Cleaned):
        steps.append(work.next_step())
    return steps


def test_a_process_does_the_same_as_whoever_asks(on_disk: Compacted) -> None:
    job = job_of(on_disk)
    by_process = steps_of(PROCESSES.start(job, on_disk.disk))
    files = {name: on_disk.disk.read(f"t-0/{name}") for name in on_disk.disk.names("t-0") if name.endswith(".cleaned")}
    inline = [step for step in steps_of(InlineWork(job, on_disk.disk)) if isinstance(step, Cleaned | Replacement)]
    assert by_process[:-1] == inline[:-1]
    over = by_process[-1]
    assert isinstance(over, Cleaned)
    assert 0 < over.memory_bytes < 200 << 20
    assert over._replace(memory_bytes=0) == inline[-1]
    assert files
    for name, content in files.items():
        assert on_disk.disk.read(f"t-0/{name}") == content


def test_a_log_is_cleaned_by_a_process(tmp_path: Path, on_disk: Compacted) -> None:
    expected = on_disk.table()
    calls: list[Callable[[], None]] = []
    thread = WorkerThread(lambda call, *arguments: calls.append(lambda: call(*arguments)), "cleaner")
    cleaner = cleaner_of(on_disk.log, thread)
    cleaner.poll()
    pump(calls, lambda: cleaner.cleanings == 1)
    assert on_disk.table() == expected
    assert len(on_disk.committed()) == 3
    assert not cleaner.set_aside
    thread.stop()


def test_a_process_that_dies_is_started_again_later(on_disk: Compacted) -> None:
    expected = on_disk.table()
    calls: list[Callable[[], None]] = []
    thread = WorkerThread(lambda call, *arguments: calls.append(lambda: call(*arguments)), "cleaner")
    started: list[ProcessWork] = []

    def start(job: CleaningJob, disk: Disk) -> Work:
        if not started:
            job.bytes_per_second = 1000.0  # so slow that it is met alive
        started.append(PROCESSES.start(job, disk))
        return started[-1]

    now_ms = [START_MS]
    cleaner = cleaner_of(on_disk.log, thread, start, lambda: now_ms[0])
    cleaner.poll()
    process = wait_for(lambda: started[0].process)
    os.kill(process.pid, signal.SIGKILL)
    pump(calls, lambda: bool(cleaner.set_aside))
    aside = cleaner.set_aside["t", 0]
    assert aside.reason == "The cleaner of t-0 ended: signal 9."
    assert aside.retry_ms == START_MS + 15_000
    assert on_disk.table() == expected
    cleaner.poll()
    assert len(started) == 1
    now_ms[0] = aside.retry_ms
    cleaner.poll()
    pump(calls, lambda: cleaner.cleanings == 1)
    assert on_disk.table() == expected
    thread.stop()


def test_a_process_does_one_job_after_another_and_ends_when_there_is_none(on_disk: Compacted) -> None:
    job = job_of(on_disk)
    first, second = PROCESSES.start(job, on_disk.disk), PROCESSES.start(job, on_disk.disk)
    assert steps_of(first)[:-1] == steps_of(second)[:-1]
    assert first.process is second.process
    assert first.process is not None
    PROCESSES.rest()
    assert not is_alive(first.process.pid)
    third = PROCESSES.start(job, on_disk.disk)
    steps_of(third)
    assert third.process is not None
    assert third.process.pid != first.process.pid


def test_a_process_that_is_cancelled_is_gone_when_its_step_ends(on_disk: Compacted) -> None:
    work = PROCESSES.start(job_of(on_disk, bytes_per_second=1000.0), on_disk.disk)
    failures: list[CleaningFailed] = []

    def wait() -> None:
        try:
            work.next_step()
        except CleaningFailed as failed:
            failures.append(failed)

    thread = threading.Thread(target=wait)
    thread.start()
    process = wait_for(lambda: work.process)
    work.cancel()
    thread.join(DEADLINE_S)
    assert [failed.trouble for failed in failures] == [Trouble.TRANSIENT]
    assert "it was cancelled" in str(failures[0])
    with pytest.raises(ProcessLookupError):
        os.kill(process.pid, 0)


def test_what_goes_wrong_in_the_process_is_told(on_disk: Compacted) -> None:
    job = job_of(on_disk)
    path = Path(on_disk.disk.root, "t-0", names.segment_name(0) + names.LOG)
    content = bytearray(path.read_bytes())
    content[100] ^= 1
    path.write_bytes(content)
    with pytest.raises(CleaningFailed, match="is damaged in bytes 0 to") as caught:
        steps_of(PROCESSES.start(job, on_disk.disk))
    assert caught.value.trouble is Trouble.DAMAGED
    path.unlink()
    with pytest.raises(CleaningFailed, match="does not exist") as caught:
        steps_of(PROCESSES.start(job, on_disk.disk))
    assert caught.value.trouble is Trouble.TRANSIENT


NODE = """
import sys
from headrace.storage.cleaning_job import CleaningJob
from headrace.storage.cleaning_work import CleaningProcesses
from headrace.storage.local_disk import LocalDisk

work = CleaningProcesses().start(CleaningJob.decode(sys.stdin.buffer.readline()), LocalDisk(sys.argv[1]))
print(work._begin().pid, flush=True)
work.next_step()
"""


@pytest.mark.parametrize("is_stopped", [False, True])
def test_a_process_does_not_outlive_its_node(on_disk: Compacted, is_stopped: bool) -> None:
    """A node that comes back cleans the same folder: the old one's cleaner must not write there, even when paused."""
    if is_stopped and sys.platform != "linux":
        pytest.skip("only Linux ends a stopped process with its parent")
    node = subprocess.Popen(
        [sys.executable, "-c", NODE, on_disk.disk.root], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert node.stdin is not None
    assert node.stdout is not None
    node.stdin.write(job_of(on_disk, bytes_per_second=1000.0).encode() + b"\n")
    node.stdin.flush()
    pid = int(node.stdout.readline())
    wait_for(lambda: [name for name in on_disk.disk.names("t-0") if name.endswith(names.CLEANED)] or is_stopped)
    if is_stopped:
        wait_for(lambda: nice_of(pid) > 0)  # it has come far enough to have asked for its end
        os.kill(pid, signal.SIGSTOP)
    node.kill()
    node.wait()
    wait_for(lambda: not is_alive(pid))
    node.stdin.close()
    node.stdout.close()


def test_the_worker_paces_itself(on_disk: Compacted) -> None:
    class Told(list[bytes]):
        def write(self, line: bytes) -> None:
            self.append(line)

        def flush(self) -> None: ...

    told = Told()
    slept: list[float] = []
    job = job_of(on_disk, bytes_per_second=1e6, io_buffer_bytes=2000)
    run(job, on_disk.disk, told, lambda: 0.0, slept.append)  # type: ignore[arg-type]
    over = decode_line(told[-1])
    assert isinstance(over, Cleaned)
    # Nothing passes on this clock, so each pause is as long as all the work so far.
    assert max(slept) == pytest.approx((2 * over.bytes_read + over.bytes_written) / 1e6, rel=0.1)


def cleaner_of(
    log: Log,
    thread: WorkerThread,
    start: Callable[[CleaningJob, Disk], Work] = PROCESSES.start,
    now_ms: Callable[[], int] = lambda: START_MS,
) -> Cleaner:
    return Cleaner(
        lambda: [log],
        CleanerConfig(),
        start,
        [thread],
        now_ms=now_ms,
        call_later=lambda seconds, call: None,
        secret=lambda: os.urandom(16),
    )


def pump(calls: list[Callable[[], None]], is_over: Callable[[], bool]) -> None:
    """A loop."""
    deadline = time.monotonic() + DEADLINE_S
    while not is_over():
        assert time.monotonic() < deadline, "it never came"
        if calls:
            calls.pop(0)()
        else:
            time.sleep(0.001)


def wait_for(found: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + DEADLINE_S
    while not (value := found()):
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.005)
    return value


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


def nice_of(pid: int) -> int:
    return os.getpriority(os.PRIO_PROCESS, pid)


# ---------------------------------------------------------------------------------------------- in a node's directories


class CleaningNode:
    """The storage of a node with a cleaner, all on workers that are stepped by hand."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.later: list[Callable[[], None]] = []
        self.cleaner = Cleaner(
            node.directories.logs,
            CleanerConfig(),
            InlineWork,
            [node.workers],
            now_ms=lambda: node.now_ms,
            call_later=lambda seconds, call: self.later.append(call) if not seconds else None,
            secret=lambda: bytes(16),
        )

    def log(self, topic: str = "t") -> Log:
        log = self.node.directories.log(topic, 0)
        assert log is not None
        return log

    def fill(self, topic: str = "t") -> None:
        log = self.log(topic)
        for number in range(30):
            pairs = ((KEYS[number % 3], b"%d" % number),)
            log.append_as_leader(memoryview(keyed(pairs, self.node.now_ms)), 0, self.node.now_ms)
        log.set_high_watermark(log.log_end_offset)
        self.close_segment(log)

    def close_segment(self, log: Log) -> None:
        log.roll(self.node.now_ms)
        log.flush(lambda error: None)
        self.node.drain()
        self.node.checkpoint()

    def clean(self) -> None:
        self.cleaner.poll()
        self.node.drain()
        while self.later:
            self.later.pop(0)()
            self.node.drain()

    def restart(self, **more: Any) -> CleaningNode:
        return CleaningNode(self.node.restart(config=COMPACT, **more))


def cleaning_node(config: LogConfig = COMPACT, **more: Any) -> CleaningNode:
    made = CleaningNode(Node(config=config, **more))
    made.node.directories.create("t", 0, TOPIC_ID)
    made.fill()
    return made


@pytest.mark.parametrize("power_lost", [False, True])
def test_how_far_a_log_is_clean_is_known_after_a_restart(power_lost: bool) -> None:
    cleaning = cleaning_node()
    cleaning.clean()
    assert cleaning.log().clean_offset == 30
    assert cleaning.restart(power_lost=power_lost).log().clean_offset == 0, "it was not written down"
    cleaning = cleaning_node()
    cleaning.clean()
    cleaning.node.checkpoint()
    again = cleaning.restart(power_lost=power_lost)
    assert again.log().clean_offset == 30
    assert [value for _, value in values_in(again.log())] == [b"27", b"28", b"29"]
    again.node.stop()
    assert again.restart().log().clean_offset == 30


def test_what_came_in_the_place_of_truncated_records_is_dirty_after_a_crash() -> None:
    cleaning = cleaning_node()
    cleaning.clean()
    cleaning.node.checkpoint()
    log = cleaning.log()
    log.truncate_to(10, cleaning.node.now_ms)
    end_offset = log.log_end_offset
    cleaning.fill()
    again = cleaning.restart()
    assert again.log().clean_offset <= end_offset
    again.clean()
    assert again.log().clean_offset == again.log().segments.active.base_offset
    assert [value for _, value in values_in(again.log())] == [b"27", b"28", b"29"]


def test_how_far_a_log_is_clean_is_lowered_by_every_truncation() -> None:
    cleaning = cleaning_node(config=COMPACT.replace(segment_bytes=100_000))
    cleaning.clean()
    log = cleaning.log()
    log.truncate_to(29, cleaning.node.now_ms)
    cleaning.node.checkpoint()
    log.truncate_to(28, cleaning.node.now_ms)
    end_offset = log.log_end_offset
    for number in range(10):
        content = keyed(((b"other %d" % number, b""),), cleaning.node.now_ms)
        log.append_as_leader(memoryview(content), 0, cleaning.node.now_ms)
    again = cleaning.restart()
    assert again.log().log_end_offset > 29
    assert again.log().clean_offset <= end_offset


def test_what_is_not_written_down_as_durable_is_not_cleaned_yet() -> None:
    cleaning = cleaning_node()
    cleaning.node.directories.create("u", 0, TOPIC_ID)
    log = cleaning.log("u")
    log.append_as_leader(memoryview(keyed(((b"a", b"1"),), cleaning.node.now_ms)), 0, cleaning.node.now_ms)
    log.set_high_watermark(1)
    log.roll(cleaning.node.now_ms)
    cleaning.clean()
    assert (cleaning.log("t").clean_offset, log.clean_offset) == (30, 0)
    cleaning.close_segment(log)
    cleaning.clean()
    assert log.clean_offset == 1


def test_a_partition_that_is_deleted_while_it_is_cleaned_is_let_go() -> None:
    cleaning = cleaning_node()
    cleaning.cleaner.poll()
    cleaning.node.workers.step()
    cleaning.node.directories.delete("t", 0)
    cleaning.node.directories.create("t", 0, TOPIC_ID)
    cleaning.node.drain()
    cleaning.clean()
    assert cleaning.cleaner.running == []
    assert not cleaning.cleaner.set_aside
    assert cleaning.log().size_bytes == 0


def test_a_moved_log_counts_as_clean_only_where_its_copy_is() -> None:
    cleaning = cleaning_node(disks=[FaultyDisk(root="/disk0"), FaultyDisk(root="/disk1")])
    directories = cleaning.node.directories
    source = directories.directory_of("t", 0)
    (target,) = (directory for directory in directories.all if directory is not source)
    move = directories.move("t", 0, target.id)
    assert move is not None
    while move.step(1 << 20, cleaning.node.now_ms):
        pass
    cleaning.clean()
    assert cleaning.log().clean_offset == 30
    move.flush()
    cleaning.node.drain()
    log = directories.finish_move("t", 0)
    assert log.clean_offset == 0, "the copy was made before"
    cleaning.close_segment(log)
    cleaning.clean()
    assert [value for _, value in values_in(log)] == [b"27", b"28", b"29"]


def test_hazard_8_a_sync_that_fails_in_the_process_takes_the_directory_offline() -> None:
    failure = decode_failure(encode_failure(SyncFailed("/disk0/t-0/x.cleaned", "Input/output error")))
    assert isinstance(failure, SyncFailed)
    assert failure.path == "/disk0/t-0/x.cleaned"
    cleaning = cleaning_node()

    class Failing:
        def next_step(self) -> Step:
            raise failure

        def cancel(self) -> None: ...

    cleaning.cleaner._start = lambda job, disk: Failing()
    cleaning.clean()
    (directory,) = cleaning.node.directories.all
    assert directory.offline is failure
    assert cleaning.log().place.disk.offline is failure


def decode_failure(line: bytes) -> Exception:
    try:
        decode_line(line)
    except Exception as error:
        return error
    raise AssertionError("a failure is raised")
