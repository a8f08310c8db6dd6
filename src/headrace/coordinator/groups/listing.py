"""Groups of all protocols, as ListGroups tells of them. PURE."""

from __future__ import annotations

from collections.abc import Iterable

from headrace.coordinator.groups.group import Group
from headrace.protocol import messages as m


def listed(groups: Iterable[Group], states: list[str], types: list[str]) -> list[m.ListGroupsResponse.ListedGroup]:
    """Those in one of the states and of one of the types, in whatever case they are written; all without a filter.
    What is no state or type matches nothing."""
    wanted_states = {state.strip().lower() for state in states}
    wanted_types = {type.lower() for type in types}
    return [
        m.ListGroupsResponse.ListedGroup(
            group_id=group.group_id,
            protocol_type=group.protocol_type,
            group_state=group.state,
            group_type=group.type.value,
        )
        for group in groups
        if (not wanted_states or group.state.lower() in wanted_states)
        and (not wanted_types or group.type.value in wanted_types)
    ]
