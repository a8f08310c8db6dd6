"""Appends that a disk has no room for: the first is told of at once, and those after it by their number.

Clients try again, thousands of times a minute, and a log of those would fill a disk by itself.
"""

from __future__ import annotations

import logging
from typing import Final

logger = logging.getLogger(__name__)

SILENT_MS: Final = 60_000
"""So long nothing more is said."""


class Refusals:
    """Those of one disk."""

    __slots__ = ("_silent_until_ms", "_untold")

    def __init__(self) -> None:
        self._silent_until_ms = 0
        self._untold = 0

    def note(self, problem: str, now_ms: int) -> None:
        """`problem` is a whole sentence."""
        if self._silent_until_ms - SILENT_MS <= now_ms < self._silent_until_ms:
            self._untold += 1
            return
        if self._untold:
            logger.error("%s (and %d more were refused on this disk since this was last said)", problem, self._untold)
        else:
            logger.error("%s", problem)
        self._silent_until_ms = now_ms + SILENT_MS
        self._untold = 0
