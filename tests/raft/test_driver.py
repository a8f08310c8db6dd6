"""A quorum of one voter on its disk: what is acknowledged stays, whatever dies whenever."""

from __future__ import annotations

import json
import logging
from contextlib import suppress

import pytest

from headrace.errors import Error, Refused
from headrace.protocol.batch import scan
from headrace.protocol.control import read_control
from headrace.raft.checkpoints import SnapshotDamaged, checkpoint_name
from headrace.raft.metadata_log import FOLDER, LogCutOff, NotFormatted, open_metadata_log
from headrace.raft.node import LeaderAndEpoch, QuorumState
from headrace.raft.quorum import NO_NODE, OffsetAndEpoch, ReplicaKey
from headrace.raft.quorum_state import QuorumStateDamaged, encode_quorum_state, read_quorum_state
from headrace.storage.flush import DirectFlusher
from headrace.storage.handles import Handles
from headrace.storage.index import IndexCache
from headrace.testing.disk import Crash, Faults, FaultyDisk, Platter
from tests.raft.memory import directory, key
from tests.raft.single import Running, feature


def test_a_quorum_of_one_leads_at_once_and_commits_when_it_is_durable() -> None:
    node = Running(FaultyDisk())
    assert node.state.leaders == []
    node.settle()
    assert node.state.leaders == [LeaderAndEpoch(1, 1)]
    node.append(1, 2)
    assert node.state.levels == []
    node.settle()
    assert node.state.levels == [1, 2]


def test_a_restart_finds_everything_and_leads_in_a_new_epoch() -> None:
    node = Running(FaultyDisk()).settle()
    node.append(1)
    node.append(2, 3)
    node.settle()
    again = Running(node.disk.restart(power_lost=True)).settle()
    assert again.state.levels == [1, 2, 3]
    assert again.state.leaders == [LeaderAndEpoch(1, 2)]


def test_the_log_begins_with_who_leads_and_who_votes() -> None:
    node = Running(FaultyDisk()).settle()
    first = next(scan(node.metadata.log.read(0, 1000, 3).take()))
    change, version, voters = (record.message for record in read_control(first))
    # Version 0, which is what Kafka's own tools take every such record for.
    assert repr(change) == (
        "LeaderChangeMessage(leader_id=1, voters=[Voter(voter_id=1)], granting_voters=[Voter(voter_id=1)])"
    )
    assert repr(version) == "KRaftVersionRecord(kraft_version=1)"
    assert [voter.voter_id for voter in voters.voters] == [1]  # type: ignore[union-attr]
    assert json.loads(node.disk.read(f"{FOLDER}/quorum-state")) == {
        "leaderId": 1,
        "leaderEpoch": 1,
        "votedId": 1,
        "votedDirectoryId": "AQBkZGRkZGRkZGRkZGRkZA",
        "data_version": 1,
    }


def test_the_voters_are_written_to_the_log_once() -> None:
    node = Running(FaultyDisk()).settle()
    again = Running(node.disk.restart()).settle()
    second = list(scan(again.metadata.log.read(0, 1000, 10).take()))[1]
    assert len(read_control(second)) == 1


def test_hazard_4_a_controller_of_an_epoch_that_is_over_appends_nothing() -> None:
    node = Running(Running(FaultyDisk()).settle().disk.restart()).settle()
    end_offset = node.metadata.log.log_end_offset
    with pytest.raises(Refused) as refused:
        node.driver.append([feature(9)], 1)
    assert refused.value.error is Error.NOT_CONTROLLER
    assert node.metadata.log.log_end_offset == end_offset


def test_a_controller_that_stops_hears_that_it_leads_no_more() -> None:
    node = Running(FaultyDisk()).settle()
    node.driver.stop()
    assert node.state.leaders[-1] == LeaderAndEpoch(NO_NODE, 1)
    with pytest.raises(Refused):
        node.append(1)


# ------------------------------------------------------------------------------------------------------------- crashes


def run_to_crash(disk: FaultyDisk) -> tuple[list[int], list[int], bool]:
    """Appends and takes snapshots until it crashes; returns what was seen to be committed and all that was appended."""
    committed: list[int] = []
    appended: list[int] = []
    try:
        node = Running(disk)
        node.state.levels = committed
        node.settle()
        committed = node.state.levels
        for level in range(1, 8):
            appended.append(level)
            node.append(level)
            if level % 3 == 0:
                node.settle()
                committed = list(node.state.levels)
                node.take_snapshot()
            node.settle()
            committed = list(node.state.levels)
            if level == 6:
                node.driver.clean(0, -1)
                node.settle()
    except Crash:
        return committed, appended, True
    return committed, appended, False


