"""The log directories of a node: formatting, starts and stops, placement, deletion."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from headrace.errors import Refused
from headrace.storage.checkpoint import read_offsets
from headrace.storage.disk import DiskError, DiskInUse, SyncFailed
from headrace.storage.identity import MetaProperties, WrongDirectory
from headrace.storage.last_stop import CHECKPOINTS
from headrace.storage.local_disk import LocalDisk
from headrace.storage.progress import Progress
from headrace.testing.disk import FaultyDisk
from tests.storage.logs import values_in
from tests.storage.nodes import CLUSTER, SMALL, TOPIC_ID, Node, append, fill, flush, put, two_disks

# ---------------------------------------------------------------------------------------------------- starts and stops


def test_the_first_start_formats_a_directory_and_the_second_knows_it() -> None:
    node = Node()
    first = node.directories.all[0].id
    properties = MetaProperties.read(node.disks[0])
    assert properties == MetaProperties(CLUSTER, 1, first)
    assert node.restart(seed=1).directories.all[0].id == first


def test_a_directory_of_another_cluster_or_node_is_not_touched() -> None:
    node = Node()
    node.stop()
    with pytest.raises(WrongDirectory, match="belongs to cluster a-cluster, and this node to cluster b"):
        node.restart(cluster_id="b")
    with pytest.raises(WrongDirectory, match=r"belongs to node 1, and this is node 2.*set node.id=1"):
        node.restart(node_id=2)
    assert node.restart().directories.all[0].clean_broker_epoch == 7


@pytest.mark.parametrize("folder", ["t-0", "__cluster_metadata-0"])
def test_partitions_without_meta_properties_are_claimed_by_nobody(folder: str) -> None:
    disk = FaultyDisk(root="/disk0")
    put(disk, folder, {"00000000000000000000.log": b"", "partition.metadata": b""})
    sentence = rf"/disk0 has no meta.properties and holds partitions \({folder}\).*; restore meta.properties, or move"
    for _ in range(2):
        with pytest.raises(WrongDirectory, match=sentence):
            Node([disk])
        assert not disk.exists("meta.properties")


def test_a_folder_that_only_looks_like_a_partition_does_not_keep_a_directory_from_being_formatted() -> None:
    disk = FaultyDisk(root="/disk0")
    put(disk, "backup-2024", {"notes": b"of somebody"})
    assert Node([disk]).directories.all[0].id


@pytest.mark.parametrize("content", [b"", b"#\n", b"\n\n", b"garbage!!\n"])
def test_a_meta_properties_that_says_nothing_is_called_so(content: bytes) -> None:
    disk = FaultyDisk(root="/disk0")
    disk.replace("meta.properties", content)
    with pytest.raises(WrongDirectory, match=r"/disk0/meta.properties is damaged: it has no line NAME=VALUE; restore"):
        Node([disk])


def test_a_directory_that_another_process_uses_is_refused() -> None:
    node = Node()
    disk = node.disks[0]
    assert isinstance(disk, FaultyDisk)
    with pytest.raises(DiskInUse, match=r"/disk0 is in use by another process; stop that one"):
        Node([FaultyDisk(disk.platter, root="/disk0")])


def test_after_a_clean_stop_everything_is_there_and_nothing_is_read() -> None:
    node = Node()
    log = node.directories.create("t", 0, TOPIC_ID)
    values = fill(log, 40)
    log.set_high_watermark(60)
    log.delete_before(7)
    node.stop(broker_epoch=5)
    disk = node.disks[0]
    assert isinstance(disk, FaultyDisk)
    again = disk.restart(power_lost=True)
    again.trace = []
    node = Node([again])
    log = node.directories.log("t", 0)  # type: ignore[assignment]
    assert not any(".log" in call and call.startswith(("open", "read")) for call in again.trace)
    assert node.directories.all[0].clean_broker_epoch == 5
    assert (log.log_start_offset, log.high_watermark, log.log_end_offset) == (7, 40, 40)
    assert log.topic_id == TOPIC_ID
    assert values_in(log) == values[7:]


def test_the_marker_of_a_clean_stop_counts_once() -> None:
    node = Node()
    node.stop()
    node = node.restart()
    assert node.directories.all[0].clean_broker_epoch == 7
    assert node.restart().directories.all[0].clean_broker_epoch is None


def test_after_a_crash_the_checkpoint_says_from_where_to_verify() -> None:
    node = Node()
    log = node.directories.create("t", 0, TOPIC_ID)
    fill(log, 40)
    assert flush(node, log) == [None]
    node.checkpoint()
    checked = log.checkpointed_recovery_point
    assert checked >= log.segments.active.base_offset
    values = fill(log, 40)
    disk = node.disks[0]
    assert isinstance(disk, FaultyDisk)
    again = disk.restart()
    again.trace = []
    node = Node([again])
    verified = {call.split("/")[-1] for call in again.trace if call.startswith("read t-0/") and call.endswith(".log")}
    log = node.directories.log("t", 0)  # type: ignore[assignment]
    assert values_in(log) == values
    assert all(int(name[:20]) >= log.segments[log.segments.number_at(checked)].base_offset for name in verified)


def test_progress_is_told_when_a_start_takes_longer_than_a_second() -> None:
    node = Node()
    for partition in range(5):
        fill(node.directories.create("t", partition, TOPIC_ID), 30)
    seconds = iter(range(1000))
    told: list[tuple[int, int, int]] = []
    progress = Progress(
        lambda found: told.append((found.logs_done, found.logs_total, found.verified_bytes)), lambda: next(seconds)
    )
    node.restart(progress=progress)
    assert told[0][1] == 5
    assert told[-1][0] == 5
    assert [bytes_ for _, _, bytes_ in told] == sorted(bytes_ for _, _, bytes_ in told)
    assert told[-1][2] > 5 * 30 * 50


def test_a_damaged_checkpoint_is_worked_out_anew_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    node = Node()
    values = fill(node.directories.create("t", 0, TOPIC_ID), 20)
    node.stop()
    disk = node.disks[0]
    assert isinstance(disk, FaultyDisk)
    for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
        disk.platter.node(name).cached[0:1] = b"x"
    with caplog.at_level(logging.WARNING):
        node = node.restart()
    assert "/disk0/recovery-point-offset-checkpoint is damaged" in caplog.text
    log = node.directories.log("t", 0)
    assert log is not None
    assert values_in(log) == values


# ---------------------------------------------------------------------------------------------------------- placement


def test_a_new_partition_goes_to_the_directory_with_the_fewest() -> None:
    node = Node(two_disks())
    for partition in range(6):
        node.directories.create("t", partition, TOPIC_ID)
    assert [len(directory.logs) for directory in node.directories.all] == [3, 3]
    second = node.directories.all[1]
    node.directories.create("u", 0, TOPIC_ID, second.id)
    assert node.directories.directory_of("u", 0) is second
    node.directories.create("u", 1, TOPIC_ID)
    assert node.directories.directory_of("u", 1) is node.directories.all[0]


# ------------------------------------------------------------------------------------------------------------ deletion


def test_a_deleted_partition_keeps_its_readers_and_is_removed_in_time() -> None:
    node = Node()
    log = node.directories.create("t", 0, TOPIC_ID)
    fill(log, 3)
    reader = log.read(0, 1000, 3)
    node.directories.delete("t", 0)
    assert node.directories.log("t", 0) is None
    recreated = node.directories.create("t", 0, bytes(16))
    assert recreated.log_end_offset == 0
    assert recreated.topic_id == bytes(16)
    node.look_after()
    assert any("-delete" in name for name in node.disks[0].names())
    node.now_ms += 20
    node.look_after()
    assert any("-delete" in name for name in node.disks[0].names()), "a worker removes it, and not the loop"
    node.drain()
    assert not any("-delete" in name for name in node.disks[0].names())
    assert len(reader.take()) > 150


def test_folders_of_deleted_partitions_go_at_the_next_start_and_strays_stay() -> None:
    node = Node()
    for partition in range(2):
        fill(node.directories.create("t", partition, TOPIC_ID), 3)
    node.directories.delete("t", 0)
    node.directories.set_aside("t", 1)
    node = node.restart()
    assert list(node.directories.logs()) == []
    assert [name.rpartition("-")[2] for name in node.disks[0].names() if name.startswith("t-")] == ["stray"]


def test_retention_works_through_the_directory() -> None:
    node = Node(config=SMALL.replace(retention_bytes=1500))
    log = node.directories.create("t", 0, TOPIC_ID)
    fill(log, 40)
    log.set_high_watermark(40)
    node.look_after()
    assert log.log_start_offset > 0
    assert log.size_bytes <= 2500
    assert any(name.endswith(".deleted") for name in node.disks[0].names("t-0"))
    node.now_ms += 20
    node.look_after()
    assert any(name.endswith(".deleted") for name in node.disks[0].names("t-0")), "a worker removes them"
    node.drain()
    assert not any(name.endswith(".deleted") for name in node.disks[0].names("t-0"))


def test_a_stop_does_not_wait_for_all_that_was_deleted_to_be_removed() -> None:
    node = Node()
    for partition in range(3):
        fill(node.directories.create("t", partition, TOPIC_ID), 3)
        node.directories.delete("t", partition)
    node.now_ms += 20
    node.look_after()
    told: list[bool] = []
    node.directories.all[0].rest(lambda: told.append(True))
    node.drain()
    assert told
    assert len([name for name in node.disks[0].names() if name.endswith("-delete")]) == 3, "the next start does it"


def test_a_file_that_can_not_be_removed_keeps_no_other(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = Node(config=SMALL.replace(retention_bytes=1500))
    log = node.directories.create("t", 0, TOPIC_ID)
    fill(log, 40)
    log.set_high_watermark(40)
    node.look_after()
    first = next(name for name in node.disks[0].names("t-0") if name.endswith(".deleted"))
    remove = FaultyDisk.remove

    def refuse(disk: FaultyDisk, path: str) -> None:
        if path.endswith(first):
            raise DiskError(path, "no")
        remove(disk, path)

    monkeypatch.setattr(FaultyDisk, "remove", refuse)
    node.now_ms += 20
    node.look_after()
    node.drain()
    assert [name for name in node.disks[0].names("t-0") if name.endswith(".deleted")] == [first]
    assert "what was deleted can't be removed" in caplog.text


# ------------------------------------------------------------------------------------------- what was deleted stays so


def test_what_was_deleted_stays_so_over_a_loss_of_power_once_that_is_told() -> None:
    node = Node()
    log = node.directories.create("t", 0, TOPIC_ID)
    values = fill(log, 40)
    log.set_high_watermark(40)
    assert flush(node, log) == [None]
    node.directories.checkpoint()  # under way, with the start of before
    log.delete_before(23)
    told: list[BaseException | None] = []
    for _ in range(3):
        node.directories.when_start_is_durable("t", 0, told.append)
    assert told == []
    node.drain()
    assert told == [None] * 3
    node.look_after()  # whether or not the names come back of what it deletes
    log = node.restart(power_lost=True).directories.log("t", 0)  # type: ignore[assignment]
    assert (log.log_start_offset, log.log_end_offset) == (23, 40)
    assert values_in(log) == values[23:]


def checkpoint_later_start(node: Node) -> None:
    """Of a log whose first records were deleted."""
    log = node.directories.create("t", 0, TOPIC_ID)
    fill(log, 30)
    flush(node, log)
    log.set_high_watermark(30)
    log.delete_before(20)
    node.directories.checkpoint()


@pytest.mark.parametrize("is_on_its_way", [False, True])
@pytest.mark.parametrize("power_lost", [False, True])
def test_hazard_9_a_topic_made_anew_does_not_start_where_the_old_one_did(power_lost: bool, is_on_its_way: bool) -> None:
    node = Node([FaultyDisk()])
    checkpoint_later_start(node)
    if not is_on_its_way:
        node.drain()
    node.directories.delete("t", 0)
    log = node.directories.create("t", 0, bytes(16))
    values = fill(log, 10)
    flush(node, log)  # with the checkpoint, if that is on its way
    said = {name: read_offsets(node.disks[0], name).get(("t", 0), 0) for name in CHECKPOINTS}
    assert not any(said.values()), "nor was as much of it durable"
    found = node.restart(power_lost=power_lost).directories.log("t", 0)
    assert found is not None
    assert found.log_start_offset == 0
    assert values_in(found) == values


def test_a_deleted_log_is_forgotten_at_the_next_try_when_there_was_no_room() -> None:
    disk = FaultyDisk()
    node = Node([disk])
    checkpoint_later_start(node)
    node.drain()
    node.directories.delete("t", 0)
    disk.faults.capacity_bytes = 0
    with pytest.raises(Refused):
        node.directories.create("t", 0, bytes(16))
    disk.faults.capacity_bytes = None
    node.directories.create("t", 0, bytes(16))
    assert [name for name in CHECKPOINTS if ("t", 0) in read_offsets(disk, name)] == []


def test_a_start_that_can_not_be_made_durable_is_told() -> None:
    node = Node()
    log = node.directories.create("t", 0, TOPIC_ID)
    fill(log, 40)
    log.set_high_watermark(40)
    log.delete_before(23)
    disk = node.disks[0]
    assert isinstance(disk, FaultyDisk)
    disk.faults.fail_sync_at = disk.syncs + 1
    told: list[BaseException | None] = []
    for _ in range(2):
        node.directories.when_start_is_durable("t", 0, told.append)
    node.drain()
    node.directories.when_start_is_durable("t", 0, told.append)
    assert [type(error) for error in told] == [SyncFailed] * 3


def test_producers_are_forgotten_in_all_directories() -> None:
    node = Node(two_disks())
    logs = [node.directories.create("t", partition, TOPIC_ID) for partition in range(2)]
    for log in logs:
        append(log, b"v", producer_id=7, producer_epoch=0, base_sequence=0)
    for now_ms in (node.now_ms, node.now_ms + 86_400_001):  # the first look notes who has written
        node.now_ms = now_ms
        for _ in node.directories.expire_producers(86_400_000):
            pass
    assert [len(log.producers) for log in logs] == [0, 0]


def test_a_log_that_nobody_flushes_is_verified_from_its_last_segment_on() -> None:
    """What is rolled is synced in the background, and compaction and the next start rely on it."""
    node = Node()
    log = node.directories.create("t", 0, TOPIC_ID)
    values = fill(log, 40)
    node.drain()
    node.checkpoint()
    base_offset = log.segments.active.base_offset
    assert log.checkpointed_recovery_point == log.flushed_offset == base_offset > 0
    node = node.restart(power_lost=True)
    found = node.directories.log("t", 0)
    assert found is not None
    assert values_in(found)[:base_offset] == values[:base_offset]


def test_hazard_15_a_start_after_a_crash_does_not_open_a_file_for_every_log(tmp_path: Path) -> None:
    class Counting(Node):
        open_files = 0

        def drain(self) -> None:
            self.open_files = max(self.open_files, len(list(Path("/proc/self/fd").iterdir())))
            super().drain()

    logs = 300
    node = Counting([LocalDisk(str(tmp_path))])
    before = node.open_files
    for number in range(logs):
        append(node.directories.create("t", number, TOPIC_ID), b"v%d" % number)
    node.directories.abandon()
    again = Counting([LocalDisk(str(tmp_path))])
    assert again.open_files - before < 150, "100 are for segments"
    found = again.directories.log("t", logs - 1)
    assert found is not None
    assert (found.flushed_offset, values_in(found)) == (1, [(0, b"v299")])
    again.directories.abandon()
