"""What classic groups take of a node, however they are asked: bounded state, work in proportion to the members, and no
timer for a heartbeat."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from headrace.config.coordinators import GroupConfig, OffsetsConfig
from headrace.coordinator.groups.classic import ClassicGroup
from headrace.coordinator.groups.classic import sessions as sessions_module
from headrace.coordinator.groups.context import GroupContext
from headrace.coordinator.groups.shard import GroupShard
from headrace.errors import Error
from headrace.metadata.features import GROUP_VERSION
from headrace.metadata.image import Image, ResourceType
from headrace.protocol import messages as m
from tests.coordinator.classic_script import ClassicScript, subscription
from tests.coordinator.pure import Answer, ManualTimers, PureRuntime

OFFSETS = (ResourceType.TOPIC, "__consumer_offsets")


class CountingTimers(ManualTimers):
    def __init__(self) -> None:
        super().__init__()
        self.armed = 0

    def at(self, key: Any, deadline_ms: int, event: Any) -> None:
        self.armed += 1
        super().at(key, deadline_ms, event)


def make(timers: ManualTimers) -> GroupShard:
    ids = iter(range(1, 1_000_000))
    return GroupShard(
        GroupContext(
            timers,
            group_config=GroupConfig(),
            offsets_config=OffsetsConfig(),
            random_bytes=lambda count: next(ids).to_bytes(count),
        )
    )


def ask_to_join(
    runtime: PureRuntime, group_id: str = "g", member_id: str = "", version: int = 9, metadata: bytes = b""
) -> Answer:
    reply = Answer()
    body = m.JoinGroupRequest(
        group_id=group_id,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[m.JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=metadata)],
    )
    runtime.ask(lambda shard, now_ms: shard.classic.join(body, version, "c", "/h", reply, now_ms), reply)
    return reply


def sync(runtime: PureRuntime, member_id: str, generation: int = 1, assignments: Any = ()) -> Answer:
    reply = Answer()
    body = m.SyncGroupRequest(
        group_id="g", generation_id=generation, member_id=member_id, assignments=list(assignments)
    )
    runtime.ask(lambda shard, now_ms: shard.classic.sync(body, reply, now_ms), reply)
    return reply


def groups_of(runtime: PureRuntime) -> dict[str, Any]:
    found: dict[str, Any] = runtime.shard.context.groups
    return found


def timers_of(runtime: PureRuntime, kind: str) -> list[Any]:
    keys = runtime.timers.keys()
    return [key for key in keys if str(key[0]).startswith(kind)]


def test_member_ids_that_nobody_comes_for_are_bounded_and_the_oldest_goes_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sessions_module, "PENDING_MAX", 100)
    runtime = PureRuntime(make)
    handed_out = [ask_to_join(runtime, f"g{number % 30}").message.member_id for number in range(1000)]
    assert sum(len(group.pending) for group in groups_of(runtime).values()) == 100
    assert len(timers_of(runtime, "classic session")) == 100
    assert ask_to_join(runtime, "g0", handed_out[0]).message.error_code == Error.UNKNOWN_MEMBER_ID
    newest = ask_to_join(runtime, f"g{999 % 30}", handed_out[-1])
    runtime.wait(3000)
    assert newest.message.error_code == Error.NONE


def test_a_thousand_groups_that_nobody_stays_in_leave_nothing_behind() -> None:
    runtime = PureRuntime(make)
    for number in range(1000):
        group_id = f"g{number}"
        member_id = ask_to_join(runtime, group_id).message.member_id
        if number % 2:
            ask_to_join(runtime, group_id, member_id)
        if number % 3:
            leave(runtime, group_id, member_id)
    runtime.wait(20_000)
    assert not [group for group in groups_of(runtime).values() if isinstance(group, ClassicGroup)]
    assert not timers_of(runtime, "classic")
    assert not runtime.log


def leave(runtime: PureRuntime, group_id: str, member_id: str) -> Answer:
    reply = Answer()
    body = m.LeaveGroupRequest(
        group_id=group_id, members=[m.LeaveGroupRequest.MemberIdentity(member_id=member_id, reason="r" * 30_000)]
    )
    runtime.ask(lambda shard, now_ms: shard.classic.leave(body, 5, reply, now_ms), reply)
    return reply


def test_hazard_13_a_rebalance_storm_writes_nothing_and_leaves_nothing() -> None:
    """A member that joins and leaves all the time keeps the others from being stable, and costs nothing that stays."""
    runtime = PureRuntime(make)
    stays = ask_to_join(runtime).message.member_id
    ask_to_join(runtime, member_id=stays)
    runtime.wait(3000)
    sync(runtime, stays)
    written = len(runtime.log)
    waiting: list[Answer] = []
    for _ in range(1000):
        comes = ask_to_join(runtime).message.member_id
        waiting.append(ask_to_join(runtime, member_id=comes))
        leave(runtime, "g", comes)
    assert all(reply.is_there for reply in waiting)
    assert len(runtime.log) == written
    group = groups_of(runtime)["g"]
    assert (list(group.members), group.pending, group.instances) == ([stays], {}, {})
    assert len(timers_of(runtime, "classic session")) == 1


def test_metadata_that_no_record_has_room_for_is_refused_to_who_brings_it() -> None:
    runtime = PureRuntime(make)
    assert ask_to_join(runtime, metadata=bytes(1_048_588)).message.error_code == Error.UNKNOWN_SERVER_ERROR
    assert not groups_of(runtime)
    assert ask_to_join(runtime, metadata=bytes(1_000_000)).message.error_code == Error.MEMBER_ID_REQUIRED


@pytest.mark.parametrize("name", ["protocol_type", "group_instance_id", "protocols"])
@pytest.mark.parametrize("is_wide", [False, True])
def test_names_that_no_record_has_room_for_are_refused_to_who_brings_them(name: str, is_wide: bool) -> None:
    """Strings of newer requests may be longer than those of a group's record: nobody of the group could be assigned."""
    runtime, reply = PureRuntime(make), Answer()
    long = "\u20ac" * 11_000 if is_wide else "a" * 32_768
    kind = m.JoinGroupRequest.JoinGroupRequestProtocol
    body = m.JoinGroupRequest(
        group_id="g", session_timeout_ms=10_000, protocol_type="consumer", protocols=[kind(name="range", metadata=b"")]
    )
    setattr(body, name, [kind(name=long, metadata=b"")] if name == "protocols" else long)
    runtime.ask(lambda shard, now_ms: shard.classic.join(body, 9, "c", "/h", reply, now_ms), reply)
    assert reply.message.error_code == Error.UNKNOWN_SERVER_ERROR
    assert not runtime.shard.context.groups


