"""A classic group as a record of `__consumer_offsets`, in Kafka's own format, so that its tools can read it. PURE."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from headrace.coordinator.groups.classic.member import Member
from headrace.coordinator.shard import StateRecord
from headrace.errors import ProtocolError
from headrace.protocol import messages as m
from headrace.protocol.codec import decode_at
from headrace.protocol.state import encode_key, encode_value

if TYPE_CHECKING:
    from headrace.coordinator.groups.classic.group import ClassicGroup

VALUE_VERSION: Final = 3
"""Kafka writes it since 2.3; the next one only has room for tagged fields."""
NO_TIMEOUT: Final = -1


def value_of(group: ClassicGroup, assignments: dict[str, bytes], since_ms: int) -> m.GroupMetadataValue:
    """The group with what its members are assigned, which is nothing for those that are not named."""
    return m.GroupMetadataValue(
        protocol_type=group.protocol_type,
        generation=group.generation,
        protocol=group.protocol,
        leader=group.leader,
        current_state_timestamp=since_ms,
        members=[
            m.GroupMetadataValue.MemberMetadata(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout=member.rebalance_timeout_ms,
                session_timeout=member.session_timeout_ms,
                subscription=member.protocols[group.protocol] if group.protocol is not None else b"",
                assignment=assignments.get(member.member_id, b""),
            )
            for member in group.members.values()
        ],
    )


def with_static_member(value: m.GroupMetadataValue, instance_id: str, member_id: str) -> m.GroupMetadataValue | None:
    """The same group with another member id for a static member; None when it does not have that member."""
    members = []
    found: str | None = None
    for member in value.members:
        if member.group_instance_id == instance_id:
            found = member.member_id
            member = _renamed(member, member_id)
        members.append(member)
    if found is None:
        return None
    return m.GroupMetadataValue(
        protocol_type=value.protocol_type,
        generation=value.generation,
        protocol=value.protocol,
        leader=member_id if value.leader == found else value.leader,
        current_state_timestamp=value.current_state_timestamp,
        members=members,
    )


def _renamed(member: m.GroupMetadataValue.MemberMetadata, member_id: str) -> m.GroupMetadataValue.MemberMetadata:
    return m.GroupMetadataValue.MemberMetadata(
        member_id=member_id,
        group_instance_id=member.group_instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout=member.rebalance_timeout,
        session_timeout=member.session_timeout,
        subscription=member.subscription,
        assignment=member.assignment,
    )


def record(group_id: str, value: m.GroupMetadataValue) -> StateRecord:
    return StateRecord(encode_key(m.GroupMetadataKey(group=group_id)), encode_value(value, VALUE_VERSION))


def tombstone(group_id: str) -> StateRecord:
    return StateRecord(encode_key(m.GroupMetadataKey(group=group_id)), None)


def member_of(stored: m.GroupMetadataValue.MemberMetadata, protocol: str | None) -> Member:
    """A member as the log knows it: of the protocols that it offered only the one that was chosen."""
    return Member(
        stored.member_id,
        stored.group_instance_id,
        stored.client_id,
        stored.client_host,
        stored.session_timeout if stored.rebalance_timeout == NO_TIMEOUT else stored.rebalance_timeout,
        stored.session_timeout,
        {} if protocol is None else {protocol: stored.subscription},
        stored.assignment,
    )


def topics_of(subscriptions: Iterable[bytes]) -> frozenset[str] | None:
    """The topics in the metadata of consumers. None when one can't be read.

    Every version of that metadata begins as the first one did, after its version.
    """
    topics: dict[str, None] = {}
    for subscription in subscriptions:
        try:
            found, _ = decode_at(m.ConsumerProtocolSubscription, 0, subscription, 2)
        except ProtocolError:
            return None
        topics |= dict.fromkeys(found.topics)
    return frozenset(topics)
