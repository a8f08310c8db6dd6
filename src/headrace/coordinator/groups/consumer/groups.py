"""The part of a group shard that knows the new consumer protocol: its groups, and what their members ask (KIP-848)."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Iterator
from dataclasses import replace
from typing import Final, TypeAlias

from headrace.coordinator.groups.classic import ClassicGroup, ClassicGroups
from headrace.coordinator.groups.classic.joins import Joining
from headrace.coordinator.groups.consumer import records
from headrace.coordinator.groups.consumer.decision import Decision
from headrace.coordinator.groups.consumer.describe import described
from headrace.coordinator.groups.consumer.group import ConsumerGroup
from headrace.coordinator.groups.consumer.known import Known
from headrace.coordinator.groups.consumer.member import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    STATIC_LEAVE_EPOCH,
    Held,
    Member,
    MemberState,
    Subscription,
)
from headrace.coordinator.groups.consumer.migration import (
    can_downgrade,
    downgrade_records,
    downgraded,
    give_away,
    size_of,
    upgrade_records,
    upgraded,
)
from headrace.coordinator.groups.consumer.replay import replay
from headrace.coordinator.groups.consumer.requests import owned_partitions, validate_heartbeat
from headrace.coordinator.groups.consumer.sessions import Sessions
from headrace.coordinator.groups.consumer.speakers import ClassicSpeakers
from headrace.coordinator.groups.consumer.subscribers import identified, subscriber
from headrace.coordinator.groups.consumer.target import View
from headrace.coordinator.groups.consumer.topics import broker_racks
from headrace.coordinator.groups.context import GroupContext
from headrace.coordinator.groups.group import Group
from headrace.coordinator.shard import Outcome, ProducerStamp, Reply, StateRecord
from headrace.errors import Error, Refused
from headrace.metadata.delta import Delta
from headrace.metadata.features import GROUP_VERSION
from headrace.protocol import messages as m

Heartbeat: TypeAlias = m.ConsumerGroupHeartbeatRequest

NOT_ENABLED: Final = "The new consumer protocol is not enabled in this cluster."
TEXT_MAX: Final = 1_000
"""Of an error: ids may be long, and no client reads a string beyond 32,767."""
SOON: Final = 8
"""So many times as often a member asks that shall hear soon of what the others do."""
SOON_MS_MIN: Final = 100
HEARTBEATS_MAX: Final = 2
"""Of one group in a millisecond, from members that ask so often."""
KINDS: Final = (3, 4, 5, 6, 7, 8, 16)
"""Of records: by the numbers in their keys."""


class ConsumerGroups:
    """Heartbeats in, records and replies out."""

    __slots__ = ("_classic", "_context", "_known", "_racks", "_sessions", "_speakers")

    kinds: Final = KINDS

    def __init__(self, context: GroupContext, classic: ClassicGroups) -> None:
        self._context = context
        self._classic = classic
        self._known = Known(context)
        self._sessions = Sessions(self._known, self._remove)
        self._speakers = ClassicSpeakers(self._known, self._sessions, self._remove)
        classic.other_protocol = self
        self._racks = broker_racks(context.image)

    # --- as a part of the shard ---------------------------------------------------------------------------------------

    def replay(
        self,
        kind: int,
        key: bytes,
        value: bytes | None,
        offset: int,
        timestamp_ms: int,
        stamp: ProducerStamp | None,
    ) -> None:
        replay(self._context.groups, key, value)

    def settle(self, now_ms: int) -> Iterator[None]:
        for group in list(self._context.groups.values()):
            if isinstance(group, ConsumerGroup):
                yield from self._sessions.begin(group, now_ms)
            yield

    def loaded(self, now_ms: int) -> Outcome:
        image = self._context.image
        self._known.topics.reset(image)
        self._known.resolver.reset(image.topic_ids)
        self._racks = broker_racks(image)
        return Outcome()

    def image_changed(self, delta: Delta, now_ms: int) -> Outcome:
        """Groups look at what changed with their next heartbeat, so that one change is no storm."""
        image = self._context.image
        racks = broker_racks(image) if delta.changed_brokers else self._racks
        came, went = self._known.topics.change(
            image,
            {**dict.fromkeys(delta.changed_topics), **dict.fromkeys(delta.removed_topics)},
            are_racks_changed=racks != self._racks,
        )
        self._racks = racks
        if came or went:
            self._known.resolver.change(image.topic_ids, came, went)
        return Outcome()

    def unloaded(self, now_ms: int) -> Outcome:
        return Outcome()

    # --- what is asked ------------------------------------------------------------------------------------------------

    def heartbeat(
        self, body: Heartbeat, version: int, client_id: str, client_host: str, reply: Reply, now_ms: int
    ) -> Outcome:
        """A member joins, says what it owns, hears what it shall own, or leaves."""
        response = self.idle(body, client_id, client_host, now_ms)
        if response is not None:
            return Outcome(replies=[(reply, response)])
        try:
            outcome = Outcome()
            response = self._heartbeat(body, version, client_id, client_host, outcome, now_ms)
        except Refused as refused:
            outcome = Outcome()
            response = m.ConsumerGroupHeartbeatResponse(error_code=refused.error, error_message=refused.text[:TEXT_MAX])
        outcome.replies.append((reply, response))
        return outcome

    def idle(
        self, body: Heartbeat, client_id: str, client_host: str, now_ms: int
    ) -> m.ConsumerGroupHeartbeatResponse | None:
        """The reply to a heartbeat like nearly all: nothing is new on either side. None when it is another one.

        It may be sent at once: it tells a member nothing but the epoch that it has been told.
        """
        group = self._context.groups.get(body.group_id)
        if type(group) is not ConsumerGroup:
            return None
        member = group.members.get(body.member_id)
        if member is None:
            return None
        current, subscription, epoch = member.current, member.subscription, group.epoch
        if not (
            body.member_epoch == current.epoch == epoch == group.assignment_epoch
            and current.state is MemberState.STABLE
            and epoch > JOIN_EPOCH
            and group.seen_topics == self._known.topics.version
            and body.topic_partitions is None
            and body.subscribed_topic_names is None
            and body.subscribed_topic_regex is None
            and body.server_assignor is None
            and body.rebalance_timeout_ms == -1
            and body.instance_id == subscription.instance_id
            and (body.rack_id is None or body.rack_id == subscription.rack_id)
            and client_id == subscription.client_id
            and client_host == subscription.client_host
            and subscription.classic is None
        ):
            return None
        times = self._known.times(group)
        member.session_deadline_ms = deadline_ms = now_ms + times.session_timeout_ms
        if deadline_ms < member.session_timer_ms:
            self._sessions.renew(group, member.id, times.session_timeout_ms, now_ms)
        interval_ms = times.heartbeat_interval_ms
        if now_ms < group.restless_until_ms:
            interval_ms = soon_ms(group, interval_ms)
        return m.ConsumerGroupHeartbeatResponse(
            member_id=member.id, member_epoch=epoch, heartbeat_interval_ms=interval_ms
        )

    def describe(self, group_id: str) -> m.ConsumerGroupDescribeResponse.DescribedGroup:
        """One group, or why not."""
        kind = m.ConsumerGroupDescribeResponse.DescribedGroup
        if not self._is_enabled():
            return kind(group_id=group_id, error_code=Error.UNSUPPORTED_VERSION, error_message=NOT_ENABLED)
        group = self._context.groups.get(group_id)
        if not isinstance(group, ConsumerGroup):
            return kind(
                group_id=group_id,
                error_code=Error.GROUP_ID_NOT_FOUND,
                error_message=f"Group {group_id} not found."
                if group is None
                else f"Group {group_id} is not a consumer group.",
            )
        return described(group, self._known.default_assignor, self._context.image)

    def _is_enabled(self) -> bool:
        context = self._context
        return (
            context.image.features.get(GROUP_VERSION, 0) >= 1
            and "consumer" in context.group_config.group_coordinator_rebalance_protocols
        )

    # --- heartbeats ---------------------------------------------------------------------------------------------------

    def _heartbeat(
        self, body: Heartbeat, version: int, client_id: str, client_host: str, outcome: Outcome, now_ms: int
    ) -> m.ConsumerGroupHeartbeatResponse:
        config = self._context.group_config
        if not self._is_enabled():
            raise Refused(Error.UNSUPPORTED_VERSION, NOT_ENABLED)
        validate_heartbeat(body, version, config.group_consumer_assignors)
        if body.member_epoch in (LEAVE_EPOCH, STATIC_LEAVE_EPOCH):
            return self._leave(body, outcome, now_ms)
        group, was = self._group_to_join(body.group_id, body.member_epoch, outcome)
        is_there = body.member_id in group.members or body.instance_id in group.instances
        if len(group.members) >= config.group_consumer_max_size and not is_there:
            raise Refused(
                Error.GROUP_MAX_SIZE_REACHED, f"The group has {len(group.members)} members, which is the most it may."
            )
        owned = owned_partitions(body)
        decision = Decision(self._known, group, outcome, now_ms)
        if was is not None:
            decision.restart()  # what the classic members have need not be all that there is
        member_id = body.member_id or self._new_member_id()
        found = subscriber(decision, member_id, body.instance_id, body.member_epoch, owned)
        wishes = _wishes(found.subscription, body, client_id, client_host)
        if body.member_epoch < found.current.epoch:
            # A reply was lost, or this request is late: what it owned then says nothing of now.
            owned = None
        current = decision.take(member_id, found, wishes, owned)
        times = self._known.times(group)
        self._sessions.renew(group, member_id, times.session_timeout_ms, now_ms)
        if current is not found.current:
            self._sessions.follow(group.group_id, member_id, wishes, current, now_ms)
        if was is not None:
            self._must_fit(outcome.records, body.group_id)
            outcome.is_atomic = True
            give_away(self._classic, was, outcome)
            self._sessions.begin_converted(group, now_ms)
        interval_ms = times.heartbeat_interval_ms
        is_behind = current.epoch < decision.epoch and current.state is MemberState.STABLE
        # Who waits for what others give up, and who may have to give up something, asks often: how long partitions are
        # nobody's hangs on that.
        if is_behind or current.state is MemberState.UNRELEASED_PARTITIONS or now_ms < group.restless_until_ms:
            interval_ms = soon_ms(group, interval_ms)
        response = m.ConsumerGroupHeartbeatResponse(
            member_id=member_id, member_epoch=current.epoch, heartbeat_interval_ms=interval_ms
        )
        if _is_whole(body) or current.assigned != found.current.assigned:
            response.assignment = _response_assignment(current.assigned)
        return response

    def _group_to_join(
        self, group_id: str, member_epoch: int, outcome: Outcome
    ) -> tuple[ConsumerGroup, ClassicGroup | None]:
        """The group, and the classic one that becomes it with this heartbeat, if there is one."""
        group = self._context.groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            return group, None
        if member_epoch != JOIN_EPOCH:
            raise Refused(Error.GROUP_ID_NOT_FOUND, f"Consumer group {group_id} not found.")
        if isinstance(group, ClassicGroup):
            if group.is_empty:
                outcome.records += group.tombstones()
                return ConsumerGroup(group_id), group
            made = upgraded(group, self._context, self._known.topics)
            outcome.records += upgrade_records(group, made)
            return made, group
        return ConsumerGroup(group_id), None

    # --- leaving ------------------------------------------------------------------------------------------------------

    def _leave(self, body: Heartbeat, outcome: Outcome, now_ms: int) -> m.ConsumerGroupHeartbeatResponse:
        group = self._context.groups.get(body.group_id)
        if not isinstance(group, ConsumerGroup):
            raise Refused(Error.GROUP_ID_NOT_FOUND, f"Consumer group {body.group_id} not found.")
        member = identified(group, body.member_id, body.instance_id)
        if body.member_epoch == STATIC_LEAVE_EPOCH:
            # What it had to give up it has given up; the rest is kept for it until its session ends.
            gone = replace(member.current, epoch=STATIC_LEAVE_EPOCH, revoking={})
            outcome.records.append(records.current_assignment(group.group_id, member.id, gone))
        else:
            self._remove(group, [member], outcome, now_ms)
        return m.ConsumerGroupHeartbeatResponse(member_id=body.member_id, member_epoch=body.member_epoch)

    def _remove(self, group: ConsumerGroup, members: list[Member], outcome: Outcome, now_ms: int) -> None:
        """They leave, or are taken for gone: the others get what they had with their next heartbeats."""
        if len(members) < len(group.members) and self._downgrade(group, members, outcome, now_ms) is not None:
            return
        view = View(group, self._known.topics)
        for member in members:
            del view.subscriptions[member.id]
            outcome.records += records.no_member(group.group_id, member.id)
            self._sessions.end(group.group_id, member.id)
        decision = Decision(self._known, group, outcome, now_ms)
        decision.restart()
        decision.refresh(view)

    # --- members of the classic protocol ------------------------------------------------------------------------------

    def classic_join(self, group: Group, joining: Joining, now_ms: int) -> Outcome:
        assert isinstance(group, ConsumerGroup)
        replaced = group.members.get(group.instances.get(joining.instance_id or "", ""))
        if replaced is not None and not replaced.is_classic and not joining.member_id:
            # A static member goes back. If it was the last of the new protocol, so does the group.
            outcome = Outcome()
            made = self._downgrade(group, [replaced], outcome, now_ms)
            if made is not None:
                self._classic.join_group(made, joining, outcome, now_ms)
                return outcome
        return self._speakers.join(group, joining, self._new_member_id(), now_ms)

    def classic_sync(self, group: Group, body: m.SyncGroupRequest, reply: Reply, now_ms: int) -> Outcome:
        assert isinstance(group, ConsumerGroup)
        return self._speakers.sync(group, body, reply, now_ms)

    def classic_heartbeat(self, group: Group, body: m.HeartbeatRequest, reply: Reply, now_ms: int) -> Outcome:
        assert isinstance(group, ConsumerGroup)
        return self._speakers.heartbeat(group, body, reply, now_ms)

    def classic_leave(
        self, group: Group, body: m.LeaveGroupRequest, version: int, reply: Reply, now_ms: int
    ) -> Outcome:
        assert isinstance(group, ConsumerGroup)
        return self._speakers.leave(group, body, version, reply, now_ms)

    def _downgrade(
        self, group: ConsumerGroup, without: list[Member], outcome: Outcome, now_ms: int
    ) -> ClassicGroup | None:
        """Back to the classic protocol, if that may be: those who stay all speak it."""
        if not can_downgrade(group, without, self._context):
            return None
        made = downgraded(group, without, self._context.image, now_ms)
        written = downgrade_records(group, made, now_ms)
        if size_of(written) > self._classic.record_bytes_max:
            return None
        outcome.records += written
        for member in group.members.values():
            self._sessions.end(group.group_id, member.id)
        self._classic.take_in(made, now_ms)
        if made.members:
            self._classic.rebalances.prepare(made, outcome, now_ms, "it goes back to the classic protocol")
        return made

    def _must_fit(self, written: list[StateRecord], group_id: str) -> None:
        """A group goes over as a whole, or not at all: before anybody is told."""
        if size_of(written) > self._classic.record_bytes_max:
            raise Refused(
                Error.GROUP_ID_NOT_FOUND, f"Group {group_id} is too large to become a consumer group in one batch."
            )

    def _new_member_id(self) -> str:
        return urlsafe_b64encode(self._context.random_bytes(16)).decode().rstrip("=")


def soon_ms(group: ConsumerGroup, interval_ms: int) -> int:
    """When a member is to ask again that would else ask after `interval_ms`."""
    return min(interval_ms, max(interval_ms // SOON, SOON_MS_MIN, len(group.members) // HEARTBEATS_MAX))


def _wishes(before: Subscription, body: Heartbeat, client_id: str, client_host: str) -> Subscription:
    """What the member says now; of what it leaves out it said before what it wants."""
    names, regex = body.subscribed_topic_names, body.subscribed_topic_regex
    return Subscription(
        instance_id=before.instance_id if body.instance_id is None else body.instance_id,
        rack_id=before.rack_id if body.rack_id is None else body.rack_id,
        client_id=client_id,
        client_host=client_host,
        names=before.names if names is None else tuple(sorted(dict.fromkeys(names))),
        regex=before.regex if regex is None else regex or None,
        rebalance_timeout_ms=before.rebalance_timeout_ms
        if body.rebalance_timeout_ms == -1
        else body.rebalance_timeout_ms,
        server_assignor=before.server_assignor if body.server_assignor is None else body.server_assignor,
    )


def _is_whole(body: Heartbeat) -> bool:
    """It says everything, as when it does not know what the coordinator knows: it is told everything."""
    return body.member_epoch == JOIN_EPOCH or (
        body.rebalance_timeout_ms != -1
        and (body.subscribed_topic_names is not None or body.subscribed_topic_regex is not None)
        and body.topic_partitions is not None
    )


def _response_assignment(assigned: Held) -> m.ConsumerGroupHeartbeatResponse.Assignment:
    kind = m.ConsumerGroupHeartbeatResponse
    return kind.Assignment(
        topic_partitions=[
            kind.TopicPartitions(topic_id=topic_id, partitions=list(partitions))
            for topic_id, partitions in assigned.items()
        ]
    )
