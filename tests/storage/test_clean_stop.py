"""What went missing after a clean stop is found out at the next start, although that reads no data."""

from __future__ import annotations

import logging

import pytest

from headrace.protocol.control import build_marker
from headrace.storage.closed_logs import CLOSED_LOGS
from headrace.storage.disk import DiskError, TooManyOpenFiles
from headrace.storage.log import Log
from headrace.storage.producer_state import Origin
from headrace.storage.scan import LogDamaged
from headrace.testing.disk import Faults, FaultyDisk
from tests.storage.batches import START_MS, batch
from tests.storage.logs import values_in
from tests.storage.nodes import SMALL, TOPIC_ID, Node, append, fill

CHECKPOINTS = [
    "recovery-point-offset-checkpoint",
    "log-start-offset-checkpoint",
    "replication-offset-checkpoint",
]


def disk_of(node: Node) -> FaultyDisk:
    disk = node.disks[0]
    assert isinstance(disk, FaultyDisk)
    return disk


def log_of(node: Node) -> Log:
    log = node.directories.log("t", 0)
    assert log is not None, node.directories.why_offline("t", 0)
    return log


def abort(log: Log, producer_id: int) -> None:
    """A transaction of one record that is aborted."""
    header = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": 0, "transactional": True}
    log.append_as_leader(memoryview(batch(b"a" * 60, **header)), 1, START_MS)  # type: ignore[arg-type]
    marker = build_marker(
        committed=False, producer_id=producer_id, producer_epoch=0, coordinator_epoch=0, timestamp_ms=START_MS
    )
    log.append_as_leader(memoryview(marker), 1, START_MS, Origin.COORDINATOR)


def with_transactions(count: int = 12) -> tuple[Node, list[object]]:
    node = Node()
    log = node.directories.create("t", 0, TOPIC_ID)
    for producer_id in range(count):
        abort(log, producer_id)
        fill(log, 3)
    aborted: list[object] = list(log.aborted_in(0, log.log_end_offset))
    assert len(aborted) == count
    node.stop()
    return node, aborted


@pytest.mark.parametrize("number", [0, 2, -1])
@pytest.mark.parametrize("harm", ["missing", "shorter"])
def test_a_transaction_index_that_lost_something_is_rebuilt_with_a_warning(
    number: int, harm: str, caplog: pytest.LogCaptureFixture
) -> None:
    node, aborted = with_transactions()
    disk = disk_of(node)
    name = [name for name in disk.names("t-0") if name.endswith(".txnindex")][number]
    content = bytes(disk.platter.node(f"t-0/{name}").cached)
    if harm == "missing":
        disk.remove(f"t-0/{name}")
    else:
        del disk.platter.node(f"t-0/{name}").cached[-34:]
    for _ in range(2):  # whether or not anybody asked meanwhile
        node = node.restart()
        if harm == "missing":
            assert f"/disk0/t-0/{name} is missing" in caplog.text, "at the start"
            assert disk_of(node).read(f"t-0/{name}") == content
        node.stop()
    log = log_of(node := node.restart())
    assert log.aborted_in(0, log.log_end_offset) == aborted
    assert f"/disk0/t-0/{name}" in caplog.text
    node.stop()
    assert disk_of(node.restart(power_lost=True)).read(f"t-0/{name}") == content


