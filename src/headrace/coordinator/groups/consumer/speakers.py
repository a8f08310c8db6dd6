"""Members of a consumer group that speak the classic protocol: JoinGroup, SyncGroup, Heartbeat and LeaveGroup.

To them an epoch is a generation, and nobody leads. A member that has to change anything is told to join again; joining
is what a heartbeat of the new protocol is, with what it owns in its subscription.
"""

from __future__ import annotations

from typing import Final

from headrace.coordinator.groups.classic.answers import UNKNOWN_MEMBER, join_refused, left
from headrace.coordinator.groups.classic.joins import MEMBER_ID_REQUIRED_VERSION, Joining
from headrace.coordinator.groups.consumer.decision import NEWCOMER, Decision, Subscriber
from headrace.coordinator.groups.consumer.embedded import (
    CONSUMER_PROTOCOL,
    owned_by,
    read_subscription,
    version_of,
    write_assignment,
)
from headrace.coordinator.groups.consumer.group import ConsumerGroup
from headrace.coordinator.groups.consumer.known import Known
from headrace.coordinator.groups.consumer.member import ClassicMember, Member, MemberState, Subscription
from headrace.coordinator.groups.consumer.reconciliation import waits_for_others
from headrace.coordinator.groups.consumer.sessions import JOIN, SYNC, Remove, Sessions
from headrace.coordinator.groups.consumer.subscribers import identified, static_member
from headrace.coordinator.shard import Outcome, Reply
from headrace.errors import Error, Refused
from headrace.protocol import messages as m

NO_LEADER: Final = ""


