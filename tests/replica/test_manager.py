"""The partitions of a node follow the image."""

from __future__ import annotations

import pytest

from headrace.config import LogConfig
from headrace.errors import Error, Refused
from headrace.protocol import messages as m
from headrace.replica.manager import MADE_A_STEP
from headrace.testing.disk import FaultyDisk
from tests.replica.hosts import NODE, TOPIC_ID, Host, change, partition_record, setting
from tests.storage.batches import batch
from tests.storage.logs import values_in

OTHER_ID = bytes(range(1, 17))


def refusal(host: Host, topic: str = "t", index: int = 0) -> Error:
    with pytest.raises(Refused) as refused:
        host.replicas.find(topic, index)
    return refused.value.error


def append(host: Host, value: bytes = b"v", topic: str = "t") -> None:
    host.partition(topic).append(memoryview(batch(value)), 1, host.now_ms())


def test_a_new_topic_can_be_used_at_once_and_its_partitions_are_made_in_steps() -> None:
    host = Host()
    host.apply(m.TopicRecord(name="t", topic_id=TOPIC_ID), *(partition_record(TOPIC_ID, index) for index in range(100)))
    assert host.replicas.find("t", 99) is host.replicas.find_by_id(TOPIC_ID, 99)
    host.loop.soon.popleft()()
    assert len(list(host.replicas.hosted())) == 1 + MADE_A_STEP
    host.drain()
    assert len(list(host.replicas.hosted())) == 100
    assert all(partition.is_leader for partition in host.replicas.hosted())


def test_who_asks_for_what_is_not_here_is_told_why() -> None:
    host = Host()
    host.create()
    host.apply(partition_record(TOPIC_ID, 1, replicas=(2,), leader=2))
    assert refusal(host, "other") is Error.UNKNOWN_TOPIC_OR_PARTITION
    assert refusal(host, "t", 7) is Error.UNKNOWN_TOPIC_OR_PARTITION
    assert refusal(host, "t", 1) is Error.NOT_LEADER_OR_FOLLOWER
    with pytest.raises(Refused) as refused:
        host.replicas.find_by_id(OTHER_ID, 0)
    assert refused.value.error is Error.UNKNOWN_TOPIC_ID


def test_a_deleted_topic_is_gone_with_its_files_and_whoever_waits_is_told() -> None:
    host = Host()
    host.create()
    answers: list[Error] = []
    partition = host.partition()
    appended = partition.append(memoryview(batch(b"v")), -1, host.now_ms())
    partition.when_acknowledged(appended, -1, answers.append)
    host.apply(m.RemoveTopicRecord(topic_id=TOPIC_ID))
    assert answers == [Error.UNKNOWN_TOPIC_OR_PARTITION]
    assert refusal(host) is Error.UNKNOWN_TOPIC_OR_PARTITION
    host.drain()
    for _ in host.directories.look_after():
        pass
    host.drain()
    assert not [name for name in host.disks[0].names() if name.startswith("t-0")]


def test_hazard_9_a_topic_made_again_under_its_name_begins_empty() -> None:
    host = Host()
    host.create()
    append(host, b"old")
    old = host.partition()
    host.apply(
        m.RemoveTopicRecord(topic_id=TOPIC_ID),
        m.TopicRecord(name="t", topic_id=OTHER_ID),
        partition_record(OTHER_ID, 0),
    )
    assert host.partition() is not old
    assert not old.is_leader
    assert host.partition().log_end_offset == 0
    with pytest.raises(Refused):
        host.replicas.find_by_id(TOPIC_ID, 0)


def test_hazard_9_a_topic_made_again_while_the_node_was_down_begins_empty_and_the_old_files_are_kept() -> None:
    host = Host()
    host.create()
    append(host, b"old")
    host = host.restart(
        clean=True,
        extra=[
            m.RemoveTopicRecord(topic_id=TOPIC_ID),
            m.TopicRecord(name="t", topic_id=OTHER_ID),
            partition_record(OTHER_ID, 0),
        ],
    )
    host.drain()
    assert host.partition().topic_id == OTHER_ID
    assert host.partition().log_end_offset == 0
    assert [name for name in host.disks[0].names() if name.endswith("-stray")]


def test_a_partition_that_the_image_does_not_have_at_the_start_is_set_aside() -> None:
    host = Host()
    host.create()
    append(host)
    host = host.restart(clean=True, extra=[m.RemoveTopicRecord(topic_id=TOPIC_ID)])
    assert refusal(host) is Error.UNKNOWN_TOPIC_OR_PARTITION
    assert list(host.directories.logs()) == []
    assert [name for name in host.disks[0].names() if name.endswith("-stray")]


def test_a_partition_that_moves_to_other_brokers_is_deleted_here() -> None:
    host = Host()
    host.create()
    host.apply(change(replicas=[2], isr=[2], leader=2))
    assert refusal(host) is Error.NOT_LEADER_OR_FOLLOWER
    host.drain()
    assert list(host.directories.logs()) == []


def test_thousands_that_are_deleted_at_once_are_out_of_service_at_once_and_lose_their_folders_in_steps() -> None:
    host = Host()
    host.create(partitions=100)
    host.drain()
    host.apply(m.RemoveTopicRecord(topic_id=TOPIC_ID))
    assert refusal(host) is Error.UNKNOWN_TOPIC_OR_PARTITION
    assert len(list(host.directories.logs())) == 100
    host.loop.soon.popleft()()
    assert 0 < len(list(host.directories.logs())) < 100
    host.drain()
    assert list(host.directories.logs()) == []


