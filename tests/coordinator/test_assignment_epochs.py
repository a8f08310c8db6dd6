"""The epochs in which members got their partitions (KIP-1251): in their records, and in a commit that comes again."""

from __future__ import annotations

from struct import pack
from typing import Final

import pytest

from headrace.coordinator.groups.consumer import records
from headrace.coordinator.groups.consumer.group import ConsumerGroup
from headrace.coordinator.groups.consumer.member import Current, Held, MemberState
from headrace.coordinator.groups.consumer.replay import replay
from headrace.coordinator.groups.group import Group
from headrace.coordinator.groups.shard import GroupShard
from headrace.errors import Error
from headrace.protocol import messages as m
from headrace.protocol.kernel_types import Row
from headrace.protocol.state import encode_key, encode_value
from tests.coordinator.clusters import topic_id
from tests.coordinator.consumer_script import GROUP, ConsumerScript

ID: Final = bytes(range(16))
Topic = m.ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions


def replayed(key: bytes, value: bytes | None) -> Current:
    groups: dict[str, Group] = {}
    replay(groups, key, value)
    group = groups[GROUP]
    assert isinstance(group, ConsumerGroup)
    return group.members["a"].current


def test_a_record_has_them_as_kafka_writes_it() -> None:
    """Beside the partitions, in a tagged field, which older readers pass over."""
    current = Current(7, 6, MemberState.UNREVOKED_PARTITIONS, {ID: {0: 5, 2: 7}}, {ID: {1: 5}})
    record = records.current_assignment(GROUP, "a", current)
    assert record.value == bytes.fromhex(
        "0000  00000007 00000006 01"
        # of each topic: id, partitions, one tag: its number, its size, the epochs
        "02 000102030405060708090a0b0c0d0e0f 03 00000000 00000002  01 00 09 03 00000005 00000007"
        "02 000102030405060708090a0b0c0d0e0f 02 00000001           01 00 05 02 00000005"
        "00"
    )
    assert replayed(record.key, record.value) == current


@pytest.mark.parametrize("epochs", [[], None, [1], [1, 2, 3]], ids=["none", "null", "too few", "too many"])
@pytest.mark.parametrize(("epoch", "since"), [(7, 7), (-2, 0)], ids=["in the group", "a static one that left"])
def test_of_a_record_without_them_the_members_epoch_is_taken(epochs: list[int] | None, epoch: int, since: int) -> None:
    """Older logs have none: in an epoch before, nothing of it was committed."""
    topic = Topic(topic_id=ID, partitions=[0, 2], assignment_epochs=epochs)
    value = m.ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=epoch,
        previous_member_epoch=6,
        assigned_partitions=[topic],
        partitions_pending_revocation=[Topic(topic_id=bytes(16), partitions=[4], assignment_epochs=epochs and [])],
    )
    key = m.ConsumerGroupCurrentMemberAssignmentKey(group_id=GROUP, member_id="a")
    current = replayed(encode_key(key), encode_value(value, 0))
    held: Held = {ID: {0: since, 2: since}}
    assert (current.assigned, current.revoking) == (held, {bytes(16): {4: since}})
    assert not current.has_had([(ID, 0)], since - 1)


def test_a_commit_that_comes_again_is_asked_for_each_time() -> None:
    """Its plan was made in an epoch that its member has left."""
    script = ConsumerScript()
    for line in ("topic t 4", "join a", "join b", "beat a", "beat a owns", "beat b"):
        script.command(line)
    kind = m.OffsetCommitRequest
    asked = [kind.OffsetCommitRequestPartition(partition_index=index) for index in (0, 1)]
    topic = kind.OffsetCommitRequestTopic(name="t", topic_id=topic_id("t"), partitions=asked)
    body = kind(group_id=GROUP, member_id="a", generation_id_or_member_epoch=2, topics=[topic])
    shard: GroupShard = script.runtime.shard
    plan = shard.offsets.plan(body, 9)
    assert plan is not None

    def again(*lines: str) -> list[tuple[Error, int]]:
        """What is answered, after these, of each partition, and how many records are written."""
        for line in lines:
            script.command(line)
        rows: list[Row] = []
        answer = plan.decide([pack(">qi", 5, -1)] * 2, shard, script.runtime.now_ms, rows, len(script.runtime.log))
        assert answer is plan.response or not rows
        return [(Error(one.error_code), len(rows)) for topic in answer.topics for one in topic.partitions]

    kept = [(Error.NONE, 2)] * 2
    stale = [(Error.STALE_MEMBER_EPOCH, 0)] * 2
    assert again() == kept
    assert again("leave b", "beat a") == kept, "it is in epoch 3"
    assert again("beat a owns", "join b", "join c", "join d", "beat a") == kept, "it is to give one of them up"
    assert again("beat a owns") == stale
    assert again("leave b", "leave c", "leave d", "beat a") == stale, "it has both again, one since now"
