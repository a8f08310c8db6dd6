"""JoinGroup: becoming a member of a classic group, and joining its next generation. PURE.

A new dynamic member is given an id first and joins with it (KIP-394), so that a join that is tried again is not taken
for another member. A static member (KIP-345) is known by its instance id: back under a new member id, it takes the
place of its old self, and a stable group does not even notice.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from headrace.coordinator.groups.classic import records
from headrace.coordinator.groups.classic.answers import (
    answer_join,
    dismiss,
    join_refused,
    joined,
    members_of,
)
from headrace.coordinator.groups.classic.group import ClassicGroup
from headrace.coordinator.groups.classic.member import Member
from headrace.coordinator.groups.classic.rebalance import Rebalances
from headrace.coordinator.groups.classic.sessions import Sessions
from headrace.coordinator.groups.classic.states import State
from headrace.coordinator.groups.note import in_their_words
from headrace.coordinator.shard import Outcome, Reply
from headrace.errors import Error, Refused
from headrace.protocol import messages as m

MEMBER_ID_REQUIRED_VERSION: Final = 4
SKIP_ASSIGNMENT_VERSION: Final = 9
NEW_MEMBER_TIMEOUT_MS: Final = 300_000
"""A new member can't send heartbeats while it waits, and its connection may be long gone: after a while it is out, and
if it is still there it tries again."""


class Joining(NamedTuple):
    """A JoinGroup request, as far as it matters here."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocol_type: str
    protocols: dict[str, bytes]
    version: int
    reply: Reply
    reason: str | None = None

    def member(self, member_id: str) -> Member:
        return Member(
            member_id,
            self.instance_id,
            self.client_id,
            self.client_host,
            self.rebalance_timeout_ms,
            self.session_timeout_ms,
            self.protocols,
        )


