"""Scripts: a line is a command, the indented lines below it are what happened. They read as documentation.

voters 1 2 3          a quorum of these voters, all started
start 4               a node with an empty disk, which does not vote
pass 1000             time passes, and what falls due happens; nothing is delivered
deliver [1 2]         messages are delivered until there are none, all or those between two nodes
elect                 time passes until there is a leader, without a word about how
run 3000              time passes and messages are delivered, in steps
append 1 hello        a leader appends
cut 1 / heal          a node is cut off from the others, and not any more
crash 1 / restart 1   of the machine: what is not durable is gone
wipe 1                its disk is lost: it comes back with its id, and another directory
pause 1 / resume 1    it does nothing for a while (SIGSTOP)
stop 1                it is told to stop
snapshot 1            it takes a snapshot and starts its log with it
add 1 4 / remove 1 3  a leader changes the voters
show                  every node: role, epoch, log, high watermark
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headrace.errors import Error, Refused
from headrace.protocol.message import Message
from headrace.raft.node import Ready
from headrace.raft.node.rpc import partition_of
from headrace.raft.quorum import Voter, VoterSet
from tests.raft.memory import Disk, Letter, Quorum, Replica, key


class ScriptedQuorum(Quorum):
    """Everything at once and in order, so that a script says what matters."""

    def __init__(self, ids: list[int]) -> None:
        super().__init__(ids)
        self.out: list[str] = []
        self.cut: set[int] = set()
        self.paused: dict[int, Replica] = {}
        self.generations: dict[int, int] = {}

    def jitter_ms(self, id: int, most_ms: int) -> int:
        return most_ms * (id - 1) // 4  # the first is the quickest

    def seen(self, replica: Replica, ready: Ready) -> None:
        self.out += ready.notes

    def commits(self, replica: Replica, high_watermark: int) -> None:
        super().commits(replica, high_watermark)
        self.out.append(f"Node {replica.id} commits up to {high_watermark}")

    def settle(self) -> None:
        for replica in self.running.values():
            replica.settle()

    def passes(self, ms: int) -> None:
        self.now_ms += ms
        for replica in self.running.values():
            replica.tick()
        self.settle()

    def deliver_all(self, between: set[int] | None = None) -> None:
        for _ in range(200):
            letters = [letter for letter in self.wire if between is None or {letter.source, letter.to} == between]
            if not letters:
                return
            self.wire.remove(letters[0])
            self._deliver(letters[0])
        raise AssertionError("they never stop talking")

    def _deliver(self, letter: Letter) -> None:
        if {letter.source, letter.to} & (self.cut | self.paused.keys()) or letter.to not in self.running:
            return
        if not is_routine(letter.message):
            self.out.append(f"{letter.source} -> {letter.to}  {brief(letter.message)}")
        self.deliver(letter)
        self.settle()

    def run(self, ms: int) -> None:
        for _ in range(0, ms, 25):
            self.passes(25)
            self.deliver_all()

    def show(self) -> None:
        for id, replica in sorted({**self.running, **self.paused}.items()):
            node = replica.node
            log = f"{node.history.start_offset}..{node.history.end_offset}"
            self.out.append(
                f"Node {id} {type(node.role).__name__.lower():<11} epoch {node.epoch}  log {log:<6} "
                f"committed {node.high_watermark}{'' if node.is_voter else '  (observer)'}"
            )


def is_routine(message: Message) -> bool:
    """A fetch, or an answer to one that has nothing to tell."""
    partition = partition_of(message)
    if type(message).__name__ == "FetchRequest":
        return True
    return type(message).__name__ == "FetchResponse" and not (partition.diverging_epoch or partition.snapshot_id)


def brief(message: Message) -> str:
    name = type(message).__name__.removesuffix("Request").removesuffix("Response")
    partition: Any = partition_of(message)
    if partition is None:
        return f"{name} {Error(message.error_code).name}"  # type: ignore[attr-defined]
    words = [name]
    if name == "Vote":
        if hasattr(partition, "pre_vote"):
            words[0] = "PreVote?" if partition.pre_vote else "Vote?"
            words.append(f"epoch {partition.replica_epoch}, log ends at {partition.last_offset}")
            words.append(f"of epoch {partition.last_offset_epoch}")
        elif not partition.error_code:
            words.append("granted" if partition.vote_granted else "refused")
    elif hasattr(partition, "leader_epoch") and not hasattr(partition, "error_code"):
        words[0] = f"{name}?"
        words.append(f"epoch {partition.leader_epoch}")
    elif name == "FetchSnapshot":
        words.append(f"{partition.snapshot_id.end_offset}-{partition.snapshot_id.epoch}")
        words.append(f"{len(partition.unaligned_records)} bytes" if hasattr(partition, "size") else "?")
    if getattr(partition, "error_code", 0):
        words.append(Error(partition.error_code).name)
    if getattr(partition, "diverging_epoch", None):
        words.append(f"diverging at {partition.diverging_epoch.end_offset}, epoch {partition.diverging_epoch.epoch}")
    if getattr(partition, "snapshot_id", None) and name == "Fetch":
        words.append(f"snapshot {partition.snapshot_id.end_offset}-{partition.snapshot_id.epoch}")
    return " ".join(words)


class Script:
    """Runs one, line by line."""

    def __init__(self) -> None:
        self.quorum = ScriptedQuorum([])

    def command(self, line: str) -> list[str]:
        name, *words = line.split()
        arguments: list[Any] = [int(word) if word.lstrip("-").isdigit() else word for word in words]
        handler: Callable[..., None] = getattr(self, f"do_{name}")
        try:
            handler(*arguments)
        except Refused as refused:
            self.quorum.out.append(f"{refused.error.name}: {refused}")
        self.quorum.settle()
        out, self.quorum.out = self.quorum.out, []
        return out

    def do_voters(self, *ids: int) -> None:
        self.quorum = ScriptedQuorum(list(ids))
        for id in ids:
            self.quorum.start(id)

    def do_start(self, id: int) -> None:
        self.quorum.disks[id] = Disk(key(id), next(iter(self.quorum.disks.values())).bootstrap)
        self.quorum.start(id)

    def do_pass(self, ms: int) -> None:
        self.quorum.passes(ms)

    def do_deliver(self, *ids: int) -> None:
        self.quorum.deliver_all(set(ids) or None)

    def do_run(self, ms: int) -> None:
        self.quorum.run(ms)

    def do_elect(self) -> None:
        self.quorum.run(1500)
        self.quorum.out = [line for line in self.quorum.out if " leads " in line]

    def do_append(self, id: int, value: object) -> None:
        self.quorum.running[id].append(sum(str(value).encode()))

    def do_cut(self, id: int) -> None:
        self.quorum.cut.add(id)

    def do_heal(self) -> None:
        self.quorum.cut.clear()

    def do_crash(self, id: int) -> None:
        self.quorum.crash(id)

    def do_restart(self, id: int) -> None:
        self.quorum.start(id)

    def do_wipe(self, id: int) -> None:
        quorum = self.quorum
        quorum.running.pop(id, None)
        quorum.generations[id] = quorum.generations.get(id, 0) + 1
        quorum.disks[id] = Disk(key(id, quorum.generations[id]), quorum.disks[id].bootstrap)
        quorum.start(id)

    def do_pause(self, id: int) -> None:
        self.quorum.paused[id] = self.quorum.running.pop(id)

    def do_resume(self, id: int) -> None:
        self.quorum.running[id] = self.quorum.paused.pop(id)

    def do_stop(self, id: int) -> None:
        replica = self.quorum.running[id]
        replica.node.stop(self.quorum.now_ms)
        replica.collect()

    def do_snapshot(self, id: int) -> None:
        replica = self.quorum.running[id]
        taken = replica.snapshot()
        assert taken is not None
        self.quorum.snapshots[taken] = replica.disk.snapshots[taken]

    def do_add(self, leader: int, id: int) -> None:
        added = self.quorum.disks[id].local
        self._change(leader, self.quorum.running[leader].node.voters.with_voter(Voter(added)))

    def do_remove(self, leader: int, id: int) -> None:
        self._change(leader, self.quorum.running[leader].node.voters.without(id))

    def _change(self, leader: int, voters: VoterSet) -> None:
        replica = self.quorum.running[leader]
        replica.node.change_voters(voters, self.quorum.now_ms)
        replica.collect()

    def do_show(self) -> None:
        self.quorum.show()
