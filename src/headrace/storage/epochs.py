"""Leader epochs: which leader wrote which offsets. PURE but for `load` and `persist`.

An entry is an epoch and the first offset that its leader wrote. Truncation after a change of leader goes by these and
never by the high watermark: a follower asks its leader where the follower's last epoch ends, and cuts there (KIP-101);
with the epoch that the leader names, it may have to ask again (KIP-279); clients and followers are told when the epoch
that they know is no longer the leader's (KIP-320).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from typing import Final

from headrace.named_tuple import NamedTuple
from headrace.storage.checkpoint import read_numbers, write_numbers
from headrace.storage.disk import Disk

UNDEFINED_EPOCH: Final = -1
UNDEFINED_OFFSET: Final = -1


class EpochStart(NamedTuple):
    epoch: int
    start_offset: int


class EpochEnd(NamedTuple):
    """The largest epoch not above the one asked for, and where it ends (the first offset that is not its own)."""

    epoch: int
    end_offset: int


UNDEFINED: Final = EpochEnd(UNDEFINED_EPOCH, UNDEFINED_OFFSET)


class LeaderEpochs:
    """The epochs of one log, both columns increasing. `is_dirty` says that the checkpoint does not have them all."""

    __slots__ = ("_epochs", "_starts", "is_dirty", "latest")

    def __init__(self, entries: Iterable[tuple[int, int]] = ()) -> None:
        self._epochs: list[int] = []
        self._starts: list[int] = []
        self.latest = UNDEFINED_EPOCH
        """The epoch of the last record, or -1. An append compares with it and is done, nearly always."""
        self.is_dirty = False
        for epoch, start_offset in entries:
            self.assign(epoch, start_offset)
        self.is_dirty = False

    @classmethod
    def load(cls, disk: Disk, path: str) -> LeaderEpochs:
        """Raises CheckpointDamaged; the log then reads the epochs from its batches."""
        return cls(read_numbers(disk, path))

    def persist(self, disk: Disk, path: str) -> None:
        """Blocks for two syncs. A crash before it leaves entries too many or too few, which loading the log mends."""
        write_numbers(disk, path, self.entries())
        self.is_dirty = False

    def assign(self, epoch: int, start_offset: int) -> bool:
        """A leader of this epoch writes from this offset on. True when that was news.

        Once assigned an epoch keeps its start, unless the new one is lower. Entries that contradict the new one are of
        leaders whose records are gone: they go.
        """
        assert epoch >= 0, "records have a leader epoch"
        assert start_offset >= 0, "offsets are not negative"
        if epoch == self.latest and start_offset >= self._starts[-1]:
            return False
        while self._epochs and (self._epochs[-1] >= epoch or self._starts[-1] >= start_offset):
            self._epochs.pop()
            self._starts.pop()
        self._epochs.append(epoch)
        self._starts.append(start_offset)
        self.latest = epoch
        self.is_dirty = True
        return True

    def end_offset_for(self, epoch: int, log_end_offset: int) -> EpochEnd:
        """Where an epoch ends here: the start of the next one, or the end of the log for the latest.

        An epoch that begins after all of ours is undefined. One before all of ours ends where our first begins: its
        records were deleted, and a follower goes on from there.
        """
        if epoch == UNDEFINED_EPOCH:
            return UNDEFINED
        if epoch == self.latest:
            return EpochEnd(epoch, log_end_offset)
        after = bisect_right(self._epochs, epoch)
        if after == len(self._epochs):
            return UNDEFINED
        return EpochEnd(self._epochs[after - 1] if after else epoch, self._starts[after])

    def epoch_for_offset(self, offset: int) -> int:
        """The epoch that wrote an offset; -1 before the first one known."""
        before = bisect_right(self._starts, offset)
        return self._epochs[before - 1] if before else UNDEFINED_EPOCH

    def next_epoch(self, epoch: int) -> int:
        """The least epoch above one; -1 when there is none."""
        after = bisect_right(self._epochs, epoch)
        return self._epochs[after] if after < len(self._epochs) else UNDEFINED_EPOCH

    def truncate_from_end(self, end_offset: int) -> None:
        """The log now ends here: epochs that begin at it or after it are gone."""
        keep = bisect_left(self._starts, end_offset)
        if keep < len(self._starts):
            del self._epochs[keep:]
            del self._starts[keep:]
            self.latest = self._epochs[-1] if self._epochs else UNDEFINED_EPOCH
            self.is_dirty = True

    def truncate_from_start(self, start_offset: int) -> None:
        """The log now begins here: the epoch that wrote this offset begins with it, and those before it are gone."""
        drop = bisect_right(self._starts, start_offset) - 1
        if drop > 0 or (drop == 0 and self._starts[0] != start_offset):
            del self._epochs[:drop]
            del self._starts[:drop]
            self._starts[0] = start_offset
            self.is_dirty = True

    def clear(self) -> None:
        self.truncate_from_end(0)

    def entries(self) -> list[EpochStart]:
        return [EpochStart(epoch, start) for epoch, start in zip(self._epochs, self._starts, strict=True)]

    def __len__(self) -> int:
        return len(self._epochs)
