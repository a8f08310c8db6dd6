"""One decision about a group: a member with new wishes, and all that follows from them, as records."""

from __future__ import annotations

from typing import Final, NamedTuple

from headrace.coordinator.groups.consumer import records
from headrace.coordinator.groups.consumer.assignors.spec import Assignment
from headrace.coordinator.groups.consumer.group import NOTHING, ConsumerGroup
from headrace.coordinator.groups.consumer.known import Known
from headrace.coordinator.groups.consumer.member import JOIN_EPOCH, Current, Member, Subscription
from headrace.coordinator.groups.consumer.reconciliation import reconciled
from headrace.coordinator.groups.consumer.regex import Resolver, compiled
from headrace.coordinator.groups.consumer.target import View, target_records
from headrace.coordinator.shard import Outcome, StateRecord, Timers
from headrace.errors import Refused

REGEX: Final = "consumer-regex"


class Subscriber(NamedTuple):
    """Who a request is from: what is known of it, or what it takes over."""

    subscription: Subscription
    current: Current
    target: Assignment


NEWCOMER: Final = Subscriber(Subscription(), Current(), NOTHING)


class Decision:
    """What is decided goes into the outcome; the group itself changes when that is replayed."""

    __slots__ = (
        "_is_back",
        "_is_urgent",
        "_known",
        "_must_bump",
        "_now_ms",
        "_outcome",
        "_replaced",
        "_seen_topics",
        "epoch",
        "group",
    )

    def __init__(self, known: Known, group: ConsumerGroup, outcome: Outcome, now_ms: int) -> None:
        self._known = known
        self.group = group
        self._outcome = outcome
        self._now_ms = now_ms
        self._must_bump = False
        self._replaced: str | None = None
        self._is_back = False
        self._is_urgent = False
        self.epoch = group.epoch
        """Of the group, once this is replayed."""
        self._seen_topics: int | None = None

    def restart(self) -> None:
        """A member begins anew under its old id: the group goes into a new epoch, which no old request is in."""
        self._must_bump = self._is_urgent = True

    def replace_static(self, member: Member) -> Subscriber:
        """A static member is back under another id, and takes over what it left (KIP-345)."""
        self._replaced = member.id
        self._outcome.records += records.no_member(self.group.group_id, member.id)
        return self.resume_static(member)

    def resume_static(self, member: Member) -> Subscriber:
        """A static member is back, and has what it left: the others need not hear of it."""
        self._is_back = True
        old = member.current
        current = Current(JOIN_EPOCH, JOIN_EPOCH, old.state, old.assigned, old.revoking)
        return Subscriber(member.subscription, current, self.group.target(member.id))

    def take(
        self,
        member_id: str,
        found: Subscriber,
        wishes: Subscription,
        owned: Assignment | None,
        *,
        can_wait: bool = True,
    ) -> Current:
        """The group's epoch, the member's wishes, the target, then the member's next step towards it.

        In that order, so that what is written in part is right too: a group whose epoch is ahead of its target's gets a
        new target, and a member without an epoch joins again.
        """
        group, made = self.group, self._outcome.records
        self._is_urgent = self._is_urgent or not can_wait
        if wishes.regex is not None and wishes.regex != found.subscription.regex:
            compiled(wishes.regex)
        is_new = member_id not in group.members
        has_joined = found.current.epoch != JOIN_EPOCH or self._is_back
        if not has_joined or _asks_for_other(found.subscription, wishes):
            self._must_bump = True
        must_look = self._must_bump or group.seen_topics != self._known.topics.version
        must_assign = must_look or group.epoch > group.assignment_epoch
        view = self._view(member_id, wishes) if must_assign else None
        if view is not None and must_look:
            self.refresh(view)
        if is_new or wishes != found.subscription:
            made.append(records.member_metadata(group.group_id, member_id, wishes))
        target, target_epoch = found.target, group.assignment_epoch
        if view is not None and self.epoch > group.assignment_epoch and self._may_assign():
            target, target_epoch = self._assign(view, member_id, found.target), self.epoch
        elif is_new:
            made.append(records.target(group.group_id, member_id, target))
        current = reconciled(member_id, found.current, target, target_epoch, group.owners, owned)
        if is_new or current is not found.current:
            made.append(records.current_assignment(group.group_id, member_id, current))
        if self._seen_topics is not None:
            group.seen_topics = self._seen_topics
        self._outcome.is_atomic = self._replaced is not None
        return current

    def look(self) -> int:
        """Looks at the topics for members that do not: the epoch of the group, which is a new one if it must be."""
        self.refresh(View(self.group, self._known.topics))
        if self._seen_topics is not None:
            self.group.seen_topics = self._seen_topics
        return self.epoch

    def refresh(self, view: View) -> None:
        """Looks at the topics again, and begins a new epoch when it must, or when they are not what they were."""
        group, known = self.group, self._known
        is_whole = True
        changed: list[StateRecord] = []
        in_use = view.regexes()
        for regex in in_use:
            try:
                topics = known.resolver.topics(regex)
            except Refused:  # another coordinator took it, when its member came
                topics = ()
            if topics is None:
                is_whole = False
                _walk_on(known.resolver, known.context.timers, regex, self._now_ms)
            elif regex not in group.resolved or group.resolved[regex].topics != topics:
                view.resolve(regex, topics)
                version = known.context.image.offset
                changed.append(records.regular_expression(group.group_id, regex, topics, version, self._now_ms))
                self._must_bump = True
        changed += [
            records.no_regular_expression(group.group_id, regex) for regex in group.resolved if regex not in in_use
        ]
        metadata_hash = view.metadata_hash()
        self._seen_topics = known.topics.version if is_whole else -1
        if self._must_bump or metadata_hash != group.metadata_hash:
            self.epoch = group.epoch + 1
            if len(view.subscriptions) > 1:  # who is alone has nobody to wait for
                group.restless_until_ms = self._now_ms + known.times(group).heartbeat_interval_ms
            self._outcome.records.append(records.group_metadata(group.group_id, self.epoch, metadata_hash))
            if group.has_old_metadata:
                changed.append(records.no_partition_metadata(group.group_id))
        self._outcome.records += changed

    def _view(self, member_id: str, wishes: Subscription) -> View:
        view = View(self.group, self._known.topics)
        if self._replaced is not None:
            del view.subscriptions[self._replaced]
        view.subscriptions[member_id] = wishes
        return view

    def _may_assign(self) -> bool:
        """In a large group an assignment takes a while, and hundreds may come or go in a second: then one for all of
        them has to do. Who came meanwhile has nothing yet."""
        group = self.group
        return self._is_urgent or not group.assignment_epoch or self._now_ms >= group.assign_after_ms

    def _assign(self, view: View, member_id: str, had: Assignment) -> Assignment:
        group = self.group
        previous = {**group.targets, member_id: had} if self._replaced is not None else group.targets
        after = view.assign(member_id, self._known.default_assignor, previous)
        self._outcome.records += target_records(group.group_id, group.targets, after, self.epoch)
        count = len(after) + sum([len(some) for assignment in after.values() for some in assignment.values()])
        group.assign_after_ms = self._now_ms + pause_ms(count)
        return after[member_id]


def pause_ms(count: int) -> int:
    """How long a group of so many members and partitions has its assignment at least: ten times what it took to make.

    A thousand of them take a bit more than a millisecond. In a small group nothing ever waits.
    """
    return count // 1000 * 10


def _asks_for_other(before: Subscription, after: Subscription) -> bool:
    """Other topics, or to have them in another way."""
    return (
        before.names != after.names
        or before.regex != after.regex
        or before.rack_id != after.rack_id
        or before.server_assignor != after.server_assignor
    )


def _walk_on(resolver: Resolver, timers: Timers, regex: str, now_ms: int) -> None:
    """There are many topics: a step of the way with each round of the loop. Members see the end with a heartbeat."""

    def step(now_ms: int) -> Outcome:
        if resolver.topics(regex) is None:
            timers.at((REGEX, regex), now_ms, step)
        return Outcome()

    timers.at((REGEX, regex), now_ms, step)
