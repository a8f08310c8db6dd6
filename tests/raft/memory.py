"""A quorum in memory: real nodes, with a log and a quorum state that a crash treats as a disk would, and no network.

What a node wants done waits in its queue until somebody calls `work`; what is sent lands in `Quorum.wire`, from where
messages are delivered, dropped or doubled one by one. Messages go through the codec on their way.
"""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from headrace.protocol.batch import Batch, scan
from headrace.protocol.batch_builder import build
from headrace.protocol.codec import decode, encode_bytes
from headrace.protocol.message import Message
from headrace.raft.node import (
    Append,
    History,
    InstallSnapshot,
    Node,
    QuorumState,
    Ready,
    Reply,
    Send,
    Timing,
    Truncate,
    WriteSnapshot,
)
from headrace.raft.node.history import BOOTSTRAP_OFFSET, voters_in
from headrace.raft.quorum import OffsetAndEpoch, ReplicaKey, Voter, VoterSet

VERSIONS = {"Vote": 2, "BeginQuorumEpoch": 1, "EndQuorumEpoch": 1, "Fetch": 18, "FetchSnapshot": 1}
CLUSTER = "cluster"


def directory(id: int, generation: int = 0) -> bytes:
    return bytes([id, generation]).ljust(16, b"d")


def key(id: int, generation: int = 0) -> ReplicaKey:
    return ReplicaKey(id, directory(id, generation))


def voter_set(*ids: int) -> VoterSet:
    return VoterSet(Voter(key(id)) for id in ids)


def payload(number: int) -> bytearray:
    return build([(None, b"%d" % number, (), 0)])


@dataclass(slots=True)
class Snapshot:
    """Everything before its end, as the batches that made it, and the voters then."""

    content: bytes
    voters: VoterSet


@dataclass(slots=True)
class Disk:
    """What outlives a crash."""

    local: ReplicaKey
    bootstrap: VoterSet
    state: QuorumState = field(default_factory=QuorumState)
    batches: list[bytes] = field(default_factory=list)
    start_offset: int = 0
    flushed_offset: int = 0
    snapshots: dict[OffsetAndEpoch, Snapshot] = field(default_factory=dict)
    parts: bytearray = field(default_factory=bytearray)

    def headers(self) -> list[Batch]:
        return [Batch(memoryview(batch)) for batch in self.batches]

    @property
    def end_offset(self) -> int:
        return self.headers()[-1].next_offset if self.batches else self.start_offset

    def history(self) -> History:
        latest = max(self.snapshots) if self.snapshots else None
        voters = [(BOOTSTRAP_OFFSET, self.bootstrap)]
        if latest is not None:
            voters.append((latest.offset - 1, self.snapshots[latest].voters))
        epochs: list[tuple[int, int]] = []
        for batch in self.headers():
            if not epochs or epochs[-1][0] != batch.partition_leader_epoch:
                epochs.append((batch.partition_leader_epoch, batch.base_offset))
            if batch.is_control and (latest is None or batch.base_offset >= latest.offset):
                voters += voters_in(batch)
        return History(
            voters=voters,
            start_offset=self.start_offset,
            end_offset=self.end_offset,
            flushed_offset=self.flushed_offset,
            epochs=epochs,
            snapshots=self.snapshots,
        )

    def read(self, offset: int, bytes_max: int) -> bytes:
        found = b""
        for header, batch in zip(self.headers(), self.batches, strict=True):
            if header.last_offset >= offset:
                if found and len(found) + len(batch) > bytes_max:
                    break
                found += batch
        return found

    def truncate(self, offset: int) -> None:
        self.batches = [batch for batch in self.batches if Batch(memoryview(batch)).next_offset <= offset]
        self.flushed_offset = min(self.flushed_offset, self.end_offset)

    def lose(self, chance: random.Random) -> None:
        """A loss of power: batches that were not flushed may be gone, the last first."""
        keep = len([batch for batch in self.headers() if batch.next_offset <= self.flushed_offset])
        del self.batches[chance.randint(keep, len(self.batches)) :]


@dataclass(slots=True)
class Letter:
    """A message on the wire: a request, or with `answers`, the response to one."""

    source: int
    to: int
    message: Message
    answers: Message | None = None


