"""What members of a classic group are answered. PURE."""

from __future__ import annotations

from typing import Final

from headrace.coordinator.groups.classic.group import ClassicGroup
from headrace.coordinator.groups.classic.member import Member
from headrace.coordinator.shard import Outcome
from headrace.errors import Error
from headrace.protocol import messages as m

UNKNOWN_MEMBER: Final = ""
"""The member id of whoever has none."""
SEVERAL_LEAVE_VERSION: Final = 3
"""From here on LeaveGroup names several members, and answers each."""


def joined(group: ClassicGroup, member: Member) -> m.JoinGroupResponse:
    """The generation, and to its leader, who is in it."""
    return m.JoinGroupResponse(
        generation_id=group.generation,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol,
        leader=group.leader or "",
        member_id=member.member_id,
        members=members_of(group) if group.leader == member.member_id else [],
    )


def members_of(group: ClassicGroup) -> list[m.JoinGroupResponse.JoinGroupResponseMember]:
    assert group.protocol is not None
    return [
        m.JoinGroupResponse.JoinGroupResponseMember(
            member_id=member.member_id,
            group_instance_id=member.instance_id,
            metadata=member.protocols[group.protocol],
        )
        for member in group.members.values()
    ]


def join_refused(error: Error, member_id: str = UNKNOWN_MEMBER) -> m.JoinGroupResponse:
    return m.JoinGroupResponse(error_code=error, member_id=member_id)


def synced(group: ClassicGroup, assignment: bytes) -> m.SyncGroupResponse:
    return m.SyncGroupResponse(protocol_type=group.protocol_type, protocol_name=group.protocol, assignment=assignment)


def sync_refused(error: Error) -> m.SyncGroupResponse:
    return m.SyncGroupResponse(error_code=error)


def left(body: m.LeaveGroupRequest, errors: list[Error], version: int) -> m.LeaveGroupResponse:
    if version < SEVERAL_LEAVE_VERSION:
        return m.LeaveGroupResponse(error_code=errors[0])
    return m.LeaveGroupResponse(
        members=[
            m.LeaveGroupResponse.MemberResponse(
                member_id=who.member_id, group_instance_id=who.group_instance_id, error_code=error
            )
            for who, error in zip(body.members, errors, strict=True)
        ]
    )


def answer_join(group: ClassicGroup, member: Member, response: m.JoinGroupResponse, out: Outcome) -> None:
    """If it waits. No reply is ever forgotten: the ones behind it on its connection wait for it."""
    if member.join_reply is not None:
        out.replies.append((member.join_reply, response))
        member.join_reply = None
        group.joins_waiting -= 1


def answer_sync(member: Member, response: m.SyncGroupResponse, out: Outcome) -> None:
    if member.sync_reply is not None:
        out.replies.append((member.sync_reply, response))
        member.sync_reply = None


def dismiss(group: ClassicGroup, member: Member, error: Error, member_id: str, out: Outcome) -> None:
    """Whatever it waits for, it will not get."""
    answer_join(group, member, join_refused(error, member_id), out)
    answer_sync(member, sync_refused(error), out)
