"""Offsets of topics that were deleted go at once, whatever their retention, a bit at a time. PURE."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final

from headrace.coordinator.groups.context import GroupContext
from headrace.coordinator.offsets.records import NO_ID, committed_of, tombstone
from headrace.coordinator.offsets.store import OffsetStore
from headrace.coordinator.shard import Outcome, StateRecord

LOOKED_AT_A_STEP: Final = 400
TIMER: Final = ("offsets", "deleted topics")


class DeletedTopics:
    __slots__ = ("_context", "_groups", "_store", "_topics")

    def __init__(self, context: GroupContext, store: OffsetStore) -> None:
        self._context = context
        self._store = store
        self._topics: deque[str] = deque()
        """Names whose offsets are to be looked at."""
        self._groups: deque[str] = deque()
        """Of the first of them, the groups that have some."""

    def extend(self, topics: Iterable[str]) -> None:
        self._topics.extend(topics)

    def look(self, now_ms: int) -> Outcome:
        """One step; a timer brings the next."""
        topics, groups, store = self._topics, self._groups, self._store
        records: list[StateRecord] = []
        looked_at = 0
        while topics and looked_at < LOOKED_AT_A_STEP:
            topic = topics[0]
            if not groups:
                groups.extend(store.groups_of_topic(topic))
            topic_id = self._context.image.topic_ids.get(topic, NO_ID)
            while groups and looked_at < LOOKED_AT_A_STEP:
                group_id = groups.popleft()
                found = self._of(group_id, topic, topic_id)
                looked_at += 1 + len(store.of_group(group_id).get(topic, ()))
                records += [tombstone(group_id, topic, index) for index in found]
            if not groups:
                topics.popleft()
                looked_at += 1
        if topics:
            self._context.timers.at(TIMER, now_ms, self.look)
        return Outcome(records, is_atomic=False)

    def _of(self, group_id: str, topic: str, topic_id: bytes) -> dict[int, None]:
        """The partitions of a topic that is no more, and of which the group has offsets."""
        committed = self._store.of_group(group_id).get(topic, {})
        if topic_id != NO_ID:
            return {index: None for index, one in committed.items() if is_of_another(one, topic_id)}
        found = dict.fromkeys(committed)
        if self._store.has_open(group_id):
            found |= {index: None for name, index in self._store.pending_of_group(group_id) if name == topic}
        return found


def is_of_another(kept: bytes, topic_id: bytes) -> bool:
    """It was committed for a topic of the same name that is no more (hazard 9)."""
    if topic_id == NO_ID or kept.endswith(topic_id):  # which is where the id of nearly all is
        return False
    return committed_of(kept).topic_id not in (NO_ID, topic_id)
