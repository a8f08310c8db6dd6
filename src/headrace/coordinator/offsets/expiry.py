"""Old offsets are forgotten, and groups that have neither members nor offsets (KIP-211). PURE.

The retention of an offset counts from when its group lost its last member; where nobody subscribes to its topic, and in
groups that never had members, from its commit. A look at all of them is done a bit at a time.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from headrace.coordinator.groups.context import GroupContext
from headrace.coordinator.groups.group import Group
from headrace.coordinator.offsets.records import NO_TIMESTAMP, Committed, committed_of, tombstone
from headrace.coordinator.offsets.store import OffsetStore
from headrace.coordinator.shard import Outcome, StateRecord

LOOKED_AT_A_STEP: Final = 400
TIMER: Final = ("offsets", "expiry")


class Expiry:
    __slots__ = ("_context", "_groups", "_store", "_topics", "_without_offsets")

    def __init__(self, context: GroupContext, store: OffsetStore) -> None:
        self._context = context
        self._store = store
        self._groups: deque[str] = deque()
        """Whose offsets are still to be looked at."""
        self._topics: deque[str] = deque()
        """Of the first of them, the topics that are."""
        self._without_offsets: deque[str] = deque()
        """Groups that are to be looked at after all offsets, in another step: what one forgets, the next one sees."""

    def start(self, now_ms: int) -> None:
        self._again(now_ms + self._context.offsets_config.offsets_retention_check_interval_ms)

    def _again(self, deadline_ms: int) -> None:
        self._context.timers.at(TIMER, deadline_ms, self._look)

    def _look(self, now_ms: int) -> Outcome:
        if not self._groups and not self._without_offsets:
            self._groups.extend(self._context.groups)
            self._without_offsets.extend(self._context.groups)
        records = self._old_offsets(now_ms) if self._groups else self._old_groups()
        if self._groups or self._without_offsets:
            self._again(now_ms)
        else:
            self.start(now_ms)
        return Outcome(records, is_atomic=False)

    def _old_offsets(self, now_ms: int) -> list[StateRecord]:
        groups, topics = self._groups, self._topics
        records: list[StateRecord] = []
        looked_at = 0
        while groups and looked_at < LOOKED_AT_A_STEP:
            group_id = groups[0]
            group, committed = self._context.groups.get(group_id), self._store.of_group(group_id)
            if not topics and group is not None:
                topics.extend(committed)
            looked_at += 1
            while topics and looked_at < LOOKED_AT_A_STEP:
                topic = topics.popleft()
                partitions = committed.get(topic, {})
                looked_at += 1 + len(partitions)
                if group is not None and not group.is_subscribed(topic):
                    records += [
                        tombstone(group_id, topic, index)
                        for index, kept in partitions.items()
                        if self._is_old(group, committed_of(kept), now_ms)
                        and not self._store.is_pending(group_id, topic, index)
                    ]
            if not topics:
                groups.popleft()
        return records

    def _old_groups(self) -> list[StateRecord]:
        records: list[StateRecord] = []
        for _ in range(min(len(self._without_offsets), LOOKED_AT_A_STEP)):
            group = self._context.groups.get(self._without_offsets.popleft())
            if group is not None:
                records += self._of_group(group)
        return records

    def _of_group(self, group: Group) -> list[StateRecord]:
        group_id, store = group.group_id, self._store
        if not group.is_empty or store.of_group(group_id) or store.has_open(group_id):
            return []
        return group.tombstones()

    def _is_old(self, group: Group, committed: Committed, now_ms: int) -> bool:
        base_ms = group.expires_from_ms(committed.commit_timestamp_ms)
        if base_ms is None:
            return False
        if committed.expire_timestamp_ms != NO_TIMESTAMP:
            return now_ms >= committed.expire_timestamp_ms
        return now_ms - base_ms >= self._context.offsets_config.offsets_retention_minutes * 60_000
