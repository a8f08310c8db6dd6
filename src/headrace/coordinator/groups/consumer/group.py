"""A consumer group: what its records say of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from headrace.coordinator.groups.consumer import records
from headrace.coordinator.groups.consumer.assignors.spec import Assignment
from headrace.coordinator.groups.consumer.member import Current, Member, Subscription
from headrace.coordinator.groups.group import NO_GENERATION, GroupType
from headrace.coordinator.shard import StateRecord
from headrace.errors import Error, Refused

CONSUMER: Final = "consumer"
OFFSET_COMMIT_VERSION_WITH_EPOCHS: Final = 9
NOTHING: Final[Assignment] = {}


class Resolved(NamedTuple):
    """What the log says that an expression matched."""

    topics: tuple[str, ...]
    version: int
    timestamp_ms: int


class GroupTimes(NamedTuple):
    """The settings of a group, its own or the node's."""

    session_timeout_ms: int
    heartbeat_interval_ms: int


class ConsumerGroup:
    """It changes by `apply_...` alone, which replay records. What is volatile stands at the end of `__init__`."""

    __slots__ = (
        "assign_after_ms",
        "assignment_epoch",
        "assignors",
        "classic_count",
        "classic_protocols",
        "configs",
        "epoch",
        "group_id",
        "has_old_metadata",
        "instances",
        "members",
        "metadata_hash",
        "names",
        "owners",
        "regexes",
        "resolved",
        "restless_until_ms",
        "seen_topics",
        "targets",
        "times",
    )

    type: Final = GroupType.CONSUMER
    protocol_type: Final = CONSUMER

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.epoch = 0
        self.metadata_hash = 0
        self.assignment_epoch = 0
        self.members: dict[str, Member] = {}
        self.instances: dict[str, str] = {}
        """Member ids of static members."""
        self.targets: dict[str, Assignment] = {}
        self.owners: dict[bytes, dict[int, str]] = {}
        """Who owns each partition, until it said that it gave it up."""
        self.resolved: dict[str, Resolved] = {}
        self.has_old_metadata = False
        # How many members say so, of what their subscriptions say.
        self.names: dict[str, int] = {}
        self.regexes: dict[str, int] = {}
        self.assignors: dict[str, int] = {}
        self.classic_protocols: dict[str, int] = {}
        self.classic_count = 0
        # Not in the log.
        self.seen_topics = -1
        """The state of the topics for which `metadata_hash` was looked at."""
        self.assign_after_ms = 0
        """When the next target assignment may be made."""
        self.restless_until_ms = 0
        """Its members have just changed, and so will what they own: until then all of them ask more often."""
        self.times: GroupTimes | None = None
        self.configs: object = None
        """What `times` was made from."""

    # --- replay -------------------------------------------------------------------------------------------------------

    def apply_epoch(self, epoch: int, metadata_hash: int) -> None:
        self.epoch, self.metadata_hash = epoch, metadata_hash

    def apply_subscription(self, member_id: str, subscription: Subscription) -> None:
        member = self.members.get(member_id)
        if member is None:
            member = self.members[member_id] = Member(member_id)
        self._count(member.subscription, -1)
        if (old := member.subscription.instance_id) is not None and self.instances.get(old) == member_id:
            del self.instances[old]
        member.subscription = subscription
        self._count(subscription, 1)
        if subscription.instance_id is not None:
            self.instances[subscription.instance_id] = member_id

    def apply_no_member(self, member_id: str) -> None:
        member = self.members.pop(member_id, None)
        if member is None:
            return
        self._count(member.subscription, -1)
        self._disown(member)
        instance_id = member.subscription.instance_id
        if instance_id is not None and self.instances.get(instance_id) == member_id:
            del self.instances[instance_id]

    def apply_current(self, member_id: str, current: Current) -> None:
        member = self.members.get(member_id)
        if member is None:
            member = self.members[member_id] = Member(member_id)
        self._disown(member)
        member.current = current
        for partitions in (current.assigned, current.revoking):
            for topic_id, indexes in partitions.items():
                of_topic = self.owners.setdefault(topic_id, {})
                for index in indexes:
                    of_topic[index] = member_id

    def apply_no_current(self, member_id: str) -> None:
        member = self.members.get(member_id)
        if member is not None:
            self._disown(member)
            member.current = Current()

    def apply_target(self, member_id: str, target: Assignment | None) -> None:
        if target is None:
            self.targets.pop(member_id, None)
        else:
            self.targets[member_id] = target

    def apply_resolved(self, regex: str, resolved: Resolved | None) -> None:
        if resolved is None:
            self.resolved.pop(regex, None)
        else:
            self.resolved[regex] = resolved

    def _disown(self, member: Member) -> None:
        for partitions in (member.current.assigned, member.current.revoking):
            for topic_id, indexes in partitions.items():
                of_topic = self.owners.get(topic_id)
                if of_topic is None:
                    continue
                for index in indexes:
                    if of_topic.get(index) == member.id:
                        del of_topic[index]
                if not of_topic:
                    del self.owners[topic_id]

    def _count(self, subscription: Subscription, step: int) -> None:
        for name in subscription.names:
            _add(self.names, name, step)
        if subscription.regex is not None:
            _add(self.regexes, subscription.regex, step)
        if subscription.server_assignor is not None:
            _add(self.assignors, subscription.server_assignor, step)
        if subscription.classic is not None:
            self.classic_count += step
            for protocol, _ in subscription.classic.protocols:
                _add(self.classic_protocols, protocol, step)

    # --- what everybody asks of a group -------------------------------------------------------------------------------

    @property
    def is_empty(self) -> bool:
        return not self.members

    @property
    def state(self) -> str:
        if not self.members:
            return "Empty"
        if self.epoch > self.assignment_epoch:
            return "Assigning"
        if all(member.current.is_reconciled(self.assignment_epoch) for member in self.members.values()):
            return "Stable"
        return "Reconciling"

    def target(self, member_id: str) -> Assignment:
        return self.targets.get(member_id, NOTHING)

    def assignor(self, default: str) -> str:
        """What most members ask for."""
        return preferred(self.assignors, default)

    def member(self, member_id: str) -> Member:
        member = self.members.get(member_id)
        if member is None:
            raise Refused(
                Error.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {self.group_id}; it must rejoin."
            )
        return member

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
        # Administrators, and consumers that manage their partitions themselves: while nobody else does.
        if generation_or_epoch < 0 and not self.members:
            return
        # Of transactions older clients do not tell who commits, and newer ones need not: the transactional id fences.
        if is_transactional and generation_or_epoch == NO_GENERATION and not member_id and instance_id is None:
            return
        member = self.member(member_id)
        if not is_transactional and not member.is_classic and version < OFFSET_COMMIT_VERSION_WITH_EPOCHS:
            raise Refused(
                Error.UNSUPPORTED_VERSION,
                f"Members of {self.group_id} commit offsets with OffsetCommit version 9 or later.",
            )
        current = member.current
        if generation_or_epoch == current.epoch:
            return
        # The coordinator may have taken it to a new epoch while this was on its way. What has been its own from the
        # epoch that it knows to this one, nobody else can have read or committed (KIP-1251).
        if generation_or_epoch > current.epoch or not current.has_had(partitions, generation_or_epoch):
            raise _stale(member, generation_or_epoch)

    def committed(self, member_id: str, now_ms: int) -> None:
        """Only heartbeats are signs of life here."""

    def validate_fetch(self, member_id: str | None, member_epoch: int) -> None:
        if member_id is None and member_epoch < 0:
            return
        member = self.member(member_id or "")
        if member_epoch != member.current.epoch:
            raise _stale(member, member_epoch)

    def validate_offset_delete(self) -> None:
        """Of topics that nobody subscribes to, always."""

    def validate_delete(self) -> None:
        if self.members:
            raise Refused(Error.NON_EMPTY_GROUP)

    def is_subscribed(self, topic: str) -> bool:
        if topic in self.names:
            return True
        return any(topic in self.resolved[regex].topics for regex in self.regexes if regex in self.resolved)

    def expires_from_ms(self, commit_timestamp_ms: int) -> int | None:
        return commit_timestamp_ms

    def tombstones(self) -> list[StateRecord]:
        return records.no_group(self.group_id, list(self.members), self.resolved, is_old=self.has_old_metadata)


def preferred(counts: Mapping[str, int], default: str) -> str:
    """The one that most ask for; of several such the first by name, so that everybody comes to the same."""
    return min(counts, key=lambda name: (-counts[name], name)) if counts else default


def _stale(member: Member, epoch: int) -> Refused:
    return Refused(
        Error.ILLEGAL_GENERATION if member.is_classic else Error.STALE_MEMBER_EPOCH,
        f"The member came with epoch {epoch}, and is in epoch {member.current.epoch}.",
    )


def _add(counts: dict[str, int], name: str, step: int) -> None:
    count = counts.get(name, 0) + step
    if count:
        counts[name] = count
    else:
        counts.pop(name, None)
