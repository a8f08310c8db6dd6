"""Partitions of several topics as numbers without gaps: what they are counted and compared by in an assignor."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence

from headrace.coordinator.groups.consumer.assignors.spec import Assignment, TopicSpec


class Numbering:
    """Topics by their ids, and in each its partitions."""

    __slots__ = ("_bases", "_counts", "_starts", "size", "topics")

    def __init__(self, topics: Mapping[bytes, TopicSpec]) -> None:
        self.topics: list[bytes] = sorted(topics)
        self._bases: dict[bytes, int] = {}
        self._counts: dict[bytes, int] = {}
        base = 0
        for topic_id in self.topics:
            self._bases[topic_id] = base
            self._counts[topic_id] = topics[topic_id].partition_count
            base += topics[topic_id].partition_count
        self.size = base
        self._starts = list(self._bases.values())

    def range_of(self, topic_id: bytes) -> range:
        base = self._bases[topic_id]
        return range(base, base + self._counts[topic_id])

    def numbers(self, assignment: Assignment) -> list[int]:
        """Of what is there (topics and partitions that are gone have none)."""
        bases, counts = self._bases, self._counts
        numbers: list[int] = []
        for topic_id, partitions in assignment.items():
            base = bases.get(topic_id)
            if base is not None:
                count = counts[topic_id]
                numbers.extend([base + partition for partition in partitions if partition < count])
        return numbers

    def assignment(self, numbers: Sequence[int]) -> dict[bytes, tuple[int, ...]]:
        made: dict[bytes, tuple[int, ...]] = {}
        ascending = sorted(numbers)
        at, end = 0, len(ascending)
        while at < end:
            # A topic without partitions has the same base as the next one: the last of them is meant.
            topic_id = self.topics[bisect_right(self._starts, ascending[at]) - 1]
            base = self._bases[topic_id]
            limit = base + self._counts[topic_id]
            begin = at
            while at < end and ascending[at] < limit:
                at += 1
            made[topic_id] = tuple([number - base for number in ascending[begin:at]])
        return made