def test_an_assignment_that_no_record_has_room_for_is_refused_and_the_members_join_again() -> None:
    runtime = PureRuntime(make)
    leader, follower = (ask_to_join(runtime, version=3) for _ in range(2))
    runtime.wait(6000)
    waiting = sync(runtime, follower.message.member_id)
    large = m.SyncGroupRequest.SyncGroupRequestAssignment(
        member_id=leader.message.member_id, assignment=bytes(1_048_588)
    )
    assert sync(runtime, leader.message.member_id, 1, [large]).message.error_code == Error.UNKNOWN_SERVER_ERROR
    assert waiting.message.error_code == Error.UNKNOWN_SERVER_ERROR
    assert groups_of(runtime)["g"].state == "PreparingRebalance"
    assert not runtime.log


def test_a_topic_with_larger_records_takes_larger_groups() -> None:
    runtime = PureRuntime(make, Image(configs={OFFSETS: {"max.message.bytes": "2000000"}}))
    assert ask_to_join(runtime, metadata=bytes(1_500_000)).message.error_code == Error.MEMBER_ID_REQUIRED


def test_heartbeats_arm_no_timers() -> None:
    timers = CountingTimers()
    runtime = PureRuntime(make)
    runtime.timers = timers
    runtime.shard = make(timers)
    runtime.shard.loaded(Image(), runtime.now_ms)
    member = ask_to_join(runtime, version=3)
    runtime.wait(3000)
    sync(runtime, member.message.member_id)
    beat = m.HeartbeatRequest(group_id="g", generation_id=1, member_id=member.message.member_id)
    armed = timers.armed
    for _ in range(1000):
        assert runtime.shard.classic.is_alive(beat, runtime.now_ms)
    assert timers.armed == armed
    for _ in range(100):  # and over time, one a session
        runtime.wait(1000)
        assert runtime.shard.classic.is_alive(beat, runtime.now_ms)
    assert timers.armed - armed < 30


def work(members: int) -> int:
    """How many calls a rebalance of so many members takes, from the first join to the last assignment."""
    runtime = PureRuntime(make)
    calls = 0

    def count(frame: Any, event: str, argument: Any) -> None:
        nonlocal calls
        calls += event == "call"

    metadata = subscription("t")
    joined = [ask_to_join(runtime, version=3, metadata=metadata) for _ in range(members)]
    runtime.wait(9000)
    for reply in joined:
        sync(runtime, reply.message.member_id)
    sys.setprofile(count)
    try:
        again = [ask_to_join(runtime, member_id=reply.message.member_id, metadata=metadata) for reply in joined]
        replies = [sync(runtime, reply.message.member_id, 2) for reply in joined]
    finally:
        sys.setprofile(None)
    assert all(reply.message.generation_id == 2 for reply in again)
    assert all(reply.message.error_code == Error.NONE for reply in replies)
    return calls


def test_a_rebalance_costs_in_proportion_to_the_members() -> None:
    few, many = work(50), work(400)
    assert many < few * 8 * 1.5


def test_a_member_is_not_taken_for_silent_when_the_clock_is_set_back() -> None:
    script = ClassicScript()
    for line in ("join a", "wait 3000", "sync a", "wait 5000"):
        script.command(line)
    script.runtime.now_ms -= 3_600_000
    assert script.command("beat a") == ["a beat: NONE"]
    # What watches over its session goes by another clock, and is told that its time has come.
    (key,) = timers_of(script.runtime, "classic session")
    deadline_ms, _, event = script.runtime.timers._timers.pop(key)
    assert not event(deadline_ms).replies
    assert script.command("beat a") == ["a beat: NONE"]
    assert script.command("show") == ["Stable  generation 1  a*"]


def test_a_rebalance_time_out_of_the_first_version_is_the_session_time_out() -> None:
    runtime = PureRuntime(make)
    ask_to_join(runtime, version=0)
    (group,) = groups_of(runtime).values()
    assert group.rebalance_timeout_ms == 10_000


def test_a_member_id_that_no_record_has_room_for_is_refused_by_the_new_protocol_too() -> None:
    runtime, reply = PureRuntime(make, Image(features={GROUP_VERSION: 1})), Answer()
    body = m.ConsumerGroupHeartbeatRequest(
        group_id="g",
        member_id="a" * 32_768,
        rebalance_timeout_ms=1_000,
        subscribed_topic_names=["t"],
        topic_partitions=[],
    )
    runtime.ask(lambda shard, now_ms: shard.consumer.heartbeat(body, 1, "c", "/h", reply, now_ms), reply)
    assert reply.message.error_code == Error.INVALID_REQUEST
    assert not runtime.shard.context.groups
