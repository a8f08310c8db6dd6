"""Three nodes with their drivers, logs and disks, on one clock: what one voter alone never does."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from headrace.protocol.message import Message
from headrace.raft.checkpoints import checkpoint_name
from headrace.raft.metadata_log import FOLDER
from headrace.raft.node import Send
from headrace.testing.disk import Crash, Faults, FaultyDisk, Platter
from tests.raft.memory import over_the_wire, voter_set
from tests.raft.single import Running, Timers

VOTERS = voter_set(1, 2, 3)


class Three:
    def __init__(self) -> None:
        self.timers = Timers()
        self.wire: list[Callable[[], None]] = []
        self.cut: set[int] = set()
        self.nodes: dict[int, Running] = {}
        for id in (1, 2, 3):
            self.start(id, FaultyDisk(Platter(id)))

    def start(self, id: int, disk: FaultyDisk) -> None:
        def send(sent: Send, answered: Callable[[Message | None], None]) -> None:
            self.wire.append(lambda: self.deliver(id, sent, answered))

        self.nodes[id] = Running(disk, id=id, voters=VOTERS, timers=self.timers, send=send)
        self.nodes[id].driver.node.jitter_ms = lambda most_ms: most_ms * (id - 1) // 4

    def deliver(self, source: int, sent: Send, answered: Callable[[Message | None], None]) -> None:
        if {source, sent.to} & self.cut or sent.to not in self.nodes:
            answered(None)
            return

        def reply(response: Message) -> None:
            self.wire.append(lambda: answered(None if {source, sent.to} & self.cut else over_the_wire(response)))

        self.nodes[sent.to].driver.request(over_the_wire(sent.request), reply)

    def run(self, ms: int) -> None:
        for _ in range(0, ms, 20):
            self.timers.advance(20)
            for _ in range(100):
                wire, self.wire = self.wire, []
                for deliver in wire:
                    deliver()
                stepped = [node.step() for node in self.nodes.values()]
                if not any(stepped) and not self.wire:
                    break

    def leader(self) -> Running:
        leaders = [node for id, node in self.nodes.items() if node.driver.node.is_leader and id not in self.cut]
        assert len(leaders) == 1
        return leaders[0]

    def levels(self) -> list[list[int]]:
        return [node.state.levels for _, node in sorted(self.nodes.items())]


@pytest.fixture
def three() -> Three:
    three = Three()
    three.run(2000)
    return three


def test_what_is_committed_is_applied_by_all(three: Three) -> None:
    three.leader().append(1, 2)
    three.leader().append(3)
    three.run(200)
    assert three.levels() == [[1, 2, 3]] * 3
    assert {node.state.leaders[-1].leader_id for node in three.nodes.values()} == {1}


def test_a_log_that_diverges_is_cut_on_disk(three: Three) -> None:
    three.leader().append(1)
    three.run(200)
    three.cut = {1}
    for level in (91, 92, 93):
        three.nodes[1].append(level)
    three.run(6000)
    three.leader().append(2)
    three.run(200)
    three.cut = set()
    three.run(3000)
    assert three.levels() == [[1, 2]] * 3
    contents = [node.metadata.log.read(0, 1 << 20, 1 << 40).take() for node in three.nodes.values()]
    assert contents[0] == contents[1] == contents[2]


def test_a_follower_that_lags_installs_the_leaders_snapshot(three: Three) -> None:
    three.cut = {3}
    leader = three.leader()
    for level in range(30):
        leader.append(level)
        three.run(40)
    leader.take_snapshot()
    three.run(100)
    leader.driver.clean(0, -1)
    leader.append(30)
    three.run(200)
    three.cut = set()
    three.run(6000)
    assert three.levels() == [list(range(31))] * 3
    latest = leader.driver.node.history.snapshots[-1]
    assert three.nodes[3].disk.exists(f"{FOLDER}/{checkpoint_name(latest)}")
    assert three.nodes[3].state.snapshots[-1] == latest.offset
    three.start(3, three.nodes[3].disk.restart(power_lost=True))
    three.run(3000)
    assert three.levels() == [list(range(31))] * 3


def test_a_follower_that_crashes_while_it_installs_a_snapshot_does_it_again(three: Three) -> None:
    three.cut = {3}
    leader = three.leader()
    for level in range(10):
        leader.append(level)
        three.run(40)
    leader.take_snapshot()
    three.run(100)
    leader.driver.clean(0, -1)
    three.cut = set()
    crashes = 0
    for call in range(1, 200):
        disk = three.nodes.pop(3).disk.restart(power_lost=True, faults=Faults(crash_at_call=call))
        try:
            three.start(3, disk)
            three.run(4000)
        except Crash:
            crashes += 1
            three.nodes.setdefault(3, Running.__new__(Running)).disk = disk
            continue
        break
    assert crashes > 20
    assert three.levels() == [list(range(10))] * 3


def test_the_two_others_go_on_when_the_leaders_machine_is_lost(three: Three) -> None:
    three.leader().append(1)
    three.run(200)
    lost = three.nodes.pop(1)
    lost.disk.crash()
    three.run(6000)
    three.leader().append(2)
    three.run(200)
    assert three.levels() == [[1, 2]] * 2
    three.start(1, lost.disk.restart(power_lost=True))
    three.run(4000)
    assert three.levels() == [[1, 2]] * 3
