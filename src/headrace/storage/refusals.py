"""What fails again and again, as appends on a full disk: the first is told of at once, others by their number.

Clients try again, thousands of times a minute, and a log of those would fill a disk by itself.
"""

from __future__ import annotations

import logging
from typing import Final

logger = logging.getLogger(__name__)

SILENT_MS: Final = 60_000
"""So long nothing more is said."""


class Refusals:
    """Those of one disk, or of whoever else fails in one way at a time."""

    __slots__ = ("_kind", "_silent_until_ms", "_untold")

    def __init__(self) -> None:
        self._kind: type[BaseException] | None = None
        self._silent_until_ms = 0
        self._untold = 0

    def note(self, problem: str, error: BaseException, now_ms: int) -> None:
        """`problem` says what can't be done, and the error why."""
        is_same = type(error) is self._kind
        if is_same and self._silent_until_ms - SILENT_MS <= now_ms < self._silent_until_ms:
            self._untold += 1
            return
        if self._untold:
            more = "and %d more since this was last said"
            logger.error(f"%s: %s ({more})", problem, error, self._untold)
        else:
            logger.error("%s: %s", problem, error)
        self._kind = type(error)
        self._silent_until_ms = now_ms + SILENT_MS
        self._untold = 0