@pytest.mark.parametrize("harm", ["missing", "spoilt", "empty"])
@pytest.mark.parametrize("name", CHECKPOINTS)
def test_a_checkpoint_that_is_gone_says_what_it_said(name: str, harm: str, caplog: pytest.LogCaptureFixture) -> None:
    node = Node()
    log = node.directories.create("t", 0, TOPIC_ID)
    values = fill(log, 40)
    log.set_high_watermark(31)
    log.delete_before(7)
    node.stop(broker_epoch=5)
    disk = disk_of(node)
    if harm == "missing":
        disk.remove(name)
        disk.sync_directory("")
    else:
        disk.replace(name, b"spoilt" if harm == "spoilt" else b"")
    disk = disk.restart(power_lost=True)
    disk.trace = []
    node = Node([disk])
    read = [call for call in disk.trace if ".log" in call and call.startswith(("open", "read"))]
    log = log_of(node)
    assert (log.log_start_offset, log.high_watermark, log.log_end_offset) == (7, 31, 40)
    assert values_in(log) == values[7:]
    assert node.directories.all[0].clean_broker_epoch == 5
    assert f"/disk0/{name} is {'damaged' if harm == 'spoilt' else harm}" in caplog.text
    assert not read


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_a_checkpoint_that_is_missing_after_a_crash_is_told_of(name: str, caplog: pytest.LogCaptureFixture) -> None:
    node = Node()
    values = fill(node.directories.create("t", 0, TOPIC_ID), 20)
    node.checkpoint()
    disk_of(node).remove(name)
    log = log_of(node.restart())
    assert f"/disk0/{name} is missing; " in caplog.text
    assert values_in(log) == values


def test_no_checkpoint_is_missed_by_the_first_start() -> None:
    with pytest.MonkeyPatch.context() as patch:
        warned: list[str] = []
        patch.setattr(logging.getLogger("headrace.storage.last_stop"), "warning", lambda *args: warned.append(args[0]))
        node = Node()
        node.stop()
        node = node.restart()
        fill(node.directories.create("t", 0, TOPIC_ID), 3)
        node.stop()
        node.restart()
        assert warned == []


@pytest.mark.parametrize("content", [None, b"", b"version: 0\ntopic_id: x"])
def test_the_identity_of_a_partition_is_written_anew(content: bytes | None, caplog: pytest.LogCaptureFixture) -> None:
    node = Node()
    values = fill(node.directories.create("t", 0, TOPIC_ID), 5)
    node.directories.create("empty", 0, TOPIC_ID)
    node.stop()
    disk = disk_of(node)
    for folder in ("t-0", "empty-0"):
        if content is None:
            disk.remove(f"{folder}/partition.metadata")
        else:
            disk.replace(f"{folder}/partition.metadata", content)
    node = node.restart()
    assert "/disk0/t-0/partition.metadata is " in caplog.text
    assert values_in(log_of(node)) == values
    assert [log.topic_id for log in node.directories.logs()] == [TOPIC_ID, TOPIC_ID]
    node.drain()
    node = node.restart(power_lost=True)
    assert [log.topic_id for log in node.directories.logs()] == [TOPIC_ID, TOPIC_ID]


def test_the_identity_that_nobody_knows_is_told_of(caplog: pytest.LogCaptureFixture) -> None:
    node = Node()
    fill(node.directories.create("t", 0, TOPIC_ID), 5)
    disk_of(node).remove("t-0/partition.metadata")
    assert log_of(node.restart()).topic_id is None
    assert "/disk0/t-0/partition.metadata is missing, so the partition is taken for one of the topic" in caplog.text


@pytest.mark.parametrize("cut_bytes", [1, 60, 118, 200])
def test_hazard_3_a_last_segment_that_was_cut_ends_the_log_with_a_warning(
    cut_bytes: int, caplog: pytest.LogCaptureFixture
) -> None:
    node = Node()
    log = node.directories.create("t", 0, TOPIC_ID)
    values = fill(log, 40)
    last = log.segments.active
    node.stop(broker_epoch=5)
    disk = disk_of(node)
    content = disk.platter.node(last.path()).cached
    del content[len(content) - cut_bytes :]
    disk.platter.node(last.path()).durable[:] = content
    node = node.restart()
    log = log_of(node)
    assert f"/disk0/{last.path()} has {cut_bytes} bytes less than when the log was closed" in caplog.text
    assert last.base_offset <= log.log_end_offset < 40
    assert values_in(log) == values[: log.log_end_offset]
    assert node.directories.all[0].clean_broker_epoch is None, "the controller is told that something may be missing"
    append(log, b"goes on")
    node.stop()
    assert values_in(log_of(node.restart()))[-1] == (log.log_end_offset - 1, b"goes on")


