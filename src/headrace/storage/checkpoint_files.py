"""The checkpoints of a log directory, and what is known of them: what they say, and what is on its way to them.

They tell logs from each other by name alone. So before a log is made, they forget the one of its name that was deleted:
after a crash the new one would start where that did, hiding what it has, and count as durable as far as that was.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias

from headrace.storage.checkpoint import TopicPartition, write_offsets
from headrace.storage.disk import Disk
from headrace.storage.last_stop import CHECKPOINTS

Contents: TypeAlias = dict[str, dict[TopicPartition, int]]
"""Of each checkpoint, by its name."""


class CheckpointFiles:
    """Written by one worker at a time, while the loop may forget."""

    __slots__ = ("_coming", "_disk", "_lock", "_there")

    def __init__(self, disk: Disk, found: Mapping[str, Mapping[TopicPartition, int]]) -> None:
        """`found` is what they say now."""
        self._disk = disk
        self._lock = threading.Lock()
        self._there: Contents = {name: dict(found.get(name, {})) for name in CHECKPOINTS}
        self._coming: Contents = {}

    def writer(self, contents: Contents, names: Iterable[str] = CHECKPOINTS) -> Callable[[], None]:
        """A job that writes these, unless they are forgotten before."""
        coming = self._coming = {name: contents[name] for name in names}

        def job() -> None:
            for name in coming:
                with self._lock:
                    write_offsets(self._disk, name, coming[name])
                    self._there[name] = coming[name]

        return job

    def forget(self, key: TopicPartition, is_there: Callable[[TopicPartition], bool]) -> None:
        """If they know the partition: forgets it, and all others that are not there, durably. Blocks then.

        All of them, as many may be made anew one after another.
        """
        kept = [*self._there.values(), *self._coming.values()]
        if not any(offsets.get(key) for offsets in kept):
            return
        for name in CHECKPOINTS:
            with self._lock:
                said = self._there[name]
                if name in self._coming:
                    self._coming[name] = _of(self._coming[name], is_there)
                left = _of(said, is_there)
                if len(left) < len(said):
                    write_offsets(self._disk, name, left)
                    self._there[name] = left  # not before: it is tried again when there was no room


def _of(offsets: dict[TopicPartition, int], is_there: Callable[[TopicPartition], bool]) -> dict[TopicPartition, int]:
    return {key: offset for key, offset in offsets.items() if is_there(key)}
