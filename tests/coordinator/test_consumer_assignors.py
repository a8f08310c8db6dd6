"""What the assignors promise: complete, even, near, and little moves."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.coordinator.groups.consumer.assignors import ASSIGNORS
from headrace.coordinator.groups.consumer.assignors.spec import Assignment, GroupSpec, MemberSpec, TopicSpec

RACKS = ("a", "b", "c")


def topic(number: int) -> bytes:
    return number.to_bytes(16, "big")


@st.composite
def groups(draw: st.DrawFn, *, alike: bool = False, with_racks: bool = True) -> GroupSpec:
    places = draw(st.sampled_from((RACKS, ()))) if with_racks else ()
    topics = {}
    for number in range(draw(st.integers(1, 6))):
        count = draw(st.integers(0, 9))
        racks = (
            tuple(frozenset(draw(st.lists(st.sampled_from(places), max_size=2))) for _ in range(count))
            if places
            else ()
        )
        topics[topic(number)] = TopicSpec(count, racks)
    every = tuple(sorted(topics))
    members = {}
    for number in range(draw(st.integers(1, 8))):
        subscribed = every if alike else tuple(sorted(draw(st.sets(st.sampled_from(every)))))
        rack = draw(st.sampled_from((*places, None))) if places else None
        instance = draw(st.sampled_from((None, f"i{number}")))
        members[f"m{number}"] = MemberSpec(subscribed, {}, rack, instance)
    return GroupSpec(members, topics)


def owners(made: dict[str, Assignment]) -> dict[tuple[bytes, int], str]:
    found: dict[tuple[bytes, int], str] = {}
    for member_id, assignment in made.items():
        for topic_id, partitions in assignment.items():
            assert partitions, "a topic without partitions is not listed"
            assert list(partitions) == sorted(set(partitions))
            for partition in partitions:
                assert (topic_id, partition) not in found, "a partition has one owner"
                found[topic_id, partition] = member_id
    return found


def check_complete(spec: GroupSpec, made: dict[str, Assignment]) -> None:
    assert set(made) == set(spec.members)
    found = owners(made)
    subscribed = {topic_id for member in spec.members.values() for topic_id in member.topics}
    assert set(found) == {(t, p) for t in subscribed for p in range(spec.topics[t].partition_count)}
    for (topic_id, _), member_id in found.items():
        assert topic_id in spec.members[member_id].topics


def check_even(spec: GroupSpec, made: dict[str, Assignment]) -> None:
    """Nobody could give a partition to a subscriber that has two fewer."""
    loads = {member_id: sum(map(len, assignment.values())) for member_id, assignment in made.items()}
    for (topic_id, _), owner in owners(made).items():
        for other, member in spec.members.items():
            if topic_id in member.topics:
                assert loads[owner] - loads[other] <= 1


def carried_on(spec: GroupSpec, made: dict[str, Assignment]) -> GroupSpec:
    members = {
        member_id: MemberSpec(member.topics, made.get(member_id, {}), member.rack, member.instance_id)
        for member_id, member in spec.members.items()
    }
    return GroupSpec(members, spec.topics)


@pytest.mark.parametrize("name", ASSIGNORS)
@given(st.data())
def test_every_partition_that_somebody_subscribes_to_has_one_owner(name: str, data: st.DataObject) -> None:
    spec = data.draw(groups())
    made = ASSIGNORS[name](spec)
    check_complete(spec, made)


@given(groups())
def test_uniform_loads_are_as_even_as_the_subscriptions_allow(spec: GroupSpec) -> None:
    check_even(spec, ASSIGNORS["uniform"](spec))


@given(groups())
def test_range_divides_each_topic_evenly_over_its_subscribers(spec: GroupSpec) -> None:
    made = ASSIGNORS["range"](spec)
    for topic_id in spec.topics:
        loads = [len(made[m].get(topic_id, ())) for m, member in spec.members.items() if topic_id in member.topics]
        assert not loads or max(loads) - min(loads) <= 1


@given(groups(alike=True))
def test_range_gives_the_same_partitions_of_topics_that_go_together(spec: GroupSpec) -> None:
    for assignment in ASSIGNORS["range"](spec).values():
        by_count: dict[int, set[tuple[int, ...]]] = {}
        for topic_id, topic_spec in spec.topics.items():
            by_count.setdefault(topic_spec.partition_count, set()).add(assignment.get(topic_id, ()))
        assert all(len(kinds) == 1 for kinds in by_count.values())


@pytest.mark.parametrize("name", ASSIGNORS)
@given(st.data())
def test_nothing_moves_when_nothing_changed(name: str, data: st.DataObject) -> None:
    spec = data.draw(groups())
    made = ASSIGNORS[name](spec)
    assert ASSIGNORS[name](carried_on(spec, made)) == made


@pytest.mark.parametrize("name", ASSIGNORS)
@given(st.data())
def test_a_change_of_anything_keeps_the_promises(name: str, data: st.DataObject) -> None:
    before, after = data.draw(groups()), data.draw(groups())
    made = ASSIGNORS[name](before)
    spec = carried_on(after, made)
    again = ASSIGNORS[name](spec)
    check_complete(spec, again)
    if name == "uniform":
        check_even(spec, again)


@pytest.mark.parametrize("name", ASSIGNORS)
@given(groups(alike=True, with_racks=False), st.integers(0, 7))
def test_when_a_member_goes_only_what_it_had_moves(name: str, spec: GroupSpec, gone: int) -> None:
    made = ASSIGNORS[name](spec)
    leaver = list(spec.members)[gone % len(spec.members)]
    rest = GroupSpec({m: member for m, member in spec.members.items() if m != leaver}, spec.topics)
    again = ASSIGNORS[name](carried_on(rest, made))
    for member_id, assignment in again.items():
        for topic_id, partitions in made[member_id].items():
            assert set(partitions) <= set(assignment.get(topic_id, ()))


@given(groups(alike=True, with_racks=False))
def test_when_a_member_comes_it_takes_its_share_and_nothing_else_moves(spec: GroupSpec) -> None:
    made = ASSIGNORS["uniform"](spec)
    every = tuple(sorted(spec.topics))
    more = carried_on(GroupSpec({**spec.members, "new": MemberSpec(every)}, spec.topics), made)
    again = ASSIGNORS["uniform"](more)
    before, after = owners(made), owners(again)
    moved = [partition for partition, owner in after.items() if owner != before[partition]]
    assert all(after[partition] == "new" for partition in moved)


def test_the_result_does_not_hang_on_the_order_of_joining() -> None:
    topics = {topic(0): TopicSpec(7)}
    members = {f"m{number}": MemberSpec((topic(0),)) for number in range(3)}
    backwards = dict(reversed(members.items()))
    assert ASSIGNORS["uniform"](GroupSpec(members, topics)) == ASSIGNORS["uniform"](GroupSpec(backwards, topics))


def test_range_begins_with_neighbours() -> None:
    spec = GroupSpec({m: MemberSpec((topic(0),)) for m in "abc"}, {topic(0): TopicSpec(7)})
    assert ASSIGNORS["range"](spec) == {"a": {topic(0): (0, 1, 2)}, "b": {topic(0): (3, 4)}, "c": {topic(0): (5, 6)}}


@pytest.mark.parametrize("name", ASSIGNORS)
def test_members_read_from_their_own_rack(name: str) -> None:
    racks = tuple(frozenset(RACKS[partition % 3]) for partition in range(9))
    members = {f"m{number}": MemberSpec((topic(0),), {}, RACKS[number]) for number in range(3)}
    made = ASSIGNORS[name](GroupSpec(members, {topic(0): TopicSpec(9, racks)}))
    assert [made[f"m{number}"][topic(0)] for number in range(3)] == [(0, 3, 6), (1, 4, 7), (2, 5, 8)]


@pytest.mark.parametrize("name", ASSIGNORS)
def test_partitions_follow_their_replicas_into_another_rack(name: str) -> None:
    here, there = frozenset("a"), frozenset("b")
    members = {
        "a": MemberSpec((topic(0),), {topic(0): (0, 1)}, "a"),
        "b": MemberSpec((topic(0),), {topic(0): (2, 3)}, "b"),
    }
    made = ASSIGNORS[name](GroupSpec(members, {topic(0): TopicSpec(4, (here, there, there, here))}))
    assert made == {"a": {topic(0): (0, 3)}, "b": {topic(0): (1, 2)}}


def test_a_member_that_lost_its_subscription_loses_its_partitions() -> None:
    topics = {topic(0): TopicSpec(2), topic(1): TopicSpec(2)}
    had = {topic(0): (0, 1), topic(1): (0, 1)}
    members = {"a": MemberSpec((topic(1),), had), "b": MemberSpec((topic(0), topic(1)))}
    made = ASSIGNORS["uniform"](GroupSpec(members, topics))
    assert made == {"a": {topic(1): (0, 1)}, "b": {topic(0): (0, 1)}}


def test_who_asks_next_gets_what_is_free_and_who_asks_last_keeps_the_most() -> None:
    topics = {topic(0): TopicSpec(5)}
    due = {"a": 30, "b": 10, "c": 20}
    had: dict[str, tuple[int, ...]] = {"a": (0,), "b": (1,), "c": (2,)}
    members = {m: MemberSpec((topic(0),), {topic(0): had[m]}, due_ms=due[m]) for m in "abc"}
    made = ASSIGNORS["uniform"](GroupSpec(members, topics))
    assert made == {"a": {topic(0): (0,)}, "b": {topic(0): (1, 3)}, "c": {topic(0): (2, 4)}}
    had = {"a": (0, 1), "b": (2, 3), "c": (4,)}
    members = {m: MemberSpec((topic(0),), {topic(0): had[m]}, due_ms=due[m]) for m in "abc"}
    made = ASSIGNORS["uniform"](GroupSpec({**members, "d": MemberSpec((topic(0),))}, topics))
    assert made == {"a": {topic(0): (0, 1)}, "b": {topic(0): (2,)}, "c": {topic(0): (4,)}, "d": {topic(0): (3,)}}


def test_of_members_in_a_rack_who_asks_next_is_given_first_too() -> None:
    here, there = frozenset("a"), frozenset("b")
    members = {
        "x": MemberSpec((topic(0),), {}, "a", due_ms=20),
        "y": MemberSpec((topic(0),), {}, "a", due_ms=10),
        "z": MemberSpec((topic(0),), {}, "b", due_ms=30),
    }
    made = ASSIGNORS["uniform"](GroupSpec(members, {topic(0): TopicSpec(4, (here, here, here, there))}))
    assert made == {"x": {topic(0): (1,)}, "y": {topic(0): (0, 2)}, "z": {topic(0): (3,)}}
