"""Whatever is asked of classic groups, in whatever order: nothing fails but by refusal, each request has one reply, and
what a group counts is what there is."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from headrace.config.coordinators import GroupConfig, OffsetsConfig
from headrace.coordinator.groups.classic import ClassicGroup
from headrace.coordinator.groups.classic.states import State
from headrace.coordinator.groups.context import GroupContext
from headrace.coordinator.groups.shard import GroupShard
from headrace.errors import Refused
from headrace.protocol import messages as m
from tests.coordinator.classic_script import subscription
from tests.coordinator.pure import Answer, ManualTimers, PureRuntime

GROUPS = ("g", "g", "g", "g", "g", "h", "")
OWN = "its own"
INSTANCES = (OWN, OWN, OWN, OWN, None, "i", "j", "")
PROTOCOLS: tuple[list[str], ...] = (["range"], ["range"], ["sticky", "range"], ["range", "sticky"], ["other"], [])
GENERATIONS = (0, 0, 0, 0, 0, 1, -1, -9)
"""Relative to the group's."""
NEWCOMER = -1
SIZE_MAX = 4


class World:
    def __init__(self) -> None:
        self._ids = 0
        self.member_ids = ["", "nobody"]
        self.replies: list[Answer] = []
        self.runtime = PureRuntime(self._make)

    def _make(self, timers: ManualTimers) -> GroupShard:
        config = GroupConfig(group_max_size=SIZE_MAX, group_initial_rebalance_delay_ms=1000)
        return GroupShard(
            GroupContext(timers, group_config=config, offsets_config=OffsetsConfig(), random_bytes=self._random_bytes)
        )

    def _random_bytes(self, count: int) -> bytes:
        self._ids += 1
        return self._ids.to_bytes(count)

    def who(self, group_id: str, number: int, instance_id: str | None) -> tuple[str, str | None]:
        """Mostly somebody whom the group knows, by its own instance id."""
        group = self.runtime.shard.context.groups.get(group_id)
        known = [*group.members, *group.pending, ""] if isinstance(group, ClassicGroup) else [""]
        ids = known if number % 4 else self.member_ids
        member_id = "" if number == NEWCOMER else ids[number // 4 % len(ids)]
        if instance_id == OWN:
            member = group.members.get(member_id) if isinstance(group, ClassicGroup) else None
            instance_id = None if member is None else member.instance_id
        return member_id, instance_id

    def generation(self, group_id: str, change: int) -> int:
        group = self.runtime.shard.context.groups.get(group_id)
        return (group.generation if isinstance(group, ClassicGroup) else 0) + change

    def ask(self, operation: Any) -> None:
        reply = Answer()
        self.replies.append(reply)
        self.runtime.ask(lambda shard, now_ms: operation(shard.classic, reply, now_ms), reply)
        for given_reply in self.replies:
            member_id = getattr(given_reply.message, "member_id", "")
            if member_id and member_id not in self.member_ids:
                self.member_ids.append(member_id)

    def check(self) -> None:
        for group in self.runtime.shard.context.groups.values():
            if isinstance(group, ClassicGroup):
                self._check(group)

    def _check(self, group: ClassicGroup) -> None:
        members = group.members
        assert group.joins_waiting == sum(member.join_reply is not None for member in members.values())
        assert group.instances == {one.instance_id: id for id, one in members.items() if one.instance_id is not None}
        offers: dict[str, int] = {}
        for member in members.values():
            for name in member.protocols:
                offers[name] = offers.get(name, 0) + 1
        assert group.offers == offers
        assert (group.leader in members) if members else group.leader is None
        assert not group.pending.keys() & members.keys()
        assert group.unsynced.keys() <= members.keys()
        assert len(members) <= SIZE_MAX
        timers = self.runtime.timers.keys()
        match group.phase:
            case State.EMPTY:
                assert not members
                assert group.stored is not None or group.pending
            case State.PREPARING_REBALANCE:
                assert ("classic join", group.group_id) in timers
            case State.COMPLETING_REBALANCE:
                assert members
                assert ("classic sync", group.group_id) in timers
                assert not group.joins_waiting
            case State.STABLE:
                assert members
                assert group.stored is not None
                assert [one.member_id for one in group.stored.members] == list(members)
                assert not any(one.join_reply or one.sync_reply for one in members.values())
        for member in members.values():
            assert member.is_excused or ("classic session", group.group_id, member.member_id) in timers
        for member_id in group.pending:
            assert ("classic session", group.group_id, member_id) in timers


numbers = st.integers(0, 60)
asks = st.one_of(
    st.tuples(
        st.just("join"),
        st.sampled_from(GROUPS),
        numbers,
        st.sampled_from(INSTANCES),
        st.sampled_from(PROTOCOLS),
        st.sampled_from([0, 3, 4, 5, 9]),
    ),
    st.tuples(
        st.just("sync"), st.sampled_from(GROUPS), numbers, st.sampled_from(INSTANCES), st.sampled_from(GENERATIONS)
    ),
    st.tuples(
        st.just("heartbeat"), st.sampled_from(GROUPS), numbers, st.sampled_from(INSTANCES), st.sampled_from(GENERATIONS)
    ),
    st.tuples(st.just("leave"), st.sampled_from(GROUPS), st.lists(numbers, max_size=3), st.sampled_from(INSTANCES)),
    st.tuples(
        st.just("commit"), st.sampled_from(GROUPS), numbers, st.sampled_from(INSTANCES), st.sampled_from(GENERATIONS)
    ),
    st.tuples(st.just("wait"), st.sampled_from([1, 500, 1000, 1000, 2000, 6000, 20_000, 300_000])),
    st.tuples(st.just("settle"), st.integers(0, 2)),
    st.tuples(st.just("fail over")),
)


def take(world: World, what: str, *how: Any) -> None:
    match what:
        case "join":
            group_id, number, instance_id, protocols, version = how
            member_id, instance_id = world.who(group_id, number, instance_id)
            body = m.JoinGroupRequest(
                group_id=group_id,
                session_timeout_ms=6000,
                rebalance_timeout_ms=20_000,
                member_id=member_id,
                group_instance_id=instance_id,
                protocol_type="consumer",
                protocols=[
                    m.JoinGroupRequest.JoinGroupRequestProtocol(name=name, metadata=subscription("t"))
                    for name in protocols
                ],
            )
            world.ask(lambda classic, reply, now_ms: classic.join(body, version, "c", "/h", reply, now_ms))
        case "sync":
            group_id, number, instance_id, change = how
            member_id, instance_id = world.who(group_id, number, instance_id)
            generation = world.generation(group_id, change)
            assignment = m.SyncGroupRequest.SyncGroupRequestAssignment
            synced = m.SyncGroupRequest(
                group_id=group_id,
                generation_id=generation,
                member_id=member_id,
                group_instance_id=instance_id,
                assignments=[assignment(member_id=one, assignment=b"a") for one in world.member_ids],
            )
            world.ask(lambda classic, reply, now_ms: classic.sync(synced, reply, now_ms))
        case "heartbeat":
            group_id, number, instance_id, change = how
            member_id, instance_id = world.who(group_id, number, instance_id)
            generation = world.generation(group_id, change)
            beat = m.HeartbeatRequest(
                group_id=group_id,
                generation_id=generation,
                member_id=member_id,
                group_instance_id=instance_id,
            )
            world.runtime.shard.classic.is_alive(beat, world.runtime.now_ms)
            world.ask(lambda classic, reply, now_ms: classic.heartbeat(beat, reply, now_ms))
        case "leave":
            group_id, some, instance_id = how
            identity = m.LeaveGroupRequest.MemberIdentity
            people = [world.who(group_id, number, instance_id) for number in some]
            left = m.LeaveGroupRequest(
                group_id=group_id,
                members=[identity(member_id=who, group_instance_id=instance) for who, instance in people],
            )
            world.ask(lambda classic, reply, now_ms: classic.leave(left, 5, reply, now_ms))
        case "commit":
            group_id, number, instance_id, change = how
            member_id, instance_id = world.who(group_id, number, instance_id)
            generation = world.generation(group_id, change)
            group = world.runtime.shard.context.groups.get(group_id)
            if group is not None:
                try:
                    group.validate_commit(member_id, instance_id, generation, 9, (), is_transactional=False)
                    group.committed(member_id, world.runtime.now_ms)
                except Refused:
                    pass
        case "settle":
            settle(world, *how)
        case "wait":
            world.runtime.wait(*how)
        case "fail over":
            world.runtime.fail_over()
            assert all(reply.is_there for reply in world.replies)


def settle(world: World, newcomers: int) -> None:
    """All members do what they should, and some new ones do."""
    for number in range(newcomers):
        take(world, "join", "g", NEWCOMER, ("i", None)[number], ["range", "sticky"], 3)
    for what, how in (("join", (["range", "sticky"], 3)), ("sync", (0,))):
        group = world.runtime.shard.context.groups.get("g")
        for number in range(len(group.members) if isinstance(group, ClassicGroup) else 0):
            take(world, what, "g", number * 4 + 1, OWN, *how)
        world.runtime.wait(2000)


@given(st.integers(0, 2), st.lists(asks, max_size=50))
def test_whatever_is_asked_is_answered_once_and_what_is_counted_is_there(
    settled: int, script: list[tuple[Any, ...]]
) -> None:
    world = World()
    settle(world, settled)
    settle(world, settled)
    for what, *how in script:
        take(world, what, *how)
        world.check()
    world.runtime.wait(2_000_000)
    world.check()
    # Everybody is out by now: whoever waited was told so.
    assert all(reply.is_there for reply in world.replies)
    assert not [
        one for one in world.runtime.shard.context.groups.values() if isinstance(one, ClassicGroup) and one.members
    ]
