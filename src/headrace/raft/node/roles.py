"""The roles of a node, and what it keeps while it has one. PURE.

    Unattached   no leader known, or voted for another; waits
    Prospective  asks whether it would be elected, without a new epoch (pre-vote, KIP-996)
    Candidate    in a new epoch, has voted for itself, asks for votes
    Leader       appends, and counts who has fetched how far
    Follower     fetches from the leader
    Resigned     was leader of this epoch and won't be again; tells the others

A node that is not among the voters (an observer) is only ever Unattached or a Follower.
"""

from __future__ import annotations

from typing import TypeAlias

from headrace.raft.quorum import NO_DIRECTORY, OffsetAndEpoch, ReplicaKey, Tally, Voter, VoterSet

NEVER_MS = 2**63 - 1


class Unattached:
    __slots__ = ("deadline_ms",)

    def __init__(self, deadline_ms: int) -> None:
        self.deadline_ms = deadline_ms


class Prospective:
    __slots__ = ("deadline_ms", "tally")

    def __init__(self, voters: VoterSet, deadline_ms: int) -> None:
        self.tally = Tally(voters)
        self.deadline_ms = deadline_ms


class Candidate:
    __slots__ = ("deadline_ms", "is_backing_off", "tally")

    def __init__(self, voters: VoterSet, deadline_ms: int) -> None:
        self.tally = Tally(voters)
        self.deadline_ms = deadline_ms
        self.is_backing_off = False
        """A majority has refused: it only waits for the next round."""


class Follower:
    __slots__ = ("deadline_ms", "fetching", "has_fetched", "leader_id")

    def __init__(self, leader_id: int, deadline_ms: int) -> None:
        self.leader_id = leader_id
        self.deadline_ms = deadline_ms
        self.has_fetched = False
        """A fetch has succeeded: the leader is alive, and no pre-vote against it is granted (KIP-996)."""
        self.fetching: SnapshotFetch | None = None


class SnapshotFetch:
    """How much of a leader's snapshot is here."""

    __slots__ = ("id", "is_complete", "position")

    def __init__(self, id: OffsetAndEpoch) -> None:
        self.id = id
        self.position = 0
        self.is_complete = False


class Resigned:
    __slots__ = ("deadline_ms", "preferred", "untold")

    def __init__(self, deadline_ms: int, untold: list[int], preferred: list[ReplicaKey]) -> None:
        self.deadline_ms = deadline_ms
        self.untold = dict.fromkeys(untold)
        self.preferred = preferred
        """Who should be leader next: those that are furthest, first."""


class Progress:
    """How far a replica has come, by its fetches."""

    __slots__ = ("_leader_end_offset", "end_offset", "last_caught_up_ms", "last_fetch_ms")

    def __init__(self) -> None:
        self.end_offset: int | None = None
        self.last_fetch_ms = -1
        self.last_caught_up_ms = -1
        self._leader_end_offset = -1

    def fetched(self, offset: int, leader_end_offset: int, now_ms: int) -> None:
        """It has everything before an offset, durably if it is a voter."""
        if offset >= leader_end_offset:
            self.last_caught_up_ms = now_ms
        elif 0 <= self._leader_end_offset <= offset:
            self.last_caught_up_ms = max(self.last_caught_up_ms, self.last_fetch_ms)
        self._leader_end_offset = leader_end_offset
        self.last_fetch_ms = now_ms
        self.end_offset = offset


class WaitingFetch:
    """A fetch that has nothing new yet."""

    __slots__ = ("bytes_max", "deadline_ms", "high_watermark", "offset", "replica", "reply_to")

    def __init__(
        self, replica: ReplicaKey, reply_to: object, offset: int, high_watermark: int, bytes_max: int, deadline_ms: int
    ) -> None:
        self.replica = replica
        self.reply_to = reply_to
        self.offset = offset
        self.high_watermark = high_watermark
        self.bytes_max = bytes_max
        self.deadline_ms = deadline_ms


class Leader:
    __slots__ = (
        "acknowledged",
        "announce_ms",
        "check_quorum_ms",
        "epoch_start_offset",
        "fetched",
        "is_committed",
        "progress",
        "waiting",
    )

    def __init__(self, epoch_start_offset: int, check_quorum_ms: int) -> None:
        self.epoch_start_offset = epoch_start_offset
        self.is_committed = False
        """A record of its own epoch is committed, and with it everything before (Raft, 5.4.2)."""
        self.progress: dict[ReplicaKey, Progress] = {}
        self.waiting: dict[ReplicaKey, WaitingFetch] = {}
        self.acknowledged: dict[int, None] = {}
        """Who knows of this leader, by an answer or by a fetch: the others are told again."""
        self.announce_ms = 0
        self.fetched: dict[int, None] = {}
        """The voters that fetched since a majority last had."""
        self.check_quorum_ms = check_quorum_ms

    def end_offset_of(self, voter: Voter) -> int | None:
        """None for a voter that has not fetched. One without a directory is whoever comes with its id."""
        if voter.key.directory_id == NO_DIRECTORY:
            found = [p.end_offset for key, p in self.progress.items() if key.id == voter.key.id]
            return found[-1] if found else None
        progress = self.progress.get(voter.key)
        return None if progress is None else progress.end_offset


Role: TypeAlias = Unattached | Prospective | Candidate | Leader | Follower | Resigned
