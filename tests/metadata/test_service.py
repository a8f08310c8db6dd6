"""A node's member of the quorum: what it answers is committed, durable, and in its image, whatever dies whenever."""

from __future__ import annotations

import asyncio
import logging

import pytest

from headrace.config.quorum import QuorumConfig
from headrace.errors import Error, Refused
from headrace.metadata.features import BOOTSTRAP, SUPPORTED
from headrace.metadata.image import NO_LEADER, Image
from headrace.protocol import messages as m
from headrace.raft.metadata_log import FOLDER
from headrace.testing.disk import Crash, Faults, FaultyDisk, Platter
from tests.metadata.running import Running, creation, registration


def test_a_new_cluster_begins_at_the_metadata_version_of_kafka_4_2_and_with_its_controller() -> None:
    node = Running(FaultyDisk())
    assert node.ready == []
    node.settle()
    assert node.ready == [None]
    assert node.image.features == BOOTSTRAP
    assert node.image.controllers[1].features == SUPPORTED
    assert node.service.is_active


def test_a_restart_finds_the_cluster_as_it_was_and_writes_no_bootstrap_again() -> None:
    node = Running(FaultyDisk()).settle()
    epoch = node.up()
    node.create("t", 3)
    again = Running(node.disk.restart(power_lost=True)).settle()
    assert again.image.topics == node.image.topics
    assert again.image.brokers[1].epoch == epoch
    assert again.image.features == BOOTSTRAP


def test_every_restart_bumps_the_leader_epochs_of_what_the_broker_leads() -> None:
    node = Running(FaultyDisk()).settle()
    epoch = node.up()
    node.create("t")
    seen = [leadership(node.image)]
    node = Running(node.disk.restart()).settle()  # killed: its old self was never heard of here
    assert node.up(incarnation=2) > epoch
    seen.append(leadership(node.image))
    node.beat(1, node.image.brokers[1].epoch, want_shut_down=True)
    assert leadership(node.image)[0] == NO_LEADER
    node = Running(node.disk.restart()).settle()
    node.up(incarnation=3)
    seen.append(leadership(node.image))
    assert [leader for leader, _ in seen] == [1, 1, 1]
    assert seen[0][1] < seen[1][1] < seen[2][1]


def leadership(image: Image) -> tuple[int, int]:
    topic = image.topic("t")
    assert topic is not None
    return topic.partitions[0].leader, topic.partitions[0].leader_epoch


def test_a_reply_comes_when_its_records_are_committed_and_in_the_image() -> None:
    node = Running(FaultyDisk()).settle()
    node.up()
    replies = node.submit(creation("t"))
    again = node.submit(creation("t"))
    assert replies == again == []
    assert node.image.topic("t") is None
    node.settle()
    assert replies[0].topics[0].error_code == 0  # type: ignore[attr-defined]
    assert again[0].topics[0].error_code == Error.TOPIC_ALREADY_EXISTS  # type: ignore[attr-defined]
    assert node.image.topic("t") is not None


def test_a_reply_without_records_waits_for_what_it_was_decided_on() -> None:
    node = Running(FaultyDisk()).settle()
    node.up()
    node.submit(creation("t"))
    refused = node.submit(creation("t"))
    assert refused == []
    node.settle()
    assert len(refused) == 1


def test_hazard_4_a_deposed_controller_answers_what_waits_and_what_comes_with_not_controller() -> None:
    node = Running(FaultyDisk()).settle()
    epoch = node.up()
    waiting = node.submit(creation("t"))
    node.service.driver.node.stop(node.timers.now_ms)  # deposed, and its controller has not heard of it yet
    late = node.submit(creation("u"))
    beat = node.submit(m.BrokerHeartbeatRequest(broker_id=1, broker_epoch=epoch))
    assert late[0].topics[0].error_code == Error.NOT_CONTROLLER  # type: ignore[attr-defined]
    assert beat[0].error_code == Error.NOT_CONTROLLER  # type: ignore[attr-defined]
    node.service.stop()
    assert waiting[0].topics[0].error_code == Error.NOT_CONTROLLER  # type: ignore[attr-defined]
    node.settle()
    assert node.image.topic("u") is None


def test_a_broker_that_is_not_heard_of_is_fenced_and_comes_back() -> None:
    node = Running(FaultyDisk()).settle()
    epoch = node.up()
    node.create("t")
    for _ in range(5):
        node.timers.advance(2000)
        node.beat(1, epoch)
    assert not node.image.brokers[1].is_fenced
    before = leadership(node.image)
    node.timers.advance(9000)
    node.settle()
    assert node.image.brokers[1].is_fenced
    assert leadership(node.image)[0] == NO_LEADER
    assert not node.beat(1, epoch).is_fenced
    leader, leader_epoch = leadership(node.image)
    assert leader == 1
    assert leader_epoch > before[1]


def test_a_full_disk_deposes_the_controller_and_room_brings_it_back() -> None:
    node = Running(FaultyDisk()).settle()
    node.up()
    node.disk.faults.capacity_bytes = node.disk.platter.used_bytes() + 10
    error, number = Error.NONE, 0
    while error == Error.NONE:  # in the room that its file has left
        number += 1
        error = node.call(creation(f"t{number}")).topics[0].error_code  # type: ignore[attr-defined]
    assert error == Error.NOT_CONTROLLER
    node.disk.faults.capacity_bytes = None
    for _ in range(20):
        node.timers.advance(500)
        node.settle()
    assert node.service.is_active
    node.up(incarnation=2)
    node.create("t")
    assert node.failures == []


