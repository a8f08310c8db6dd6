"""What happens in groups, in the node's log: not more than a reader could follow."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from headrace.coordinator.groups.note import Note

logger = logging.getLogger(__name__)

A_SECOND_MAX: Final = 20
"""Clients decide how often they join and leave: they must not fill the disk by it."""


class GroupNotes:
    __slots__ = ("_count", "_now_ms", "_second")

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._second = 0
        self._count = 0

    def tell(self, note: Note) -> None:
        second = self._now_ms() // 1000
        if second != self._second:
            if self._count > A_SECOND_MAX:
                logger.info("%d more notes of groups are not told", self._count - A_SECOND_MAX)
            self._second, self._count = second, 0
        self._count += 1
        if self._count <= A_SECOND_MAX:
            logger.info("%s", note.text)
