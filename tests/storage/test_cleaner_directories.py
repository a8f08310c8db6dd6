"""The cleaner among the log directories of a node: restarts, truncations, deletions, moves, failures."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from headrace.config import CleanerConfig, LogConfig
from headrace.storage.cleaner import Cleaner
from headrace.storage.cleaning_job import (
    Step,
    decode_line,
    encode_failure,
)
from headrace.storage.cleaning_work import InlineWork
from headrace.storage.disk import SyncFailed
from headrace.storage.log import Log
from headrace.testing.disk import FaultyDisk
from tests.storage.cleaning import COMPACT, KEYS, keyed
from tests.storage.logs import values_in
from tests.storage.nodes import TOPIC_ID, Node


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


def test_a_clean_stop_after_a_cleaning_leaves_what_the_next_start_expects(caplog: pytest.LogCaptureFixture) -> None:
    cleaning = cleaning_node()
    cleaning.clean()
    values = values_in(cleaning.log())
    assert len(values) < 30
    for _ in range(2):
        cleaning.node.stop()
        caplog.clear()
        cleaning = cleaning.restart(power_lost=True)
        assert not caplog.records
        assert values_in(cleaning.log()) == values
        assert cleaning.node.directories.all[0].clean_broker_epoch == 7
