"""Random schedules: messages lost, doubled, late and out of order, crashes at any step, cut links, snapshots.

`RAFT_SEEDS=20000 pytest tests/raft/test_node_random.py` runs more of them. A failure names its seed.
"""

from __future__ import annotations

import os

import pytest

from tests.raft.checked import CheckedQuorum

SEEDS = int(os.environ.get("RAFT_SEEDS", "25"))
STEPS = 400


def run(voters: int, seed: int, *, changes_voters: bool = False) -> CheckedQuorum:
    quorum = CheckedQuorum(list(range(1, voters + 1)), seed, changes_voters=changes_voters)
    for id in quorum.disks:
        quorum.start(id)
    for _ in range(STEPS * voters):
        quorum.step()
    quorum.heal()
    return quorum


@pytest.mark.parametrize("voters", [1, 3, 5])
def test_raft_keeps_its_promises_whatever_happens_and_gets_a_leader_when_it_stops(voters: int) -> None:
    committed = 0
    for seed in range(SEEDS):
        try:
            committed += len(run(voters, seed).committed)
        except Exception as error:
            raise AssertionError(f"voters {voters}, seed {seed}") from error
    assert committed > SEEDS


def test_raft_keeps_its_promises_while_voters_come_and_go() -> None:
    changes = 0
    for seed in range(SEEDS):
        try:
            changes += run(4, seed, changes_voters=True).voter_changes
        except Exception as error:
            raise AssertionError(f"changing voters, seed {seed}") from error
    assert changes > SEEDS // 2