def test_bytes_that_came_to_a_last_segment_are_cut(caplog: pytest.LogCaptureFixture) -> None:
    node = Node()
    log = node.directories.create("t", 0, TOPIC_ID)
    values = fill(log, 40)
    last = log.segments.active
    node.stop()
    disk_of(node).open(last.path()).write(last.size_bytes, [b"of somebody"])
    log = log_of(node.restart())
    assert f"/disk0/{last.path()} has 11 bytes more than when the log was closed" in caplog.text
    assert values_in(log) == values
    assert log.place.disk.stat(last.path()).size == last.size_bytes


def test_hazard_8_a_segment_in_the_middle_that_was_cut_is_damage_until_it_is_given_up(
    caplog: pytest.LogCaptureFixture,
) -> None:
    node = Node()
    log = node.directories.create("t", 0, TOPIC_ID)
    values = fill(log, 40)
    second, third = log.segments[1], log.segments[2]
    node.stop()
    disk = disk_of(node)
    content = disk.platter.node(second.path()).cached
    del content[-10:]
    for _ in range(2):
        node = node.restart()
        why = node.directories.why_offline("t", 0)
        assert isinstance(why, LogDamaged)
        position = why.position
        first_lost = third.base_offset - 1
        assert f"give up offsets {first_lost} to {first_lost}, which readers then pass over, by `truncate" in str(why)
        node.stop()
    disk_of(node).open(second.path()).truncate(position)
    caplog.clear()
    node = node.restart()
    assert f"offsets {first_lost} to {third.base_offset - 1} are not there, and readers pass over them" in caplog.text
    log = log_of(node)
    assert values_in(log) == [value for value in values if value[0] != first_lost]
    assert node.directories.all[0].clean_broker_epoch is None
    left = values_in(log)
    node.stop()
    caplog.clear()
    assert values_in(log_of(node.restart())) == left
    assert not caplog.records, "what was given up is told of once"


def test_hazard_3_a_segment_in_the_middle_that_was_cut_between_batches_is_told_of(
    caplog: pytest.LogCaptureFixture,
) -> None:
    node = Node()
    log = node.directories.create("t", 0, TOPIC_ID)
    values = fill(log, 40)
    second, third = log.segments[1], log.segments[2]
    node.stop()
    content = disk_of(node).platter.node(second.path()).cached
    del content[-122:]
    node = node.restart()
    assert f"/disk0/{second.path()} has 122 bytes less than when the log was closed" in caplog.text
    lost = third.base_offset - 1
    assert f"offsets {lost} to {lost} are not there" in caplog.text
    assert values_in(log_of(node)) == values[:lost] + values[lost + 1 :]
    assert node.directories.all[0].clean_broker_epoch is None


@pytest.mark.parametrize("which", ["one", "all"])
def test_segments_that_are_gone_with_all_their_files_are_missed(which: str) -> None:
    node = Node()
    log = node.directories.create("t", 0, TOPIC_ID)
    fill(log, 40)
    second = log.segments[1].name
    node.stop()
    disk = disk_of(node)
    for name in disk.names("t-0"):
        if name.startswith(second) or which == "all":
            disk.remove(f"t-0/{name}")
    for _ in range(2):
        node = node.restart()
        assert "the file is missing, and had " in str(node.directories.why_offline("t", 0))
        node.stop()


@pytest.mark.parametrize("harm", ["missing", "spoilt", "of another stop"])
def test_what_is_not_of_the_last_clean_stop_is_not_believed(harm: str, caplog: pytest.LogCaptureFixture) -> None:
    node = Node()
    fill(node.directories.create("t", 0, TOPIC_ID), 20)
    node.stop()
    old = disk_of(node).read(CLOSED_LOGS)
    node = node.restart()
    values = fill(log_of(node), 20)
    node.stop()
    disk = disk_of(node)
    if harm == "missing":
        disk.remove(CLOSED_LOGS)
    elif harm == "spoilt":
        disk.platter.flip_bit(CLOSED_LOGS, 40)
    else:
        disk.replace(CLOSED_LOGS, old)
    assert values_in(log_of(node.restart())) == values
    assert f"/disk0/{CLOSED_LOGS} is {'missing' if harm == 'missing' else 'damaged'}" in caplog.text


