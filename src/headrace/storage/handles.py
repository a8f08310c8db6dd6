"""Which segments have their file open: a bounded number, whatever the number of partitions (hazard 15).

An access costs its segment one store (`touched`), no call: when a file too many is opened, the ring is walked, those
touched since the last walk get a second chance, and the first that was not is closed. A reader that holds the file
keeps its descriptor over that.
"""

from __future__ import annotations

from collections import deque
from typing import Protocol

from headrace.storage.disk import Disk, File, TooManyOpenFiles


class Owner(Protocol):
    """What has a file that may be closed under it, and opened again on demand."""

    touched: bool

    @property
    def is_open(self) -> bool: ...

    def close_file(self) -> None: ...


class Handles:
    __slots__ = ("_opened", "_ring", "capacity", "capacity_max")

    def __init__(self, capacity: int) -> None:
        self.capacity_max = capacity
        self.capacity = capacity
        """Less than the most for a while, after the process ran out of descriptors."""
        self._opened = 0
        self._ring: deque[Owner] = deque()

    def __len__(self) -> int:
        """How many files are open, at most: an owner that closed its own is forgotten at the next walk."""
        return len(self._ring)

    def open(self, owner: Owner, disk: Disk, path: str, *, create: bool = False) -> File:
        """Opens a file for an owner, after closing others where that makes one too many."""
        if self.capacity < self.capacity_max:
            self._grow()
        self._shrink(self.capacity - 1)
        try:
            file = disk.open(path, create=create)
        except TooManyOpenFiles:
            # The limit of the process is lower than we were told, or others use it up: live with half of what we have.
            self.capacity = max(1, len(self._ring) // 2)
            self._opened = 0
            self._shrink(self.capacity - 1)
            file = disk.open(path, create=create)
        owner.touched = True
        self._ring.append(owner)
        return file

    def close(self) -> None:
        """Closes all files. Their owners open them again, by these or by others."""
        self._shrink(0)

    def _grow(self) -> None:
        """An eighth more each time that as many were opened as there may be: who used them up may be gone."""
        self._opened += 1
        if self._opened > self.capacity:
            self._opened = 0
            self.capacity = min(self.capacity_max, self.capacity + max(1, self.capacity // 8))

    def _shrink(self, size: int) -> None:
        ring = self._ring
        chances = len(ring)
        while len(ring) > size:
            owner = ring.popleft()
            if not owner.is_open:
                continue
            if owner.touched and chances > 0:
                chances -= 1
                owner.touched = False
                ring.append(owner)
            else:
                owner.close_file()
