"""A new target assignment: who shall own what, and the records that say so."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from headrace.coordinator.groups.consumer import records
from headrace.coordinator.groups.consumer.assignors import ASSIGNORS
from headrace.coordinator.groups.consumer.assignors.spec import Assignment, GroupSpec, MemberSpec
from headrace.coordinator.groups.consumer.group import NOTHING, ConsumerGroup, preferred
from headrace.coordinator.groups.consumer.member import Subscription
from headrace.coordinator.groups.consumer.topics import Topics
from headrace.coordinator.shard import StateRecord


class View:
    """A group as it will be when what is being decided has been replayed: a member more, less, or with new wishes."""

    __slots__ = ("_group", "_resolved", "_topics", "subscriptions")

    def __init__(self, group: ConsumerGroup, topics: Topics) -> None:
        self._group = group
        self._topics = topics
        self.subscriptions: dict[str, Subscription] = {
            member_id: member.subscription for member_id, member in group.members.items()
        }
        self._resolved: dict[str, tuple[str, ...]] = {
            regex: resolved.topics for regex, resolved in group.resolved.items()
        }

    def resolve(self, regex: str, topics: tuple[str, ...]) -> None:
        self._resolved[regex] = topics

    @property
    def has_racks(self) -> bool:
        return any(subscription.rack_id is not None for subscription in self.subscriptions.values())

    def names(self, subscription: Subscription) -> Iterable[str]:
        matched = self._resolved.get(subscription.regex, ()) if subscription.regex is not None else ()
        return {**dict.fromkeys(subscription.names), **dict.fromkeys(matched)} if matched else subscription.names

    def regexes(self) -> dict[str, None]:
        """The expressions that are in use."""
        return {
            subscription.regex: None for subscription in self.subscriptions.values() if subscription.regex is not None
        }

    def metadata_hash(self) -> int:
        every: dict[str, None] = {}
        seen: dict[tuple[tuple[str, ...], str | None], None] = {}
        for subscription in self.subscriptions.values():
            key = (subscription.names, subscription.regex)
            if key not in seen:
                seen[key] = None
                every.update(dict.fromkeys(self.names(subscription)))
        return self._topics.hash(every, with_racks=self.has_racks)

    def assign(self, asking: str, default_assignor: str, previous: Mapping[str, Assignment]) -> dict[str, Assignment]:
        """Every member's target. `previous` is what they were to have so far; the one who is `asking` hears at once."""
        members: dict[str, MemberSpec] = {}
        with_racks = self.has_racks
        counts: dict[str, int] = {}
        known: dict[tuple[tuple[str, ...], str | None], tuple[bytes, ...]] = {}
        for member_id, subscription in self.subscriptions.items():
            key = (subscription.names, subscription.regex)
            topic_ids = known.get(key)
            if topic_ids is None:
                topic_ids = known[key] = self._topics.ids(self.names(subscription))
            if subscription.server_assignor is not None:
                counts[subscription.server_assignor] = counts.get(subscription.server_assignor, 0) + 1
            members[member_id] = MemberSpec(
                topic_ids,
                previous.get(member_id, NOTHING),
                subscription.rack_id,
                subscription.instance_id,
                0 if member_id == asking else self._group.members[member_id].session_deadline_ms,
            )
        topics = {
            topic_id: self._topics.spec(topic_id, with_racks=with_racks)
            for topic_ids in known.values()
            for topic_id in topic_ids
        }
        assignor = ASSIGNORS.get(preferred(counts, default_assignor), ASSIGNORS[default_assignor])
        return assignor(GroupSpec(members, topics))


def target_records(
    group_id: str, before: Mapping[str, Assignment], after: Mapping[str, Assignment], epoch: int
) -> list[StateRecord]:
    """Of those whose target changed; the epoch is last, so that it never is of a target that is half there."""
    made = [
        records.target(group_id, member_id, assignment)
        for member_id, assignment in after.items()
        if before.get(member_id) != assignment
    ]
    made.append(records.target_epoch(group_id, epoch))
    return made
