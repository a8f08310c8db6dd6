"""What a ConsumerGroupHeartbeat must say to be one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from headrace.coordinator.groups.consumer.assignors.spec import Assignment
from headrace.coordinator.groups.consumer.member import JOIN_EPOCH, STATIC_LEAVE_EPOCH, Held
from headrace.coordinator.state_topic import fits_key
from headrace.errors import Error, Refused
from headrace.protocol import messages as m

MEMBER_ID_BY_CLIENT: Final = 1
"""The version from which on members make their ids (KIP-1082)."""


def validate_heartbeat(body: m.ConsumerGroupHeartbeatRequest, version: int, assignors: Sequence[str]) -> None:
    _not_blank(body.group_id, "GroupId can't be empty.")
    _not_blank(body.instance_id, "InstanceId can't be empty.")
    _not_blank(body.rack_id, "RackId can't be empty.")
    if not fits_key(body.member_id):
        raise Refused(Error.INVALID_REQUEST, "MemberId is too long.")
    if body.member_epoch < STATIC_LEAVE_EPOCH:
        raise Refused(Error.INVALID_REQUEST, f"MemberEpoch {body.member_epoch} is invalid.")
    if body.member_epoch == JOIN_EPOCH:
        if version >= MEMBER_ID_BY_CLIENT:
            _not_blank(body.member_id, "MemberId can't be empty.")
        if body.rebalance_timeout_ms == -1:
            raise Refused(Error.INVALID_REQUEST, "RebalanceTimeoutMs must be provided in the first request.")
        if body.topic_partitions is None or body.topic_partitions:
            raise Refused(Error.INVALID_REQUEST, "TopicPartitions must be empty when (re-)joining.")
        # An empty list, or an empty expression, is a member that subscribes to nothing yet.
        if body.subscribed_topic_names is None and body.subscribed_topic_regex is None:
            raise Refused(
                Error.INVALID_REQUEST,
                "SubscribedTopicNames or SubscribedTopicRegex must be provided when (re-)joining.",
            )
    else:
        _not_blank(body.member_id, "MemberId can't be empty.")
        if body.member_epoch == STATIC_LEAVE_EPOCH and body.instance_id is None:
            raise Refused(Error.INVALID_REQUEST, "InstanceId can't be null.")
    if body.server_assignor is not None and body.server_assignor not in assignors:
        raise Refused(
            Error.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {body.server_assignor} is not supported. Supported assignors: {', '.join(assignors)}.",
        )


def owned_partitions(body: m.ConsumerGroupHeartbeatRequest) -> Assignment | None:
    """What the member says that it owns; None when it does not say."""
    if body.topic_partitions is None:
        return None
    owned: dict[bytes, tuple[int, ...]] = {}
    for topic in body.topic_partitions:
        if topic.partitions:
            owned[topic.topic_id] = owned.get(topic.topic_id, ()) + tuple(topic.partitions)
    return owned


def is_subset(owned: Assignment | None, assigned: Held) -> bool:
    if owned is None:
        return False
    for topic_id, partitions in owned.items():
        mine = assigned.get(topic_id, ())
        if not all(partition in mine for partition in partitions):
            return False
    return True


def _not_blank(text: str | None, sentence: str) -> None:
    if text is not None and not text.strip():
        raise Refused(Error.INVALID_REQUEST, sentence)
