# cython: language_level=3, annotation_typing=False, nonecheck=True
"""Which offsets are committed, and which wait for the end of their transaction. PURE.

Changed only by replay.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeAlias

from headrace.coordinator.offsets.records import Committed, committed_of, record_offset_of

Partitions: TypeAlias = dict[int, bytes]
"""Commits as `records.stored` puts them away, by partition."""
_NOTHING: Mapping[str, Partitions] = {}


class OffsetStore:
    __slots__ = ("_by_group", "_by_topic", "_open", "_pending", "_touched", "count")

    def __init__(self) -> None:
        self._by_group: dict[str, dict[str, Partitions]] = {}
        self._by_topic: dict[str, dict[str, None]] = {}
        """The groups that have offsets of a topic, committed or not."""
        self._pending: dict[int, dict[tuple[str, str, int], bytes]] = {}
        """By producer id: what its open transaction will commit."""
        self._open: dict[str, dict[int, None]] = {}
        """The producers with a transaction open on a group."""
        self._touched: dict[int, dict[str, None]] = {}
        """The same by producer: what it has on a group may have been deleted meanwhile."""
        self.count = 0
        """Of committed offsets."""

    # ---------------------------------------------------------------------------------------------------------- reading

    def of_group(self, group_id: str) -> Mapping[str, Partitions]:
        """By topic and partition."""
        return self._by_group.get(group_id, _NOTHING)

    def find(self, group_id: str, topic: str, partition: int) -> Committed | None:
        partitions = self._by_group.get(group_id, _NOTHING).get(topic)
        kept = None if partitions is None else partitions.get(partition)
        return None if kept is None else committed_of(kept)

    def has(self, group_id: str, topic: str, partition: int) -> bool:
        """It has an offset, or an open transaction may give it one."""
        return partition in self.of_group(group_id).get(topic, ()) or self.is_pending(group_id, topic, partition)

    def is_pending(self, group_id: str, topic: str, partition: int) -> bool:
        """An open transaction has an offset for it."""
        producers = self._open.get(group_id)
        if producers is None:
            return False
        key = (group_id, topic, partition)
        return any(key in self._pending[producer_id] for producer_id in producers)

    def has_open(self, group_id: str) -> bool:
        """A transaction with offsets of the group is open."""
        return group_id in self._open

    def has_pending(self, group_id: str) -> bool:
        """An open transaction has offsets of the group, which were not deleted since."""
        return next(self.pending_of_group(group_id), None) is not None

    def pending_of_group(self, group_id: str) -> Iterator[tuple[str, int]]:
        for producer_id in self._open.get(group_id, ()):
            for group, topic, partition in self._pending[producer_id]:
                if group == group_id:
                    yield topic, partition

    def groups(self) -> Iterator[str]:
        yield from self._by_group

    def topics(self) -> Iterator[str]:
        yield from self._by_topic

    def groups_of_topic(self, topic: str) -> list[str]:
        return list(self._by_topic.get(topic, ()))

    # --------------------------------------------------------------------------------------------------------- changing

    def put(self, group_id: str, topic: str, partition: int, kept: bytes) -> None:
        try:
            partitions = self._by_group[group_id][topic]
        except KeyError:
            partitions = self._by_group.setdefault(group_id, {}).setdefault(topic, {})
            self._by_topic.setdefault(topic, {})[group_id] = None
        if partition not in partitions:
            self.count += 1
        partitions[partition] = kept

    def put_pending(self, producer_id: int, group_id: str, topic: str, partition: int, kept: bytes) -> None:
        self._pending.setdefault(producer_id, {})[group_id, topic, partition] = kept
        self._open.setdefault(group_id, {})[producer_id] = None
        self._touched.setdefault(producer_id, {})[group_id] = None
        self._by_topic.setdefault(topic, {})[group_id] = None

    def remove(self, group_id: str, topic: str, partition: int) -> None:
        """Also what open transactions would commit to it."""
        for producer_id in self._open.get(group_id, ()):
            self._pending[producer_id].pop((group_id, topic, partition), None)
        topics = self._by_group.get(group_id)
        partitions = None if topics is None else topics.get(topic)
        if topics is not None and partitions is not None and partitions.pop(partition, None) is not None:
            self.count -= 1
            if not partitions:
                del topics[topic]
                if not topics:
                    del self._by_group[group_id]
        self._forget_topic(group_id, topic)

    def end(self, producer_id: int, is_commit: bool) -> list[str]:
        """A producer's transaction ended. Returns the groups that it had offsets of."""
        pending = self._pending.pop(producer_id, None)
        if pending is None:
            return []
        groups = list(self._touched.pop(producer_id))
        for group_id in groups:
            del self._open[group_id][producer_id]
            if not self._open[group_id]:
                del self._open[group_id]
        for (group_id, topic, partition), kept in pending.items():
            if is_commit:
                known = self.of_group(group_id).get(topic, {}).get(partition)
                if known is None or record_offset_of(known) < record_offset_of(kept):
                    self.put(group_id, topic, partition, kept)
            else:
                self._forget_topic(group_id, topic)
        return groups

    def _forget_topic(self, group_id: str, topic: str) -> None:
        if topic in self._by_group.get(group_id, _NOTHING):
            return
        if group_id in self._open and any(topic == name for name, _ in self.pending_of_group(group_id)):
            return
        groups = self._by_topic.get(topic)
        if groups is not None:
            groups.pop(group_id, None)
            if not groups:
                del self._by_topic[topic]
