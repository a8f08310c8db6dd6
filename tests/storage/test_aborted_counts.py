"""A transaction index that went missing before the recovery point is missed, although its batches are not looked at."""

from __future__ import annotations

import pytest

from headrace.storage import aborted_counts, names
from headrace.storage.log import Log
from headrace.storage.transaction_index import AbortedTransaction
from headrace.testing.disk import FaultyDisk
from tests.storage.nodes import TOPIC_ID, Node, fill, flush
from tests.storage.test_clean_stop import abort, disk_of, log_of

COUNTS = f"t-0/{names.ABORTED}"


def transactions(count: int = 12) -> tuple[Node, Log]:
    """A node that runs, whose checkpoint has all but the last segment of a log with aborted transactions."""
    node = Node()
    log = node.directories.create("t", 0, TOPIC_ID)
    for producer_id in range(count):
        abort(log, producer_id)
        fill(log, 3)
    flush(node, log)
    node.checkpoint()
    assert log.checkpointed_recovery_point == log.segments.active.base_offset > 0
    return node, log


def aborted_of(log: Log) -> list[AbortedTransaction]:
    return log.aborted_in(0, log.log_end_offset)


def indexes(disk: FaultyDisk) -> list[str]:
    return [f"t-0/{name}" for name in disk.names("t-0") if name.endswith(".txnindex")]


@pytest.mark.parametrize("power_lost", [False, True])
@pytest.mark.parametrize("harm", ["missing", "shorter"])
@pytest.mark.parametrize("number", [0, 2])
def test_hazard_7_an_index_of_aborted_transactions_that_is_gone_is_missed_after_an_unclean_stop(
    number: int, harm: str, power_lost: bool, caplog: pytest.LogCaptureFixture
) -> None:
    node, log = transactions()
    expected = aborted_of(log)
    assert len(expected) == 12
    disk = disk_of(node)
    path = indexes(disk)[number]
    content = disk.read(path)
    disk = disk.restart(power_lost=power_lost)
    if harm == "missing":
        disk.remove(path)
        disk.sync_directory("t-0")
    else:
        file = disk.open(path)
        file.truncate(len(content) - 34)
        file.datasync()
        file.close()
    node = Node([disk])
    assert aborted_of(log_of(node)) == expected
    assert path in caplog.text
    assert disk_of(node).read(path) == content
    caplog.clear()
    node.drain()
    node = node.restart()
    assert aborted_of(log_of(node)) == expected
    assert path not in caplog.text


def test_a_log_without_aborted_transactions_has_no_file_of_their_number() -> None:
    node = Node()
    fill(node.directories.create("t", 0, TOPIC_ID), 40)
    assert names.ABORTED not in disk_of(node).names("t-0")


def test_a_line_that_was_torn_is_written_over() -> None:
    node, log = transactions()
    expected = aborted_of(log)
    file = disk_of(node).open(COUNTS)
    file.write(file.size(), [b"99999"])
    file.close()
    node = node.restart()
    log = log_of(node)
    for producer_id in range(100, 106):
        abort(log, producer_id)
        fill(log, 3)
    lines = disk_of(node).read(COUNTS).splitlines()
    assert [len(line.split()) for line in lines] == [2] * len(lines)
    assert int(lines[-1].split()[0]) < log.log_end_offset
    assert aborted_of(log)[:12] == expected


def test_a_truncated_segment_is_not_expected_to_have_what_it_had(caplog: pytest.LogCaptureFixture) -> None:
    node, log = transactions()
    log.truncate_to(log.segments[1].base_offset + 1, node.now_ms)
    expected = aborted_of(log)
    fill(log, 30)
    flush(node, log)
    node.checkpoint()
    caplog.clear()
    node = node.restart(power_lost=True)
    assert aborted_of(log_of(node)) == expected
    assert ".txnindex" not in caplog.text


def test_lines_of_segments_that_are_no_more_go_at_a_clean_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aborted_counts, "STALE_MAX", 2)
    node, log = transactions()
    log.set_high_watermark(log.log_end_offset)
    log.delete_before(log.segments.active.base_offset)
    node.look_after()
    assert len(log.segments) == 1
    expected = aborted_of(log)
    node.stop()
    assert disk_of(node).read(COUNTS) == b""
    log = log_of(node := node.restart(power_lost=True))
    assert aborted_of(log) == expected
    abort(log, 50)
    fill(log, 30)
    assert len(disk_of(node).read(COUNTS).splitlines()) >= 1