def test_hazard_9_a_topic_made_again_while_its_folders_wait_to_go_is_another_one() -> None:
    host = Host()
    host.create()
    append(host)
    host.apply(m.RemoveTopicRecord(topic_id=TOPIC_ID))
    host.apply(m.TopicRecord(name="t", topic_id=OTHER_ID), partition_record(OTHER_ID, 0))
    assert host.replicas.find("t", 0).log_end_offset == 0
    assert host.replicas.find("t", 0).log.topic_id == OTHER_ID
    host.drain()
    assert len(list(host.directories.logs())) == 1


def test_settings_of_a_topic_stand_over_the_broker_s_and_change_its_log_at_once() -> None:
    host = Host(config=LogConfig(retention_ms=1234, max_message_bytes=1000))
    host.create(max_message_bytes="200")
    log = host.partition().log
    assert (log.config.max_message_bytes, log.config.retention_ms) == (200, 1234)
    with pytest.raises(Refused) as refused:
        append(host, b"x" * 500)
    assert refused.value.error is Error.MESSAGE_TOO_LARGE
    host.apply(setting("max.message.bytes", None))
    append(host, b"x" * 500)
    assert log.config is host.config


def test_settings_are_there_again_after_a_restart() -> None:
    host = Host()
    host.create(flush_messages="1")
    host = host.restart(clean=True)
    assert host.partition().syncs_each


def test_a_setting_that_this_node_does_not_know_leaves_the_others_in_force() -> None:
    host = Host()
    host.create()
    host.apply(setting("from.the.future", "yes"), setting("retention.ms", "77"))
    assert host.partition().log.config.retention_ms == 77


def test_topics_with_the_same_settings_share_them() -> None:
    host = Host()
    host.create("a", topic_id=TOPIC_ID, retention_ms="5")
    host.create("b", topic_id=OTHER_ID, retention_ms="5")
    assert host.partition("a").log.config is host.partition("b").log.config


def test_hazard_15_a_partition_that_a_full_disk_could_not_hold_is_made_when_there_is_room() -> None:
    disk = FaultyDisk(root="/disk0")
    host = Host([disk])
    disk.faults.capacity_bytes = disk.platter.used_bytes()
    host.create()
    assert refusal(host) is Error.KAFKA_STORAGE_ERROR
    disk.faults.capacity_bytes = None
    host.loop.pass_ms(2000)
    host.run_soon()
    assert [(partition.topic, partition.index) for partition in host.replicas.hosted()] == [("t", 0)]
    append(host)


def test_hazard_15_what_a_full_disk_can_not_hold_is_told_once_and_tried_by_one_timer(
    caplog: pytest.LogCaptureFixture,
) -> None:
    disk = FaultyDisk(root="/disk0")
    host = Host([disk])
    disk.faults.capacity_bytes = disk.platter.used_bytes()
    host.create(partitions=20)
    for number in range(10):
        host.apply(setting("retention.ms", str(number + 1)))
        host.run_soon()
    assert len(host.waits) == 1
    for _ in range(5):
        host.loop.pass_ms(1000)
        host.run_soon()
    assert len(host.waits) == 1
    assert sum("can't be made" in text for text in caplog.messages) == 20


def test_a_directory_that_fails_leaves_the_partitions_of_the_others_in_service() -> None:
    disks = [FaultyDisk(root="/disk0"), FaultyDisk(root="/disk1")]
    host = Host(disks)
    host.create("t", 2)
    answers: list[Error] = []
    for index in (0, 1):
        partition = host.partition("t", index)
        appended = partition.append(memoryview(batch(b"v")), -1, host.now_ms())
        partition.when_acknowledged(appended, -1, answers.append)
    disks[0].faults.fail_sync_at = disks[0].syncs + 1
    host.drain()
    assert sorted(answers) == [Error.NONE, Error.KAFKA_STORAGE_ERROR]
    offline = [host.partition("t", index).offline is not None for index in (0, 1)]
    assert sorted(offline) == [False, True]


def test_hazard_8_a_partition_offline_at_the_start_is_not_made_anew() -> None:
    disks = [FaultyDisk(root="/disk0"), FaultyDisk(root="/disk1")]
    host = Host(disks)
    host.create("t", 1)
    append(host, b"only copy")
    host.directories.close(7)
    index = next(number for number, disk in enumerate(disks) if "t-0" in disk.names())
    again = [disk.restart() for disk in disks]
    again[index].faults.unreadable = ("t-0",)
    again[index].faults.forbidden = ("t-0",)
    host = Host(again, records=host.records)
    host.drain()
    assert refusal(host) is Error.KAFKA_STORAGE_ERROR
    assert all("t-0" not in disk.names() for number, disk in enumerate(again) if number != index)


def test_what_may_be_in_a_directory_that_is_left_out_is_not_made_anew_and_a_new_topic_is() -> None:
    disks = [FaultyDisk(root="/disk0"), FaultyDisk(root="/disk1")]
    host = Host(disks)
    host.create("t", 1)
    append(host, b"only copy")
    host.drain()
    index = next(number for number, disk in enumerate(disks) if "t-0" in disk.names())
    again = [disk.restart() for disk in disks]
    again[index].faults.read_only = True
    host = Host(again, records=host.records)
    host.drain()
    assert refusal(host) is Error.KAFKA_STORAGE_ERROR
    assert "t-0" not in again[1 - index].names()
    host.create("new", topic_id=OTHER_ID)
    append(host, topic="new")
    host = Host([disk.restart() for disk in again], records=host.records)
    host.drain()
    assert values_in(host.partition("t").log) == [(0, b"only copy")]


def test_what_was_there_is_there_after_a_restart_under_a_new_epoch() -> None:
    host = Host()
    host.create()
    append(host, b"a")
    host = host.restart(clean=True, extra=[change(leader=NODE)])
    append(host, b"b")
    assert values_in(host.partition().log) == [(0, b"a"), (1, b"b")]
    assert host.partition().end_offset_for(0) == (0, 1)
