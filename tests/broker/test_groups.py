"""The APIs of groups on a whole node: what is told, and what another life of the node still knows."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from headrace.broker.group_notes import A_SECOND_MAX, GroupNotes
from headrace.coordinator import slices
from headrace.coordinator.groups.consumer.regex import Resolver
from headrace.coordinator.groups.note import Note
from headrace.coordinator.runtime import ASKED_AT_ONCE
from headrace.errors import Error
from headrace.net.peer import Peer
from headrace.protocol import messages as m
from headrace.testing.disk import FaultyDisk
from tests.broker.nodes import ask, connected, create, run, running

AT_ONCE = {"group_initial_rebalance_delay_ms": "0"}


async def find(peer: Peer, *groups: str) -> None:
    """Waits until the coordinators of groups can be asked."""
    for group in groups:
        while True:
            found = await ask(peer, m.FindCoordinatorRequest(coordinator_keys=[group]), 4)
            described = await ask(peer, m.DescribeGroupsRequest(groups=[group]), 5)
            if not found.coordinators[0].error_code and not described.groups[0].error_code:
                break
            await asyncio.sleep(0.01)


async def join(peer: Peer, group: str, member_id: str = "", **more: Any) -> Any:
    body = m.JoinGroupRequest(
        group_id=group,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[m.JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"\0\0\0\0\0\1\0\6orders")],
        **more,
    )
    response = await ask(peer, body, 9)
    if response.error_code == Error.MEMBER_ID_REQUIRED:
        return await join(peer, group, response.member_id, **more)
    return response


async def stable_member(peer: Peer, group: str, **more: Any) -> Any:
    joined = await join(peer, group, **more)
    assignment = m.SyncGroupRequest.SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"all of it")
    synced = await ask(
        peer,
        m.SyncGroupRequest(
            group_id=group,
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            group_instance_id=more.get("group_instance_id"),
            protocol_type="consumer",
            protocol_name="range",
            assignments=[assignment],
        ),
        5,
    )
    assert (synced.error_code, synced.assignment) == (Error.NONE, b"all of it")
    return joined


async def beat(peer: Peer, group: str, member: Any) -> Error:
    body = m.HeartbeatRequest(group_id=group, generation_id=member.generation_id, member_id=member.member_id)
    return Error((await ask(peer, body, 4)).error_code)


async def commit(peer: Peer, group: str, member: Any, generation: int) -> Error:
    kind = m.OffsetCommitRequest
    partition = kind.OffsetCommitRequestPartition(partition_index=0, committed_offset=7, committed_metadata="")
    body = kind(
        group_id=group,
        generation_id_or_member_epoch=generation,
        member_id=member.member_id,
        topics=[kind.OffsetCommitRequestTopic(name="orders", partitions=[partition])],
    )
    return Error((await ask(peer, body, 8)).topics[0].partitions[0].error_code)


def test_a_member_goes_on_in_its_generation_after_a_restart_of_the_node() -> None:
    async def check() -> None:
        disk = FaultyDisk()
        async with running(disk, **AT_ONCE) as node, connected(node) as peer:  # type: ignore[arg-type]
            await create(peer, "orders")
            await find(peer, "g")
            member = await stable_member(peer, "g")
            assert await commit(peer, "g", member, member.generation_id) is Error.NONE
        async with running(disk, **AT_ONCE) as node, connected(node) as peer:  # type: ignore[arg-type]
            await find(peer, "g")
            assert await beat(peer, "g", member) is Error.NONE
            # Hazard 13: of another generation, nobody commits.
            assert await commit(peer, "g", member, member.generation_id + 1) is Error.ILLEGAL_GENERATION
            assert await commit(peer, "g", member, member.generation_id) is Error.NONE
            described = (await ask(peer, m.DescribeGroupsRequest(groups=["g"]), 6)).groups[0]
            assert described.group_state == "Stable"
            assert [one.member_assignment for one in described.members] == [b"all of it"]
            assert [one.client_host for one in described.members] == ["/127.0.0.1"]

    run(check())


def test_groups_are_listed_by_state_and_type_and_deleted_with_their_offsets() -> None:
    async def check() -> None:
        async with running(**AT_ONCE) as node, connected(node) as peer:  # type: ignore[arg-type]
            await create(peer, "orders")
            await find(peer, "stable", "empty", "simple")
            await stable_member(peer, "stable")
            gone = await stable_member(peer, "empty")
            identity = m.LeaveGroupRequest.MemberIdentity(member_id=gone.member_id, reason="it is late")
            await ask(peer, m.LeaveGroupRequest(group_id="empty", members=[identity]), 5)
            nobody = m.JoinGroupResponse(member_id="")
            assert await commit(peer, "simple", nobody, -1) is Error.NONE

            async def listed(**filters: list[str]) -> dict[str, tuple[str, str, str]]:
                response = await ask(peer, m.ListGroupsRequest(**filters), 5)
                assert not response.error_code
                return {one.group_id: (one.protocol_type, one.group_state, one.group_type) for one in response.groups}

            assert await listed() == {
                "stable": ("consumer", "Stable", "classic"),
                "empty": ("consumer", "Empty", "classic"),
                "simple": ("", "Empty", "classic"),
            }
            assert list(await listed(states_filter=["STABLE", "Dead"])) == ["stable"]
            assert sorted(await listed(types_filter=["Classic"], states_filter=["empty"])) == ["empty", "simple"]
            assert await listed(types_filter=["consumer"]) == {}
            assert await listed(states_filter=["no such state"]) == {}

            names = ["stable", "empty", "simple", "none", "empty"]
            deleted = await ask(peer, m.DeleteGroupsRequest(groups_names=names), 2)
            assert {one.group_id: Error(one.error_code) for one in deleted.results} == {
                "stable": Error.NON_EMPTY_GROUP,
                "empty": Error.NONE,
                "simple": Error.NONE,
                "none": Error.GROUP_ID_NOT_FOUND,
            }
            assert list(await listed()) == ["stable"]
            old = (await ask(peer, m.DescribeGroupsRequest(groups=["empty"]), 5)).groups[0]
            assert (old.group_state, old.error_code) == ("Dead", Error.NONE)
            new = (await ask(peer, m.DescribeGroupsRequest(groups=["empty"]), 6)).groups[0]
            assert (new.group_state, new.error_code) == ("Dead", Error.GROUP_ID_NOT_FOUND)

    run(check())


def test_who_is_refused_is_told_no_protocol_in_versions_that_can_say_so() -> None:
    async def check() -> None:
        async with running(**AT_ONCE) as node, connected(node) as peer:  # type: ignore[arg-type]
            await find(peer, "g")
            body = m.JoinGroupRequest(group_id="g", session_timeout_ms=10_000, protocol_type="consumer")
            body.protocols = [m.JoinGroupRequest.JoinGroupRequestProtocol(name="range")]

            async def refused(member_id: str, version: int) -> tuple[Error, str | None]:
                body.member_id = member_id
                response = await ask(peer, body, version)
                return Error(response.error_code), response.protocol_name

            assert await refused("nobody", 6) == (Error.UNKNOWN_MEMBER_ID, "")
            assert await refused("nobody", 7) == (Error.UNKNOWN_MEMBER_ID, None)
            assert await refused("", 9) == (Error.MEMBER_ID_REQUIRED, None)
            body.group_id = ""
            assert await refused("nobody", 9) == (Error.INVALID_GROUP_ID, None)
            assert (await stable_member(peer, "g")).protocol_name == "range"

    run(check())


def test_very_many_groups_in_one_request_are_answered_in_their_order() -> None:
    """They are asked for in steps, and each has its place."""

    async def check() -> None:
        names = [f"g{number}" for number in range(3 * ASKED_AT_ONCE)]
        async with running(offsets_topic_num_partitions="2") as node, connected(node) as peer:
            await find(peer, *names[:8])
            described = await ask(peer, m.DescribeGroupsRequest(groups=names), 5)
            assert [group.group_id for group in described.groups] == names
            consumers = await ask(peer, m.ConsumerGroupDescribeRequest(group_ids=names), 1)
            assert [group.group_id for group in consumers.groups] == names
            kind = m.OffsetFetchRequest
            body = kind(groups=[kind.OffsetFetchRequestGroup(group_id=name, topics=None) for name in names])
            assert [group.group_id for group in (await ask(peer, body, 9)).groups] == names
            deleted = await ask(peer, m.DeleteGroupsRequest(groups_names=names), 2)
            assert {result.error_code for result in deleted.results} == {Error.GROUP_ID_NOT_FOUND}
            assert [result.group_id for result in deleted.results] == names

    run(check())


def test_operations_are_told_when_they_are_asked_for() -> None:
    async def check() -> None:
        async with running(**AT_ONCE) as node, connected(node) as peer:  # type: ignore[arg-type]
            await find(peer, "g")
            await stable_member(peer, "g")
            for asked, told in ((False, -(2**31)), (True, 1 << 3 | 1 << 6 | 1 << 8 | 1 << 10 | 1 << 11)):
                body = m.DescribeGroupsRequest(groups=["g"], include_authorized_operations=asked)
                assert (await ask(peer, body, 6)).groups[0].authorized_operations == told

    run(check())


def test_expressions_that_come_together_are_resolved_one_a_round_of_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of them may take milliseconds: whoever sends hundreds at once must not stop the node for others."""
    rounds: dict[str, int] = {}
    now, resolve = 0, Resolver.topics

    def tick() -> None:
        nonlocal now
        now += 1
        asyncio.get_running_loop().call_soon(tick)

    def topics(self: Resolver, regex: str) -> tuple[str, ...] | None:
        rounds.setdefault(regex, now)
        return resolve(self, regex)

    async def check() -> None:
        async with running(**AT_ONCE) as node, connected(node) as peer:  # type: ignore[arg-type]
            await find(peer, "g", "h")
            tick()
            kind = m.ConsumerGroupHeartbeatRequest
            joins: list[Any] = [
                kind(
                    group_id="g",
                    member_id=f"m{number}",
                    rebalance_timeout_ms=1000,
                    subscribed_topic_regex=f"orders-{number}",
                    topic_partitions=[],
                )
                for number in range(20)
            ]
            answers = await asyncio.gather(*[peer.send(join, 1) for join in joins])
            assert [answer.error_code for answer in answers] == [Error.NONE] * 20
            assert len(rounds) == len(set(rounds.values())) == 20
            # What comes behind one of them does not overtake it.
            leave = kind(group_id="h", member_id="m0", member_epoch=-1)
            joins[0].group_id = "h"
            joined, left = await asyncio.gather(peer.send(joins[0], 1), peer.send(leave, 1))
            assert (joined.error_code, joined.member_epoch) == (Error.NONE, 1)
            assert (left.error_code, left.member_epoch) == (Error.NONE, -1)

    monkeypatch.setattr(slices, "SLICE_S", 0)
    monkeypatch.setattr(Resolver, "topics", topics)
    run(check())


