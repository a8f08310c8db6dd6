"""The arithmetic of a quorum. PURE.

A voter is a node id and the id of the directory that holds its metadata log (KIP-853): a node that comes back with its
id and an empty disk is another replica, and counts for nothing until somebody adds it (hazard 12).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from headrace.errors import ProtocolError
from headrace.named_tuple import NamedTuple
from headrace.plain import plain_frozen, replace
from headrace.protocol import messages

if TYPE_CHECKING:
    from headrace.protocol.messages import VotersRecord

NO_DIRECTORY: Final = bytes(16)
NO_NODE: Final = -1
KRAFT_VERSION: Final = 1
"""Of the quorum protocol (the feature kraft.version): voters are in the log, with directory ids."""


class ReplicaKey(NamedTuple):
    """Which replica: a node and its directory. Without a directory it stands for whatever the node has."""

    id: int
    directory_id: bytes = NO_DIRECTORY

    def matches(self, other: ReplicaKey) -> bool:
        """The same replica, as far as both say who they are."""
        return self.id == other.id and (
            self.directory_id == other.directory_id or NO_DIRECTORY in (self.directory_id, other.directory_id)
        )


class OffsetAndEpoch(NamedTuple):
    """A place in the history of the log: where it ends, and the epoch of the last record before that."""

    offset: int
    epoch: int

    def is_at_least(self, other: OffsetAndEpoch) -> bool:
        """As up to date in Raft's sense: the later last epoch, then the longer log."""
        return (self.epoch, self.offset) >= (other.epoch, other.offset)


class Endpoint(NamedTuple):
    listener: str
    host: str
    port: int


@plain_frozen
class Voter:
    """A voter, where it is reached, and which quorum protocols it knows."""

    key: ReplicaKey
    endpoints: tuple[Endpoint, ...] = ()
    kraft_version_min: int = 0
    kraft_version_max: int = KRAFT_VERSION


class VoterSet:
    """The voters of a quorum, one a node id; never changed, only replaced."""

    __slots__ = ("_voters",)

    def __init__(self, voters: Iterable[Voter] = ()) -> None:
        self._voters = {voter.key.id: voter for voter in sorted(voters, key=lambda voter: voter.key)}

    def __iter__(self) -> Iterator[Voter]:
        """By id, so that what follows from it is the same each time."""
        return iter(self._voters.values())

    def __len__(self) -> int:
        return len(self._voters)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, VoterSet) and self._voters == other._voters

    __hash__ = None  # type: ignore[assignment]

    def __contains__(self, key: ReplicaKey) -> bool:
        """Whether this very replica votes: its directory must be the one that was added."""
        voter = self._voters.get(key.id)
        return voter is not None and (voter.key.directory_id in (NO_DIRECTORY, key.directory_id))

    def __repr__(self) -> str:
        return f"VoterSet({', '.join(str(id) for id in self._voters)})"

    def get(self, id: int) -> Voter | None:
        return self._voters.get(id)

    def others(self, key: ReplicaKey) -> list[Voter]:
        """Those that a replica asks and tells: all but what goes under its own id."""
        return [voter for voter in self if voter.key.id != key.id]

    def is_only(self, key: ReplicaKey) -> bool:
        return len(self) == 1 and key in self

    @property
    def majority(self) -> int:
        return majority(len(self))

    def with_voter(self, voter: Voter) -> VoterSet:
        """Adds a voter, or updates what is known of it."""
        return VoterSet([*(other for other in self if other.key.id != voter.key.id), voter])

    def without(self, id: int) -> VoterSet:
        return VoterSet(voter for voter in self if voter.key.id != id)

    def has_directories(self) -> bool:
        return all(voter.key.directory_id != NO_DIRECTORY for voter in self)

    def overlaps_majorities_of(self, other: VoterSet) -> bool:
        """Any majority here and any majority there share a voter, which makes a step from one to the other safe.

        That is so when they differ by one voter (Raft's dissertation, 4.1). A voter that gets its first directory id
        stays the same one.
        """
        added = [voter for voter in self if not any(voter.key.matches(there.key) for there in other)]
        removed = [voter for voter in other if not any(voter.key.matches(here.key) for here in self)]
        return len(added) + len(removed) <= 1

    def to_record(self) -> VotersRecord:
        record = messages.VotersRecord
        return record(
            voters=[
                record.Voter(
                    voter_id=voter.key.id,
                    voter_directory_id=voter.key.directory_id,
                    endpoints=[
                        record.Endpoint(name=endpoint.listener, host=endpoint.host, port=endpoint.port)
                        for endpoint in voter.endpoints
                    ],
                    kraft_version_feature=record.KRaftVersionFeature(
                        min_supported_version=voter.kraft_version_min,
                        max_supported_version=voter.kraft_version_max,
                    ),
                )
                for voter in self
            ]
        )

    @classmethod
    def from_record(cls, record: VotersRecord) -> VoterSet:
        voters = cls(
            Voter(
                ReplicaKey(voter.voter_id, voter.voter_directory_id),
                tuple(Endpoint(endpoint.name, endpoint.host, endpoint.port) for endpoint in voter.endpoints),
                voter.kraft_version_feature.min_supported_version,
                voter.kraft_version_feature.max_supported_version,
            )
            for voter in record.voters
        )
        if len(voters) != len(record.voters):
            raise ProtocolError("A voters record names a node twice, which can't be.")
        return voters

    def renewed(self, key: ReplicaKey, endpoints: tuple[Endpoint, ...]) -> VoterSet:
        """The set with what a voter says of itself; the same object when that is what it has."""
        voter = self._voters.get(key.id)
        if voter is None or key not in self or (voter.key == key and voter.endpoints == endpoints):
            return self
        return self.with_voter(replace(voter, key=key, endpoints=endpoints))


def majority(voters: int) -> int:
    """The least number that is more than half."""
    return voters // 2 + 1


def high_watermark(end_offsets: Iterable[int | None]) -> int | None:
    """The offset before which a majority of voters has everything durably, by where each one's log ends.

    None among them is a voter that has not said anything yet; None as the answer is a majority that has not.
    """
    known = sorted((-1 if offset is None else offset for offset in end_offsets), reverse=True)
    if not known:
        return None
    reached = known[majority(len(known)) - 1]
    return None if reached < 0 else reached


class Tally:
    """The votes of one election, or of one round of pre-votes."""

    __slots__ = ("granted", "rejected", "voters")

    def __init__(self, voters: VoterSet) -> None:
        self.voters = voters
        self.granted: dict[int, None] = {}
        self.rejected: dict[int, None] = {}

    def record(self, id: int, *, granted: bool) -> None:
        """A voter answers once; what it says after that does not count, nor what others say."""
        if self.voters.get(id) is not None and self.is_open(id):
            (self.granted if granted else self.rejected)[id] = None

    def is_open(self, id: int) -> bool:
        return id not in self.granted and id not in self.rejected

    @property
    def is_won(self) -> bool:
        return len(self.granted) >= self.voters.majority

    @property
    def is_lost(self) -> bool:
        return len(self.voters) - len(self.rejected) < self.voters.majority
