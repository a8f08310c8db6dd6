"""The process that does the cleaner's work: the same as whoever asks for it, and gone when it is not needed."""

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

from headrace.config import CleanerConfig
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
)
from headrace.storage.cleaning_work import CleaningProcesses, InlineWork, ProcessWork, Work
from headrace.storage.disk import Disk
from headrace.storage.local_disk import LocalDisk
from headrace.storage.log import Log
from headrace.storage.workers import WorkerThread
from tests.storage.cleaning import COMPACT, KEYS, START_MS, Compacted

DEADLINE_S = 60


PROCESSES = CleaningProcesses()


@pytest.fixture
def on_disk(tmp_path: Path) -> Iterator[Compacted]:
    real = Compacted(LocalDisk(str(tmp_path)), COMPACT.replace(segment_bytes=8000))  # each one is synced
    for number in range(200):
        real.put((KEYS[number % 3], b"%d" % number + b"." * 100))
    real.roll()
    yield real
    PROCESSES.stop()
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
    PROCESSES.stop()
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
    # When it writes, it has come far enough to have asked for its end.
    wait_for(lambda: [name for name in on_disk.disk.names("t-0") if name.endswith(names.CLEANED)])
    if is_stopped:
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


def test_a_node_does_not_wait_for_a_process_that_it_lets_go(on_disk: Compacted) -> None:
    work = PROCESSES.start(job_of(on_disk), on_disk.disk)
    while not isinstance(work.next_step(), Cleaned):
        pass
    assert work.process is not None
    os.kill(work.process.pid, signal.SIGSTOP)
    resting = threading.Thread(target=PROCESSES.rest, daemon=True)
    resting.start()
    resting.join(DEADLINE_S)
    is_held_up = resting.is_alive()
    os.kill(work.process.pid, signal.SIGCONT)
    resting.join(DEADLINE_S)
    PROCESSES.stop()
    assert work.process.is_gone()
    assert not is_held_up
