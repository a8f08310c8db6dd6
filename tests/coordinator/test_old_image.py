"""Coordinators of a broker that starts: they do nothing on the word of an image that may be old."""

from __future__ import annotations

from collections.abc import Callable

from headrace.config.coordinators import GroupConfig, OffsetsConfig
from headrace.coordinator.groups.context import GroupContext
from headrace.coordinator.groups.note import Note
from headrace.coordinator.groups.shard import GroupShard
from headrace.coordinator.runtime import Runtime
from headrace.coordinator.shard import Timers
from headrace.coordinator.state_topic import CONSUMER_OFFSETS
from headrace.errors import Error
from headrace.metadata.image import Image
from headrace.protocol import messages as m
from headrace.testing.disk import FaultyDisk
from tests.coordinator.pure import Answer
from tests.coordinator.toy import TOPIC, Toys
from tests.replica.hosts import NODE, Host, change, partition_record


def registration(incarnation_id: bytes) -> m.RegisterBrokerRecord:
    return m.RegisterBrokerRecord(broker_id=NODE, incarnation_id=incarnation_id, broker_epoch=1, fenced=False)


def registered_as(incarnation_id: bytes) -> Callable[[Image], bool]:
    return lambda image: NODE in image.brokers and image.brokers[NODE].incarnation_id == incarnation_id


def test_no_shard_is_hosted_before_the_image_knows_of_this_life_of_the_broker() -> None:
    host, first, second = Host(), b"1" * 16, b"2" * 16
    host.create(TOPIC)
    host.apply(registration(first))  # which was of the life before
    toys = Toys(host, is_registered=registered_as(second))
    host.create("another", topic_id=b"o" * 16)
    assert toys.runtime.indexes() == []
    assert toys.get("a").error is Error.NOT_COORDINATOR
    host.apply(registration(second))
    host.drain()
    assert toys.runtime.indexes() == [0]
    assert str(toys.get("a").message) == "a=0"


def test_what_an_old_image_says_that_this_broker_leads_is_not_hosted_when_it_leads_no_more() -> None:
    host = Host()
    host.create(TOPIC)
    toys = Toys(host, is_registered=registered_as(b"1" * 16))
    host.apply(registration(b"1" * 16), change(leader=2, isr=[2], replicas=[1, 2]))
    host.drain()
    assert toys.shards == []


def test_topics_that_an_old_image_does_not_know_yet_are_not_taken_for_deleted() -> None:
    """Hazard 9: their offsets would be deleted for good."""
    before = Host()
    before.create(CONSUMER_OFFSETS)
    old_records = list(before.records)
    topic = [m.TopicRecord(name="t", topic_id=b"t" * 16), partition_record(b"t" * 16, leader=2, replicas=[2])]
    before.apply(*topic)
    runtime = group_runtime(before, lambda image: True)
    before.drain()
    kind, answer = m.OffsetCommitRequest, Answer()
    committed = kind.OffsetCommitRequestPartition(partition_index=0, committed_offset=7, committed_metadata="")
    body = kind(
        group_id="g",
        generation_id_or_member_epoch=-1,
        topics=[kind.OffsetCommitRequestTopic(name="t", partitions=[committed])],
    )
    runtime.ask("g", lambda shard, now_ms: shard.offsets.commit(body, 9, answer, now_ms), answer)
    before.drain()
    assert answer.is_there
    after = Host([disk.restart() for disk in before.disks if isinstance(disk, FaultyDisk)], records=old_records)
    runtime = group_runtime(after, registered_as(b"2" * 16))
    after.drain()
    after.apply(*topic)
    after.apply(registration(b"2" * 16))
    after.drain()
    shard = runtime.shard_of("g")
    assert shard is not None
    assert list(shard.offsets.store.of_group("g")) == ["t"]


def group_runtime(host: Host, is_registered: Callable[[Image], bool]) -> Runtime[GroupShard]:
    def make(timers: Timers, leader_epoch: int) -> GroupShard:
        return GroupShard(
            GroupContext(timers, group_config=GroupConfig(), offsets_config=OffsetsConfig(), random_bytes=bytes)
        )

    runtime: Runtime[GroupShard] = Runtime(
        CONSUMER_OFFSETS, make, host.replicas, host.workers, host.loop.soon.append, is_registered=is_registered
    )
    runtime.effects[Note] = lambda effect: None
    host.loader.subscribe(runtime.apply)
    return runtime