class Joins:
    __slots__ = ("_rebalances", "_sessions", "_size_max")

    def __init__(self, rebalances: Rebalances, sessions: Sessions, size_max: int) -> None:
        self._rebalances = rebalances
        self._sessions = sessions
        self._size_max = size_max

    def join(self, group: ClassicGroup, joining: Joining, new_id: str, out: Outcome, now_ms: int) -> None:
        """`new_id` is for whoever comes without an id."""
        if not self._has_room(group, joining.member_id):
            self._turn_away(group, joining, out, now_ms)
        elif not group.supports(joining.protocol_type, joining.protocols):
            out.replies.append((joining.reply, join_refused(Error.INCONSISTENT_GROUP_PROTOCOL, joining.member_id)))
        elif not joining.member_id:
            self._join_without_id(group, joining, new_id, out, now_ms)
        elif joining.member_id in group.pending and joining.instance_id is None:
            self._sessions.expect_no_more(group, joining.member_id)
            self._add(group, joining, joining.member_id, out, now_ms)
        else:
            self._join_again(group, joining, out, now_ms)

    def _has_room(self, group: ClassicGroup, member_id: str) -> bool:
        """While a group prepares, those count that have joined: who joins last of too many is out."""
        member = group.members.get(member_id)
        if group.phase is State.EMPTY:
            return True
        if group.phase is State.PREPARING_REBALANCE:
            return (member is not None and member.join_reply is not None) or group.joins_waiting < self._size_max
        return member is not None or len(group.members) < self._size_max

    def _turn_away(self, group: ClassicGroup, joining: Joining, out: Outcome, now_ms: int) -> None:
        out.replies.append((joining.reply, join_refused(Error.GROUP_MAX_SIZE_REACHED)))
        member = group.members.get(joining.member_id)
        if member is not None:
            self._rebalances.remove(group, member, Error.GROUP_MAX_SIZE_REACHED, out)
            self._rebalances.go_on(group, f"{member.member_id} is turned away, the group is full", out, now_ms)
        elif joining.member_id in group.pending:
            self.give_up_pending(group, joining.member_id, out, now_ms)

    def _join_without_id(self, group: ClassicGroup, joining: Joining, new_id: str, out: Outcome, now_ms: int) -> None:
        if joining.instance_id is not None:
            known = group.instances.get(joining.instance_id)
            if known is not None:
                self._return(group, group.members[known], joining, new_id, out, now_ms)
                return
        elif joining.version >= MEMBER_ID_REQUIRED_VERSION:
            self._sessions.expect(group, new_id, joining.session_timeout_ms, now_ms, out)
            out.replies.append((joining.reply, join_refused(Error.MEMBER_ID_REQUIRED, new_id)))
            return
        self._add(group, joining, new_id, out, now_ms)

    def give_up_pending(self, group: ClassicGroup, member_id: str, out: Outcome, now_ms: int) -> None:
        """Nobody joined with an id that was handed out. The others need not wait for that any longer."""
        self._sessions.expect_no_more(group, member_id)
        group.pending.pop(member_id, None)
        if group.phase is State.PREPARING_REBALANCE:
            self._rebalances.go_on(group, f"nobody joins as {member_id}", out, now_ms)

    def _add(self, group: ClassicGroup, joining: Joining, member_id: str, out: Outcome, now_ms: int) -> None:
        member = joining.member(member_id)
        member.is_new = True
        member.join_reply = joining.reply
        if group.phase is State.PREPARING_REBALANCE and group.previous_phase is State.EMPTY:
            group.has_new_member = True
        group.add(member, joining.protocol_type)
        if joining.instance_id is not None:
            self._write_down(group, joining.instance_id, member_id, out)
        self._sessions.watch(group, member, now_ms + NEW_MEMBER_TIMEOUT_MS)
        self._rebalances.go_on(group, f"{member_id} joins{in_their_words(joining.reason)}", out, now_ms)

    def _join_again(self, group: ClassicGroup, joining: Joining, out: Outcome, now_ms: int) -> None:
        try:
            member = group.require_member(joining.member_id, joining.instance_id)
        except Refused as refused:
            out.replies.append((joining.reply, join_refused(refused.error, joining.member_id)))
            return
        is_as_it_was = member.offers_the_same(joining.protocols)
        if group.phase is State.COMPLETING_REBALANCE and is_as_it_was:
            # It did not get the answer to its last join.
            out.replies.append((joining.reply, joined(group, member)))
        elif group.phase is State.STABLE and is_as_it_was and group.leader != member.member_id:
            out.replies.append((joining.reply, joined(group, member)))
        else:
            # A leader that joins a stable group asks for a rebalance: something changed that only it knows of.
            self._update(group, member, joining, out)
            what = "which leads, asks for it" if is_as_it_was else "wants something else"
            why = f"{member.member_id} {what}{in_their_words(joining.reason)}"
            self._rebalances.go_on(group, why, out, now_ms)

    def _update(self, group: ClassicGroup, member: Member, joining: Joining, out: Outcome) -> None:
        """It says anew what it wants, and waits for the next generation; what it waited for before it gets no more."""
        answer_join(group, member, join_refused(Error.REBALANCE_IN_PROGRESS, member.member_id), out)
        group.change_protocols(member, joining.protocols)
        member.rebalance_timeout_ms = joining.rebalance_timeout_ms
        member.session_timeout_ms = joining.session_timeout_ms
        member.join_reply = joining.reply
        group.joins_waiting += 1

    def _return(
        self, group: ClassicGroup, old: Member, joining: Joining, new_id: str, out: Outcome, now_ms: int
    ) -> None:
        """A static member is back, and has forgotten its member id. Its old self is fenced."""
        assert joining.instance_id is not None
        dismiss(group, old, Error.FENCED_INSTANCE_ID, old.member_id, out)
        self._sessions.forget(group, old)
        leader_before = group.leader
        member = joining.member(new_id)
        member.assignment = old.assignment
        group.replace_static(old, member)
        self._sessions.heard_of(group, member, now_ms)
        if group.phase is State.STABLE and group.select_protocol() == group.protocol:
            assignments = {id: one.assignment for id, one in group.members.items()}
            out.records.append(records.record(group.group_id, records.value_of(group, assignments, now_ms)))
            out.replies.append((joining.reply, _returned(group, member, leader_before, joining.version)))
            return
        self._write_down(group, joining.instance_id, new_id, out)
        member.join_reply = joining.reply
        group.joins_waiting += 1
        why = f"static member {joining.instance_id} is back{in_their_words(joining.reason)}"
        self._rebalances.go_on(group, why, out, now_ms)

    def _write_down(self, group: ClassicGroup, instance_id: str, member_id: str, out: Outcome) -> None:
        """A static member that the log knows by another member id. Were this coordinator lost before the next
        generation is in the log, the one after it would fence the member, which gives up at that (hazard 13)."""
        if group.stored is not None:
            renamed = records.with_static_member(group.stored, instance_id, member_id)
            if renamed is not None:
                out.records.append(records.record(group.group_id, renamed))


def _returned(group: ClassicGroup, member: Member, leader_before: str | None, version: int) -> m.JoinGroupResponse:
    """It goes on in its generation. A leader must not assign anything now: newer ones are told so and get the members,
    to look after their subscriptions (KIP-814), older ones are told that the leader is someone else, their old self."""
    response = joined(group, member)
    if version < SKIP_ASSIGNMENT_VERSION:
        response.leader = leader_before or ""
        response.members = []
    elif group.leader == member.member_id:
        response.members = members_of(group)
        response.skip_assignment = True
    return response
