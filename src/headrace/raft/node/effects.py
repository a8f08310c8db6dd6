"""What comes out of a node, to be done in this order: persist, then send, then apply. PURE."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from headrace.named_tuple import NamedTuple
from headrace.plain import field, plain
from headrace.protocol.message import Message
from headrace.raft.quorum import NO_NODE, Endpoint, OffsetAndEpoch, ReplicaKey


class QuorumState(NamedTuple):
    """What a voter must not forget: its epoch, and whom it has voted for or follows in that."""

    epoch: int = 0
    leader_id: int = NO_NODE
    voted: ReplicaKey | None = None


class LeaderAndEpoch(NamedTuple):
    leader_id: int
    epoch: int


@plain
class Append:
    """Whole batches, with their offsets and epochs in place, for the end of the log; `flushed` is to say when."""

    base_offset: int
    end_offset: int
    epoch: int
    """Of the leader that they are from. Batches in them may be older."""
    content: memoryview


@plain
class Truncate:
    """The log is to end at this offset."""

    offset: int


@plain
class WriteSnapshot:
    """A part of a snapshot that the leader has, to be kept under a temporary name."""

    id: OffsetAndEpoch
    position: int
    content: bytes | bytearray | memoryview


@plain
class InstallSnapshot:
    """All parts are there: check it, give it its name, empty the log so that it goes on where the snapshot ends.

    `Node.wants_snapshot` is asked before the log is emptied. `snapshot_installed` is to say that this is done,
    `snapshot_failed` that it was not wanted any more, or that the parts were no snapshot.
    """

    id: OffsetAndEpoch


Write: TypeAlias = Append | Truncate | WriteSnapshot | InstallSnapshot


@plain
class Send:
    """A request to a peer. It is answered by `answered` or `unanswered`, or forgotten after the request time-out."""

    to: int
    endpoints: tuple[Endpoint, ...]
    request: Message


@plain
class Reply:
    """A response, to whom it is due. With `read_from`, the log's batches from there on are put in before it leaves;
    with `read_snapshot`, that part of the snapshot."""

    to: object
    response: Message
    read_from: int | None = None
    read_snapshot: OffsetAndEpoch | None = None
    position: int = 0
    bytes_max: int = 0


@plain
class Ready:
    """One step's worth. What is None has not changed."""

    quorum_state: QuorumState | None = None
    """To be durable before anything else of this is done."""
    writes: Sequence[Write] = ()
    sends: Sequence[Send | Reply] = ()
    high_watermark: int | None = None
    """Records before it are committed: apply them."""
    leader: LeaderAndEpoch | None = None
    notes: Sequence[str] = field(default_factory=tuple)
    """What an operator may want to read, in order."""
