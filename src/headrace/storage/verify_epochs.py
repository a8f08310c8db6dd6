"""The leader epochs of the batches held against each other and against the checkpoint. No checksum covers them."""

from __future__ import annotations

from bisect import bisect_right
from typing import Final

from headrace.named_tuple import NamedTuple
from headrace.protocol.batch import NO_EPOCH, Batch
from headrace.storage import names
from headrace.storage.checkpoint import CheckpointDamaged, read_numbers
from headrace.storage.disk import Disk, DiskError
from headrace.storage.epochs import LeaderEpochs
from headrace.storage.inventory import PartitionFiles
from headrace.storage.verify_files import AT_START, FETCH_ANEW, Known, tell_unreadable
from headrace.storage.verify_report import Report

_NEVER: Final = 2**63


class _Suspect(NamedTuple):
    """A batch whose epoch is not what the checkpoint says."""

    path: str
    position: int
    offset: int
    epoch: int
    said: int


class EpochCheck:
    """The leader epochs of the batches never go back, and the checkpoint knows where each begins."""

    __slots__ = ("_entries", "_epochs", "_is_told", "_known", "_path", "_report", "_suspect", "latest", "next_start")

    def __init__(self, disk: Disk, partition: PartitionFiles, known: Known, report: Report) -> None:
        self._path = partition.path(names.EPOCHS)
        self._report = report
        self._known = known
        self._epochs: LeaderEpochs | None = None
        self._entries: list[tuple[int, int]] = []
        self._is_told = False
        self._suspect: _Suspect | None = None
        self.latest = NO_EPOCH
        """Of the batch before."""
        self.next_start = 0
        """Where another epoch begins by the checkpoint. The caller compares, and calls `see` only when it must."""
        try:
            self._entries = read_numbers(disk, self._path)
        except CheckpointDamaged as damaged:
            report.repairable(self._path, damaged.reason, AT_START)
            return
        except DiskError as error:
            tell_unreadable(report, self._path, error)
            return
        for number, ((epoch, start), (next_epoch, next_start)) in enumerate(
            zip(self._entries, self._entries[1:], strict=False), start=4
        ):
            if next_epoch <= epoch or next_start < start:
                report.repairable(
                    self._path, f"line {number} has {next_epoch} {next_start} after {epoch} {start}", AT_START
                )
                self._entries = []
                return
        self._epochs = LeaderEpochs(self._entries) if self._entries else None

    def see(self, path: str, position: int, batch: Batch) -> None:
        """A batch that has another epoch than the one before it, or should have."""
        epoch = batch.partition_leader_epoch
        after = bisect_right(self._entries, batch.base_offset, key=lambda entry: entry[1])
        self.next_start = self._entries[after][1] if after < len(self._entries) else _NEVER
        if epoch == NO_EPOCH:  # of a Kafka before leader epochs
            return
        said = epoch
        if self._epochs is not None and batch.base_offset >= self._entries[0][1]:  # the log may start in a segment
            said = self._epochs.epoch_for_offset(batch.base_offset)
        suspect, self._suspect = self._suspect, None
        if suspect is not None and epoch == said < suspect.epoch:
            self._tell_batch(suspect, f"leader epoch {suspect.epoch} before one of {epoch}")
        elif epoch < self.latest:
            found = _Suspect(path, position, batch.base_offset, epoch, said)
            self._tell_batch(found, f"leader epoch {epoch} after one of {self.latest}")
        else:
            self._tell_checkpoint(suspect)
            if said != epoch:
                # Is it the checkpoint that is wrong, or the batch? The next ones tell.
                self._suspect = _Suspect(path, position, batch.base_offset, epoch, said)
        self.latest = epoch

    def _tell_batch(self, found: _Suspect, what: str) -> None:
        self._report.damage(
            found.path,
            f"the batch with base offset {found.offset} has {what}: its records are sound, but replicas that compare "
            "epochs go astray",
            FETCH_ANEW,
            found.position,
        )

    def _tell_checkpoint(self, suspect: _Suspect | None) -> None:
        if suspect is None or self._is_told:
            return
        if not self._known.is_clean and suspect.offset >= self._known.recovery_point:
            return  # not written yet, or lost with a crash: the next start mends it
        self._is_told = True
        self._report.repairable(
            self._path,
            f"it says epoch {suspect.said} for offset {suspect.offset}, and the batches say {suspect.epoch}",
            AT_START,
        )

    def finish(self, end_offset: int) -> None:
        self._tell_checkpoint(self._suspect)
        beyond = [(epoch, start) for epoch, start in self._entries if start > end_offset]
        if beyond and self._known.is_clean:
            what = f"epoch {beyond[0][0]} begins at offset {beyond[0][1]}, and the log ends at {end_offset}"
            self._report.repairable(self._path, what, "Nothing to do: the next start drops the epoch.")
