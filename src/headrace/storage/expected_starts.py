"""Where logs start that are not in use in a log directory, and may be after a crash.

Copies that are about to be taken in, and what has moved away and has its folder here still. Their files may not tell.
"""

from __future__ import annotations

from headrace.storage.checkpoint import TopicPartition
from headrace.storage.log import Log


class ExpectedStarts:
    __slots__ = ("_starts",)

    def __init__(self) -> None:
        self._starts: dict[Log, int] = {}

    def put(self, log: Log, start_offset: int) -> None:
        self._starts[log] = start_offset

    def drop(self, log: Log) -> None:
        """It is in use, or never will be."""
        self._starts.pop(log, None)

    def drop_all_of(self, key: TopicPartition) -> None:
        """Another log is about to have this name."""
        self._starts = {log: start for log, start in self._starts.items() if (log.topic, log.partition) != key}

    def by_partition(self) -> dict[TopicPartition, int]:
        """Of two with the same name, one that leaves and one that comes back, where the later one starts."""
        starts: dict[TopicPartition, int] = {}
        for log, start_offset in self._starts.items():
            key = (log.topic, log.partition)
            starts[key] = max(start_offset, starts.get(key, 0))
        return starts
