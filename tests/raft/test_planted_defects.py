"""Defects that are planted, one at a time: the random schedules must find each, or they prove nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from headrace.raft import quorum
from headrace.raft.node import Ready, Truncate, election, replication
from headrace.raft.node.history import History
from headrace.raft.node.machine import Node
from headrace.raft.node.roles import Leader, Unattached
from headrace.raft.quorum import OffsetAndEpoch, VoterSet
from tests.raft.test_node_random import run

SEEDS_MAX = 400

Patch = pytest.MonkeyPatch


def forgets_its_vote(patch: Patch) -> None:
    """The quorum state is not durable when the vote leaves."""
    ready = Node.ready

    def without_state(node: Node) -> Ready | None:
        found = ready(node)
        return None if found is None else replace(found, quorum_state=None)

    patch.setattr(Node, "ready", without_state)


def votes_for_any_log(patch: Patch) -> None:
    patch.setattr(OffsetAndEpoch, "is_at_least", lambda self, other: True)


def votes_again(patch: Patch) -> None:
    patch.setattr(election, "_may_vote", lambda node, candidate, is_up_to_date: is_up_to_date)


def counts_what_it_has_not_flushed(patch: Patch) -> None:
    appended = History.appended

    def and_flushed(history: History, batch: Any) -> None:
        appended(history, batch)
        history.flushed_offset = history.end_offset

    patch.setattr(History, "appended", and_flushed)


def takes_half_for_a_majority(patch: Patch) -> None:
    patch.setattr(quorum, "majority", lambda voters: max(1, voters // 2))
    patch.setattr(VoterSet, "majority", property(lambda voters: max(1, len(voters) // 2)))


def commits_records_of_older_epochs_by_counting(patch: Patch) -> None:
    """Figure 8 of Raft's paper: a majority has a record of an older epoch, and another leader overwrites it."""
    lead = Node.become_leader

    def from_the_start(node: Node, granting: list[int], now_ms: int) -> None:
        lead(node, granting, now_ms)
        if isinstance(node.role, Leader):
            node.role.epoch_start_offset = -1

    patch.setattr(Node, "become_leader", from_the_start)


def does_not_cut_what_diverges(patch: Patch) -> None:
    patch.setattr(replication, "_cut", lambda node, peer, epoch, end_offset: True)


def cuts_to_the_high_watermark(patch: Patch) -> None:
    """Hazard 1. Before the first fetch of a new leader, instead of asking by epoch."""
    follow = Node.become_follower

    def and_cut(node: Node, epoch: int, leader_id: int, now_ms: int) -> None:
        follow(node, epoch, leader_id, now_ms)
        offset = max(node.high_watermark, node.history.start_offset)
        if offset < node.history.end_offset:
            node.history.truncated(offset)
            node.write(Truncate(offset))

    patch.setattr(Node, "become_follower", and_cut)


def leads_its_old_epoch_again(patch: Patch) -> None:
    """After a restart, in the epoch in which it may have lost records."""
    start = Node.start

    def and_lead(node: Node, now_ms: int) -> None:
        if node.leader_id == node.local.id:
            node.role = Unattached(now_ms)
            node.become_leader([node.local.id], now_ms)
        else:
            start(node, now_ms)

    patch.setattr(Node, "start", and_lead)


def answers_a_leader_of_the_past(patch: Patch) -> None:
    """A deposed leader is believed (hazard 4)."""

    def believe(node: Node, leader_id: int, epoch: int, endpoints: Any, now_ms: int) -> bool:
        if leader_id not in (-1, node.local.id) and not isinstance(node.role, Leader):
            node.epoch, node.leader_id = epoch, -1
            node.become_follower(epoch, leader_id, now_ms)
        return True

    patch.setattr(election, "heed", believe)


FIRST_SEEDS = {"commits_records_of_older_epochs_by_counting": 520, "counts_what_it_has_not_flushed": 40}
"""Where to begin, so that a test run need not search long. Remove to search all."""

DEFECTS: list[Callable[[Patch], None]] = [
    forgets_its_vote,
    votes_for_any_log,
    votes_again,
    counts_what_it_has_not_flushed,
    takes_half_for_a_majority,
    commits_records_of_older_epochs_by_counting,
    does_not_cut_what_diverges,
    cuts_to_the_high_watermark,
    leads_its_old_epoch_again,
    answers_a_leader_of_the_past,
]


@pytest.mark.parametrize("defect", DEFECTS, ids=lambda defect: defect.__name__)
def test_a_planted_defect_is_found(
    defect: Callable[[Patch], None], monkeypatch: pytest.MonkeyPatch, record_property: Callable[[str, object], None]
) -> None:
    defect(monkeypatch)
    first = FIRST_SEEDS.get(defect.__name__, 0)
    for seed in range(first, first + SEEDS_MAX):
        try:
            run(3, seed)
        except AssertionError as error:
            record_property("seeds", seed + 1)
            print(f"{defect.__name__}: {seed + 1} seeds, {error!r:.80}")
            return
    raise AssertionError(f"{SEEDS_MAX} seeds did not find it")
