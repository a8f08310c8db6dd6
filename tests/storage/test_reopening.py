"""Logs that a full disk kept closed at a start are opened when there is room, without another one (hazards 8, 15)."""

from __future__ import annotations

import logging

import pytest

from headrace.config import LogConfig
from headrace.errors import Error, HeadraceError, Refused
from headrace.storage.checkpoint import NOT_CLOSED, RECOVERY_POINTS, read_offsets
from headrace.storage.disk import DiskFull, SyncFailed, TooManyOpenFiles
from headrace.storage.last_stop import SYNC_FAILED
from headrace.storage.log import Log
from headrace.testing.disk import Crash, Faults, FaultyDisk
from headrace.testing.disk_platter import Platter
from tests.storage.logs import values_in
from tests.storage.nodes import TOPIC_ID, Node, append, fill, flush, with_history


def disk_of(node: Node, number: int = 0) -> FaultyDisk:
    disk = node.disks[number]
    assert isinstance(disk, FaultyDisk)
    return disk


def fail_a_sync(node: Node, log: Log) -> None:
    disk_of(node).faults.fail_sync_at = disk_of(node).syncs + 1
    (failure,) = flush(node, log)
    assert isinstance(failure, SyncFailed)


def start_when_full(node: Node) -> Node:
    return Node([disk_of(node).restart(faults=Faults(capacity_bytes=0))], now_ms=node.now_ms)


def after_a_failed_sync(*, seed: int = 0, partitions: int = 1) -> tuple[Node, list[tuple[int, bytes | None]]]:
    """Logs with 30 durable records each, and a full disk at the start. Their topic ids can't be written anew."""
    node = Node([FaultyDisk(Platter(seed), root="/disk0")])
    for partition in range(partitions):
        log = node.directories.create("t", partition, TOPIC_ID)
        durable = fill(log, 30)
        log.set_high_watermark(25)
        assert flush(node, log) == [None]
    node.checkpoint()
    append(log, b"lost")
    fail_a_sync(node, log)
    node = start_when_full(node)
    for partition in range(partitions):
        assert isinstance(node.directories.why_offline("t", partition), DiskFull)
    return node, durable


def give_room(node: Node) -> None:
    disk_of(node).faults.capacity_bytes = None


def reopen(node: Node, number: int = 0) -> tuple[Log | None, HeadraceError | None]:
    """One try."""
    told: list[tuple[Log | None, HeadraceError | None]] = []
    directory = node.directories.all[number]
    node.directories.reopen(directory, {"t": TOPIC_ID}.get, lambda log, error: told.append((log, error)))
    node.drain()
    (found,) = told
    return found


def reopened(node: Node, partition: int = 0) -> Log:
    while node.directories.all[0].awaits_logs:
        assert reopen(node)[1] is None
    log = node.directories.log("t", partition)
    assert log is not None, node.directories.why_offline("t", partition)
    return log


