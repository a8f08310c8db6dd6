"""What a node knows of its log without a look at it: where it starts and ends, which epochs wrote what, which snapshots
stand for what is gone, and which voters each stretch has named. PURE.

It is ahead of the log on disk by the writes that the node has asked for and that are not done yet.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum

from headrace.named_tuple import NamedTuple
from headrace.protocol import messages
from headrace.protocol.batch import Batch
from headrace.protocol.control import read_control
from headrace.raft.quorum import OffsetAndEpoch, ReplicaKey, VoterSet
from headrace.storage.epochs import UNDEFINED, LeaderEpochs

BOOTSTRAP_OFFSET = -1
"""Of voters that no record of the log has named: they come from how the node was formatted."""


class Verdict(Enum):
    """How a place in a follower's log stands to the leader's."""

    VALID = "valid"
    DIVERGING = "diverging"
    """The follower cuts its log back to the place that comes with this, and asks again."""
    SNAPSHOT = "snapshot"
    """What the follower needs next is in a snapshot only."""


class Place(NamedTuple):
    verdict: Verdict
    at: OffsetAndEpoch


class History:
    """The history of one log."""

    __slots__ = ("_voters", "end_offset", "epochs", "flushed_offset", "snapshots", "start_offset")

    def __init__(
        self,
        *,
        voters: Iterable[tuple[int, VoterSet]] = (),
        start_offset: int = 0,
        end_offset: int = 0,
        flushed_offset: int = 0,
        epochs: Iterable[tuple[int, int]] = (),
        snapshots: Iterable[OffsetAndEpoch] = (),
    ) -> None:
        """`voters` are sets with the offset of the record that names them, ascending; the first may have -1."""
        self.start_offset = start_offset
        self.end_offset = end_offset
        self.flushed_offset = flushed_offset
        """Batches before it survive a loss of power."""
        self.epochs = LeaderEpochs(epochs)
        self.snapshots = sorted(snapshots)
        """Those on disk, but for the one that a node is formatted with."""
        self._voters = list(voters) or [(BOOTSTRAP_OFFSET, VoterSet())]

    # ---------------------------------------------------------------------------------------------------------- voters

    @property
    def voters(self) -> VoterSet:
        """The latest that the log names, committed or not: a voter set counts from its append on (Raft, 4.1)."""
        return self._voters[-1][1]

    @property
    def voters_offset(self) -> int:
        return self._voters[-1][0]

    def voted_before(self, replica: ReplicaKey, high_watermark: int) -> bool:
        """Whether the latest voters do not have this replica, are perhaps not committed, and those before them do."""
        return self.voters_offset >= high_watermark and len(self._voters) > 1 and replica in self._voters[-2][1]

    def voters_at(self, end_offset: int) -> VoterSet:
        """The latest that was named before an offset."""
        return next(voters for offset, voters in reversed(self._voters) if offset < end_offset or offset < 0)

    # ---------------------------------------------------------------------------------------------------------- epochs

    @property
    def last_epoch(self) -> int:
        """Of the last record, be it in the log or in the snapshot that the log goes on from; 0 before the first."""
        if self.epochs.latest >= 0:
            return self.epochs.latest
        return self.snapshots[-1].epoch if self.snapshots else 0

    @property
    def end(self) -> OffsetAndEpoch:
        return OffsetAndEpoch(self.end_offset, self.last_epoch)

    def end_of(self, epoch: int) -> OffsetAndEpoch:
        """Where the largest epoch not above this one ends here."""
        found = self.epochs.end_offset_for(epoch, self.end_offset)
        if found == UNDEFINED:
            return self.end
        if self.snapshots and found.end_offset == self.snapshots[0].offset and found.epoch == epoch:
            return self.snapshots[0]  # an epoch before all that the log still has
        return OffsetAndEpoch(found.end_offset, found.epoch)

    def place_of(self, fetch_offset: int, last_fetched_epoch: int) -> Place:
        """How a follower that has everything before an offset, the last of it from that epoch, is to go on."""
        if fetch_offset == 0 and self.snapshots:
            return Place(Verdict.SNAPSHOT, self.snapshots[-1])  # sooner there than record by record
        if fetch_offset == 0 and self.start_offset == 0:
            return Place(Verdict.VALID, OffsetAndEpoch(0, 0))
        if self.snapshots and (
            fetch_offset < self.start_offset
            or (fetch_offset == self.start_offset and last_fetched_epoch != self.snapshots[0].epoch)
            or last_fetched_epoch < self.snapshots[0].epoch
        ):
            return Place(Verdict.SNAPSHOT, self.snapshots[-1])
        end = self.end_of(last_fetched_epoch)
        if end.epoch != last_fetched_epoch or end.offset < fetch_offset:
            return Place(Verdict.DIVERGING, end)
        return Place(Verdict.VALID, OffsetAndEpoch(fetch_offset, last_fetched_epoch))

    # --------------------------------------------------------------------------------------------------------- changes

    def appended(self, batch: Batch) -> None:
        """A batch is at the end now, with what it says of voters."""
        assert batch.base_offset == self.end_offset, "the metadata log has no gaps"
        self.epochs.assign(batch.partition_leader_epoch, batch.base_offset)
        self.end_offset = batch.next_offset
        if batch.is_control:
            self._voters += voters_in(batch)

    def truncated(self, offset: int) -> None:
        self.end_offset = min(self.end_offset, offset)
        self.flushed_offset = min(self.flushed_offset, offset)
        self.epochs.truncate_from_end(self.end_offset)
        while len(self._voters) > 1 and self.voters_offset >= self.end_offset:
            self._voters.pop()

    def flushed(self, offset: int) -> bool:
        """True when that was news."""
        offset = min(offset, self.end_offset)
        if offset <= self.flushed_offset:
            return False
        self.flushed_offset = offset
        return True

    def snapshot_taken(self, id: OffsetAndEpoch) -> None:
        """A snapshot of this log is on disk."""
        if id not in self.snapshots:
            self.snapshots = sorted([*self.snapshots, id])

    def cleaned(self, oldest: OffsetAndEpoch) -> None:
        """The log now starts where this snapshot ends, and it is the oldest one."""
        self.snapshots = [id for id in self.snapshots if id >= oldest]
        self.start_offset = oldest.offset
        self.flushed_offset = max(self.flushed_offset, oldest.offset)  # the snapshot is durable
        self.epochs.truncate_from_start(oldest.offset)
        named = [entry for entry in self._voters if entry[0] < oldest.offset]
        self._voters = [*named[-1:], *(entry for entry in self._voters if entry[0] >= oldest.offset)]

    def restarted(self, id: OffsetAndEpoch, voters: VoterSet | None) -> None:
        """A leader's snapshot has taken the place of the whole log."""
        self.start_offset = self.end_offset = self.flushed_offset = id.offset
        self.epochs.clear()
        self.snapshots = [id]
        self._voters = [(id.offset - 1, self.voters if voters is None else voters)]


def voters_in(batch: Batch) -> list[tuple[int, VoterSet]]:
    """The voter sets that a control batch names."""
    return [
        (record.offset, VoterSet.from_record(record.message))
        for record in read_control(batch)
        if isinstance(record.message, messages.VotersRecord)
    ]
