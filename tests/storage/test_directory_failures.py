"""Log directories that fail, and partitions in them that can't be opened or made (hazards 3, 8, 9 and 15)."""

from __future__ import annotations

import logging
import threading
from contextlib import suppress

import pytest

from headrace.errors import Error, Refused
from headrace.storage.disk import DiskError, SyncFailed
from headrace.storage.last_stop import SYNC_FAILED
from headrace.testing.disk import Crash, Faults, FaultyDisk
from headrace.testing.disk_platter import Node as DiskNode
from headrace.testing.disk_platter import Platter
from tests.storage.logs import values_in
from tests.storage.nodes import TOPIC_ID, Node, append, fill, flush, put, two_disks, with_history


def test_hazard_8_a_damaged_middle_takes_one_partition_offline_and_says_which_bytes() -> None:
    node = Node()
    for partition in range(3):
        fill(node.directories.create("t", partition, TOPIC_ID), 30)
    disk = node.disks[0]
    assert isinstance(disk, FaultyDisk)
    disk.platter.flip_bit("t-1/00000000000000000000.log", 200)
    size = disk.stat("t-1/00000000000000000000.log").size
    node = node.restart()
    assert node.directories.log("t", 1) is None
    why = str(node.directories.why_offline("t", 1))
    assert "/disk0/t-1/00000000000000000000.log is damaged in bytes " in why
    assert "CRC32C" in why
    assert "truncate -s " in why
    assert node.disks[0].stat("t-1/00000000000000000000.log").size == size, "nothing was cut"
    for partition in (0, 2):
        log = node.directories.log("t", partition)
        assert log is not None
        assert log.log_end_offset == 30


def test_hazard_8_a_clean_stop_beside_a_damaged_partition_does_not_make_it_sound() -> None:
    node = Node()
    log = node.directories.create("t", 0, TOPIC_ID)
    fill(log, 6)
    assert flush(node, log) == [None]
    node.checkpoint()
    fill(log, 30)
    node.drain()
    disk = node.disks[0]
    assert isinstance(disk, FaultyDisk)
    disk.platter.flip_bit("t-0/00000000000000000000.log", 200)
    for _ in range(3):
        node = node.restart()
        assert "is damaged in bytes" in str(node.directories.why_offline("t", 0))
        node.stop()


def test_a_partition_that_is_offline_does_not_keep_the_others_from_a_clean_stop() -> None:
    node = Node()
    for partition in range(2):
        log = node.directories.create("t", partition, TOPIC_ID)
        fill(log, 30)
        assert flush(node, log) == [None]
    node.checkpoint()
    disk = node.disks[0]
    assert isinstance(disk, FaultyDisk)
    path = log.segments.active.path()
    disk.platter.flip_bit(path, 80)
    node = node.restart()
    assert node.directories.all[0].clean_broker_epoch is None
    for _ in range(2):  # as long as it is offline
        assert "is damaged in bytes" in str(node.directories.why_offline("t", 1))
        node.stop(broker_epoch=9)
        disk = node.disks[0]
        assert isinstance(disk, FaultyDisk)
        disk = disk.restart(power_lost=True)
        disk.trace = []
        node = Node([disk])
        assert node.directories.all[0].clean_broker_epoch == 9
        assert not any(".log" in call and call.startswith(("open t-0", "read t-0")) for call in disk.trace)
    node.stop(broker_epoch=10)
    disk.platter.flip_bit(path, 80)  # mended
    disk.open(path).write(disk.stat(path).size, [b"torn"])
    node = node.restart()
    log = node.directories.log("t", 1)  # type: ignore[assignment]
    assert log.log_end_offset == 30, "it was recovered, by which its torn end went"
    assert node.disks[0].stat(path).size == log.segments.active.size_bytes
    assert node.directories.all[0].clean_broker_epoch is None, "hazard 3: it may have less than it had"
    node.stop(broker_epoch=11)
    assert node.restart().directories.all[0].clean_broker_epoch == 11


def test_a_partition_that_went_offline_while_it_ran_is_recovered_after_a_clean_stop() -> None:
    node = Node()
    logs = [node.directories.create("t", partition, TOPIC_ID) for partition in range(2)]
    for log in logs:
        fill(log, 3)
        assert flush(node, log) == [None]
    disk = node.disks[0]
    assert isinstance(disk, FaultyDisk)
    logs[1].offline = DiskError("/disk0/t-1", "Input/output error")
    disk.open(logs[1].segments.active.path()).write(logs[1].segments.active.size_bytes, [b"torn"])
    node.stop()
    node = node.restart()
    assert [log.log_end_offset for log in node.directories.logs()] == [3, 3]
    append(node.directories.log("t", 1), b"goes on")  # type: ignore[arg-type]
    assert len(values_in(node.directories.log("t", 1))) == 4  # type: ignore[arg-type]
    assert node.directories.all[0].clean_broker_epoch is None