def test_a_clean_stop_of_kafkas_after_one_of_ours_is_kafkas(caplog: pytest.LogCaptureFixture) -> None:
    node = Node()
    log = node.directories.create("t", 0, TOPIC_ID)
    fill(log, 20)
    node.stop()
    node = node.restart()
    values = fill(log_of(node), 3)
    node.stop()
    disk = disk_of(node)
    disk.replace(CLOSED_LOGS, b"0\n0\n")  # as good as any that is left over
    disk.replace(".kafka_cleanshutdown", b'{"version":0,"brokerEpoch":9}')
    node = node.restart()
    assert values_in(log_of(node)) == values
    assert node.directories.all[0].clean_broker_epoch == 9
    assert not caplog.records


def test_retention_and_truncation_leave_what_the_next_start_expects(
    caplog: pytest.LogCaptureFixture,
) -> None:
    node = Node(config=SMALL.replace(retention_bytes=1500))
    log = node.directories.create("t", 0, TOPIC_ID)
    for producer_id in range(12):
        abort(log, producer_id)
        fill(log, 3)
    log.truncate_to(log.log_end_offset - 9, START_MS)
    log.set_high_watermark(log.log_end_offset)
    node.look_after()
    values, aborted = values_in(log), log.aborted_in(0, log.log_end_offset)
    for _ in range(3):
        node.stop()
        caplog.clear()
        node = node.restart(power_lost=True, config=SMALL.replace(retention_bytes=1500))
        assert not caplog.records
        assert values_in(log_of(node)) == values
        assert log_of(node).aborted_in(0, log.log_end_offset) == aborted


def test_a_log_without_a_record_has_two_files_and_needs_no_more(caplog: pytest.LogCaptureFixture) -> None:
    """A node may have thousands: their making, a clean stop and the next start are a few system calls each."""
    node = Node()
    node.directories.create("t", 0, TOPIC_ID)
    for _ in range(2):
        node.stop()
        disk = disk_of(node)
        assert sorted(disk.names("t-0")) == ["00000000000000000000.log", "partition.metadata"]
        node = Node([disk.restart(power_lost=True)])
        assert log_of(node).by_timestamp(0) is log_of(node).latest() is None
    assert node.directories.all[0].clean_broker_epoch == 7
    values = fill(log_of(node), 3)
    node.stop()
    assert "00000000000000000003.snapshot" in disk_of(node).names("t-0")
    node = node.restart(power_lost=True)
    assert values_in(log_of(node)) == values
    assert not caplog.records


def test_a_log_that_was_emptied_keeps_no_index_of_what_it_had(caplog: pytest.LogCaptureFixture) -> None:
    node = Node()
    log = node.directories.create("t", 0, TOPIC_ID)
    fill(log, 5)
    node.stop()
    log = log_of(node := node.restart())
    log.truncate_to(0, START_MS)
    node.stop()
    disk = disk_of(node)
    assert [disk.stat(f"t-0/{name}").size for name in disk.names("t-0") if name.endswith("index")] == [0, 0]
    log = log_of(node := node.restart(power_lost=True))
    assert (log.log_end_offset, len(log.producers)) == (0, 0)
    values = fill(log, 5)
    node.stop()
    log = log_of(node.restart(power_lost=True))
    assert values_in(log) == values
    assert not caplog.records


def test_what_a_group_commit_could_not_sync_is_synced_by_a_clean_stop() -> None:
    """Where the system can't sync all files at once, too."""
    node = Node([FaultyDisk(faults=Faults(can_sync_all=False))])
    log = node.directories.create("t", 0, TOPIC_ID)
    found = fill(log, 30)
    assert len(log.segments) > 2
    disk = disk_of(node)
    told: list[DiskError | None] = []
    log.flush(told.append)
    disk.faults.errors_at_calls = {disk.calls + 1: TooManyOpenFiles}
    node.drain()
    assert [type(error) for error in told] == [TooManyOpenFiles]
    node.stop()
    node = node.restart(power_lost=True)
    assert values_in(log_of(node)) == found
