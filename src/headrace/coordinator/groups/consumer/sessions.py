"""The time-outs of members. Nothing of them is in the log: a coordinator that takes over starts them anew."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, TypeAlias

from headrace.coordinator.groups.consumer.group import ConsumerGroup
from headrace.coordinator.groups.consumer.known import Known
from headrace.coordinator.groups.consumer.member import Current, Member, MemberState, Subscription
from headrace.coordinator.shard import Outcome

SESSION: Final = "consumer-session"
REBALANCE: Final = "consumer-rebalance"
JOIN: Final = "consumer-join"
SYNC: Final = "consumer-sync"

Remove: TypeAlias = Callable[[ConsumerGroup, list[Member], Outcome, int], None]


class Sessions:
    """Timers of sessions are lazy: a heartbeat moves the deadline, and the timer looks at it when it rings."""

    __slots__ = ("_known", "_remove", "_timers")

    def __init__(self, known: Known, remove: Remove) -> None:
        self._known = known
        self._timers = known.context.timers
        self._remove = remove

    def begin(self, group: ConsumerGroup, now_ms: int) -> Iterator[None]:
        """For all the members of a group that was loaded, one a step."""
        for member in group.members.values():
            timeout_ms = self.timeout_ms(group, member.subscription)
            self._arm(group.group_id, member.id, now_ms + timeout_ms)
            member.session_deadline_ms = member.session_timer_ms = now_ms + timeout_ms
            self.follow(group.group_id, member.id, member.subscription, member.current, now_ms)
            yield

    def begin_converted(self, group: ConsumerGroup, now_ms: int) -> None:
        """For all the members of a group that is about to be one of the new protocol."""
        for member in group.members.values():
            self._arm(group.group_id, member.id, now_ms + self.timeout_ms(group, member.subscription))

    def renew(self, group: ConsumerGroup, member_id: str, timeout_ms: int, now_ms: int) -> None:
        """A member was heard of. One that is about to join has no state yet: its timer is all that there is."""
        member = group.members.get(member_id)
        deadline_ms = now_ms + timeout_ms
        if member is None:
            self._arm(group.group_id, member_id, deadline_ms)
            return
        member.session_deadline_ms = deadline_ms
        if deadline_ms < member.session_timer_ms:  # its time-out has become shorter
            self._arm(group.group_id, member_id, deadline_ms)
            member.session_timer_ms = deadline_ms

    def timeout_ms(self, group: ConsumerGroup, subscription: Subscription) -> int:
        classic = subscription.classic
        return self._known.times(group).session_timeout_ms if classic is None else classic.session_timeout_ms

    def follow(self, group_id: str, member_id: str, subscription: Subscription, current: Current, now_ms: int) -> None:
        """A member that has to give up partitions has as long as it said that a rebalance takes it."""
        if subscription.classic is not None:
            return
        key = (REBALANCE, group_id, member_id)
        if current.state is not MemberState.UNREVOKED_PARTITIONS:
            self._timers.cancel(key)
            return

        def rang(now_ms: int) -> Outcome:
            outcome = Outcome()
            found = self._known.find(group_id, member_id)
            if found is not None and found[1].current == current:
                self._remove(found[0], [found[1]], outcome, now_ms)
            return outcome

        self._timers.at(key, now_ms + subscription.rebalance_timeout_ms, rang)

    def expect(self, what: str, group_id: str, member_id: str, timeout_ms: int, now_ms: int) -> None:
        """A member of the classic protocol has to join, or to sync, until then."""

        def rang(now_ms: int) -> Outcome:
            outcome = Outcome()
            found = self._known.find(group_id, member_id)
            if found is not None:
                self._remove(found[0], [found[1]], outcome, now_ms)
            return outcome

        self._timers.at((what, group_id, member_id), now_ms + timeout_ms, rang)

    def has_come(self, what: str, group_id: str, member_id: str) -> None:
        self._timers.cancel((what, group_id, member_id))

    def end(self, group_id: str, member_id: str) -> None:
        for what in (SESSION, REBALANCE, JOIN, SYNC):
            self._timers.cancel((what, group_id, member_id))

    def _arm(self, group_id: str, member_id: str, deadline_ms: int) -> None:
        self._timers.at(
            (SESSION, group_id, member_id), deadline_ms, lambda now_ms: self._rang(group_id, member_id, now_ms)
        )

    def _rang(self, group_id: str, member_id: str, now_ms: int) -> Outcome:
        outcome = Outcome()
        found = self._known.find(group_id, member_id)
        if found is not None:
            group, member = found
            if member.session_deadline_ms > now_ms:
                self._arm(group_id, member_id, member.session_deadline_ms)
                member.session_timer_ms = member.session_deadline_ms
            else:
                self._remove(group, [member], outcome, now_ms)
        return outcome