@pytest.mark.parametrize("power_lost", [False, True])
def test_nothing_committed_is_lost_wherever_it_crashes(power_lost: bool, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)
    call, crashed, epoch = 0, True, 0
    while crashed:
        call += 1
        disk = FaultyDisk(Platter(call), Faults(crash_at_call=call))
        committed, appended, crashed = run_to_crash(disk)
        disk = disk.restart(power_lost=power_lost)
        if crashed:  # and it may crash again while it starts
            disk.faults = Faults(crash_at_call=call % 37 + 1)
            with suppress(Crash):
                Running(disk).settle()
            disk = disk.restart(power_lost=power_lost)
        again = Running(disk).settle()
        assert again.state.levels[: len(committed)] == committed
        assert again.state.levels == appended[: len(again.state.levels)]
        epoch = again.driver.leader.epoch
        assert again.append(99) == again.metadata.log.log_end_offset - 1
        assert again.settle().state.levels[-1] == 99
    assert call > 100
    assert epoch == 2


def test_no_epoch_has_two_records_at_one_offset_over_crashes_of_the_machine() -> None:
    seen: dict[tuple[int, int], bytes] = {}
    for seed in range(60):
        disk = FaultyDisk(Platter(seed))
        for incarnation in range(3):
            disk.faults = Faults(crash_at_call=30 + (seed * 7 + incarnation * 13) % 60)
            try:
                node = Running(disk).settle()
                for level in range(50):
                    node.append(100 * incarnation + level)
                    for batch in scan(node.metadata.log.read(0, 1 << 20, 1 << 40).take()):
                        place = (batch.base_offset, batch.partition_leader_epoch)
                        assert seen.setdefault(place, bytes(batch.view)) == batch.view
                    node.settle()
            except Crash:
                pass
            disk = disk.restart(power_lost=True)
        seen.clear()


def test_a_failed_sync_stops_the_node_with_a_sentence_and_acknowledges_nothing() -> None:
    node = Running(FaultyDisk()).settle()
    node.disk.faults.fail_sync_at = node.disk.syncs + 1
    node.append(1)
    node.settle()
    assert node.state.levels == []
    assert "could not be synced" in str(node.failures[0])
    with pytest.raises(Refused) as refused:
        node.append(2)
    assert refused.value.error is Error.KAFKA_STORAGE_ERROR


def test_what_a_failed_sync_lost_is_not_taken_from_memory_by_the_next_start() -> None:
    """Hazard 8: memory still shows the record, the next sync says yes, and with the power it would be gone."""
    node = Running(FaultyDisk()).settle()
    node.append(1)
    node.settle()
    node.disk.faults.fail_sync_at = node.disk.syncs + 1
    node.append(2)
    node.settle()
    node = Running(node.disk.restart()).settle()
    assert node.state.levels == [1]
    node.append(3)
    node.settle()
    assert node.state.levels == [1, 3]
    assert Running(node.disk.restart(power_lost=True)).settle().state.levels == [1, 3]


def test_a_full_disk_is_waited_for_without_a_restart() -> None:
    node = Running(FaultyDisk()).settle()
    node.append(1)
    node.settle()
    node.disk.faults.capacity_bytes = node.disk.platter.used_bytes() + 10
    level = 1
    while node.state.leaders[-1].leader_id != NO_NODE:  # in the room that its file has left
        level += 1
        node.append(level)
        node.settle()
    taken = [*range(1, level)]
    assert node.state.levels == taken
    for _ in range(20):
        node.timers.advance(500)
        node.settle()
    assert not node.failures
    node.disk.faults.capacity_bytes = None
    for _ in range(20):
        node.timers.advance(500)
        node.settle()
    assert node.state.leaders[-1].leader_id == 1
    node.append(1000)
    node.settle()
    assert node.state.levels == [*taken, 1000]


# ----------------------------------------------------------------------------------------------------------- snapshots