class Replica:
    """One incarnation of a node, on its disk."""

    def __init__(self, quorum: Quorum, disk: Disk) -> None:
        self.quorum = quorum
        self.disk = disk
        self.queue: deque[Ready] = deque()
        self.applied = max(disk.snapshots).offset if disk.snapshots else 0
        self.node = Node(
            disk.local,
            cluster_id=CLUSTER,
            state=disk.state,
            history=disk.history(),
            timing=quorum.timing,
            jitter_ms=lambda most_ms: quorum.jitter_ms(disk.local.id, most_ms),
        )
        self.node.start(quorum.now_ms)
        self.collect()

    @property
    def id(self) -> int:
        return self.disk.local.id

    def collect(self) -> None:
        ready = self.node.ready()
        if ready is not None:
            self.queue.append(ready)

    def work(self, stop_after: int | None = None) -> None:
        """Does the first of what waits: persist, then send, then apply. It may stop in the middle, for ever."""
        ready = self.queue.popleft()
        if stop_after == 0:
            return
        if ready.quorum_state is not None:
            self.disk.state = ready.quorum_state
        if stop_after == 1:
            return
        for write in ready.writes:
            self._write(write)
        if stop_after == 2:
            return
        self.quorum.seen(self, ready)
        for sent in ready.sends:
            self._send(sent)
        if self.node.high_watermark > self.applied and not self.queue:
            self.quorum.commits(self, self.node.high_watermark)
        if not self.queue:
            self.node.flushed(self.disk.flushed_offset, self.quorum.now_ms)
        self.collect()

    def flush(self) -> None:
        """All that was written is durable; the node hears it when nothing waits to be written."""
        self.disk.flushed_offset = self.disk.end_offset
        if not self.queue:
            self.node.flushed(self.disk.flushed_offset, self.quorum.now_ms)
            self.collect()

    def settle(self) -> None:
        """Does everything that can be done without others."""
        while self.queue or self.disk.flushed_offset < self.disk.end_offset:
            while self.queue:
                self.work()
            self.flush()

    def tick(self) -> None:
        self.node.tick(self.quorum.now_ms)
        self.collect()

    def append(self, number: int) -> int:
        offset = self.node.append(payload(number), self.node.epoch, self.quorum.now_ms)
        self.collect()
        return offset

    def snapshot(self) -> OffsetAndEpoch | None:
        """Takes a snapshot of all that is applied, and starts the log with it."""
        history = self.node.history
        inside = [b for b in self.disk.headers() if b.next_offset <= self.applied]
        if self.queue or not inside or inside[-1].next_offset != self.applied:
            return None
        id = OffsetAndEpoch(self.applied, inside[-1].partition_leader_epoch)
        if id in self.disk.snapshots:
            return None
        before = self.disk.snapshots[max(self.disk.snapshots)].content if self.disk.snapshots else b""
        self.disk.snapshots = {id: Snapshot(before + b"".join(b.view for b in inside), history.voters_at(id.offset))}
        self.disk.batches = self.disk.batches[len(inside) :]
        self.disk.start_offset = id.offset
        self.node.snapshot_taken(id)
        self.node.cleaned(id)
        return id

    def _write(self, write: object) -> None:
        disk = self.disk
        match write:
            case Append():
                assert write.base_offset == disk.end_offset
                disk.batches += [bytes(batch.view) for batch in scan(write.content)]
                assert write.end_offset == disk.end_offset
            case Truncate():
                disk.truncate(write.offset)
                assert disk.end_offset == write.offset
            case WriteSnapshot():
                del disk.parts[write.position :]
                disk.parts += write.content
            case InstallSnapshot():
                source = self.quorum.snapshots[write.id]
                assert disk.parts == source.content
                if not self.node.wants_snapshot(write.id):
                    self.node.snapshot_failed(write.id, self.quorum.now_ms)
                    return
                disk.snapshots = {write.id: source}
                disk.batches = []
                disk.start_offset = disk.flushed_offset = self.applied = write.id.offset
                self.node.snapshot_installed(write.id, source.voters, self.quorum.now_ms)

    def _send(self, sent: Send | Reply) -> None:
        if isinstance(sent, Send):
            self.quorum.wire.append(Letter(self.id, sent.to, sent.request))
            return
        assert isinstance(sent.to, tuple)
        request, letter = sent.to
        partition: Any = None
        if sent.read_from is not None:
            partition = sent.response.responses[0].partitions[0]  # type: ignore[attr-defined]
            partition.records = self.disk.read(sent.read_from, sent.bytes_max)
        if sent.read_snapshot is not None:
            partition = sent.response.topics[0].partitions[0]  # type: ignore[attr-defined]
            content = self.disk.snapshots[sent.read_snapshot].content
            partition.unaligned_records = content[sent.position : sent.position + sent.bytes_max]
            partition.size = len(content)
        self.quorum.wire.append(Letter(self.id, letter.source, sent.response, request))


class Quorum:
    """Replicas, the wire between them and one clock."""

    def __init__(self, ids: list[int], *, chance: random.Random | None = None, timing: Timing | None = None) -> None:
        self.timing = timing or Timing()
        self.chance = chance
        self.now_ms = 0
        self.wire: list[Letter] = []
        self.disks = {id: Disk(key(id), voter_set(*ids)) for id in ids}
        self.running: dict[int, Replica] = {}
        self.snapshots: dict[OffsetAndEpoch, Snapshot] = {}
        self.log: list[str] = []

    def jitter_ms(self, id: int, most_ms: int) -> int:
        return self.chance.randint(0, most_ms) if self.chance else 0

    def start(self, id: int) -> Replica:
        self.running[id] = replica = Replica(self, self.disks[id])
        return replica

    def crash(self, id: int) -> None:
        """The machine dies. What was sent is still under way."""
        del self.running[id]
        self.disks[id].lose(self.chance or random.Random(0))
        self.disks[id].flushed_offset = self.disks[id].end_offset

    def deliver(self, letter: Letter) -> None:
        replica = self.running.get(letter.to)
        if replica is None:
            return
        message = over_the_wire(letter.message)
        if letter.answers is None:
            replica.node.requested(message, (letter.message, letter), self.now_ms)
        else:
            replica.node.answered(letter.source, letter.answers, message, self.now_ms)
        replica.collect()

    def seen(self, replica: Replica, ready: Ready) -> None:
        """For whoever watches: this is leaving a node."""

    def commits(self, replica: Replica, high_watermark: int) -> None:
        """For whoever watches: a node applies."""
        replica.applied = high_watermark


def over_the_wire(message: Message) -> Message:
    name = type(message).__name__
    version = VERSIONS[name.removesuffix("Request").removesuffix("Response")]
    return decode(type(message), version, encode_bytes(message, version))
