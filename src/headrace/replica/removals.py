"""Partitions that were deleted, and whose folders have yet to lose their names.

They are out of service at once. A rename takes some 100 µs, so that of thousands each waits its turn, and the loop is
never held for long.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from itertools import islice
from typing import Final

from headrace.replica.partition import Partition
from headrace.storage.directories import Directories
from headrace.storage.disk import DiskError

logger = logging.getLogger(__name__)

REMOVED_A_STEP: Final = 16


class Removals:
    __slots__ = ("_call_soon", "_directories", "_is_going_on", "_partitions")

    def __init__(self, directories: Directories, call_soon: Callable[[Callable[[], None]], object]) -> None:
        self._directories = directories
        self._call_soon = call_soon
        self._partitions: dict[tuple[str, int], Partition] = {}
        self._is_going_on = False

    def add(self, partition: Partition) -> None:
        self._partitions[partition.topic, partition.index] = partition
        if not self._is_going_on:
            self._is_going_on = True
            self._call_soon(self._go_on)

    def finish(self, topic: str, index: int) -> None:
        """Now, because another partition needs the name."""
        partition = self._partitions.pop((topic, index), None)
        if partition is not None:
            self._remove(partition)

    def finish_all(self) -> None:
        for topic, index in list(self._partitions):
            self.finish(topic, index)

    def _go_on(self) -> None:
        self._is_going_on = False
        for topic, index in list(islice(self._partitions, REMOVED_A_STEP)):
            self.finish(topic, index)
        if self._partitions:
            self._is_going_on = True
            self._call_soon(self._go_on)

    def _remove(self, partition: Partition) -> None:
        try:
            self._directories.delete(partition.topic, partition.index)
        except DiskError as error:
            logger.error("%s can't be deleted: %s", partition, error)
