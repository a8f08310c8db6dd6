"""Members of groups by both protocols, beside a coordinator that is played."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

from headrace.client.backoff import Backoff
from headrace.client.classic_membership import ClassicMembership, _write_assignment
from headrace.client.consumer_membership import ConsumerMembership
from headrace.client.transaction import GroupMember
from headrace.errors import HeadraceError
from headrace.net.peer import Disconnected
from headrace.protocol import messages as m

TOPIC_ID = b"0123456789abcdef"
Answer = Callable[[m.ConsumerGroupHeartbeatRequest], m.ConsumerGroupHeartbeatResponse]


class Coordinators:
    """Answers heartbeats in turn; the last answer is for all that come later. As the real ones, it is patient."""

    def __init__(self, *answers: Answer) -> None:
        self.answers = list(answers)
        self.heartbeats: list[m.ConsumerGroupHeartbeatRequest] = []

    async def call(
        self,
        kind: object,
        key: str,
        message: Any,
        error_of: object,
        *,
        timeout_s: float | None = None,
        patience_s: float | None = None,
    ) -> m.ConsumerGroupHeartbeatResponse:
        while True:
            await asyncio.sleep(0)
            self.heartbeats.append(message)
            answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
            try:
                return answer(message)
            except Disconnected:
                if patience_s == 0:
                    raise


class Owner:
    def __init__(self) -> None:
        self.owned: list[tuple[str, int]] = []
        self.was: list[tuple[GroupMember, list[tuple[str, int]]]] = []
        """Who it was when it was told to stop."""
        self.membership: ConsumerMembership | None = None
        self.may_give = asyncio.Event()
        self.may_give.set()

    async def give(self, partitions: Sequence[tuple[str, int]]) -> None:
        await self.may_give.wait()
        self.owned += partitions

    def stop(self, partitions: Sequence[tuple[str, int]]) -> None:
        if partitions:
            assert self.membership is not None
            self.was.append((self.membership.member, list(partitions)))

    async def take(self, partitions: Sequence[tuple[str, int]]) -> None:
        for partition in partitions:
            self.owned.remove(partition)

    def lose(self, partitions: Sequence[tuple[str, int]]) -> None:
        self.owned.clear()

    def fail(self, error: HeadraceError) -> None:
        raise error


def told(epoch: int, partitions: list[int] | None = None) -> m.ConsumerGroupHeartbeatResponse:
    kind = m.ConsumerGroupHeartbeatResponse
    assignment = None
    if partitions is not None:
        topics = [kind.TopicPartitions(topic_id=TOPIC_ID, partitions=partitions)] if partitions else []
        assignment = kind.Assignment(topic_partitions=topics)
    return kind(member_epoch=epoch, heartbeat_interval_ms=1, assignment=assignment)


def lost(request: m.ConsumerGroupHeartbeatRequest) -> m.ConsumerGroupHeartbeatResponse:
    raise Disconnected("the answer was lost.")


def member(coordinators: Coordinators, owner: Owner) -> ConsumerMembership:
    cluster: Any = SimpleNamespace(
        backoff=lambda: Backoff(0.001, 0.001, random.Random(1)),
        metadata=SimpleNamespace(topics={"in": SimpleNamespace(topic_id=TOPIC_ID)}),
    )
    found: Any = coordinators
    owner.membership = ConsumerMembership(
        cluster,
        found,
        owner,
        group_id="a-group",
        member_id="a-member",
        instance_id=None,
        rack=None,
        rebalance_timeout_ms=1000,
        assignor=None,
    )
    return owner.membership


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0.001)


def test_an_assignment_whose_answer_was_lost_is_asked_for_again() -> None:
    """The coordinator tells an assignment once, and again only to a member that says what it has."""

    async def scenario() -> None:
        coordinators = Coordinators(
            lambda _: told(1),
            lost,
            lambda request: told(2, [0]) if request.topic_partitions is not None else told(2),
            lambda request: told(2),
        )
        owner = Owner()
        membership = member(coordinators, owner)
        membership.subscribe(["in"], None)
        await until(lambda: owner.owned == [("in", 0)])
        await membership.leave(0.1)

    asyncio.run(scenario())


def test_it_does_not_say_what_it_owns_before_it_is_done_with_an_assignment() -> None:
    """What it does not name goes to others, while it is taking it up."""

    async def scenario() -> None:
        coordinators = Coordinators(lambda _: told(1, [0]), lost, lambda _: told(1))
        owner = Owner()
        owner.may_give.clear()
        membership = member(coordinators, owner)
        membership.subscribe(["in"], None)
        await until(lambda: len(coordinators.heartbeats) > 5)
        assert all(heartbeat.topic_partitions is None for heartbeat in coordinators.heartbeats[1:])
        owner.may_give.set()
        await until(lambda: coordinators.heartbeats[-1].topic_partitions)
        await membership.leave(0.1)

    asyncio.run(scenario())


def test_hazard_13_it_stops_as_who_it_was_before_the_epoch_that_takes_something_away() -> None:
    async def scenario() -> None:
        coordinators = Coordinators(lambda _: told(1, [0, 1]), lambda _: told(2, [1]), lambda _: told(2))
        owner = Owner()
        membership = member(coordinators, owner)
        membership.subscribe(["in"], None)
        await until(lambda: owner.owned == [("in", 1)])
        assert owner.was == [(GroupMember("a-group", 1, "a-member"), [("in", 0)])]
        assert membership.member.generation == 2
        await membership.leave(0.1)

    asyncio.run(scenario())


def test_a_classic_member_that_could_not_sync_joins_again() -> None:
    """It is in the generation, and its heartbeats are fine; but nobody has told it what it has."""

    class Coordinator:
        def __init__(self) -> None:
            self.syncs = 0

        async def call(self, kind: object, key: str, message: Any, *_: object, **options: object) -> object:
            await asyncio.sleep(0)
            if isinstance(message, m.JoinGroupRequest):
                return m.JoinGroupResponse(generation_id=1, member_id="a-member", leader="another")
            if isinstance(message, m.HeartbeatRequest):
                return m.HeartbeatResponse()
            if isinstance(message, m.LeaveGroupRequest):
                return m.LeaveGroupResponse()
            self.syncs += 1
            if self.syncs == 1:
                raise Disconnected("nobody answers.")
            return m.SyncGroupResponse(assignment=_write_assignment([("in", 0)]))

    async def scenario() -> None:
        owner = Owner()
        cluster: Any = SimpleNamespace(backoff=lambda: Backoff(0.001, 0.001, random.Random(1)))
        coordinators: Any = Coordinator()
        membership = ClassicMembership(
            cluster,
            coordinators,
            owner,
            group_id="a-group",
            instance_id=None,
            session_timeout_ms=1000,
            rebalance_timeout_ms=1000,
            heartbeat_s=0.001,
        )
        membership.subscribe(["in"], None)
        await until(lambda: owner.owned == [("in", 0)])
        await membership.leave(0.1)

    asyncio.run(scenario())
