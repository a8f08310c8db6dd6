"""A partition whose log waits for room is offline to clients, and back without a restart (hazard 15)."""

from __future__ import annotations

import logging

import pytest

from headrace.config import StorageConfig
from headrace.errors import Error, Refused
from headrace.protocol import messages as m
from headrace.replica.reopenings import PAUSE_MS, PAUSE_MS_MAX
from headrace.replica.upkeep import Upkeep
from headrace.storage.disk import Disk
from headrace.testing.disk import Faults, FaultyDisk
from tests.replica.hosts import TOPIC_ID, Host
from tests.storage.batches import batch
from tests.storage.logs import values_in

OTHER_ID = bytes(range(1, 17))


def kept(host: Host) -> Upkeep:
    upkeep = Upkeep(host.replicas, host.settings, StorageConfig(), host.waits, call_soon=host.loop.soon.append)
    upkeep.start()
    host.drain()
    return upkeep


def waiting(partitions: int = 1) -> tuple[Host, FaultyDisk]:
    """A node that a full disk did not let open its logs, after a sync that failed."""
    disk = FaultyDisk(root="/disk0")
    host = Host([disk])
    host.create("t", partitions)
    for index in range(partitions):
        append(host, b"v%d" % index, index)
    host.drain()
    disk.faults.fail_sync_at = disk.syncs + 1
    append(host, b"lost", partitions - 1)
    host.drain()
    disk = disk.restart(faults=Faults(capacity_bytes=0))
    host = Host([disk], config=host.config, records=host.records)
    host.drain()
    return host, disk


def append(host: Host, value: bytes, index: int = 0) -> None:
    partition = host.partition("t", index)
    appended = partition.append(memoryview(batch(value)), -1, host.now_ms())
    partition.when_acknowledged(appended, -1, lambda error: None)


def pass_ms(host: Host, time_ms: int, step_ms: int = 100) -> None:
    for _ in range(time_ms // step_ms):
        host.loop.pass_ms(step_ms)
        host.drain()


def refusal(host: Host, index: int = 0) -> Refused:
    with pytest.raises(Refused) as refused:
        host.replicas.find("t", index)
    return refused.value


def test_hazard_15_it_is_offline_to_clients_and_to_metrics_until_there_is_room(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    host, disk = waiting(3)
    kept(host)
    placed: list[int] = []
    host.replicas.on_placed = lambda partition: placed.append(partition.index)
    for _ in range(30):
        pass_ms(host, 1000)
        refused = refusal(host, 1)
        assert refused.error is Error.KAFKA_STORAGE_ERROR
        assert "the disk is full" in refused.text
        assert host.replicas.unmade_count == 3
    disk.faults.capacity_bytes = None
    pass_ms(host, PAUSE_MS_MAX)
    assert host.replicas.unmade_count == 0
    assert sorted(placed) == [0, 1, 2]
    for index in range(3):
        partition = host.partition("t", index)
        assert partition.is_leader
        assert values_in(partition.log) == [(0, b"v%d" % index)]
        append(host, b"new", index)
    told = [text for text in caplog.messages if text.startswith("t-1 ")]
    assert [text.partition(":")[0] for text in told] == [
        "t-1 is offline as long as this lasts",
        "t-1 is online again; it ends at offset 1",
    ]


def test_hazard_15_a_disk_that_stays_full_is_tried_now_and_then() -> None:
    host, disk = waiting(50)
    disk.trace = []
    kept(host)
    pass_ms(host, 60_000)
    tries = sum(call.startswith("names t-") for call in disk.trace)
    assert 5 <= tries <= 60_000 // PAUSE_MS_MAX + 4
    for _ in range(100):
        refusal(host, 49)
    assert tries == sum(call.startswith("names t-") for call in disk.trace), "who asks for one makes no try"


def test_as_soon_as_one_can_be_opened_the_others_follow_at_once() -> None:
    host, disk = waiting(50)
    kept(host)
    disk.faults.capacity_bytes = None
    pass_ms(host, PAUSE_MS)
    assert host.replicas.unmade_count == 0
    assert len(list(host.replicas.hosted())) == 50


def test_hazard_9_a_topic_that_is_deleted_meanwhile_leaves_no_files() -> None:
    host, disk = waiting(2)
    kept(host)
    host.apply(m.RemoveTopicRecord(topic_id=TOPIC_ID))
    pass_ms(host, 2000)
    assert not [name for name in disk.names() if name.startswith("t-")], "it made room"
    assert host.replicas.unmade_count == 0
    disk.faults.capacity_bytes = None
    pass_ms(host, PAUSE_MS_MAX)
    assert not list(host.replicas.hosted())


def test_hazard_9_a_topic_made_again_meanwhile_begins_empty() -> None:
    host, disk = waiting()
    kept(host)
    host.apply(m.RemoveTopicRecord(topic_id=TOPIC_ID))
    host.create("t", topic_id=OTHER_ID)
    disk.faults.capacity_bytes = None
    pass_ms(host, PAUSE_MS_MAX)
    assert (host.partition().topic_id, host.partition().log.log_end_offset) == (OTHER_ID, 0)
    assert host.replicas.unmade_count == 0


def test_hazard_9_a_log_that_nobody_wants_when_it_is_opened_is_set_aside() -> None:
    """Its topic was deleted while the node was down."""
    host, disk = waiting()
    disk = disk.restart(faults=Faults(capacity_bytes=0))
    host = Host([disk], records=[*host.records, m.RemoveTopicRecord(topic_id=TOPIC_ID)])
    host.drain()
    kept(host)
    assert host.replicas.unmade_count == 1
    disk.faults.capacity_bytes = None
    pass_ms(host, PAUSE_MS_MAX)
    assert host.replicas.unmade_count == 0
    assert [name.endswith("-stray") for name in disk.names() if name.startswith("t-")] == [True]


def test_a_node_that_stops_tries_no_more() -> None:
    host, disk = waiting()
    upkeep = kept(host)
    upkeep.stop()
    disk.faults.capacity_bytes = None
    pass_ms(host, PAUSE_MS_MAX)
    assert host.replicas.unmade_count == 1
    assert host.directories.log("t", 0) is None
    rested: list[Disk] = []
    host.directories.rest(lambda: rested.append(disk))
    assert rested
    again = host.restart(clean=True)
    assert values_in(again.partition().log) == [(0, b"v0")]