def test_a_snapshot_stands_for_the_log_before_it() -> None:
    node = Running(FaultyDisk()).settle()
    for level in range(30):
        node.append(level)
        node.settle()
    node.take_snapshot()
    node.settle()
    id = OffsetAndEpoch(33, 1)
    assert node.disk.exists(f"{FOLDER}/{checkpoint_name(id)}")
    node.append(30)
    node.settle()
    node.driver.clean(0, -1)
    assert node.metadata.log.log_start_offset == 33
    again = Running(node.disk.restart()).settle()
    assert again.state.snapshots == [33]
    assert again.state.levels == list(range(31))
    assert again.driver.node.voters == node.driver.node.voters


def test_old_snapshots_go_by_size_and_the_latest_stays() -> None:
    node = Running(FaultyDisk()).settle()
    for level in range(5):
        node.append(level)
        node.settle()
        node.take_snapshot()
        node.settle()
    assert len(node.driver.node.history.snapshots) == 5
    node.driver.clean(0, -1)
    assert node.driver.node.history.snapshots == [OffsetAndEpoch(8, 1)]
    assert [name for name in node.disk.names(FOLDER) if name.endswith(".checkpoint")] == [
        checkpoint_name(OffsetAndEpoch(0, 0)),
        checkpoint_name(OffsetAndEpoch(8, 1)),
    ]


def test_a_snapshot_that_is_cut_in_half_is_refused_with_a_sentence() -> None:
    node = Running(FaultyDisk()).settle()
    node.append(1)
    node.settle()
    node.take_snapshot()
    node.settle()
    path = f"{FOLDER}/{checkpoint_name(OffsetAndEpoch(4, 1))}"
    content = node.disk.read(path)
    for size in range(0, len(content), 7):
        node.disk.replace(path, content[:size])
        with pytest.raises(SnapshotDamaged, match="damaged"):
            node.metadata.snapshot(OffsetAndEpoch(4, 1))


def test_a_log_whose_begin_has_no_snapshot_is_refused() -> None:
    node = Running(FaultyDisk()).settle()
    for level in range(30):
        node.append(level)
        node.settle()
    node.take_snapshot()
    node.settle()
    node.driver.clean(0, -1)
    disk = node.disk.restart()
    disk.platter.vanish(f"{FOLDER}/{checkpoint_name(OffsetAndEpoch(33, 1))}")
    with pytest.raises(LogCutOff, match="no snapshot of what was before"):
        Running(disk)


def test_a_folder_that_nobody_formatted_is_refused() -> None:
    disk = FaultyDisk()
    with pytest.raises(NotFormatted):
        open_metadata_log(disk, DirectFlusher(disk), handles=Handles(10), indexes=IndexCache(1000), now_ms=0)


# --------------------------------------------------------------------------------------------------------- quorum-state


def test_the_quorum_state_of_kafka_is_read_in_both_versions() -> None:
    disk = FaultyDisk()
    assert read_quorum_state(disk, "quorum-state") == QuorumState()
    disk.replace(
        "quorum-state",
        b'{"clusterId":"","leaderId":1,"leaderEpoch":2,"votedId":-1,"appliedOffset":0,'
        b'"currentVoters":[{"voterId":1}],"data_version":0}',
    )
    assert read_quorum_state(disk, "quorum-state") == QuorumState(2, 1)
    disk.replace(
        "quorum-state",
        b'{"leaderId":-1,"leaderEpoch":5,"votedId":3,"votedDirectoryId":"AwBkZGRkZGRkZGRkZGRkZA","data_version":1}',
    )
    assert read_quorum_state(disk, "quorum-state") == QuorumState(5, -1, key(3))


@pytest.mark.parametrize(
    "state",
    [QuorumState(), QuorumState(3, 2), QuorumState(4, -1, ReplicaKey(2, directory(2))), QuorumState(7, 1, key(1))],
)
def test_a_quorum_state_is_read_as_it_was_written(state: QuorumState) -> None:
    disk = FaultyDisk()
    disk.replace("quorum-state", encode_quorum_state(state))
    assert read_quorum_state(disk, "quorum-state") == state


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{}",
        b"[]",
        b"\xff",
        b"3",
        b'{"data_version":2}',
        b'{"data_version":1,"leaderEpoch":"x","leaderId":1,"votedId":1}',
    ],
)
def test_a_quorum_state_that_says_nothing_is_refused_with_a_sentence(content: bytes) -> None:
    disk = FaultyDisk()
    disk.replace("quorum-state", content)
    with pytest.raises(QuorumStateDamaged, match="is damaged"):
        read_quorum_state(disk, "quorum-state")
