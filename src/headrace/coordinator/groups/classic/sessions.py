"""How long members may be silent, and how long handed out member ids wait to be used. PURE."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from headrace.coordinator.groups.classic.group import ClassicGroup
from headrace.coordinator.groups.classic.member import NO_ALARM, Member
from headrace.coordinator.shard import Outcome, Timers

PENDING_MAX: Final = 10_000
"""Member ids in a shard that nobody has joined with yet. Clients use theirs within milliseconds: the oldest ones are
those that nobody comes for."""

Silent: TypeAlias = Callable[[ClassicGroup, str, int, Outcome], None]
"""The time of a member, or of a handed out member id, is over."""


class Sessions:
    __slots__ = ("_on_silence", "_pending", "_timers")

    def __init__(self, timers: Timers, on_silence: Silent) -> None:
        self._timers = timers
        self._on_silence = on_silence
        self._pending: dict[tuple[str, str], ClassicGroup] = {}

    def watch(self, group: ClassicGroup, member: Member, deadline_ms: int) -> None:
        """From now on, until the member is gone."""
        member.deadline_ms = deadline_ms
        if member.alarm_ms == NO_ALARM or deadline_ms < member.alarm_ms:
            self._set(group, member)

    def heard_of(self, group: ClassicGroup, member: Member, now_ms: int) -> None:
        """As `Member.heard_of`, where the alarm may be off, or too late: the member was waiting."""
        self.watch(group, member, now_ms + member.session_timeout_ms)

    def forget(self, group: ClassicGroup, member: Member) -> None:
        if member.alarm_ms != NO_ALARM:
            member.alarm_ms = NO_ALARM
            self._timers.cancel(_key(group, member.member_id))

    def _set(self, group: ClassicGroup, member: Member) -> None:
        member.alarm_ms = member.deadline_ms
        self._timers.at(
            _key(group, member.member_id), member.deadline_ms, lambda now_ms: self._alarm(group, member, now_ms)
        )

    def _alarm(self, group: ClassicGroup, member: Member, now_ms: int) -> Outcome:
        out = Outcome()
        was_set_back = member.deadline_ms < member.alarm_ms  # the clock, since: the member was heard of after that
        member.alarm_ms = NO_ALARM
        if was_set_back:
            self.heard_of(group, member, now_ms)
        elif member.deadline_ms > now_ms:
            self._set(group, member)
        elif not member.is_excused:  # and if it is, it is watched again as soon as it has its answer
            self._on_silence(group, member.member_id, now_ms, out)
        return out

    # Member ids that were handed out (KIP-394).

    def expect(self, group: ClassicGroup, member_id: str, timeout_ms: int, now_ms: int, out: Outcome) -> None:
        """Somebody will join with this id."""
        group.pending[member_id] = None
        self._pending[group.group_id, member_id] = group
        self._timers.at(
            _key(group, member_id), now_ms + timeout_ms, lambda now_ms: self._gave_up(group, member_id, now_ms)
        )
        if len(self._pending) > PENDING_MAX:
            oldest, its_group = next(iter(self._pending.items()))
            self.expect_no_more(its_group, oldest[1])
            self._on_silence(its_group, oldest[1], now_ms, out)

    def expect_no_more(self, group: ClassicGroup, member_id: str) -> None:
        if self._pending.pop((group.group_id, member_id), None) is not None:
            self._timers.cancel(_key(group, member_id))

    def _gave_up(self, group: ClassicGroup, member_id: str, now_ms: int) -> Outcome:
        out = Outcome()
        self._pending.pop((group.group_id, member_id), None)
        self._on_silence(group, member_id, now_ms, out)
        return out


def _key(group: ClassicGroup, member_id: str) -> tuple[str, str, str]:
    return ("classic session", group.group_id, member_id)
