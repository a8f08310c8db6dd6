"""The uniform assignor: all the partitions of all the topics, divided evenly over the members.

Members learn what they get when they ask next. So of members that are equal otherwise, whoever asks next is the first
to get something, and the last to keep more than others.
"""

from __future__ import annotations

from collections.abc import Sequence

from headrace.coordinator.groups.consumer.assignors.mixed import divide_mixed
from headrace.coordinator.groups.consumer.assignors.numbering import Numbering
from headrace.coordinator.groups.consumer.assignors.pool import divide
from headrace.coordinator.groups.consumer.assignors.racks import RackView
from headrace.coordinator.groups.consumer.assignors.spec import Assignment, GroupSpec, MemberSpec


def uniform_assignor(spec: GroupSpec) -> dict[str, Assignment]:
    order = spec.soonest_first()
    members = [spec.members[member_id] for member_id in order]
    if not members:
        return {}
    first = members[0].topics
    is_alike = all(member.topics == first for member in members)
    numbering = Numbering({topic_id: spec.topics[topic_id] for topic_id in first} if is_alike else spec.topics)
    racks = _rack_view(spec, members, numbering)
    if is_alike:
        previous = [numbering.numbers(member.assignment) for member in members]
        owned = divide(numbering.size, previous, racks)
    else:
        owned = divide_mixed(members, numbering, racks)
    return {member_id: numbering.assignment(own) for member_id, own in zip(order, owned, strict=True)}


def _rack_view(spec: GroupSpec, members: Sequence[MemberSpec], numbering: Numbering) -> RackView | None:
    racks = [member.rack for member in members]
    if all(rack is None for rack in racks):
        return None
    everywhere = [racks for topic_id in numbering.topics for racks in spec.topics[topic_id].racks]
    return RackView.of(racks, everywhere) if len(everywhere) == numbering.size else None
