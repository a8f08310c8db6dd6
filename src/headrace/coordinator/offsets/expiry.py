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

LOOKED_AT_A_STEP: Final = 1000
TIMER: Final = ("offsets", "expiry")


class Expiry:
    __slots__ = ("_context", "_looking_at", "_store")

    def __init__(self, context: GroupContext, store: OffsetStore) -> None:
        self._context = context
        self._store = store
        self._looking_at: deque[tuple[str, str | None]] = deque()
        """Topics of groups that are still to be looked at, and groups by themselves, without a topic."""

    def start(self, now_ms: int) -> None:
        self._again(now_ms + self._context.offsets_config.offsets_retention_check_interval_ms)

    def _again(self, deadline_ms: int) -> None:
        self._context.timers.at(TIMER, deadline_ms, self._look)

    def _look(self, now_ms: int) -> Outcome:
        looking_at, store = self._looking_at, self._store
        if not looking_at:
            for group_id in self._context.groups:
                looking_at.extend((group_id, topic) for topic in store.of_group(group_id))
            # What a step forgets is forgotten when the next one comes, so groups come after all their topics.
            looking_at.extend((group_id, None) for group_id in self._context.groups)
        records: list[StateRecord] = []
        looked_at = 0
        while looking_at and looked_at < LOOKED_AT_A_STEP:
            group_id, topic = looking_at.popleft()
            group = self._context.groups.get(group_id)
            looked_at += 1
            if group is None:
                continue
            if topic is None:
                if records:  # of its offsets, perhaps
                    looking_at.appendleft((group_id, topic))
                    break
                records += self._of_group(group)
            else:
                partitions = store.of_group(group_id).get(topic, {})
                looked_at += len(partitions)
                if not group.is_subscribed(topic):
                    records += [
                        tombstone(group_id, topic, index)
                        for index, kept in partitions.items()
                        if self._is_old(group, committed_of(kept), now_ms)
                        and not store.is_pending(group_id, topic, index)
                    ]
        if looking_at:
            self._again(now_ms)
        else:
            self.start(now_ms)
        return Outcome(records, is_atomic=False)

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