class ClassicSpeakers:
    __slots__ = ("_known", "_remove", "_sessions")

    def __init__(self, known: Known, sessions: Sessions, remove: Remove) -> None:
        self._known = known
        self._sessions = sessions
        self._remove = remove

    def join(self, group: ConsumerGroup, joining: Joining, new_id: str, now_ms: int) -> Outcome:
        """`new_id` is for a member that has none."""
        outcome = Outcome()
        try:
            response = self._join(group, joining, new_id, outcome, now_ms)
        except Refused as refused:
            outcome, response = Outcome(), join_refused(refused.error, joining.member_id)
        outcome.replies.append((joining.reply, response))
        return outcome

    def _join(
        self, group: ConsumerGroup, joining: Joining, new_id: str, outcome: Outcome, now_ms: int
    ) -> m.JoinGroupResponse:
        is_unknown = joining.member_id == UNKNOWN_MEMBER
        is_there = joining.member_id in group.members or joining.instance_id in group.instances
        most = self._known.context.group_config.group_consumer_max_size
        if len(group.members) >= most and not is_there:
            raise Refused(Error.GROUP_MAX_SIZE_REACHED)
        if joining.protocol_type != CONSUMER_PROTOCOL or not any(
            group.classic_protocols.get(name, 0) == group.classic_count for name in joining.protocols
        ):
            raise Refused(Error.INCONSISTENT_GROUP_PROTOCOL)
        if is_unknown and joining.instance_id is None and joining.version >= MEMBER_ID_REQUIRED_VERSION:
            return join_refused(Error.MEMBER_ID_REQUIRED, new_id)
        member_id = new_id if is_unknown else joining.member_id
        decision = Decision(self._known, group, outcome, now_ms)
        found = _found(decision, member_id, joining.instance_id, is_unknown=is_unknown)
        protocol, metadata = next(iter(joining.protocols.items()))
        said = read_subscription(metadata)
        wishes = Subscription(
            instance_id=joining.instance_id,
            rack_id=said.rack_id,
            client_id=joining.client_id,
            client_host=joining.client_host,
            names=tuple(sorted(dict.fromkeys(said.topics))),
            rebalance_timeout_ms=joining.rebalance_timeout_ms,
            classic=ClassicMember(joining.session_timeout_ms, tuple(joining.protocols.items())),
        )
        owned = owned_by(said, found.current.epoch, self._known.context.image)
        # It would join again and again until there is an assignment.
        current = decision.take(member_id, found, wishes, owned, can_wait=False)
        self._sessions.has_come(JOIN, group.group_id, member_id)
        if member_id in group.members:
            group.members[member_id].is_rejoining = False
        self._sessions.renew(group, member_id, joining.session_timeout_ms, now_ms)
        self._sessions.expect(SYNC, group.group_id, member_id, joining.rebalance_timeout_ms, now_ms)
        return m.JoinGroupResponse(
            member_id=member_id,
            generation_id=current.epoch,
            protocol_type=CONSUMER_PROTOCOL,
            protocol_name=protocol,
            leader=NO_LEADER,
        )

    def sync(self, group: ConsumerGroup, body: m.SyncGroupRequest, reply: Reply, now_ms: int) -> Outcome:
        member = _speaker(group, body.member_id, body.group_instance_id)
        classic = member.subscription.classic
        assert classic is not None
        _require_generation(member, body.generation_id)
        protocol, metadata = classic.protocols[0]
        if body.protocol_type not in (None, CONSUMER_PROTOCOL) or body.protocol_name not in (None, protocol):
            raise Refused(Error.INCONSISTENT_GROUP_PROTOCOL)
        # Who gives something up has joined already; it does that first, and what is next then comes by itself.
        if group.epoch > member.current.epoch and member.current.state is not MemberState.UNREVOKED_PARTITIONS:
            self._must_join(group, member, now_ms)
            raise Refused(Error.REBALANCE_IN_PROGRESS)
        self._sessions.has_come(SYNC, group.group_id, member.id)
        self._sessions.renew(group, member.id, classic.session_timeout_ms, now_ms)
        assignment = write_assignment(member.current.assigned, version_of(metadata), self._known.context.image)
        response = m.SyncGroupResponse(protocol_type=CONSUMER_PROTOCOL, protocol_name=protocol, assignment=assignment)
        return Outcome(replies=[(reply, response)])

    def heartbeat(self, group: ConsumerGroup, body: m.HeartbeatRequest, reply: Reply, now_ms: int) -> Outcome:
        """A member joins again when there is something to do: a new epoch, something to give up, or to take."""
        member = _speaker(group, body.member_id, body.group_instance_id)
        classic, current = member.subscription.classic, member.current
        assert classic is not None
        _require_generation(member, body.generation_id)
        self._sessions.renew(group, member.id, classic.session_timeout_ms, now_ms)
        outcome = Outcome()
        epoch = group.epoch
        if group.seen_topics != self._known.topics.version:
            epoch = Decision(self._known, group, outcome, now_ms).look()
        if (
            current.epoch < epoch
            or current.state is MemberState.UNREVOKED_PARTITIONS
            or (
                current.state is MemberState.UNRELEASED_PARTITIONS
                and not waits_for_others(member.id, current, group.target(member.id), group.owners)
            )
        ):
            self._must_join(group, member, now_ms)
            outcome.replies.append((reply, m.HeartbeatResponse(error_code=Error.REBALANCE_IN_PROGRESS)))
        else:
            outcome.replies.append((reply, m.HeartbeatResponse()))
        return outcome

    def leave(
        self, group: ConsumerGroup, body: m.LeaveGroupRequest, version: int, reply: Reply, now_ms: int
    ) -> Outcome:
        outcome = Outcome()
        errors: list[Error] = []
        leaving: dict[str, Member] = {}
        for who in body.members:
            try:
                if who.group_instance_id is not None and not who.member_id:
                    # Whoever administers the group names a static member by its instance id alone, of either protocol.
                    member = static_member(group, who.group_instance_id)
                else:
                    member = identified(group, who.member_id, who.group_instance_id)
            except Refused as refused:
                errors.append(refused.error)
            else:
                leaving[member.id] = member
                errors.append(Error.NONE)
        if leaving:
            self._remove(group, list(leaving.values()), outcome, now_ms)
        outcome.replies.append((reply, left(body, errors, version)))
        return outcome

    def _must_join(self, group: ConsumerGroup, member: Member, now_ms: int) -> None:
        if not member.is_rejoining:
            member.is_rejoining = True
            timeout_ms = member.subscription.rebalance_timeout_ms
            self._sessions.expect(JOIN, group.group_id, member.id, timeout_ms, now_ms)


def _found(decision: Decision, member_id: str, instance_id: str | None, *, is_unknown: bool) -> Subscriber:
    group = decision.group
    if instance_id is not None and instance_id in group.instances:
        member = static_member(group, instance_id)
        if is_unknown:
            return decision.replace_static(member)
        identified(group, member_id, instance_id)
    elif instance_id is not None and not is_unknown:
        raise Refused(Error.UNKNOWN_MEMBER_ID)
    elif member_id not in group.members:
        return NEWCOMER
    else:
        member = group.members[member_id]
    return Subscriber(member.subscription, member.current, group.target(member.id))


def _speaker(group: ConsumerGroup, member_id: str, instance_id: str | None) -> Member:
    member = identified(group, member_id, instance_id)
    if not member.is_classic:
        raise Refused(Error.UNKNOWN_MEMBER_ID, f"Member {member.id} does not use the classic protocol.")
    return member


def _require_generation(member: Member, generation: int) -> None:
    if generation != member.current.epoch:
        raise Refused(
            Error.ILLEGAL_GENERATION,
            f"The member came with generation {generation}, and is in epoch {member.current.epoch}.",
        )
