"""The range assignor: each topic by itself, divided over its subscribers, and topics that go together alike.

Topics with as many partitions and the same subscribers are divided as one: whoever has partition 3 of the one has
partition 3 of the others, so that they can be joined. At first everyone gets a run of neighbours; later who was there
keeps what it has.
"""

from __future__ import annotations

from headrace.coordinator.groups.consumer.assignors.pool import divide
from headrace.coordinator.groups.consumer.assignors.racks import RackView
from headrace.coordinator.groups.consumer.assignors.spec import Assignment, GroupSpec, Racks


def range_assignor(spec: GroupSpec) -> dict[str, Assignment]:
    order = spec.order()
    made: dict[str, dict[bytes, tuple[int, ...]]] = {member_id: {} for member_id in order}
    for (count, subscribers), topic_ids in _alike(spec, order).items():
        members = [order[index] for index in subscribers]
        previous = [_had(spec.members[member_id].assignment, topic_ids) for member_id in members]
        owned = divide(count, previous, _rack_view(spec, members, topic_ids, count), in_runs=True)
        for member_id, mine in zip(members, owned, strict=True):
            if mine:
                partitions = tuple(sorted(mine))
                for topic_id in topic_ids:
                    made[member_id][topic_id] = partitions
    return {member_id: dict(sorted(assignment.items())) for member_id, assignment in made.items()}


def _alike(spec: GroupSpec, order: list[str]) -> dict[tuple[int, tuple[int, ...]], list[bytes]]:
    subscribers: dict[bytes, list[int]] = {topic_id: [] for topic_id in sorted(spec.topics)}
    for index, member_id in enumerate(order):
        for topic_id in spec.members[member_id].topics:
            subscribers[topic_id].append(index)
    alike: dict[tuple[int, tuple[int, ...]], list[bytes]] = {}
    for topic_id, who in subscribers.items():
        if who:
            alike.setdefault((spec.topics[topic_id].partition_count, tuple(who)), []).append(topic_id)
    return alike


def _had(assignment: Assignment, topic_ids: list[bytes]) -> tuple[int, ...]:
    """What it had of the first of them that it had any of: where they were divided as one, of all."""
    for topic_id in topic_ids:
        if topic_id in assignment:
            return assignment[topic_id]
    return ()


def _rack_view(spec: GroupSpec, members: list[str], topic_ids: list[bytes], count: int) -> RackView | None:
    """A partition is in a rack where all the topics have a replica of it."""
    racks = [spec.members[member_id].rack for member_id in members]
    if all(rack is None for rack in racks):
        return None
    topics = [spec.topics[topic_id].racks for topic_id in topic_ids]
    if any(len(partitions) != count for partitions in topics):
        return None
    everywhere: list[Racks] = []
    for partition in range(count):
        common = topics[0][partition]
        for more in topics[1:]:
            common = common & more[partition]
        everywhere.append(common)
    return RackView.of(racks, everywhere)
