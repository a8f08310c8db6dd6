"""Membership of a group by the classic protocol: join, get an assignment from the leader, heartbeat, join again.

Eager: everything is given up before the group is joined again. The leader assigns by ranges, as Kafka's default does.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Final

from headrace.client.cluster import Cluster
from headrace.client.coordinators import Coordinators
from headrace.client.errors import WrongArgument
from headrace.client.membership import Membership, Owner, TopicPartition
from headrace.client.transaction import GroupMember
from headrace.errors import Error, HeadraceError
from headrace.protocol import messages as m
from headrace.protocol.codec import decode_at, encode_bytes

__all__ = ["ClassicMembership", "assign_ranges"]

_log = logging.getLogger(__name__)

PROTOCOL_TYPE: Final = "consumer"
RANGE: Final = "range"
SUBSCRIPTION_VERSION: Final = 0
NO_GENERATION: Final = -1
_REJOIN: Final = frozenset({Error.REBALANCE_IN_PROGRESS, Error.ILLEGAL_GENERATION})
_JOIN_SLACK_S: Final = 5.0


class ClassicMembership(Membership):
    """Here the news is that the group is to be joined (again)."""

    __slots__ = ("_generation", "_giving", "_heartbeat_s", "_owned", "_session_timeout_ms")

    def __init__(
        self,
        cluster: Cluster,
        coordinators: Coordinators,
        owner: Owner,
        *,
        group_id: str,
        instance_id: str | None,
        session_timeout_ms: int,
        rebalance_timeout_ms: int,
        heartbeat_s: float,
    ) -> None:
        super().__init__(cluster, coordinators, owner, group_id, "", instance_id, rebalance_timeout_ms)
        self._session_timeout_ms = session_timeout_ms
        self._heartbeat_s = heartbeat_s
        self._generation = NO_GENERATION
        self._owned: list[TopicPartition] = []
        self._giving: asyncio.Task[None] | None = None
        """What was assigned is being taken up; heartbeats go on meanwhile."""

    @property
    def member(self) -> GroupMember:
        return GroupMember(self._group_id, self._generation, self._member_id, self._instance_id)

    def subscribe(self, topics: Sequence[str], pattern: str | None) -> None:
        if pattern is not None:
            raise WrongArgument('A pattern needs the new protocol: make the consumer with protocol="consumer".')
        super().subscribe(topics, pattern)

    async def _part(self) -> m.LeaveGroupRequest | None:
        await self._give_up()
        if not self._member_id or self._instance_id is not None:
            return None  # a static member may come back
        members = [m.LeaveGroupRequest.MemberIdentity(member_id=self._member_id)]
        return m.LeaveGroupRequest(group_id=self._group_id, members=members)

    # --- generations --------------------------------------------------------------------------------------------------

    async def _turn(self) -> float:
        if self._is_news.is_set():
            await self._join()
        else:
            await self._beat()
        return 0.0 if self._is_news.is_set() else self._heartbeat_s

    async def _pause(self, pause_s: float) -> None:
        if self._is_news.is_set():
            await asyncio.sleep(pause_s)
        else:
            await super()._pause(pause_s)

    async def _join(self) -> None:
        await self._give_up()
        topics = sorted(self._topics)
        subscription = m.ConsumerProtocolSubscription(topics=topics, user_data=None)
        metadata = SUBSCRIPTION_VERSION.to_bytes(2) + encode_bytes(subscription, SUBSCRIPTION_VERSION)
        request = m.JoinGroupRequest(
            group_id=self._group_id,
            session_timeout_ms=self._session_timeout_ms,
            rebalance_timeout_ms=self._rebalance_timeout_ms,
            member_id=self._member_id,
            group_instance_id=self._instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=[m.JoinGroupRequest.JoinGroupRequestProtocol(name=RANGE, metadata=metadata)],
        )
        wait_s = self._rebalance_timeout_ms / 1000 + _JOIN_SLACK_S
        joined: m.JoinGroupResponse = await self._call(request, timeout_s=wait_s, patience_s=2 * wait_s)
        if joined.error_code == Error.MEMBER_ID_REQUIRED:
            self._member_id = request.member_id = joined.member_id
            joined = await self._call(request, timeout_s=wait_s, patience_s=2 * wait_s)
        if self._is_over(Error.of(joined.error_code)):
            return
        if sorted(self._topics) == topics:  # else it subscribed to others meanwhile, and joins again
            self._is_news.clear()
        self._member_id, self._generation = joined.member_id, joined.generation_id
        try:
            synced = await self._sync(joined, wait_s)
        except HeadraceError:
            self._is_news.set()  # to be in the generation is not enough: nobody would say what is whose
            raise
        if self._is_over(Error.of(synced.error_code)):
            return
        self._owned = _read_assignment(synced.assignment)
        if self._owned:
            self._giving = asyncio.get_running_loop().create_task(self._give(self._owned))

    async def _sync(self, joined: m.JoinGroupResponse, wait_s: float) -> m.SyncGroupResponse:
        assignments = []
        if joined.leader == joined.member_id and not joined.skip_assignment:
            assignments = await self._assign(joined.members)
        request = m.SyncGroupRequest(
            group_id=self._group_id,
            generation_id=self._generation,
            member_id=self._member_id,
            group_instance_id=self._instance_id,
            protocol_type=joined.protocol_type,
            protocol_name=joined.protocol_name,
            assignments=assignments,
        )
        synced: m.SyncGroupResponse = await self._call(request, timeout_s=wait_s)
        return synced

    async def _give(self, partitions: list[TopicPartition]) -> None:
        try:
            await self._owner.give(partitions)
        except HeadraceError as error:
            _log.info("%s could not be taken up, and the group is joined again: %s", partitions, error)
            self._is_news.set()
        except Exception as error:
            self._broke(error)

    async def _beat(self) -> None:
        response: m.HeartbeatResponse = await self._call(
            m.HeartbeatRequest(
                group_id=self._group_id,
                generation_id=self._generation,
                member_id=self._member_id,
                group_instance_id=self._instance_id,
            )
        )
        self._is_over(Error.of(response.error_code))

    def _is_over(self, error: Error) -> bool:
        """Whether the generation has ended, so that the group is to be joined again."""
        if error is Error.NONE:
            return False
        if error is Error.UNKNOWN_MEMBER_ID:
            self._lose()
            self._member_id, self._generation = "", NO_GENERATION
        elif error is Error.ILLEGAL_GENERATION:
            self._lose()
        elif error not in _REJOIN:
            raise self._refusal(error)
        self._is_news.set()
        return True

    # --- what is owned ------------------------------------------------------------------------------------------------

    async def _give_up(self) -> None:
        giving, self._giving = self._giving, None
        if giving is not None:
            giving.cancel()
            await asyncio.gather(giving, return_exceptions=True)
        await self._owner.take(self._owned)  # again, when whoever leaves has broken this off
        self._owned = []

    def _lose(self) -> None:
        if self._giving is not None:
            self._giving.cancel()
        owned, self._owned = self._owned, []
        self._owner.lose(owned)

    async def _assign(
        self, members: Sequence[m.JoinGroupResponse.JoinGroupResponseMember]
    ) -> list[m.SyncGroupRequest.SyncGroupRequestAssignment]:
        subscriptions: dict[str, list[str]] = {}
        for member in members:
            found, _ = decode_at(m.ConsumerProtocolSubscription, SUBSCRIPTION_VERSION, member.metadata, 2)
            assert isinstance(found, m.ConsumerProtocolSubscription)
            subscriptions[member.member_id] = found.topics
        counts: dict[str, int] = {}
        for topic in dict.fromkeys(topic for topics in subscriptions.values() for topic in topics):
            self._cluster.want(topic)
        await self._cluster.refresh()
        for topic, info in self._cluster.metadata.topics.items():
            counts[topic] = len(info.partitions)
        kind = m.SyncGroupRequest.SyncGroupRequestAssignment
        return [
            kind(member_id=member_id, assignment=_write_assignment(partitions))
            for member_id, partitions in assign_ranges(subscriptions, counts).items()
        ]


def assign_ranges(
    subscriptions: Mapping[str, Sequence[str]], counts: Mapping[str, int]
) -> dict[str, list[TopicPartition]]:
    """Of every topic, a range of partitions to each member that wants it, the first ones one more if need be."""
    assigned: dict[str, list[TopicPartition]] = {member_id: [] for member_id in subscriptions}
    for topic in sorted({topic for topics in subscriptions.values() for topic in topics}):
        members = sorted(member_id for member_id, topics in subscriptions.items() if topic in topics)
        each, more = divmod(counts.get(topic, 0), len(members))
        start = 0
        for number, member_id in enumerate(members):
            end = start + each + (number < more)
            assigned[member_id] += [(topic, index) for index in range(start, end)]
            start = end
    return assigned


def _write_assignment(partitions: Sequence[TopicPartition]) -> bytes:
    kind = m.ConsumerProtocolAssignment.TopicPartition
    topics: dict[str, m.ConsumerProtocolAssignment.TopicPartition] = {}
    for name, index in partitions:
        topics.setdefault(name, kind(topic=name)).partitions.append(index)
    message = m.ConsumerProtocolAssignment(assigned_partitions=list(topics.values()), user_data=None)
    return SUBSCRIPTION_VERSION.to_bytes(2) + encode_bytes(message, SUBSCRIPTION_VERSION)


def _read_assignment(data: bytes | memoryview) -> list[TopicPartition]:
    if not data:
        return []
    found, _ = decode_at(m.ConsumerProtocolAssignment, SUBSCRIPTION_VERSION, data, 2)
    assert isinstance(found, m.ConsumerProtocolAssignment)
    return [(topic.topic, index) for topic in found.assigned_partitions for index in topic.partitions]
