"""A partition moves from one log directory to another while it is in use."""

from __future__ import annotations

import pytest

from headrace.config import LogConfig
from headrace.storage.disk import DiskFull
from headrace.storage.log import Log
from headrace.storage.log_directory import LogDirectory
from headrace.testing.disk import Crash, FaultyDisk
from headrace.testing.disk_platter import Platter
from tests.storage.batches import batch
from tests.storage.logs import values_in
from tests.storage.nodes import TOPIC_ID, Node, append, fill, flush, two_disks, with_history

BIG = LogConfig(segment_bytes=100_000, index_interval_bytes=100, file_delete_delay_ms=10)
OTHER_TOPIC_ID = bytes(range(16, 32))


def moved(node: Node) -> tuple[Log, list[tuple[int, bytes | None]]]:
    """Moves t-0 while it is written to; returns the log in its new place, and what it must hold."""
    source = node.directories.log("t", 0)
    assert source is not None
    target = next(d for d in node.directories.all if d is not node.directories.directory_of("t", 0))
    move = node.directories.move("t", 0, target.id)
    assert move is not None
    sequence = source.producers.producers[9].next_sequence
    left, rounds = 1, 0
    while left:
        left = move.step(300, node.now_ms)
        if rounds < 5:
            append(source, b"meanwhile %d" % rounds, producer_id=9, producer_epoch=0, base_sequence=sequence + rounds)
            left = 1
        rounds += 1
    move.flush()
    node.drain()
    if not move.is_start_durable:
        assert not move.is_complete
        told: list[BaseException | None] = []
        move.write_start(told.append)
        node.drain()
        assert told == [None]
    assert move.is_complete
    values = values_in(source)
    return node.directories.finish_move("t", 0), values


def trimmed(node: Node) -> int:
    """A log that starts in the middle of a batch, which only the checkpoint knows; returns where."""
    log = with_history(node)
    start_offset = log.log_end_offset + 1
    append(log, b"deleted", b"kept", b"kept")
    log.set_high_watermark(log.log_end_offset)
    log.delete_before(start_offset)
    node.directories.checkpoint()
    node.drain()
    return start_offset


def test_a_partition_moves_to_another_directory_while_it_is_in_use() -> None:
    node = Node(two_disks())
    with_history(node)
    log, values = moved(node)
    assert values_in(log) == values
    assert (log.log_start_offset, log.high_watermark, log.log_end_offset) == (13, 25, 35)
    assert node.directories.log("t", 0) is log
    # Hazard 7: producers move along, also those whose records are all deleted.
    for producer_id, sequence, offset in ((8, 0, 0), (9, 33, 34)):
        again = batch(b"again", producer_id=producer_id, producer_epoch=0, base_sequence=sequence)
        appended = log.append_as_leader(memoryview(again), 1, node.now_ms)
        assert (appended.is_duplicate, appended.first_offset) == (True, offset)
    append(log, b"after", producer_id=9, producer_epoch=0, base_sequence=34)
    node.stop()
    node = node.restart()
    found = node.directories.log("t", 0)
    assert found is not None
    assert found.place.disk.root == "/disk1"
    assert values_in(found) == [*values, (35, b"after")]


def test_a_move_says_where_the_copy_begins_and_frightens_nobody(caplog: pytest.LogCaptureFixture) -> None:
    node = Node(two_disks())
    with_history(node)
    with caplog.at_level("INFO", "headrace"):
        moved(node)
    said = [record.getMessage() for record in caplog.records]
    assert any(line.startswith("the new copy of t-0 in /disk1 begins at offset ") for line in said)
    assert not any("drops all" in line for line in said)


def test_a_move_of_a_log_that_is_truncated_meanwhile_begins_anew() -> None:
    node = Node(two_disks())
    log = with_history(node)
    move = node.directories.move("t", 0, node.directories.all[1].id)
    assert move is not None
    move.step(1000, node.now_ms)
    log.truncate_to(16, node.now_ms)
    append(log, b"another history")
    while move.step(1000, node.now_ms):
        pass
    move.flush()
    node.drain()
    values = values_in(log)
    assert values[-2:] == [(15, b"v15" + b"x" * 30), (16, b"another history")]
    assert values_in(node.directories.finish_move("t", 0)) == values


def test_a_move_that_is_given_up_leaves_nothing() -> None:
    node = Node(two_disks())
    log = with_history(node)
    move = node.directories.move("t", 0, node.directories.all[1].id)
    assert move is not None
    move.step(1000, node.now_ms)
    node.directories.cancel_move("t", 0)
    assert node.directories.log("t", 0) is log
    node = node.restart()
    assert not any(name.startswith("t-") for name in node.disks[1].names())


