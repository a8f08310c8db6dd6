"""How a classic group gets from one generation to the next. PURE.

Preparing: everybody joins, or is out when the time for that is over. Completing: the leader hands in who reads what.
A first rebalance waits a while for more members, because they tend to start together.

Each step costs in proportion to the members of the group, and a join by itself costs the same in a large group.
"""

from __future__ import annotations

from collections.abc import Callable

from headrace.config.coordinators import GroupConfig
from headrace.coordinator.groups.classic import records
from headrace.coordinator.groups.classic.answers import (
    UNKNOWN_MEMBER,
    answer_join,
    answer_sync,
    dismiss,
    joined,
    sync_refused,
    synced,
)
from headrace.coordinator.groups.classic.group import ClassicGroup
from headrace.coordinator.groups.classic.member import Member
from headrace.coordinator.groups.classic.sessions import Sessions
from headrace.coordinator.groups.classic.states import State
from headrace.coordinator.groups.note import Note
from headrace.coordinator.shard import Outcome, Timers
from headrace.coordinator.state_topic import CONSUMER_OFFSETS
from headrace.errors import Error
from headrace.protocol import messages as m


class Rebalances:
    __slots__ = ("_config", "_on_empty", "_record_bytes_max", "_sessions", "_timers", "completed")

    def __init__(
        self,
        config: GroupConfig,
        timers: Timers,
        sessions: Sessions,
        on_empty: Callable[[ClassicGroup], None],
        record_bytes_max: Callable[[], int],
    ) -> None:
        self._config = config
        self._on_empty = on_empty
        self._timers = timers
        self._sessions = sessions
        self._record_bytes_max = record_bytes_max
        self.completed = 0

    def go_on(self, group: ClassicGroup, why: str, out: Outcome, now_ms: int) -> None:
        """Something changed: a rebalance starts, or the one that goes on may have got what it waited for."""
        if group.phase is not State.PREPARING_REBALANCE:
            self.prepare(group, out, now_ms, why)
        # What waits for more members goes on waiting, even though all that there are have joined.
        elif group.previous_phase is not State.EMPTY and group.have_all_joined:
            self.complete_join(group, out, now_ms)

    def prepare(self, group: ClassicGroup, out: Outcome, now_ms: int, why: str) -> None:
        """Everybody is to join again."""
        out.effects.append(Note(f"group {group.group_id} rebalances after generation {group.generation}: {why}"))
        if group.phase is State.COMPLETING_REBALANCE:
            self._call_off_assignment(group, Error.REBALANCE_IN_PROGRESS, out, now_ms)
        group.unsynced.clear()
        self._timers.cancel(_sync_key(group))
        is_first = group.phase is State.EMPTY
        group.move(State.PREPARING_REBALANCE, now_ms)
        if is_first:
            group.has_new_member = False
            delay_ms = max(self._config.group_initial_rebalance_delay_ms, 0)
            self._wait_for_more(group, delay_ms, max(group.rebalance_timeout_ms - delay_ms, 0), now_ms)
        elif group.have_all_joined:
            self.complete_join(group, out, now_ms)
        else:
            self._wait_for_joins(group, now_ms)

    def _wait_for_joins(self, group: ClassicGroup, now_ms: int) -> None:
        def over(now_ms: int) -> Outcome:
            out = Outcome()
            self.complete_join(group, out, now_ms)
            return out

        self._timers.at(_join_key(group), now_ms + group.rebalance_timeout_ms, over)

    def _wait_for_more(self, group: ClassicGroup, delay_ms: int, remaining_ms: int, now_ms: int) -> None:
        def over(now_ms: int) -> Outcome:
            out = Outcome()
            if group.has_new_member and remaining_ms:
                group.has_new_member = False
                self._wait_for_more(group, min(delay_ms, remaining_ms), max(remaining_ms - delay_ms, 0), now_ms)
            else:
                self.complete_join(group, out, now_ms)
            return out

        self._timers.at(_join_key(group), now_ms + delay_ms, over)

    def complete_join(self, group: ClassicGroup, out: Outcome, now_ms: int) -> None:
        """Who has joined is in the next generation. Static members stay until their session ends (KIP-345)."""
        self._timers.cancel(_join_key(group))
        late = [one for one in group.members.values() if one.join_reply is None and not one.is_static]
        for member in late:
            self.remove(group, member, Error.UNKNOWN_MEMBER_ID, out)
        if group.members and not group.elect_joined_leader():
            # Static ones only, and none has joined. Their sessions will end, or they come back.
            self._wait_for_joins(group, now_ms)
            return
        group.next_generation(now_ms)
        without = f", without {len(late)} that did not join in time" if late else ""
        members = "1 member" if len(group.members) == 1 else f"{len(group.members)} members"
        out.effects.append(Note(f"group {group.group_id} has {members} in generation {group.generation}{without}"))
        if group.phase is State.EMPTY:
            if group.stored is not None:
                out.records.append(records.record(group.group_id, records.value_of(group, {}, now_ms)))
            self._on_empty(group)
            return
        for member in group.members.values():
            answer_join(group, member, joined(group, member), out)
            member.is_new = False
            self._sessions.heard_of(group, member, now_ms)
        group.unsynced = dict.fromkeys(group.members)
        self._wait_for_syncs(group, now_ms)

    def _wait_for_syncs(self, group: ClassicGroup, now_ms: int) -> None:
        """Who has joined and does not ask for its assignment in time is out: it would keep partitions from the rest."""

        def over(now_ms: int) -> Outcome:
            out = Outcome()
            if group.unsynced:
                late = list(group.unsynced)
                for member_id in late:
                    self.remove(group, group.members[member_id], Error.UNKNOWN_MEMBER_ID, out)
                self.prepare(group, out, now_ms, f"{len(late)} members did not ask for what they are assigned")
            return out

        self._timers.at(_sync_key(group), now_ms + group.rebalance_timeout_ms, over)

    def has_synced(self, group: ClassicGroup, member: Member) -> None:
        group.unsynced.pop(member.member_id, None)
        if not group.unsynced:
            self._timers.cancel(_sync_key(group))

    def assign(self, group: ClassicGroup, assignments: dict[str, bytes], out: Outcome, now_ms: int) -> None:
        """The leader says who reads what. The group is stable when that is replayed; members hear of it when it is
        committed, so that a coordinator that takes over knows whatever a member was told (hazard 13)."""
        record = records.record(group.group_id, records.value_of(group, assignments, now_ms))
        assert record.value is not None
        if len(record.key) + len(record.value) > self._record_bytes_max():
            self._call_off_assignment(group, Error.UNKNOWN_SERVER_ERROR, out, now_ms)
            self.prepare(group, out, now_ms, f"its {len(record.value)} bytes have no room in {CONSUMER_OFFSETS}")
            return
        out.records.append(record)
        self.completed += 1
        for member in group.members.values():
            if member.sync_reply is not None:
                answer_sync(member, synced(group, assignments.get(member.member_id, b"")), out)
                self._sessions.heard_of(group, member, now_ms)

    def _call_off_assignment(self, group: ClassicGroup, error: Error, out: Outcome, now_ms: int) -> None:
        for member in group.members.values():
            member.assignment = b""
            if member.sync_reply is not None:
                answer_sync(member, sync_refused(error), out)
                self._sessions.heard_of(group, member, now_ms)

    def remove(self, group: ClassicGroup, member: Member, error: Error, out: Outcome) -> None:
        """A member is gone; what comes of that is up to the caller."""
        dismiss(group, member, error, UNKNOWN_MEMBER, out)
        self._sessions.forget(group, member)
        group.remove(member.member_id)

    def replayed(self, group: ClassicGroup, value: m.GroupMetadataValue) -> None:
        """What was decided is in the log."""
        group.stored = value
        if value.generation != group.generation or not value.members:
            return
        if group.phase is State.COMPLETING_REBALANCE:
            group.move(State.STABLE, value.current_state_timestamp)
        if group.phase is State.STABLE:
            for stored in value.members:
                if (member := group.members.get(stored.member_id)) is not None:
                    member.assignment = stored.assignment

    def drop(self, group: ClassicGroup) -> None:
        """The group is no more: nothing of it must wake up again."""
        self._timers.cancel(_join_key(group))
        self._timers.cancel(_sync_key(group))
        for member in group.members.values():
            self._sessions.forget(group, member)
        for member_id in group.pending:
            self._sessions.expect_no_more(group, member_id)


def _join_key(group: ClassicGroup) -> tuple[str, str]:
    return ("classic join", group.group_id)


def _sync_key(group: ClassicGroup) -> tuple[str, str]:
    return ("classic sync", group.group_id)
