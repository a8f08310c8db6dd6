"""Records of consumer groups, on their way back into state."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from headrace.coordinator.groups.consumer.assignors.spec import Assignment
from headrace.coordinator.groups.consumer.group import ConsumerGroup, Resolved
from headrace.coordinator.groups.consumer.member import (
    JOIN_EPOCH,
    ClassicMember,
    Current,
    Held,
    MemberState,
    Subscription,
)
from headrace.coordinator.groups.group import Group
from headrace.protocol.shape import Kind
from headrace.protocol.state import decode_key, decode_value

Groups = dict[str, Group]


def replay(groups: Groups, key_bytes: bytes, value_bytes: bytes | None) -> None:
    """Any record with a value makes the group, so that it matters not which of them compaction left first."""
    key: Any = decode_key(Kind.GROUP, key_bytes)
    if key is None:
        return
    group = groups.get(key.group_id)
    if not isinstance(group, ConsumerGroup):
        if value_bytes is None:
            return
        group = groups[key.group_id] = ConsumerGroup(key.group_id)
    value: Any = None if value_bytes is None else decode_value(Kind.GROUP, key, value_bytes)
    if key.shape.name == "ConsumerGroupMetadataKey" and value is None:
        del groups[key.group_id]
        return
    _REPLAY[key.shape.name](group, key, value)


def _epoch(group: ConsumerGroup, key: Any, value: Any) -> None:
    group.apply_epoch(value.epoch, value.metadata_hash)


def _old_metadata(group: ConsumerGroup, key: Any, value: Any) -> None:
    group.has_old_metadata = value is not None


def _member(group: ConsumerGroup, key: Any, value: Any) -> None:
    if value is None:
        group.apply_no_member(key.member_id)
        return
    classic = value.classic_member_metadata
    group.apply_subscription(
        key.member_id,
        Subscription(
            instance_id=value.instance_id,
            rack_id=value.rack_id,
            client_id=value.client_id,
            client_host=value.client_host,
            names=tuple(sorted(value.subscribed_topic_names)),
            regex=value.subscribed_topic_regex or None,
            rebalance_timeout_ms=value.rebalance_timeout_ms,
            server_assignor=value.server_assignor,
            classic=None
            if classic is None
            else ClassicMember(
                classic.session_timeout_ms,
                tuple((protocol.name, bytes(protocol.metadata)) for protocol in classic.supported_protocols),
            ),
        ),
    )


def _target_epoch(group: ConsumerGroup, key: Any, value: Any) -> None:
    group.assignment_epoch = 0 if value is None else value.assignment_epoch


def _target(group: ConsumerGroup, key: Any, value: Any) -> None:
    group.apply_target(key.member_id, None if value is None else _assignment(value.topic_partitions))


def _current(group: ConsumerGroup, key: Any, value: Any) -> None:
    if value is None:
        group.apply_no_current(key.member_id)
        return
    group.apply_current(
        key.member_id,
        Current(
            epoch=value.member_epoch,
            previous_epoch=value.previous_member_epoch,
            state=_STATES.get(value.state, MemberState.UNKNOWN),
            assigned=_held(value.assigned_partitions, value.member_epoch),
            revoking=_held(value.partitions_pending_revocation, value.member_epoch),
        ),
    )


def _regex(group: ConsumerGroup, key: Any, value: Any) -> None:
    resolved = None if value is None else Resolved(tuple(value.topics), value.version, value.timestamp)
    group.apply_resolved(key.regular_expression, resolved)


def _assignment(topics: Sequence[Any]) -> Assignment:
    return {topic.topic_id: tuple(topic.partitions) for topic in topics if topic.partitions}


def _held(topics: Sequence[Any], member_epoch: int) -> Held:
    """Kafka before 4.3, and we until then, wrote no assignment epochs: nothing was committed in an epoch before."""
    unknown = max(member_epoch, JOIN_EPOCH)  # a static member that left is in no epoch
    held: dict[bytes, dict[int, int]] = {}
    for topic in topics:
        partitions, epochs = topic.partitions, topic.assignment_epochs or ()
        if len(partitions) != len(epochs):
            held[topic.topic_id] = dict.fromkeys(partitions, unknown)
        elif partitions:
            held[topic.topic_id] = dict(zip(partitions, epochs, strict=True))
    return held


_STATES: Final = {state.value: state for state in MemberState}

_REPLAY: Final[dict[str, Callable[[ConsumerGroup, Any, Any], None]]] = {
    "ConsumerGroupMetadataKey": _epoch,
    "ConsumerGroupPartitionMetadataKey": _old_metadata,
    "ConsumerGroupMemberMetadataKey": _member,
    "ConsumerGroupTargetAssignmentMetadataKey": _target_epoch,
    "ConsumerGroupTargetAssignmentMemberKey": _target,
    "ConsumerGroupCurrentMemberAssignmentKey": _current,
    "ConsumerGroupRegularExpressionKey": _regex,
}