@pytest.mark.parametrize("power_lost", [False, True], ids=["process", "machine"])
@pytest.mark.parametrize("which", [0, 1], ids=["source", "target"])
def test_a_crash_at_any_call_of_a_move_leaves_the_partition_once_and_whole(which: int, power_lost: bool) -> None:
    calls = 0
    while True:
        calls += 1
        node = Node(two_disks())
        log = with_history(node)
        assert flush(node, log) == [None]
        values = values_in(log)
        crashing = node.disks[which]
        assert isinstance(crashing, FaultyDisk)
        crashing.faults.crash_at_call = crashing.calls + calls
        try:
            moved(node)
        except Crash:
            pass
        else:
            break
        node = node.restart(power_lost=power_lost)
        again = node.directories.log("t", 0)
        assert again is not None
        start = again.log_start_offset
        assert values_in(again, max(13, start))[: len(values)] == [value for value in values if value[0] >= start]
        assert sum(("t", 0) in directory.logs for directory in node.directories.all) == 1
    assert calls > 20


@pytest.mark.parametrize("power_lost", [False, True])
def test_of_two_copies_what_was_deleted_from_one_stays_so_after_the_next_crash(power_lost: bool) -> None:
    node = Node(two_disks())
    with_history(node)
    log, _ = moved(node)  # and the old copy is still there
    log.set_high_watermark(35)
    log.delete_before(30)
    for directory in node.directories.all:
        directory.checkpoints.write_starts()
    node = node.restart()
    found = node.directories.log("t", 0)
    assert found is not None
    assert found.place.disk.root == "/disk0", "of two that are as long, the first"
    assert found.log_start_offset == 30
    found = node.restart(power_lost=power_lost).directories.log("t", 0)
    assert found is not None
    assert found.log_start_offset == 30


@pytest.mark.parametrize("power_lost", [False, True])
@pytest.mark.parametrize("turns_back", [False, True], ids=["", "after a move back that was given up"])
def test_what_was_deleted_before_a_move_stays_so_when_the_new_directory_fails(
    power_lost: bool, turns_back: bool
) -> None:
    node = Node(two_disks())
    start_offset = trimmed(node)
    target = node.disks[1]
    assert isinstance(target, FaultyDisk)
    moved(node)
    if turns_back:  # while the old folder is still leaving
        assert node.directories.move("t", 0, node.directories.all[0].id) is not None
        node.directories.cancel_move("t", 0)
    target.faults.fail_sync_at = target.syncs + 1
    node.directories.checkpoint()  # of the old directory, and the other fails before it wrote down anything
    node.drain()
    assert node.directories.all[1].offline is not None
    node.directories.checkpoint()
    node.drain()
    found = node.restart(power_lost=power_lost).directories.log("t", 0)
    assert found is not None
    assert found.log_start_offset == start_offset


def test_a_copy_that_can_not_take_over_is_given_up_and_leaves_nothing() -> None:
    node = Node(two_disks())
    log = with_history(node)
    move = node.directories.move("t", 0, node.directories.all[1].id)
    assert move is not None
    while move.step(1000, node.now_ms):
        pass
    move.flush()
    node.drain()
    move.write_start(lambda error: None)
    node.drain()
    target = node.disks[1]
    assert isinstance(target, FaultyDisk)
    target.faults.errors_at_calls[target.calls + 1] = DiskFull
    with pytest.raises(DiskFull):
        node.directories.finish_move("t", 0)
    assert node.directories.moving("t", 0) is move
    node.directories.cancel_move("t", 0)
    assert node.directories.log("t", 0) is log
    node.now_ms += 1000
    node.look_after()
    node.drain()
    assert not any(name.startswith("t-") for name in target.names())


def test_where_a_moved_log_starts_is_known_when_its_old_folder_is_gone() -> None:
    node = Node(two_disks())
    start_offset = trimmed(node)
    moved(node)
    node.drain()
    assert "t-0" not in node.disks[0].names()
    node.disks[0].sync_all()  # nothing of it comes back
    found = node.restart(power_lost=True).directories.log("t", 0)
    assert found is not None
    assert (found.place.disk.root, found.log_start_offset) == ("/disk1", start_offset)


def test_hazard_9_where_a_copy_would_have_started_is_forgotten_with_it() -> None:
    node = Node(two_disks())
    trimmed(node)
    target = node.directories.all[1]
    move = node.directories.move("t", 0, target.id)
    assert move is not None
    while move.step(1000, node.now_ms):
        pass
    move.write_start(lambda error: None)
    node.drain()
    node.directories.delete("t", 0)
    log = node.directories.create("t", 0, OTHER_TOPIC_ID, directory_id=target.id)
    append(log, b"of the new one")
    assert flush(node, log) == [None]
    node.disks[0].sync_all()  # the old one is gone for good
    found = node.restart(power_lost=True).directories.log("t", 0)
    assert found is not None
    assert (found.topic_id, found.log_start_offset, found.log_end_offset) == (OTHER_TOPIC_ID, 0, 1)