def test_when_it_is_not_known_which_partitions_were_not_closed_all_are_recovered() -> None:
    node = with_a_damaged_partition(spoilt="log")
    log = node.directories.create("u", 0, TOPIC_ID)
    fill(log, 3)
    node.stop()
    disk = node.disks[0]
    disk.replace("headrace-not-closed-checkpoint", b"spoilt")
    file = disk.open(log.segments.active.path())
    file.write(log.segments.active.size_bytes, [b"torn"])
    node = node.restart()
    assert node.directories.all[0].clean_broker_epoch is None
    assert node.directories.log("u", 0).log_end_offset == 3  # type: ignore[union-attr]
    assert node.disks[0].stat(log.segments.active.path()).size == log.segments.active.size_bytes


def test_hazard_3_a_partition_that_was_offline_and_is_gone_makes_the_stop_before_no_clean_one() -> None:
    node = with_a_damaged_partition(spoilt="log")
    node.stop()
    node.disks[0].rename("t-0", "moved away")
    assert node.restart().directories.all[0].clean_broker_epoch is None


def test_hazard_8_a_partition_that_was_offline_when_a_sync_was_lost_is_read_from_the_device_when_it_is_back() -> None:
    node = Node()
    log = node.directories.create("t", 0, TOPIC_ID)
    fill(log, 5)
    assert flush(node, log) == [None]
    append(log, b"never on the device")
    disk = node.disks[0]
    assert isinstance(disk, FaultyDisk)
    disk.faults.fail_sync_at = disk.syncs + 1
    assert flush(node, log) != [None]
    node.stop()
    content = disk.read("t-0/partition.metadata")
    disk.platter.node("t-0/partition.metadata").cached[:] = b""
    for _ in range(2):
        node = node.restart()
        assert "partition.metadata is damaged" in str(node.directories.why_offline("t", 0))
        node.stop()
    disk.platter.node("t-0/partition.metadata").cached[:] = content
    assert node.restart().directories.log("t", 0).log_end_offset == 5  # type: ignore[union-attr]


def test_hazard_8_what_the_operator_was_told_to_do_brings_the_partition_back() -> None:
    node = Node()
    values = fill(node.directories.create("t", 0, TOPIC_ID), 30)
    disk = node.disks[0]
    assert isinstance(disk, FaultyDisk)
    disk.platter.flip_bit("t-0/00000000000000000000.log", 300)
    node = node.restart()
    error = node.directories.why_offline("t", 0)
    position = error.position  # type: ignore[union-attr]
    disk = node.disks[0]
    assert isinstance(disk, FaultyDisk)
    file = disk.open("t-0/00000000000000000000.log")
    file.truncate(position)
    file.datasync()
    log = node.restart().directories.log("t", 0)
    assert log is not None
    assert values_in(log) == values[: log.log_end_offset]
    assert 0 < log.log_end_offset < 30


def test_hazard_8_a_failed_sync_takes_its_directory_offline_and_leaves_the_others() -> None:
    node = Node(two_disks())
    first, second = (node.directories.create("t", partition, TOPIC_ID) for partition in range(2))
    offline: list[str] = []
    node.directories.on_offline = lambda directory: offline.append(directory.root)
    fill(first, 5)
    disk = first.place.disk
    assert isinstance(disk, FaultyDisk)
    disk.faults.fail_sync_at = disk.syncs + 1
    told = flush(node, first)
    assert [type(error) for error in told] == [SyncFailed]
    assert offline == [disk.root]
    assert first.flushed_offset == 0
    with pytest.raises(Refused, match="could not be synced") as refused:
        append(first, b"more")
    assert refused.value.error is Error.KAFKA_STORAGE_ERROR
    with pytest.raises(SyncFailed):  # never tried again
        first.flush(told.append)
    append(second, b"goes on")
    assert flush(node, second) == [None]
    assert node.directories.create("u", 0, TOPIC_ID).place.disk is second.place.disk


