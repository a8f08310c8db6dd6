# cython: language_level=3, annotation_typing=False, nonecheck=True
"""Which replicas count, and how far what they have goes. PURE.

The high watermark is the least log end over the in-sync replicas, and it never goes back. While this replica is the
only one in sync, it is the log end, but never past the first record that was promised to be on the disk (acks=all, or
any with flush.messages=1) and is not yet. Below min.insync.replicas it stays where it is (KIP-966).
"""

from __future__ import annotations

from typing import Final

NEVER: Final = 2**63 - 1


class InSync:
    """Of one partition, as its leader sees it. Offsets go in, and where the high watermark may be comes out."""

    __slots__ = ("_collected_from", "_flushing", "_point", "bound", "is_alone", "is_enough", "isr", "replicas")

    def __init__(self) -> None:
        self.replicas: tuple[int, ...] = ()
        self.isr: tuple[int, ...] = ()
        self.is_alone = False
        self.is_enough = False
        """There are as many as min.insync.replicas asks for, or all, where there are fewer than that."""
        self.bound = NEVER
        """The first offset that was promised to be on the disk and is not; the high watermark stays before it."""
        self._collected_from = NEVER
        """The first such offset behind all flushes that are under way."""
        self._flushing: list[tuple[int, int]] = []
        """Flushes under way: up to where each goes, and the first offset in it that was promised."""
        self._point = 0

    def set_replicas(self, replicas: tuple[int, ...], isr: tuple[int, ...], min_insync: int) -> None:
        self.replicas = replicas
        self.isr = isr
        self.is_alone = len(isr) == 1
        self.is_enough = len(isr) >= min(min_insync, len(replicas))

    def high_watermark(self, mark: int, log_end: int) -> int:
        """Where it goes from `mark`, with what is known now."""
        if not self.is_alone or not self.is_enough:
            return mark
        bound = self.bound
        return bound if mark < bound < log_end else mark if bound <= mark else log_end

    # ------------------------------------------------------------------------------------------- what the disk promises

    def must_sync(self, offset: int) -> bool:
        """From `offset` on, something was appended that counts only when it is on the disk.

        True when no flush was asked for since the last one began, and so one is wanted now.
        """
        if self._collected_from != NEVER:
            return False
        self._collected_from = offset
        if self.bound == NEVER:
            self.bound = offset
        return True

    def flushing(self, end_offset: int) -> None:
        """A flush of everything before `end_offset` has begun."""
        self._flushing.append((end_offset, self._collected_from))
        self._collected_from = NEVER

    def flushed(self, point: int) -> None:
        """Everything before `point` is on the disk."""
        self._point = max(self._point, point)
        flushing = self._flushing
        while flushing and flushing[0][0] <= point:
            del flushing[0]
        self._find_bound()

    def not_flushed(self) -> None:
        """The flushes under way came to nothing. What they were for is still wanted."""
        self._collected_from = min([first for _, first in self._flushing] + [self._collected_from])
        self._flushing.clear()
        self._find_bound()

    def reset(self, point: int) -> None:
        """Another term, or another end of the log: nothing of before is waited for any more."""
        self._flushing.clear()
        self._collected_from = self.bound = NEVER
        self._point = point

    def _find_bound(self) -> None:
        first = self._collected_from
        for _, promised in self._flushing:
            if promised != NEVER:
                first = promised
                break
        self.bound = first if first == NEVER else max(first, self._point)