def test_what_was_deleted_stays_so_when_a_loss_of_power_brings_its_segments_back() -> None:
    node = Node([FaultyDisk()])
    log = with_history(node)
    flush(node, log)
    start = next(segment.base_offset for segment in log.segments if segment.base_offset > log.log_start_offset)
    log.delete_before(start)
    log.retain(node.now_ms)
    assert log.segments[0].base_offset == log.log_start_offset == start, "no segment holds what was deleted"
    node.directories.all[0].checkpoints.write_starts()
    found = node.restart(power_lost=True).directories.log("t", 0)
    assert found is not None
    assert found.segments[0].base_offset < start, "that their files were renamed was lost"
    assert found.log_start_offset == start


def test_hazard_9_two_partitions_of_one_name_and_different_topics_are_no_copies() -> None:
    nodes = [Node([FaultyDisk(root=f"/disk{number}")]) for number in range(2)]
    for number, node in enumerate(nodes):
        fill(node.directories.create("t", 0, bytes([number] * 16)), 3 + number)
        node.stop()
    disks = [node.disks[0] for node in nodes]
    properties = disks[0].read("meta.properties")
    for _ in range(2):
        node = Node([disk.restart() for disk in disks if isinstance(disk, FaultyDisk)])
        assert node.directories.log("t", 0) is None
        assert "/disk0/t-0 and /disk1/t-0 are of different topics with one name; move" in str(
            node.directories.why_offline("t", 0)
        )
        node.stop()
        disks = list(node.disks)
    assert disks[0].read("meta.properties") == properties
    disks[1].rename("t-0", "moved away")
    node = Node([disk.restart() for disk in disks if isinstance(disk, FaultyDisk)])
    assert node.directories.log("t", 0).log_end_offset == 3  # type: ignore[union-attr]


def test_hazard_9_of_two_partitions_of_one_name_the_one_that_is_wanted_is_kept() -> None:
    for wanted in range(2):
        nodes = [Node([FaultyDisk(root=f"/disk{number}")]) for number in range(2)]
        for number, node in enumerate(nodes):
            fill(node.directories.create("t", 0, bytes([number] * 16)), 3 + number)
            node.stop()
        disks = [node.disks[0].restart() for node in nodes if isinstance(node.disks[0], FaultyDisk)]
        node = Node(disks, topic_ids={"t": bytes([wanted] * 16)})
        log = node.directories.log("t", 0)
        assert log is not None
        assert (log.topic_id, log.log_end_offset) == (bytes([wanted] * 16), 3 + wanted)
        assert "t-0" not in disks[1 - wanted].names()
        assert any(name.endswith("-stray") for name in disks[1 - wanted].names())


def platters(seed: int, count: int = 2) -> list[FaultyDisk]:
    return [FaultyDisk(Platter(seed * count + number), root=f"/disk{number}") for number in range(count)]


def copied(node: Node, target: LogDirectory) -> None:
    """All but the last step of a move."""
    move = node.directories.move("t", 0, target.id)
    assert move is not None
    while move.step(100_000, node.now_ms):
        pass
    move.flush()
    node.drain()
    if not move.is_start_durable:
        move.write_start(lambda error: None)
        node.drain()
    assert move.is_complete


def with_a_start_in_a_batch(node: Node) -> None:
    log = node.directories.create("t", 0, TOPIC_ID, directory_id=node.directories.all[0].id)
    append(log, *[b"x"] * 30)
    log.set_high_watermark(30)
    log.delete_before(20)
    assert flush(node, log) == [None]


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("by", ["the node", "the next start"])
def test_the_folder_that_a_move_left_is_not_removed_in_part_under_its_old_name(by: str, seed: int) -> None:
    node = Node(platters(seed))
    log = node.directories.create("t", 0, TOPIC_ID, directory_id=node.directories.all[0].id)
    values = fill(log, 40)
    assert flush(node, log) == [None]
    node.checkpoint()
    copied(node, node.directories.all[1])
    node.directories.finish_move("t", 0)
    node.drain()
    if by == "the node":
        node.now_ms += 60_000
        node.look_after()
        node.drain()
    else:
        node = node.restart()
    assert not any(name.startswith("t-") for name in node.disks[0].names())
    found = node.restart(power_lost=True).directories.log("t", 0)
    assert found is not None
    assert values_in(found) == values