def test_hazard_15_a_log_that_a_full_disk_kept_closed_is_opened_when_there_is_room(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    node, durable = after_a_failed_sync()
    for _ in range(3):
        with pytest.raises(Refused, match=r"t-0 can't be opened yet: /disk0/t-0/.* the disk is full; free") as refused:
            node.directories.create("t", 0, TOPIC_ID)
        assert refused.value.error is Error.KAFKA_STORAGE_ERROR
        log, error = reopen(node)
        assert log is None
        assert isinstance(error, DiskFull)
    give_room(node)
    log = reopened(node)
    assert values_in(log) == durable
    assert (log.high_watermark, log.recovery_point, log.topic_id) == (25, 24, TOPIC_ID)
    assert node.directories.why_offline("t", 0) is None
    assert [text for text in caplog.messages if text.startswith("t-0 ")] == [
        "t-0 is offline as long as this lasts: /disk0/t-0/partition.metadata.tmp can't grow because the disk is full; "
        "free space on it, or delete or trim topics",
        "t-0 is online again; it ends at offset 30",
    ]
    append(log, b"new")
    assert flush(node, log) == [None]
    node.checkpoint()
    for power_lost in (False, True):
        node = node.restart(power_lost=power_lost)
        found = node.directories.log("t", 0)
        assert found is not None
        assert values_in(found) == [*durable, (30, b"new")]


def test_it_shares_open_files_and_settings_with_the_others_from_then_on() -> None:
    node, _ = after_a_failed_sync(partitions=2)
    open_files = disk_of(node).open_files
    give_room(node)
    first, second = reopened(node, 0), reopened(node, 1)
    assert first.place.handles is second.place.handles
    assert first.place.indexes is second.place.indexes
    assert first.config is second.config
    assert first.rules is second.rules
    assert disk_of(node).open_files == open_files, "a try leaves no file open"
    values_in(first)
    assert open_files < disk_of(node).open_files == len(first.place.handles)


def test_a_try_that_fails_leaves_no_file_open() -> None:
    node, _ = after_a_failed_sync()
    open_files = disk_of(node).open_files
    for _ in range(3):
        assert isinstance(reopen(node)[1], DiskFull)
        assert disk_of(node).open_files == open_files


def test_of_many_that_wait_each_has_its_turn() -> None:
    node, _ = after_a_failed_sync(partitions=3)
    directory = node.directories.all[0]
    turns = []
    for _ in range(6):
        turns.append(next(iter(directory.offline_logs)))
        reopen(node)
    assert turns == [("t", 0), ("t", 1), ("t", 2)] * 2


@pytest.mark.parametrize("is_clean", [False, True], ids=["crash", "clean stop"])
def test_hazard_8_one_that_stays_closed_until_the_next_start_is_read_from_the_device_then(is_clean: bool) -> None:
    node, durable = after_a_failed_sync()
    reopen(node)
    if is_clean:
        give_room(node)  # for the checkpoints of the stop; nobody tried to open it since
        node.stop()
        assert read_offsets(disk_of(node), NOT_CLOSED) == {("t", 0): 1}
        assert read_offsets(disk_of(node), RECOVERY_POINTS) == {("t", 0): 24}
    disk = disk_of(node).restart()
    disk.trace = []
    node = Node([disk])
    found = node.directories.log("t", 0)
    assert found is not None
    assert any(call.startswith("forget_cached t-0") for call in disk.trace)
    assert (values_in(found), found.high_watermark) == (durable, 25)
    assert node.directories.all[0].clean_broker_epoch is None


def test_hazard_8_without_room_to_write_down_which_logs_are_closed_the_marker_stays_for_all() -> None:
    node, durable = after_a_failed_sync()
    assert disk_of(node).exists(SYNC_FAILED)
    assert not disk_of(node).exists(NOT_CLOSED)
    give_room(node)
    assert values_in(reopened(node)) == durable
    node.stop(broker_epoch=9)
    assert not disk_of(node).exists(SYNC_FAILED)
    disk = disk_of(node).restart(power_lost=True)
    disk.trace = []
    node = Node([disk])
    assert node.directories.all[0].clean_broker_epoch == 9
    assert not any(".log" in call and call.startswith(("open t-0", "read t-0")) for call in disk.trace)


def test_hazard_3_a_start_that_could_not_open_all_logs_yet_is_no_clean_one_to_the_controller() -> None:
    node = Node()
    log = node.directories.create("t", 0, TOPIC_ID)
    fill(log, 30)
    node.stop(broker_epoch=9)
    disk_of(node).remove("t-0/partition.metadata")
    node = start_when_full(node)
    assert isinstance(node.directories.why_offline("t", 0), DiskFull)
    assert node.directories.all[0].clean_broker_epoch is None
    give_room(node)
    trace: list[str] = []
    disk_of(node).trace = trace
    assert reopened(node).topic_id == TOPIC_ID, "what the clean stop left is known yet"
    assert any(call.startswith("read t-0/") and call.endswith(".log") for call in trace), "it is verified"


def crashed(seed: int) -> tuple[Node, list[tuple[int, bytes | None]]]:
    """A log of several segments and producers, none of it flushed, after a crash of the process."""
    node = Node([FaultyDisk(Platter(seed), root="/disk0")], config=LogConfig(segment_bytes=500))
    log = with_history(node)
    node.checkpoint()
    return node, values_in(log)


def test_hazard_15_however_little_room_there_is_tries_that_fail_lose_nothing() -> None:
    waited = 0
    for slack_bytes in range(0, 1200, 40):
        node, before = crashed(slack_bytes)
        disk = disk_of(node).restart()
        disk.faults.capacity_bytes = disk.platter.used_bytes() + slack_bytes
        node = Node([disk])
        for more_bytes in range(3):
            if not node.directories.all[0].awaits_logs:
                break
            waited += 1
            disk_of(node).faults.capacity_bytes = disk_of(node).platter.used_bytes() + more_bytes * 40
            reopen(node)
        give_room(node)
        log = reopened(node)
        assert values_in(log) == before
        assert (log.log_start_offset, log.high_watermark, len(log.producers)) == (13, 25, 2)
        append(log, b"again", producer_id=9, producer_epoch=0, base_sequence=29)
        assert flush(node, log) == [None]
        found = node.restart(power_lost=True).directories.log("t", 0)
        assert found is not None
        assert values_in(found) == [*before, (30, b"again")]
    assert waited > 10


def test_what_it_has_when_it_is_back_is_on_the_disk() -> None:
    for seed in range(5):
        node, before = crashed(seed)
        node = start_when_full(node)
        assert isinstance(node.directories.why_offline("t", 0), DiskFull)
        give_room(node)
        log = reopened(node)
        assert log.flushed_offset == log.log_end_offset == 30
        found = node.restart(power_lost=True).directories.log("t", 0)
        assert found is not None
        assert values_in(found) == before


@pytest.mark.parametrize("power_lost", [False, True], ids=["process", "machine"])
def test_a_crash_at_any_call_of_a_try_leaves_what_was_durable(power_lost: bool) -> None:
    number = 0
    while True:
        number += 1
        node, durable = after_a_failed_sync(seed=number)
        give_room(node)
        disk_of(node).faults.crash_at_call = disk_of(node).calls + number
        try:
            reopened(node)
        except Crash:
            pass
        else:
            break
        node = node.restart(power_lost=power_lost)
        found = node.directories.log("t", 0)
        assert found is not None, node.directories.why_offline("t", 0)
        assert values_in(found) == durable
    assert number > 20


def test_too_many_open_files_is_a_reason_that_passes_too() -> None:
    node, before = crashed(0)
    disk = disk_of(node).restart()
    disk.faults.open_files_max = 1
    node = Node([disk])
    assert isinstance(node.directories.why_offline("t", 0), TooManyOpenFiles)
    assert isinstance(reopen(node)[1], TooManyOpenFiles)
    disk.faults.open_files_max = 100
    assert values_in(reopened(node)) == before


def test_an_error_of_the_device_is_no_reason_that_passes() -> None:
    node = Node()
    fill(node.directories.create("t", 0, TOPIC_ID), 30)
    disk = disk_of(node).restart(faults=Faults(unreadable=("t-0/00000000000000000000.log",)))
    node = Node([disk])
    assert node.directories.why_offline("t", 0) is not None
    assert not node.directories.all[0].awaits_logs
    with pytest.raises(Refused, match="mend it or move it out of the log directory, then restart the node"):
        node.directories.create("t", 0, TOPIC_ID)


def test_hazard_8_a_log_that_turns_out_to_be_damaged_stays_offline(caplog: pytest.LogCaptureFixture) -> None:
    node, _ = after_a_failed_sync(partitions=2)
    disk_of(node).platter.flip_bit("t-0/00000000000000000024.log", 80)
    give_room(node)
    log, error = reopen(node)
    assert log is None
    assert "is damaged" in str(error)
    assert [text for text in caplog.messages if text.startswith("t-0 stays offline: ")]
    reopened(node, 1)
    assert "is damaged" in str(node.directories.why_offline("t", 0))


def test_hazard_8_a_sync_that_fails_in_a_try_takes_the_directory_offline() -> None:
    node, durable = after_a_failed_sync()
    give_room(node)
    disk_of(node).faults.fail_sync_at = disk_of(node).syncs + 2
    _, error = reopen(node)
    assert isinstance(error, SyncFailed)
    assert node.directories.online == []
    node = node.restart()
    found = node.directories.log("t", 0)
    assert found is not None
    assert values_in(found) == durable


@pytest.mark.parametrize("when", ["before", "while it is opened", "while that fails"])
def test_hazard_9_a_deleted_partition_goes_although_it_could_not_be_opened(when: str) -> None:
    node, _ = after_a_failed_sync()
    directory = node.directories.all[0]
    told: list[Log | None] = []
    if when == "before":
        node.directories.give_up("t", 0, TOPIC_ID)
    else:
        if when == "while it is opened":
            give_room(node)
        node.directories.reopen(directory, {"t": TOPIC_ID}.get, lambda log, error: told.append(log))
        node.directories.give_up("t", 0, TOPIC_ID)
        assert "t-0" in node.disks[0].names(), "a worker has it in hand"
        node.drain()
        assert told == [None]
    assert not directory.awaits_logs
    assert node.directories.why_offline("t", 0) is None
    give_room(node)
    log = node.directories.create("t", 0, bytes(16))
    assert log.log_end_offset == 0
    node.now_ms += 1000
    node.look_after()
    node.drain()
    assert not [name for name in node.disks[0].names() if name.endswith("-delete")]


def test_hazard_9_of_another_topic_s_log_nothing_is_deleted() -> None:
    node, durable = after_a_failed_sync()
    node.directories.give_up("t", 0, bytes(16))
    give_room(node)
    assert values_in(reopened(node)) == durable


def twice(*, is_longer: bool) -> tuple[Node, list[FaultyDisk]]:
    """A partition in two directories, as a crash at the end of a move leaves it, and one that can't be opened."""
    node = Node([FaultyDisk(root="/disk0"), FaultyDisk(root="/disk1")])
    logs = [directory.create("t", 0, TOPIC_ID) for directory in node.directories.all]
    for log, count in zip(logs, (20 + 10 * is_longer, 25), strict=True):
        fill(log, count)
        assert flush(node, log) == [None]
    node.checkpoint()
    fail_a_sync(node, logs[0])
    disks = [disk_of(node, number).restart() for number in (0, 1)]
    disks[0].faults.capacity_bytes = 0
    return Node(disks), disks


@pytest.mark.parametrize("is_longer", [False, True], ids=["it has less", "it has more"])
def test_of_a_partition_in_two_directories_none_is_used_before_both_are_open(is_longer: bool) -> None:
    node, disks = twice(is_longer=is_longer)
    assert node.directories.log("t", 0) is None
    assert isinstance(node.directories.why_offline("t", 0), DiskFull)
    with pytest.raises(Refused, match="can't be opened yet"):
        node.directories.create("t", 0, TOPIC_ID)
    assert reopen(node)[0] is None
    give_room(node)
    chosen, error = reopen(node)
    assert error is None
    assert chosen is node.directories.log("t", 0)
    assert chosen is not None
    assert (chosen.place.disk, chosen.log_end_offset) == ((disks[0], 30) if is_longer else (disks[1], 25))
    assert sum("t-0" in disk.names() for disk in disks) == 1


@pytest.mark.parametrize("is_longer", [False, True], ids=["it has less", "it has more"])
def test_of_a_partition_in_two_directories_none_is_used_when_the_other_can_not_be_removed(
    is_longer: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    node, _ = twice(is_longer=is_longer)
    give_room(node)

    def rename(disk: FaultyDisk, path: str, new_path: str) -> None:
        if path == "t-0":
            raise DiskFull(disk.full_path(path))
        renamed(disk, path, new_path)

    renamed = FaultyDisk.rename
    with monkeypatch.context() as patch:
        patch.setattr(FaultyDisk, "rename", rename)
        assert reopen(node) == (None, None)
    with pytest.raises(Refused, match="t-0 is in two log directories; restart the node"):
        node.directories.create("t", 0, TOPIC_ID)
    log = node.restart().directories.log("t", 0)
    assert log is not None
    assert log.log_end_offset == (30 if is_longer else 25)


def test_a_defect_of_ours_is_told_in_full_and_not_tried_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    node, durable = after_a_failed_sync()
    give_room(node)

    def fail(*arguments: object, **more: object) -> None:
        raise ValueError("a defect")

    with monkeypatch.context() as patch:
        patch.setattr("headrace.storage.reopening.open_in", fail)
        assert "could not be opened (ValueError('a defect'))" in str(reopen(node)[1])
    assert "ValueError: a defect" in caplog.text
    assert not node.directories.all[0].awaits_logs
    rested: list[bool] = []
    node.directories.rest(lambda: rested.append(True))
    assert rested
    found = node.restart().directories.log("t", 0)
    assert found is not None
    assert values_in(found) == durable


def test_a_node_that_stops_waits_for_the_worker_and_ends_its_work_early() -> None:
    node, durable = after_a_failed_sync()
    give_room(node)
    rested: list[bool] = []
    directory = node.directories.all[0]
    node.directories.reopen(directory, {"t": TOPIC_ID}.get, lambda log, error: None)
    node.directories.rest(lambda: rested.append(True))
    assert not rested
    node.drain()
    assert rested
    assert directory.awaits_logs, "it was given up"
    node.stop()
    node = node.restart(power_lost=True)
    found = node.directories.log("t", 0)
    assert found is not None
    assert values_in(found) == durable


def test_a_node_that_stops_waits_for_the_checkpoint_that_is_under_way() -> None:
    node = Node()
    fill(node.directories.create("t", 0, TOPIC_ID), 3)
    node.directories.checkpoint()
    rested: list[bool] = []
    node.directories.rest(lambda: rested.append(True))
    assert not rested
    node.drain()
    assert rested
