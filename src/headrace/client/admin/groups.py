"""Groups: which there are, who is in them, what they have read, and offsets set anew."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from headrace.client.admin.calls import TopicPartition, by_topic
from headrace.client.admin.coordinated import CoordinatedCalls
from headrace.client.arguments import items, mapping, refuse, text, texts
from headrace.client.arguments import partitions as checked_partitions
from headrace.client.coordinators import CoordinatorKind
from headrace.client.transaction import OffsetToCommit, checked_offsets
from headrace.errors import Error, HeadraceError, ProtocolError, Refused
from headrace.protocol import messages as m
from headrace.protocol.codec import decode_at

__all__ = ["GroupCalls", "GroupDetail", "GroupListing", "MemberDetail"]

NAMES_VERSION_MAX: Final = 9  # later versions of offsets know topics by their ids only
_MEMBERS: Final = "a list of member ids and instance ids, such as [('member-1', None)]"
_CLASSIC: Final = "classic"
_CONSUMER: Final = "consumer"


class GroupListing(NamedTuple):
    group_id: str
    state: str
    """As the broker calls it: Stable, Empty, PreparingRebalance, …; empty where it does not say."""
    type: str
    """classic, consumer, share, streams; classic where the broker does not know types."""
    protocol_type: str
    coordinator_id: int


@dataclass(slots=True)
class MemberDetail:
    member_id: str
    client_id: str
    host: str
    instance_id: str | None = None
    rack: str | None = None
    epoch: int | None = None
    """Of the member; None in the classic protocol."""
    subscribed: list[str] = field(default_factory=list)
    pattern: str | None = None
    assigned: list[TopicPartition] = field(default_factory=list)
    target: list[TopicPartition] = field(default_factory=list)
    """What it is to have, when the group has settled; in the classic protocol what it has."""


@dataclass(slots=True)
class GroupDetail:
    group_id: str
    type: str
    state: str
    coordinator_id: int = -1
    epoch: int | None = None
    assignor: str = ""
    protocol_type: str = ""
    members: list[MemberDetail] = field(default_factory=list)


class GroupCalls(CoordinatedCalls):
    __slots__ = ()

    async def list_groups(
        self, *, states: Sequence[str] = (), types: Sequence[str] = (), failures: dict[int, HeadraceError] | None = None
    ) -> dict[str, GroupListing]:
        """All groups, or those in these states and of these types. With `failures` a broker that does not answer is
        noted there; without, it raises.
        """
        request = m.ListGroupsRequest(states_filter=texts("states", states), types_filter=texts("types", types))
        listed = {
            one.group_id: GroupListing(
                one.group_id, one.group_state, (one.group_type or _CLASSIC).lower(), one.protocol_type, broker_id
            )
            for broker_id, response in await self._lists(request, "groups", failures)
            for one in response.groups
        }
        return {name: listed[name] for name in sorted(listed)}

    async def describe_groups(self, groups: Mapping[str, str]) -> dict[str, GroupDetail]:
        """Groups in full, by their names and types, as `list_groups` tells them. A classic group that is not there is
        one in the state Dead; a new one is GROUP_ID_NOT_FOUND.
        """
        groups = mapping("groups", groups, "types by the names of groups, such as {'readers': 'consumer'}")
        for name, kind in groups.items():
            text("each name of groups", name, empty=True)
            text(f"the type of {name}", kind)
        new = [name for name, kind in groups.items() if kind == _CONSUMER]
        classic = [name for name in groups if name not in new]
        found = await self._at_coordinators(
            CoordinatorKind.GROUP,
            classic,
            lambda names: m.DescribeGroupsRequest(groups=names),
            lambda response: [_classic(one) for one in response.groups],
            "can't be described",
        )
        found |= await self._at_coordinators(
            CoordinatorKind.GROUP,
            new,
            lambda names: m.ConsumerGroupDescribeRequest(group_ids=names),
            lambda response: [_consumer(one) for one in response.groups],
            "can't be described",
        )
        return {name: found[name] for name in groups if name in found}

    async def group_offsets(self, groups: Iterable[str]) -> dict[str, dict[TopicPartition, OffsetToCommit]]:
        """What groups have committed, all of it."""
        given = m.OffsetFetchRequest
        wanted = texts("groups", groups, empty=True)

        def results(
            response: m.OffsetFetchResponse,
        ) -> Iterable[tuple[str, int, str | None, dict[TopicPartition, OffsetToCommit]]]:
            for group in response.groups:
                offsets = {
                    (topic.name, part.partition_index): OffsetToCommit(
                        part.committed_offset, part.committed_leader_epoch, part.metadata or ""
                    )
                    for topic in group.topics
                    for part in topic.partitions
                    if part.committed_offset >= 0 and not part.error_code
                }
                yield group.group_id, group.error_code, None, offsets

        return await self._at_coordinators(
            CoordinatorKind.GROUP,
            wanted,
            lambda names: given(groups=[given.OffsetFetchRequestGroup(group_id=name, topics=None) for name in names]),
            results,
            "does not tell its offsets",
            version_max=NAMES_VERSION_MAX,
        )

    async def alter_group_offsets(self, group: str, offsets: Mapping[TopicPartition, OffsetToCommit | int]) -> None:
        """Set the offsets of a group that has no members. Refused (UNKNOWN_MEMBER_ID) while it has some."""
        text("group", group, empty=True)
        checked = checked_offsets(offsets)
        given = m.OffsetCommitRequest
        topics = []
        for name, indexes in by_topic(checked).items():
            parts = []
            for index in indexes:
                wanted = checked[name, index]
                parts.append(
                    given.OffsetCommitRequestPartition(
                        partition_index=index,
                        committed_offset=wanted.offset,
                        committed_leader_epoch=wanted.leader_epoch,
                        committed_metadata=wanted.metadata,
                    )
                )
            topics.append(given.OffsetCommitRequestTopic(name=name, partitions=parts))

        def results(response: m.OffsetCommitResponse) -> Iterable[tuple[str, int, str | None, None]]:
            codes = [part.error_code for topic in response.topics for part in topic.partitions if part.error_code]
            yield group, codes[0] if codes else 0, None, None

        await self._at_coordinators(
            CoordinatorKind.GROUP,
            [group],
            lambda _: given(group_id=group, generation_id_or_member_epoch=-1, member_id="", topics=topics),
            results,
            "does not take the offsets",
            version_max=NAMES_VERSION_MAX,
        )

    async def delete_group_offsets(self, group: str, partitions: Iterable[TopicPartition]) -> None:
        """Forget what a group has committed for partitions. Refused while it is subscribed to one of them."""
        text("group", group, empty=True)
        given = m.OffsetDeleteRequest
        topics = [
            given.OffsetDeleteRequestTopic(
                name=name, partitions=[given.OffsetDeleteRequestPartition(partition_index=index) for index in indexes]
            )
            for name, indexes in by_topic(checked_partitions("partitions", partitions)).items()
        ]

        def results(response: m.OffsetDeleteResponse) -> Iterable[tuple[str, int, str | None, None]]:
            codes = [part.error_code for topic in response.topics for part in topic.partitions if part.error_code]
            yield group, response.error_code or (codes[0] if codes else 0), None, None

        await self._at_coordinators(
            CoordinatorKind.GROUP,
            [group],
            lambda _: given(group_id=group, topics=topics),
            results,
            "does not forget its offsets",
        )

    async def delete_groups(self, groups: Iterable[str]) -> None:
        """Groups without members, with their offsets. Refused when one could not be: the others may have been."""
        await self._at_coordinators(
            CoordinatorKind.GROUP,
            texts("groups", groups, empty=True),
            lambda names: m.DeleteGroupsRequest(groups_names=names),
            lambda response: [(one.group_id, one.error_code, None, None) for one in response.results],
            "can't be deleted",
        )

    async def remove_members(self, group: str, members: Iterable[tuple[str, str | None]]) -> None:
        """Take members, by member id and instance id, out of a classic group; they may come back."""
        text("group", group, empty=True)
        given = m.LeaveGroupRequest
        identities = []
        for member in items("members", members, _MEMBERS):
            if not isinstance(member, tuple) or len(member) != 2:
                refuse("each of members", "a member id and an instance id or None", member)
            member_id, instance_id = member
            text("a member id", member_id, empty=True)
            if instance_id is not None:
                text("an instance id", instance_id, empty=True)
            identity = given.MemberIdentity(member_id="" if instance_id else member_id, group_instance_id=instance_id)
            identities.append(identity)

        def results(response: m.LeaveGroupResponse) -> Iterable[tuple[str, int, str | None, None]]:
            codes = [one.error_code for one in response.members if one.error_code]
            yield group, response.error_code or (codes[0] if codes else 0), None, None

        await self._at_coordinators(
            CoordinatorKind.GROUP,
            [group],
            lambda _: given(group_id=group, members=identities),
            results,
            "does not let its members go",
        )


def _classic(one: m.DescribeGroupsResponse.DescribedGroup) -> tuple[str, int, str | None, GroupDetail]:
    error = Error.of(one.error_code)
    if error is Error.GROUP_ID_NOT_FOUND:  # since version 6; before, a group that is not there is Dead
        return one.group_id, 0, None, GroupDetail(one.group_id, _CLASSIC, "Dead")
    detail = GroupDetail(
        one.group_id, _CLASSIC, one.group_state, assignor=one.protocol_data, protocol_type=one.protocol_type
    )
    for member in one.members:
        assigned = _assignment(bytes(member.member_assignment)) if one.protocol_type == _CONSUMER else []
        detail.members.append(
            MemberDetail(
                member.member_id,
                member.client_id,
                member.client_host.removeprefix("/"),
                member.group_instance_id,
                subscribed=_subscription(bytes(member.member_metadata)) if one.protocol_type == _CONSUMER else [],
                assigned=assigned,
                target=assigned,
            )
        )
    return one.group_id, one.error_code, one.error_message, detail


def _consumer(one: m.ConsumerGroupDescribeResponse.DescribedGroup) -> tuple[str, int, str | None, GroupDetail]:
    detail = GroupDetail(
        one.group_id,
        _CONSUMER,
        one.group_state,
        epoch=one.group_epoch,
        assignor=one.assignor_name,
        protocol_type=_CONSUMER,
    )
    for member in one.members:
        detail.members.append(
            MemberDetail(
                member.member_id,
                member.client_id,
                member.client_host.removeprefix("/"),
                member.instance_id,
                member.rack_id,
                member.member_epoch,
                sorted(member.subscribed_topic_names),
                member.subscribed_topic_regex or None,
                _partitions(member.assignment),
                _partitions(member.target_assignment),
            )
        )
    return one.group_id, one.error_code, one.error_message, detail


def _partitions(given: m.ConsumerGroupDescribeResponse.Assignment) -> list[TopicPartition]:
    return sorted((topic.topic_name, index) for topic in given.topic_partitions for index in topic.partitions)


def _assignment(data: bytes) -> list[TopicPartition]:
    """What a classic consumer was given; nothing where it can't be read, since it is the clients' own affair."""
    try:
        found, _ = decode_at(m.ConsumerProtocolAssignment, _version(data, 3), data, 2)
    except (ProtocolError, Refused, ValueError):
        return []
    assert isinstance(found, m.ConsumerProtocolAssignment)
    return sorted((topic.topic, index) for topic in found.assigned_partitions for index in topic.partitions)


def _subscription(data: bytes) -> list[str]:
    try:
        found, _ = decode_at(m.ConsumerProtocolSubscription, _version(data, 3), data, 2)
    except (ProtocolError, Refused, ValueError):
        return []
    assert isinstance(found, m.ConsumerProtocolSubscription)
    return sorted(found.topics)


def _version(data: bytes, most: int) -> int:
    """The version is its first two bytes; a later one begins as the last that is known."""
    if len(data) < 2:
        raise ValueError("there is nothing in it")
    return min(int.from_bytes(data[:2], "big", signed=True), most)
