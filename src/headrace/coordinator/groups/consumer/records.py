"""The records of consumer groups, as Kafka writes them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from headrace.coordinator.groups.consumer.assignors.spec import Assignment
from headrace.coordinator.groups.consumer.member import Current, Held, Subscription
from headrace.coordinator.shard import StateRecord
from headrace.protocol import messages as m
from headrace.protocol.message import Message
from headrace.protocol.state import encode_key, encode_value


def group_metadata(group_id: str, epoch: int, metadata_hash: int) -> StateRecord:
    value = m.ConsumerGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash)
    return _record(m.ConsumerGroupMetadataKey(group_id=group_id), value)


def no_group_metadata(group_id: str) -> StateRecord:
    return _record(m.ConsumerGroupMetadataKey(group_id=group_id), None)


def no_partition_metadata(group_id: str) -> StateRecord:
    """Kafka before 4.1 wrote what it knew of topics; since then a hash of it is with the group's epoch."""
    return _record(m.ConsumerGroupPartitionMetadataKey(group_id=group_id), None)


def member_metadata(group_id: str, member_id: str, subscription: Subscription) -> StateRecord:
    kind = m.ConsumerGroupMemberMetadataValue
    classic = subscription.classic
    value = kind(
        instance_id=subscription.instance_id,
        rack_id=subscription.rack_id,
        client_id=subscription.client_id,
        client_host=subscription.client_host,
        subscribed_topic_names=list(subscription.names),
        subscribed_topic_regex=subscription.regex,
        rebalance_timeout_ms=subscription.rebalance_timeout_ms,
        server_assignor=subscription.server_assignor,
        classic_member_metadata=None
        if classic is None
        else kind.ClassicMemberMetadata(
            session_timeout_ms=classic.session_timeout_ms,
            supported_protocols=[
                kind.ClassicProtocol(name=name, metadata=metadata) for name, metadata in classic.protocols
            ],
        ),
    )
    return _record(m.ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member_id), value)


def target_epoch(group_id: str, epoch: int) -> StateRecord:
    value = m.ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=epoch)
    return _record(m.ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id), value)


def no_target_epoch(group_id: str) -> StateRecord:
    return _record(m.ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id), None)


def target(group_id: str, member_id: str, assignment: Assignment) -> StateRecord:
    kind = m.ConsumerGroupTargetAssignmentMemberValue
    value = kind(
        topic_partitions=[
            kind.TopicPartition(topic_id=topic_id, partitions=list(partitions))
            for topic_id, partitions in assignment.items()
        ]
    )
    return _record(m.ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), value)


def current_assignment(group_id: str, member_id: str, current: Current) -> StateRecord:
    value = m.ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=current.epoch,
        previous_member_epoch=current.previous_epoch,
        state=current.state,
        assigned_partitions=_partitions(current.assigned),
        partitions_pending_revocation=_partitions(current.revoking),
    )
    return _record(m.ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id), value)


def regular_expression(group_id: str, regex: str, topics: Sequence[str], version: int, now_ms: int) -> StateRecord:
    value = m.ConsumerGroupRegularExpressionValue(topics=list(topics), version=version, timestamp=now_ms)
    return _record(m.ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=regex), value)


def no_regular_expression(group_id: str, regex: str) -> StateRecord:
    return _record(m.ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=regex), None)


def no_member(group_id: str, member_id: str) -> list[StateRecord]:
    return [
        *no_current_assignments(group_id, [member_id]),
        *_no_targets(group_id, [member_id]),
        *_no_metadata(group_id, [member_id]),
    ]


def no_current_assignments(group_id: str, member_ids: Iterable[str]) -> list[StateRecord]:
    kind = m.ConsumerGroupCurrentMemberAssignmentKey
    return [_record(kind(group_id=group_id, member_id=member_id), None) for member_id in member_ids]


def no_group(group_id: str, member_ids: Sequence[str], regexes: Iterable[str], *, is_old: bool) -> list[StateRecord]:
    """Everything of a group goes; its epoch is the last. `is_old` where it has a record that only old Kafka wrote."""
    return [
        *no_current_assignments(group_id, member_ids),
        *_no_targets(group_id, member_ids),
        no_target_epoch(group_id),
        *_no_metadata(group_id, member_ids),
        *(no_regular_expression(group_id, regex) for regex in regexes),
        *([no_partition_metadata(group_id)] if is_old else []),
        no_group_metadata(group_id),
    ]


def _no_targets(group_id: str, member_ids: Iterable[str]) -> list[StateRecord]:
    kind = m.ConsumerGroupTargetAssignmentMemberKey
    return [_record(kind(group_id=group_id, member_id=member_id), None) for member_id in member_ids]


def _no_metadata(group_id: str, member_ids: Iterable[str]) -> list[StateRecord]:
    kind = m.ConsumerGroupMemberMetadataKey
    return [_record(kind(group_id=group_id, member_id=member_id), None) for member_id in member_ids]


def _partitions(held: Held) -> list[m.ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions]:
    kind = m.ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions
    return [
        kind(topic_id=topic_id, partitions=list(partitions), assignment_epochs=list(partitions.values()))
        for topic_id, partitions in held.items()
    ]


def _record(key: Message, value: Message | None) -> StateRecord:
    return StateRecord(encode_key(key), None if value is None else encode_value(value, 0))