def test_a_failed_sync_stops_the_node_and_acknowledges_nothing() -> None:
    node = Running(FaultyDisk()).settle()
    node.up()
    node.disk.faults.fail_sync_at = node.disk.syncs + 1
    response = node.call(creation("t"))
    assert response.topics[0].error_code == Error.NOT_CONTROLLER  # type: ignore[attr-defined]
    assert "could not be synced" in str(node.failures[0])


# ----------------------------------------------------------------------------------------------------------- snapshots

SMALL = QuorumConfig(metadata_log_max_record_bytes_between_snapshots=2000, metadata_max_retention_bytes=1)


def checkpoints(node: Running) -> list[str]:
    return [name for name in node.disk.names(FOLDER) if name.endswith(".checkpoint") and not name.startswith("0" * 20)]


def test_a_snapshot_is_written_after_so_many_bytes_and_a_restart_begins_from_it() -> None:
    node = Running(FaultyDisk(), config=SMALL).settle()
    node.up()
    for number in range(40):
        node.create(f"t{number}", 2)
    assert len(checkpoints(node)) == 1
    again = Running(node.disk.restart(), config=SMALL).settle()
    assert again.service.driver.node.history.start_offset > 0
    assert again.image.topics == node.image.topics
    assert again.image.brokers == node.image.brokers


def test_a_snapshot_is_written_after_so_long_when_there_is_something_new() -> None:
    node = Running(FaultyDisk(), config=QuorumConfig(broker_session_timeout_ms=10**9)).settle()
    node.up()
    for _ in range(59):
        node.timers.advance(60_000)
        node.settle()
    assert checkpoints(node) == []
    node.timers.advance(60_000)
    node.settle()
    assert len(checkpoints(node)) == 1
    for _ in range(120):
        node.timers.advance(60_000)
        node.settle()
    assert len(checkpoints(node)) == 1


def test_what_is_committed_while_a_snapshot_is_written_is_in_the_log_behind_it() -> None:
    config = QuorumConfig(metadata_log_max_record_bytes_between_snapshots=60_000)
    node = Running(FaultyDisk(), config=config).settle()
    node.up()
    node.create("large", 1500)
    node.service._snapshots._soon()
    node.timers.advance(0)  # it begins, and has several steps to go
    node.create("later")
    assert len(checkpoints(node)) == 1
    again = Running(node.disk.restart(power_lost=True), config=config).settle()
    assert again.image.topics == node.image.topics


def test_a_disk_without_room_for_a_snapshot_is_no_reason_to_stop(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)
    node = Running(FaultyDisk()).settle()
    node.up()
    node.create("t", 500)
    node.disk.faults.capacity_bytes = node.disk.platter.used_bytes() + 300
    node.service._snapshots._soon()
    node.settle()
    assert checkpoints(node) == []
    node.disk.faults.capacity_bytes = None
    node.service._snapshots._soon()
    node.settle()
    assert len(checkpoints(node)) == 1
    assert node.failures == []


# ------------------------------------------------------------------------------------------------------------- crashes


def run_to_crash(disk: FaultyDisk, incarnation: int, names: list[str], ids: list[int]) -> bool:
    """Uses the service until the machine dies; `names` and `ids` get what was acknowledged."""
    try:
        node = Running(disk, config=SMALL, incarnation=incarnation).settle()
        epoch = node.up(incarnation=incarnation)
        for number in range(12):
            name = f"t{incarnation}-{number}"
            if node.call(creation(name, 3)).topics[0].error_code == 0:  # type: ignore[attr-defined]
                names.append(name)
            ids.append(node.producer_ids(epoch).producer_id_start)
        node.service.stop()
    except Crash:
        return True
    return False


@pytest.mark.parametrize("power_lost", [False, True])
def test_hazard_7_nothing_acknowledged_is_lost_and_no_producer_id_is_handed_out_twice_over_crashes(
    power_lost: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)
    for seed in range(40):
        disk = FaultyDisk(Platter(seed))
        names: list[str] = []
        ids: list[int] = []
        for incarnation in range(1, 4):
            disk.faults = Faults(crash_at_call=5 + (seed * 17 + incarnation * 29) % 160)
            run_to_crash(disk, incarnation, names, ids)
            disk = disk.restart(power_lost=power_lost)
        node = Running(disk, config=SMALL, incarnation=9).settle()
        assert set(names) <= set(node.image.topic_ids)
        assert len(set(ids)) == len(ids)
        assert all(first < node.image.next_producer_id for first in ids)
        node.up(incarnation=9)
        for topic in node.image.topics.values():
            assert [partition.leader for partition in topic.partitions.values()] == [1, 1, 1]


# ------------------------------------------------------------------------------------------------------------- channel


def test_the_channel_answers_and_gives_up_after_its_time() -> None:
    async def talk() -> None:
        node = Running(FaultyDisk()).settle()
        call = asyncio.ensure_future(node.service.channel.call(registration(), 1.0))
        await asyncio.sleep(0)
        node.settle()
        response = await call
        assert isinstance(response, m.BrokerRegistrationResponse)
        assert response.broker_epoch > 0
        unanswered = m.AllocateProducerIdsRequest(broker_id=1, broker_epoch=response.broker_epoch)
        call = asyncio.ensure_future(node.service.channel.call(unanswered, 1.0))
        await asyncio.sleep(0)
        node.timers.advance(1000)
        with pytest.raises(Refused) as refused:
            await call
        assert refused.value.error is Error.REQUEST_TIMED_OUT
        node.settle()  # what comes after it is of no use to anybody

    asyncio.run(talk())