def test_joins_that_wait_do_not_hold_up_other_connections_and_are_answered_when_the_node_stops() -> None:
    async def check() -> None:
        async with running() as node, connected(node) as peer, connected(node) as other:
            await find(peer, "g")
            waiting = asyncio.create_task(join(peer, "g"))
            described = m.DescribeGroupsResponse.DescribedGroup()
            while described.group_state != "PreparingRebalance":
                described = (await ask(other, m.DescribeGroupsRequest(groups=["g"]), 5)).groups[0]
            assert not waiting.done()
            assert node._coordinators is not None
            node._coordinators.stop()
            assert (await waiting).error_code == Error.NOT_COORDINATOR

    run(check())


def test_notes_of_groups_do_not_flood_the_log(caplog: pytest.LogCaptureFixture) -> None:
    now_ms = 0
    notes = GroupNotes(lambda: now_ms)
    with caplog.at_level(logging.INFO, "headrace.broker.group_notes"):
        for number in range(100):
            notes.tell(Note(f"note {number}"))
        now_ms = 1000
        notes.tell(Note("the next"))
    told = [record.getMessage() for record in caplog.records]
    assert told[:A_SECOND_MAX] == [f"note {number}" for number in range(A_SECOND_MAX)]
    assert told[A_SECOND_MAX:] == ["80 more notes of groups are not told", "the next"]
