"""A quorum that checks at every step what Raft promises (figure 3 of its paper), and a scheduler that tries hard."""

from __future__ import annotations

import random
from contextlib import suppress

from headrace.errors import Refused
from headrace.protocol.messages import VoteResponse
from headrace.raft.node import Ready, Reply, Timing
from headrace.raft.node.rpc import partition_of
from headrace.raft.quorum import ReplicaKey, Voter
from tests.raft.memory import Disk, Quorum, Replica


class CheckedQuorum(Quorum):
    def __init__(self, ids: list[int], seed: int, *, changes_voters: bool = False) -> None:
        self.changes_voters = changes_voters
        self.random = random.Random(seed)
        bytes_max = self.random.choice([100, 300, 1 << 20])
        super().__init__(ids, chance=self.random, timing=Timing(fetch_bytes_max=bytes_max))
        self.leaders: dict[int, int] = {}
        self.votes: dict[tuple[ReplicaKey, int], ReplicaKey] = {}
        self.entries: dict[tuple[int, int], tuple[bytes, int]] = {}
        """By offset and epoch: the batch, and the epoch of the one before it."""
        self.committed: dict[int, bytes] = {}
        """By offset: the batch that starts there, in all logs for ever."""
        self.appended = 0
        self.voter_changes = 0
        self.cut: set[tuple[int, int]] = set()
        """Links that lose everything, one way."""

    # ------------------------------------------------------------------------------------------------------- invariants

    def seen(self, replica: Replica, ready: Ready) -> None:
        node = replica.node
        for sent in ready.sends:
            if isinstance(sent, Reply) and isinstance(sent.response, VoteResponse):
                self._check_vote(replica, sent)
        if ready.leader is not None and ready.leader.leader_id == replica.id and node.is_leader:
            before = self.leaders.setdefault(ready.leader.epoch, replica.id)
            assert before == replica.id, f"election safety: {before} and {replica.id} lead {ready.leader.epoch}"
            self._check_complete(replica)
        self._check_matching(replica.disk)

    def _check_vote(self, replica: Replica, sent: Reply) -> None:
        answer = partition_of(sent.response)
        asked = partition_of(sent.to[0])  # type: ignore[index]
        if answer is None or not answer.vote_granted or asked.pre_vote:
            return
        candidate = ReplicaKey(asked.replica_id, asked.replica_directory_id)
        vote = self.votes.setdefault((replica.disk.local, asked.replica_epoch), candidate)
        assert vote == candidate, f"{replica.id} votes twice in epoch {asked.replica_epoch}"
        assert replica.disk.state.epoch >= asked.replica_epoch, "a vote leaves after it is durable"

    def _check_matching(self, disk: Disk) -> None:
        before = max(disk.snapshots).epoch if disk.snapshots else 0
        for batch in disk.headers():
            entry = self.entries.setdefault(
                (batch.base_offset, batch.partition_leader_epoch), (bytes(batch.view), before)
            )
            assert entry == (bytes(batch.view), before), f"log matching: {batch} on node {disk.local.id}"
            before = batch.partition_leader_epoch

    def _check_complete(self, replica: Replica) -> None:
        have = {batch.base_offset: bytes(batch.view) for batch in replica.disk.headers()}
        for offset, content in self.committed.items():
            if offset >= replica.disk.start_offset:
                assert have.get(offset) == content, f"leader completeness: {replica.id} lacks offset {offset}"

    def commits(self, replica: Replica, high_watermark: int) -> None:
        assert high_watermark > replica.applied
        assert replica.applied >= replica.disk.start_offset
        for batch in replica.disk.headers():
            if replica.applied <= batch.base_offset and batch.next_offset <= high_watermark:
                before = self.committed.setdefault(batch.base_offset, bytes(batch.view))
                assert before == batch.view, f"state machine safety: {replica.id} applies another {batch}"
                replica.applied = batch.next_offset
        assert replica.applied == high_watermark, "a high watermark is at the end of a batch"

    # -------------------------------------------------------------------------------------------------------- schedules

    def step(self) -> None:
        """Something happens."""
        chance = self.random
        wild = chance.random()
        up = list(self.running.values())
        waiting = [replica for replica in up if replica.queue]
        unflushed = [replica for replica in up if replica.disk.flushed_offset < replica.disk.end_offset]
        if wild < 0.4 and self.wire:
            self._deliver_one(chance.random())
        elif wild < 0.7 and waiting:
            chance.choice(waiting).work()
        elif wild < 0.8 and unflushed:
            chance.choice(unflushed).flush()
        elif wild < 0.9:
            self.now_ms += chance.choice([1, 5, 20, 100, 500])
            for replica in up:
                if chance.random() < 0.8:
                    replica.tick()
        elif wild < 0.93 and up and self.changes_voters:
            for replica in up:
                self._change_voters(replica)
        elif wild < 0.965:
            for replica in up:
                if replica.node.is_leader:
                    self.appended += 1
                    replica.append(self.appended)
        elif wild < 0.975 and up:
            self._snapshot(chance.choice(up))
        elif wild < 0.98:
            self._cut_or_heal()
        elif wild < 0.99 and up:
            self._crash(chance.choice(up))
        else:
            down = [id for id in self.disks if id not in self.running]
            if down:
                self.start(chance.choice(down))

    def _deliver_one(self, luck: float) -> None:
        number = self.random.randrange(len(self.wire)) if luck < 0.5 else 0
        letter = self.wire[number] if luck > 0.97 else self.wire.pop(number)  # sometimes it comes again
        if (letter.source, letter.to) not in self.cut and luck > 0.03:
            self.deliver(letter)

    def _change_voters(self, replica: Replica) -> None:
        """One comes or goes, if this one leads and may do that now."""
        voters = replica.node.voters
        local = self.disks[self.random.choice(list(self.disks))].local
        changed = voters.without(local.id) if local in voters else voters.with_voter(Voter(local))
        if len(changed):
            with suppress(Refused):
                replica.node.change_voters(changed, self.now_ms)
                replica.collect()
                self.voter_changes += 1

    def _snapshot(self, replica: Replica) -> None:
        id = replica.snapshot()
        if id is not None:
            self.snapshots[id] = replica.disk.snapshots[id]

    def _cut_or_heal(self) -> None:
        if self.cut:
            self.cut.clear()
            return
        alone = self.random.choice(list(self.disks))
        both = self.random.random() < 0.6
        for other in self.disks:
            self.cut.add((alone, other))
            if both:
                self.cut.add((other, alone))

    def _crash(self, replica: Replica) -> None:
        if replica.queue:
            replica.work(stop_after=self.random.randint(0, 3) or None)
        self.crash(replica.id)

    def heal(self) -> None:
        """From here on nothing fails: everybody must agree, soon."""
        self.cut.clear()
        for id in self.disks:
            if id not in self.running:
                self.start(id)
        for _ in range(600):
            self.now_ms += 25
            for replica in list(self.running.values()):
                replica.tick()
                replica.settle()
            letters, self.wire = self.wire, []
            for letter in letters:
                self.deliver(letter)
                for replica in self.running.values():
                    replica.settle()
            if self._agree():
                return
        raise AssertionError(f"no agreement: {[(r.id, r.node.role, r.node.state) for r in self.running.values()]}")

    def _agree(self) -> bool:
        nodes = [replica.node for replica in self.running.values()]
        leaders = [node for node in nodes if node.is_leader]
        return (
            len(leaders) == 1
            and all(node.epoch == leaders[0].epoch for node in nodes)
            and all(node.high_watermark == leaders[0].history.end_offset for node in nodes)
        )
