"""Classic groups as DescribeGroups shows them. PURE."""

from __future__ import annotations

from typing import Final

from headrace.coordinator.groups.classic.group import ClassicGroup
from headrace.coordinator.groups.classic.states import State
from headrace.coordinator.groups.group import Group, SimpleGroup
from headrace.errors import Error
from headrace.protocol import messages as m

NOT_FOUND_VERSION: Final = 6
"""Before it, a group that there is not is told as one that is dead."""


def described(group_id: str, group: Group | None, version: int) -> m.DescribeGroupsResponse.DescribedGroup:
    if isinstance(group, ClassicGroup):
        return _described(group)
    if isinstance(group, SimpleGroup):
        return m.DescribeGroupsResponse.DescribedGroup(group_id=group_id, group_state=group.state)
    missing = m.DescribeGroupsResponse.DescribedGroup(group_id=group_id, group_state=State.DEAD.value)
    if version >= NOT_FOUND_VERSION:
        missing.error_code = Error.GROUP_ID_NOT_FOUND
        missing.error_message = (
            f"There is no group {group_id}." if group is None else f"Group {group_id} is not a classic group."
        )
    return missing


def _described(group: ClassicGroup) -> m.DescribeGroupsResponse.DescribedGroup:
    # Until a group is stable there is no protocol that all its members have metadata for.
    protocol = group.protocol if group.phase is State.STABLE else None
    return m.DescribeGroupsResponse.DescribedGroup(
        group_id=group.group_id,
        group_state=group.state,
        protocol_type=group.protocol_type,
        protocol_data=protocol or "",
        members=[
            m.DescribeGroupsResponse.DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.protocols[protocol] if protocol is not None else b"",
                member_assignment=member.assignment,
            )
            for member in group.members.values()
        ],
    )
