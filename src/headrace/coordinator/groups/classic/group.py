"""A classic group: its state, its members, and what it agreed on. PURE.

What the log has of it is `stored`, which only `ClassicGroups.replay` changes: the members of the last generation that
got its assignment. What goes on beyond that (who is joining, the generation that is being agreed on) is lost with the
coordinator, and then told anew by the members.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from headrace.coordinator.groups.classic import records
from headrace.coordinator.groups.classic.member import Member
from headrace.coordinator.groups.classic.states import COMMIT, DELETE, NEXT, State
from headrace.coordinator.groups.group import GroupType
from headrace.coordinator.shard import StateRecord
from headrace.errors import Error, Refused
from headrace.protocol import messages as m

CONSUMER_PROTOCOL: Final = "consumer"
"""The protocol type of consumers: the one whose metadata tells which topics they subscribe to."""
NO_GENERATION: Final = -1
NO_TIMESTAMP: Final = -1


class ClassicGroup:
    __slots__ = (
        "generation",
        "group_id",
        "has_new_member",
        "instances",
        "joins_waiting",
        "leader",
        "may_have_offsets",
        "members",
        "offers",
        "pending",
        "phase",
        "previous_phase",
        "protocol",
        "protocol_type",
        "since_ms",
        "stored",
        "subscribed_topics",
        "unsynced",
    )

    type: Final = GroupType.CLASSIC

    def __init__(self, group_id: str, now_ms: int) -> None:
        self.group_id = group_id
        self.phase = State.EMPTY
        self.previous_phase = State.DEAD
        self.since_ms = now_ms
        """Since when it is in its state; -1 when the log does not tell."""
        self.generation = 0
        self.protocol_type = ""
        self.protocol: str | None = None
        self.leader: str | None = None
        self.members: dict[str, Member] = {}
        self.instances: dict[str, str] = {}
        """The member ids of static members by their instance ids."""
        self.offers: dict[str, int] = {}
        """How many members could go by a protocol."""
        self.pending: dict[str, None] = {}
        """Member ids that were handed out, and not joined with yet (KIP-394)."""
        self.joins_waiting = 0
        self.unsynced: dict[str, None] = {}
        """Members of this generation that have not asked for their assignment."""
        self.has_new_member = False
        """One came during the initial delay, which is then drawn out."""
        self.subscribed_topics: frozenset[str] | None = frozenset()
        """None when they are not known: no consumers, or metadata that can't be read."""
        self.may_have_offsets = False
        self.stored: m.GroupMetadataValue | None = None

    # What other parts of the shard ask.

    @property
    def state(self) -> str:
        return self.phase.value

    @property
    def is_empty(self) -> bool:
        return self.phase is State.EMPTY

    def validate_commit(
        self,
        member_id: str,
        instance_id: str | None,
        generation_or_epoch: int,
        version: int,
        partitions: Iterable[tuple[bytes, int]],
        *,
        is_transactional: bool,
    ) -> None:
        """Only who is in the group now, in its generation, commits (hazard 13). While it is empty, so may whoever
        claims no generation: tools, and consumers that assign partitions to themselves."""
        if generation_or_epoch < 0 and self.phase is State.EMPTY:
            self.may_have_offsets = True
            return
        if generation_or_epoch >= 0 or member_id or instance_id is not None:
            self.require_member(member_id, instance_id)
            if generation_or_epoch != self.generation:
                raise Refused(Error.ILLEGAL_GENERATION)
        elif not is_transactional:
            raise Refused(Error.UNKNOWN_MEMBER_ID)
        # Of transactions older clients did not tell who commits, so that the state of the group can't decide.
        if not is_transactional and (error := COMMIT[self.phase]):
            raise Refused(error)
        self.may_have_offsets = True

    def committed(self, member_id: str, now_ms: int) -> None:
        member = self.members.get(member_id)
        if member is not None and not member.is_new:
            member.heard_of(now_ms)

    def validate_fetch(self, member_id: str | None, member_epoch: int) -> None:
        pass

    def validate_offset_delete(self) -> None:
        if self.phase is not State.EMPTY and self.protocol_type != CONSUMER_PROTOCOL:
            raise Refused(Error.NON_EMPTY_GROUP)

    def validate_delete(self) -> None:
        if error := DELETE[self.phase]:
            raise Refused(error)

    def is_subscribed(self, topic: str) -> bool:
        if self.subscribed_topics is None:
            return self.protocol_type == CONSUMER_PROTOCOL
        return topic in self.subscribed_topics

    def expires_from_ms(self, commit_timestamp_ms: int) -> int | None:
        if not self.protocol_type:
            return commit_timestamp_ms
        if self.phase is State.EMPTY:
            return commit_timestamp_ms if self.since_ms == NO_TIMESTAMP else self.since_ms
        if self.phase is State.STABLE and self.protocol_type == CONSUMER_PROTOCOL:
            return commit_timestamp_ms if self.subscribed_topics is not None else None
        return None

    def tombstones(self) -> list[StateRecord]:
        return [records.tombstone(self.group_id)] if self.stored is not None else []

    # Who is in it.

    def require_member(self, member_id: str, instance_id: str | None) -> Member:
        """The member of these ids. A static one that came back under another member id fences its old self."""
        if instance_id is not None:
            known = self.instances.get(instance_id)
            if known is None:
                raise Refused(Error.UNKNOWN_MEMBER_ID)
            if known != member_id:
                raise Refused(Error.FENCED_INSTANCE_ID)
        member = self.members.get(member_id)
        if member is None:
            raise Refused(Error.UNKNOWN_MEMBER_ID)
        return member

    def supports(self, protocol_type: str, protocols: dict[str, bytes]) -> bool:
        """Whether whoever offers these could agree with everybody who is there already."""
        if self.phase is State.EMPTY:
            return bool(protocol_type) and bool(protocols)
        count = len(self.members)
        return protocol_type == self.protocol_type and any(self.offers.get(name, 0) == count for name in protocols)

    def add(self, member: Member, protocol_type: str) -> None:
        if not self.members:
            self.protocol_type = protocol_type
        if self.leader is None:
            self.leader = member.member_id
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self.instances[member.instance_id] = member.member_id
        self._count(member, 1)
        self.joins_waiting += member.join_reply is not None
        self.pending.pop(member.member_id, None)

    def remove(self, member_id: str) -> Member | None:
        self.pending.pop(member_id, None)
        self.unsynced.pop(member_id, None)
        member = self.members.pop(member_id, None)
        if member is None:
            return None
        self._count(member, -1)
        self.joins_waiting -= member.join_reply is not None
        if member.instance_id is not None:
            del self.instances[member.instance_id]
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)
        return member

    def replace_static(self, old: Member, new: Member) -> None:
        """A static member is back under another id. What it had is its own, its place too."""
        assert old.join_reply is None
        was_leader, was_unsynced = self.leader == old.member_id, old.member_id in self.unsynced
        self.remove(old.member_id)
        self.add(new, self.protocol_type)
        if was_leader:
            self.leader = new.member_id
        if was_unsynced:
            self.unsynced[new.member_id] = None

    def change_protocols(self, member: Member, protocols: dict[str, bytes]) -> None:
        self._count(member, -1)
        member.protocols = protocols
        self._count(member, 1)

    def _count(self, member: Member, change: int) -> None:
        for name in member.protocols:
            count = self.offers.get(name, 0) + change
            if count:
                self.offers[name] = count
            else:
                del self.offers[name]

    @property
    def have_all_joined(self) -> bool:
        return len(self.members) == self.joins_waiting and not self.pending

    @property
    def rebalance_timeout_ms(self) -> int:
        """The slowest member sets the pace."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    # What it agrees on.

    def move(self, phase: State, now_ms: int) -> None:
        assert phase in NEXT[self.phase], f"a group does not go from {self.phase} to {phase}"
        self.previous_phase, self.phase = self.phase, phase
        self.since_ms = now_ms

    def elect_joined_leader(self) -> bool:
        """A leader that has not joined again gives way to the first one that has. False when nobody has."""
        if self.leader is None:
            return False
        if self.members[self.leader].join_reply is None:
            joined = next((id for id, member in self.members.items() if member.join_reply is not None), None)
            if joined is None:
                return False
            self.leader = joined
        return True

    def select_protocol(self) -> str:
        """What most members like best of what all of them can do."""
        candidates = {name: None for name, count in self.offers.items() if count == len(self.members)}
        votes: dict[str, int] = {}
        for member in self.members.values():
            name = member.vote(candidates)
            votes[name] = votes.get(name, 0) + 1
        return max(votes, key=votes.__getitem__)

    def next_generation(self, now_ms: int) -> None:
        """Everybody who is to be in it has joined."""
        self.generation += 1
        self.unsynced.clear()
        self.protocol = self.select_protocol() if self.members else None
        self.find_subscribed_topics()
        self.move(State.COMPLETING_REBALANCE if self.members else State.EMPTY, now_ms)

    def find_subscribed_topics(self) -> None:
        self.subscribed_topics = None
        if self.protocol_type == CONSUMER_PROTOCOL:
            # Most members of a group say the same, to the byte.
            said = {member.protocols.get(self.protocol or "", b""): None for member in self.members.values()}
            self.subscribed_topics = records.topics_of(said)