@pytest.mark.parametrize("dies_at_once", [False, True])
def test_hazard_8_after_a_failed_sync_the_next_start_believes_the_device_and_not_the_cache(dies_at_once: bool) -> None:
    node = Node()
    log = node.directories.create("t", 0, TOPIC_ID)
    fill(log, 5)
    assert flush(node, log) == [None]
    append(log, b"never on the device")
    disk = node.disks[0]
    assert isinstance(disk, FaultyDisk)
    disk.faults.fail_sync_at = disk.syncs + 1
    assert flush(node, log) != [None]
    assert log.log_end_offset == 6, "in memory it is there"
    if dies_at_once:  # before it could leave word of it
        disk.remove(SYNC_FAILED)
    else:
        node.stop()
    node = node.restart()  # the process only: the page cache is as it was
    log = node.directories.log("t", 0)  # type: ignore[assignment]
    assert log.log_end_offset == 5
    assert flush(node, log) == [None]
    assert node.restart(power_lost=True).directories.log("t", 0).log_end_offset == 5  # type: ignore[union-attr]


@pytest.mark.parametrize("can_sync_all", [False, True])
def test_hazard_8_a_topic_id_that_only_memory_has_is_written_anew(
    can_sync_all: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its sync fails, and the process dies before it could leave word of it."""
    node = Node([FaultyDisk(faults=Faults(can_sync_all=can_sync_all))])
    log = node.directories.create("t", 0, TOPIC_ID)
    append(log, b"first")

    def syncing(disk: FaultyDisk, path: str, nodes: list[DiskNode]) -> None:
        if path.endswith("partition.metadata"):
            for found in nodes:
                found.fail_sync()
            raise Crash

    with monkeypatch.context() as patch:
        patch.setattr(FaultyDisk, "syncing", syncing)
        with pytest.raises(Crash):
            flush(node, log)
    node = node.restart()
    log = node.directories.log("t", 0)  # type: ignore[assignment]
    assert log.topic_id == TOPIC_ID
    append(log, b"second")
    assert flush(node, log) == [None]
    values = values_in(log)
    log = node.restart(power_lost=True).directories.log("t", 0)  # type: ignore[assignment]
    assert (log.topic_id, values_in(log)) == (TOPIC_ID, values)


def test_hazard_8_a_tail_whose_cut_never_reached_the_device_is_cut_again() -> None:
    """Else it would be in the middle of the log once that has gone on in another segment."""
    node = Node()
    log = node.directories.create("t", 0, TOPIC_ID)
    fill(log, 5)
    assert flush(node, log) == [None]
    disk = node.disks[0]
    assert isinstance(disk, FaultyDisk)
    file = disk.open("t-0/00000000000000000000.log")
    file.write(log.size_bytes, [b"torn" * 500])
    file.datasync()
    file.close()
    cutting = disk.restart()
    cutting.faults.fail_sync_at = 2
    with pytest.raises(SyncFailed, match=r"00000000000000000000\.log"):
        Node([cutting])
    node = Node([cutting.restart()])
    log = node.directories.log("t", 0)  # type: ignore[assignment]
    fill(log, 30)
    assert len(log.segments) > 2
    assert flush(node, log) == [None]
    node.checkpoint()
    log = node.restart().directories.log("t", 0)  # type: ignore[assignment]
    assert [offset for offset, _ in values_in(log)] == list(range(35))


def test_hazard_8_a_sync_that_fails_outside_the_group_commit_takes_the_directory_offline_too() -> None:
    node = Node(two_disks())
    log = node.directories.create("t", 0, TOPIC_ID)
    offline: list[str] = []
    node.directories.on_offline = lambda directory: offline.append(directory.root)
    fill(log, 20)
    assert flush(node, log) == [None]
    node.checkpoint()
    disk = log.place.disk
    assert isinstance(disk, FaultyDisk)
    disk.faults.fail_sync_at = disk.syncs + 1
    with pytest.raises(SyncFailed):
        log.truncate_to(7, node.now_ms)
    assert isinstance(node.directories.why_offline("t", 0), SyncFailed)
    assert [directory.root for directory in node.directories.online] == ["/disk1"]
    assert disk.exists(SYNC_FAILED), "the next start believes the device and not the cache"
    node.drain()
    assert offline == ["/disk0"]
    assert node.directories.create("u", 0, TOPIC_ID).place.disk.root == "/disk1"


def test_who_waits_for_a_checkpoint_hears_of_a_failure_that_nobody_foresaw(monkeypatch: pytest.MonkeyPatch) -> None:
    node = Node()
    node.directories.create("t", 0, TOPIC_ID)
    defect = RuntimeError("a defect")

    def write(*arguments: object) -> None:
        raise defect

    monkeypatch.setattr("headrace.storage.checkpoint_files.write_offsets", write)
    told: list[BaseException | None] = []
    node.directories.when_start_is_durable("t", 0, told.append)
    with pytest.raises(RuntimeError):
        node.drain()
    assert told == [defect]


def test_hazard_8_a_sync_that_fails_in_a_thread_is_told_on_the_loop() -> None:
    node = Node(two_disks())
    offline: list[int] = []
    node.directories.on_offline = lambda directory: offline.append(threading.get_ident())
    disk = node.disks[0]
    assert isinstance(disk, FaultyDisk)
    disk.faults.fail_sync_at = disk.syncs + 1

    def sync() -> None:
        with suppress(SyncFailed):
            disk.sync_directory("")

    thread = threading.Thread(target=sync)
    thread.start()
    thread.join()
    assert isinstance(node.directories.all[0].offline, SyncFailed)
    assert offline == []
    node.drain()
    assert offline == [threading.get_ident()]


def test_hazard_8_a_failed_sync_of_a_move_takes_the_target_offline_and_the_source_goes_on() -> None:
    node = Node(two_disks())
    log = with_history(node)
    source, target = node.directories.all
    move = node.directories.move("t", 0, target.id)
    assert move is not None
    move.step(300, node.now_ms)
    move.flush()
    node.drain()
    log.truncate_to(20, node.now_ms)
    disk = target.disk
    assert isinstance(disk, FaultyDisk)
    disk.faults.fail_sync_at = disk.syncs + 1
    with pytest.raises(SyncFailed):
        move.step(300, node.now_ms)
    node.drain()
    assert isinstance(target.offline, SyncFailed)
    assert disk.exists(SYNC_FAILED)
    node.directories.cancel_move("t", 0)  # it went with its target, and who moved it need not know
    assert node.directories.online == [source]
    append(log, b"goes on")


def test_hazard_8_a_sync_that_fails_at_the_start_is_known_to_the_next() -> None:
    disks = two_disks()
    node = Node(disks)
    for partition in range(2):
        fill(node.directories.create("t", partition, TOPIC_ID), 5)
    node.stop()
    again = [disk.restart() for disk in disks]
    again[0].faults.fail_sync_at = 1
    node = Node(again)
    assert isinstance(node.directories.failed["/disk0"], SyncFailed)
    assert again[0].exists(SYNC_FAILED)
    assert node.directories.log("t", 0) is None
    assert node.directories.log("t", 1) is not None


def test_a_directory_that_fails_at_the_start_leaves_the_others(caplog: pytest.LogCaptureFixture) -> None:
    disks = two_disks()
    node = Node(disks)
    fill(node.directories.create("t", 0, TOPIC_ID), 3)
    fill(node.directories.create("t", 1, TOPIC_ID), 3)
    node.stop()
    again = [disk.restart() for disk in disks]
    again[0].faults.forbidden = ("meta.properties",)
    node = Node(again)
    assert list(node.directories.failed) == ["/disk0"]
    assert "may not be used by this user" in str(node.directories.failed["/disk0"])
    assert [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR] == [
        f"log directory /disk0 is left out: {node.directories.failed['/disk0']}"
    ]
    assert node.directories.log("t", 0) is None
    assert node.directories.log("t", 1) is not None


@pytest.mark.parametrize(
    ("faults", "sentence"),
    [
        (Faults(read_only=True), r"/disk0/\S+ can't be written because its file system is read-only; mount it"),
        (Faults(forbidden=("meta.properties",)), r"/disk0/meta.properties may not be used by this user; give the user"),
        (Faults(capacity_bytes=0), r"/disk0/\S+ can't grow because the disk is full; free space"),
    ],
)
def test_a_node_without_a_directory_does_not_start_and_says_why_once(
    faults: Faults, sentence: str, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(DiskError, match=sentence):
        Node([FaultyDisk(faults=faults, root="/disk0")])
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR], "who starts it says it"


def test_of_several_directories_that_fail_each_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    faults = Faults(forbidden=("meta.properties",))
    with pytest.raises(DiskError, match="/disk0/meta.properties"):
        Node([FaultyDisk(faults=faults, root=f"/disk{number}") for number in range(2)])
    assert [record.getMessage()[:32] for record in caplog.records if record.levelno == logging.ERROR] == [
        "log directory /disk1 is left out"
    ]


def test_hazard_15_a_full_disk_refuses_and_goes_on_when_there_is_room() -> None:
    node = Node()
    log = node.directories.create("t", 0, TOPIC_ID)
    values = fill(log, 3)
    disk = node.disks[0]
    assert isinstance(disk, FaultyDisk)
    disk.faults.capacity_bytes = disk.platter.used_bytes() + 70
    with pytest.raises(Refused, match="disk is full; free space") as refused:
        append(log, b"x" * 200)
    assert refused.value.error is Error.KAFKA_STORAGE_ERROR
    assert log.offline is None
    assert values_in(log) == values
    assert disk.stat(log.segments.active.path()).size == log.segments.active.size_bytes, "the part is cut"
    disk.faults.capacity_bytes = 1 << 30
    append(log, b"goes on")
    assert values_in(log) == [*values, (3, b"goes on")]


def test_hazard_15_a_partition_that_a_full_disk_does_not_let_be_made_leaves_nothing() -> None:
    node = Node()
    disk = node.disks[0]
    assert isinstance(disk, FaultyDisk)
    for room in range(80):
        disk.faults.capacity_bytes = disk.platter.used_bytes() + room
        try:
            node.directories.create("t", 0, TOPIC_ID)
        except Refused as refused:
            assert "disk is full; free space" in str(refused)
            assert not disk.exists("t-0")
        else:
            break
    assert 40 < room < 79
    node = node.restart()
    assert node.directories.why_offline("t", 0) is None
    assert node.directories.log("t", 0) is not None


@pytest.mark.parametrize(
    "files",
    [
        {},
        {"partition.metadata": b""},
        {"partition.metadata": b"version: 0\n"},
        {"partition.metadata.tmp": b"version: 0\ntopic"},
        {"00000000000000000000.log": b""},
        {"partition.metadata": b"", "00000000000000000000.log": bytes(5000)},  # preallocated
        {"partition.metadata": b"", "00000000000000000000.log": b"", "00000000000000000000.index": b""},
    ],
    ids=str,
)
def test_a_partition_that_was_not_finished_when_it_was_made_goes_at_the_next_start(
    files: dict[str, bytes], caplog: pytest.LogCaptureFixture
) -> None:
    node = Node()
    put(node.disks[0], "t-0", files)
    with caplog.at_level(logging.WARNING):
        node = node.restart()
    assert "/disk0/t-0 was not finished when it was made, and is removed" in caplog.text
    assert not node.disks[0].exists("t-0")
    assert node.directories.why_offline("t", 0) is None
    assert node.directories.create("t", 0, TOPIC_ID).topic_id == TOPIC_ID


@pytest.mark.parametrize(
    "files",
    [
        {"partition.metadata": b"", "00000000000000000000.log": b"x"},
        {"partition.metadata": b"", "00000000000000000007.log": b""},
        {"partition.metadata": b"", "00000000000000000000.log": b"", "leader-epoch-checkpoint": b"0\n1\n3 0\n"},
    ],
    ids=str,
)
def test_a_partition_that_has_come_anywhere_is_not_removed_for_a_damaged_topic_id(files: dict[str, bytes]) -> None:
    node = Node()
    put(node.disks[0], "t-0", files)
    node = node.restart()
    assert "partition.metadata is damaged" in str(node.directories.why_offline("t", 0))
    assert set(node.disks[0].names("t-0")) == set(files)


def test_a_loss_of_power_after_a_partition_was_made_leaves_it_whole_or_not_at_all() -> None:
    seen = set()
    for seed in range(30):
        node = Node([FaultyDisk(Platter(seed), root="/disk0")])
        node.directories.create("t", 0, TOPIC_ID)
        node = node.restart(power_lost=True)
        assert node.directories.why_offline("t", 0) is None
        log = node.directories.log("t", 0)
        assert log is None or log.topic_id == TOPIC_ID
        seen.add(log is None)
        if log is None:
            node.directories.create("t", 0, TOPIC_ID)
    assert seen == {True, False}


def test_what_is_flushed_survives_although_a_life_before_made_the_files_and_did_not_sync_their_names() -> None:
    for seed in range(40):
        node = Node([FaultyDisk(Platter(seed), root="/disk0")])
        log = node.directories.create("t", 0, TOPIC_ID)
        for number in range(seed % 20):  # up to a few segments
            append(log, b"v%d" % number + b"x" * 80)
        node = node.restart()
        found = node.directories.log("t", 0)
        assert found is not None
        append(found, b"last")
        before = values_in(found)
        assert flush(node, found) == [None]
        found = node.restart(power_lost=True).directories.log("t", 0)
        assert found is not None
        assert values_in(found) == before


def test_hazard_8_a_topic_id_that_a_failed_sync_lost_is_written_anew() -> None:
    for sync in range(1, 4):
        node = Node([FaultyDisk(Platter(sync), root="/disk0")])
        disk = node.disks[0]
        assert isinstance(disk, FaultyDisk)
        log = node.directories.create("t", 0, TOPIC_ID)
        append(log, b"v0")
        disk.faults.fail_sync_at = disk.syncs + sync
        flush(node, log)
        node = node.restart()
        found = node.directories.log("t", 0)
        assert found is not None
        append(found, b"last")
        before = values_in(found)
        assert flush(node, found) == [None]
        found = node.restart(power_lost=True).directories.log("t", 0)
        assert found is not None
        assert values_in(found) == before


def test_a_loss_of_power_before_the_first_flush_does_not_keep_a_partition_offline() -> None:
    """The device may have got the records and not the topic id. Nothing was promised of them: they are set aside."""
    strays = 0
    for seed in range(60):
        node = Node([FaultyDisk(Platter(seed), root="/disk0")])
        append(node.directories.create("t", 0, TOPIC_ID), b"v0")
        node = node.restart(power_lost=True)
        if node.directories.log("t", 0) is None:
            was_offline = node.directories.why_offline("t", 0) is not None
            node.directories.create("t", 0, TOPIC_ID)
            assert any(name.endswith("-stray") for name in node.disks[0].names()) is was_offline
            strays += was_offline
        assert node.directories.why_offline("t", 0) is None
    assert strays


def with_a_damaged_partition(*, disks: int = 1, spoilt: str) -> Node:
    """Its t-0 can't be opened, and has records that were durable."""
    node = Node([FaultyDisk(root=f"/disk{number}") for number in range(disks)])
    log = node.directories.create("t", 0, TOPIC_ID)
    fill(log, 30)
    assert flush(node, log) == [None]
    node.checkpoint()
    disk = node.disks[0]
    assert isinstance(disk, FaultyDisk)
    if spoilt == "partition.metadata":
        disk.replace("t-0/partition.metadata", b"")
    else:
        disk.platter.flip_bit(log.segments.active.path(), 80)
    node = node.restart()
    assert node.directories.log("t", 0) is None
    assert node.directories.why_offline("t", 0) is not None
    return node


@pytest.mark.parametrize("disks", [1, 2], ids=["one directory", "another directory has room"])
@pytest.mark.parametrize(
    ("spoilt", "topic_id"), [("partition.metadata", bytes(16)), ("partition.metadata", TOPIC_ID), ("log", TOPIC_ID)]
)
def test_hazard_9_a_partition_is_not_made_anew_over_one_that_is_offline(
    spoilt: str, topic_id: bytes, disks: int
) -> None:
    node = with_a_damaged_partition(disks=disks, spoilt=spoilt)
    before = node.disks[0].scan("t-0")
    with pytest.raises(Refused, match=r"/disk0/t-0 is there and can't be used \(.*; mend it or move it out") as refused:
        node.directories.create("t", 0, topic_id)
    assert refused.value.error is Error.KAFKA_STORAGE_ERROR
    assert node.disks[0].scan("t-0") == before
    assert node.directories.log("t", 0) is None
    assert node.directories.why_offline("t", 0) is not None


@pytest.mark.parametrize("disks", [1, 2], ids=["one directory", "another directory has room"])
def test_hazard_9_a_topic_made_again_has_nothing_of_the_one_before_that_is_offline(disks: int) -> None:
    node = with_a_damaged_partition(disks=disks, spoilt="log")
    names = set(node.disks[0].names("t-0"))
    log = node.directories.create("t", 0, bytes(16))
    assert (log.topic_id, log.log_end_offset) == (bytes(16), 0)
    assert node.directories.why_offline("t", 0) is None
    append(log, b"new")
    assert flush(node, log) == [None]
    node.checkpoint()
    node = node.restart(power_lost=True, seed=1)
    log = node.directories.log("t", 0)  # type: ignore[assignment]
    assert values_in(log) == [(0, b"new")]
    (stray,) = (name for name in node.disks[0].names() if name.endswith("-stray"))
    assert set(node.disks[0].names(stray)) == names, "its files are kept for the operator"