@pytest.mark.parametrize("seed", range(40))
def test_hazard_9_what_comes_back_without_its_topic_id_hides_nothing_of_a_new_topic(seed: int) -> None:
    node = Node(platters(seed), config=BIG)
    one, two = node.directories.all
    log = node.directories.create("t", 0, TOPIC_ID, directory_id=one.id)
    fill(log, 50)
    log.set_high_watermark(10)
    log.delete_before(4)
    node.directories.when_start_is_durable("t", 0, lambda error: None)
    node.drain()
    node.directories.delete("t", 0)
    log = node.directories.create("t", 0, OTHER_TOPIC_ID, directory_id=two.id)
    values = fill(log, 30)
    log.set_high_watermark(30)
    assert flush(node, log) == [None]
    for topic_ids in ({"t": OTHER_TOPIC_ID}, {}):
        node = node.restart(power_lost=True, config=BIG, topic_ids=topic_ids)
        found = node.directories.log("t", 0)
        if not topic_ids and found is None:  # the old one came back with its id, and nobody knows which is wanted
            assert "different topics" in str(node.directories.why_offline("t", 0))
            return
        assert found is not None
        assert (found.topic_id, values_in(found)) == (OTHER_TOPIC_ID, values)


@pytest.mark.parametrize("seed", range(10))
def test_hazard_7_the_producers_of_a_copy_are_durable_when_it_takes_over(seed: int) -> None:
    node = Node(platters(seed), config=BIG)
    flush(node, with_history(node))
    node.checkpoint()
    copied(node, node.directories.all[1])
    node.directories.finish_move("t", 0)
    node.drain()
    node.disks[0].sync_all()  # nothing of it comes back
    found = node.restart(power_lost=True, config=BIG).directories.log("t", 0)
    assert found is not None
    assert found.place.disk.root == "/disk1"
    assert 8 in found.producers.producers, "whose records are all deleted"


@pytest.mark.parametrize("how", ["its source fails", "it can't be removed"])
def test_hazard_9_a_copy_that_is_given_up_hides_nothing_of_a_new_topic(how: str) -> None:
    node = Node(platters(0, 3), config=BIG)
    _, target, third = node.directories.all
    with_a_start_in_a_batch(node)
    copied(node, target)
    source_disk, target_disk = node.disks[0], node.disks[1]
    assert isinstance(source_disk, FaultyDisk)
    assert isinstance(target_disk, FaultyDisk)
    if how == "its source fails":
        source_disk.faults.fail_sync_at = source_disk.syncs + 1
        node.checkpoint()
        assert node.directories.moving("t", 0) is None
        assert not any("future" in name for name in target_disk.names())
    else:
        target_disk.faults.errors_at_calls[target_disk.calls + 1] = DiskFull
        with pytest.raises(DiskFull):
            node.directories.cancel_move("t", 0)
    node.directories.delete("t", 0)
    log = node.directories.create("t", 0, OTHER_TOPIC_ID, directory_id=third.id)
    values = fill(log, 30)
    assert flush(node, log) == [None]
    copied(node, target)
    node.directories.finish_move("t", 0)
    node.drain()
    node.checkpoint()
    found = node.restart(config=BIG, topic_ids={"t": OTHER_TOPIC_ID}).directories.log("t", 0)
    assert found is not None
    assert (found.topic_id, values_in(found)) == (OTHER_TOPIC_ID, values)


def test_a_copy_that_can_not_be_removed_does_not_keep_a_node_from_a_clean_stop() -> None:
    node = Node(two_disks())
    log = node.directories.create("t", 0, TOPIC_ID, directory_id=node.directories.all[0].id)
    values = fill(log, 5)
    copied(node, node.directories.all[1])
    target = node.disks[1]
    assert isinstance(target, FaultyDisk)
    target.faults.errors_at_calls[target.calls + 1] = DiskFull
    node.stop()
    node = node.restart()
    assert all(directory.clean_broker_epoch == 7 for directory in node.directories.all)
    found = node.directories.log("t", 0)
    assert found is not None
    assert values_in(found) == values


@pytest.mark.parametrize("seed", range(20))
def test_what_could_not_leave_is_verified_after_a_clean_stop(seed: int) -> None:
    disks = platters(seed)
    for disk in disks:
        disk.faults.can_sync_all = False
    node = Node(disks, config=BIG)
    log = node.directories.create("t", 0, TOPIC_ID, directory_id=node.directories.all[0].id)
    durable = fill(log, 100)
    assert flush(node, log) == [None]
    node.checkpoint()
    fill(log, 100)
    copied(node, node.directories.all[1])
    disks[1].faults.fail_sync_at = disks[1].syncs + 1
    node.directories.finish_move("t", 0)
    node.drain()
    assert node.directories.all[1].offline is not None
    node.stop()
    found = node.restart(power_lost=True, config=BIG).directories.log("t", 0)
    assert found is not None
    assert values_in(found)[:100] == durable
