"""Defects of groups and transactions, planted by patches: their simulation must find each of them within some seeds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest

from headrace.broker import produce_transactional
from headrace.client import GroupConsumer
from headrace.coordinator.groups.classic.group import ClassicGroup
from headrace.coordinator.groups.consumer.group import ConsumerGroup
from headrace.coordinator.hosted import HostedShard
from headrace.coordinator.loading import Loading
from headrace.coordinator.offsets.offsets import Offsets
from headrace.coordinator.offsets.store import OffsetStore
from headrace.coordinator.shard import Outcome
from headrace.coordinator.transactions import ending, shard
from headrace.coordinator.transactions.shard import TransactionShard
from headrace.coordinator.transactions.starting import Start, start_of
from headrace.coordinator.transactions.states import Claim, State
from headrace.coordinator.transactions.transaction import Identity, Transaction
from headrace.errors import Error
from headrace.protocol.batch import Batch
from headrace.replica.partition import Partition
from headrace.storage.log import Log
from headrace.storage.producer_state import ProducerState
from headrace.testing.sim.run import run_seed
from tests.sim.coordinators import coordinators
from tests.sim.test_node_planted import producer_ids_are_given_twice, producers_are_forgotten_at_a_restart
from tests.sim.test_planted import first_failure

Plant = Callable[[pytest.MonkeyPatch], None]


class Defect(NamedTuple):
    plant: Plant
    seeds: int
    """Within how many seeds it must be found: several times what it takes in the mean, as any change moves them."""
    first: int = 0
    """The first of them: what is found late from 0 on is told in the decision, and costs the suite less so."""


def fenced_generations_may_commit(patch: pytest.MonkeyPatch) -> None:
    """Hazard 13."""
    for group in (ClassicGroup, ConsumerGroup):
        patch.setattr(group, "validate_commit", lambda self, *arguments, is_transactional: None)


def members_commit_in_the_name_of_the_next_generation(patch: pytest.MonkeyPatch) -> None:
    """What the simulation found in our client: it told who it is now, and not who it was when it was given records."""
    patch.setattr(GroupConsumer, "member", property(lambda self: self._membership.member))


def markers_are_lost_with_the_coordinator(patch: pytest.MonkeyPatch) -> None:
    """What was decided before a fail-over is taken for complete after it."""

    def mark(self: TransactionShard, outcome: Outcome, transaction: Any, now_ms: int) -> None:
        self._complete(outcome, transaction, now_ms)

    loaded = TransactionShard.loaded

    def loaded_without(self: TransactionShard, *arguments: Any) -> Outcome:
        with pytest.MonkeyPatch.context() as within:
            within.setattr(TransactionShard, "_mark", mark)
            return loaded(self, *arguments)

    patch.setattr(TransactionShard, "loaded", loaded_without)


def what_comes_late_is_not_verified(patch: pytest.MonkeyPatch) -> None:
    """Hazard 5: the coordinator is asked, and what it says is of no consequence."""
    patch.setattr(produce_transactional, "_refusal", lambda error, version: None)
    patch.setattr(ProducerState, "require_verified", lambda self, *arguments: None)


def a_late_end_ends_what_is_open(patch: pytest.MonkeyPatch) -> None:
    """Hazard 6: of an end only the producer id counts, as before transaction version 2."""

    right = ending._claim_of

    def claim_of(transaction: Transaction, claimed: Identity, client_version: int) -> Claim | Error:
        is_same = claimed.producer_id == transaction.client.producer_id
        if transaction.state is State.ONGOING and is_same:
            return Claim.CURRENT
        return right(transaction, claimed, client_version)

    patch.setattr(ending, "_claim_of", claim_of)


def zombies_are_not_fenced(patch: pytest.MonkeyPatch) -> None:
    """Who takes a transactional id over gets the epoch that its last user has."""

    def start(*arguments: Any) -> object:
        found = start_of(*arguments)
        return Start.SAME if found is Start.NEXT_EPOCH else found

    patch.setattr(shard, "start_of", start)


def offsets_are_lost_at_the_load(patch: pytest.MonkeyPatch) -> None:
    """The first chunks of the log are taken for all of it."""
    read = Loading._read

    def read_little(self: Loading) -> None:
        if self.records > 5:
            self._end(None)
        else:
            read(self)

    patch.setattr(Loading, "_read", read_little)


def offsets_of_transactions_are_lost_at_the_load(patch: pytest.MonkeyPatch) -> None:
    """Their markers are not replayed."""
    replay = Loading._replay_batch

    def replay_batch(self: Loading, batch: Batch) -> Iterator[None]:
        if not batch.is_control:
            yield from replay(self, batch)

    patch.setattr(Loading, "_replay_batch", replay_batch)


def offsets_are_told_while_a_transaction_commits_others(patch: pytest.MonkeyPatch) -> None:
    """KIP-447: whoever gets a partition would begin before what the transaction commits."""
    fetched = Offsets.fetch

    def fetch(self: Offsets, *arguments: Any, **options: Any) -> object:
        with pytest.MonkeyPatch.context() as within:
            within.setattr(OffsetStore, "is_pending", lambda self, *arguments: False)
            return fetched(self, *arguments, **options)

    patch.setattr(Offsets, "fetch", fetch)


def the_last_stable_offset_is_the_high_watermark(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Log, "last_stable_offset", property(lambda self: self.high_watermark))


def aborted_transactions_are_not_told(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Log, "aborted_in", lambda self, start_offset, end_offset: [])


def told_before_it_is_committed(patch: pytest.MonkeyPatch) -> None:
    """A coordinator answers, and sends markers, when its records are appended."""

    def wait_for(self: HostedShard, partition: Partition, offset: int) -> None:
        self._committed = offset
        while self._waiting and self._waiting[0][0] <= offset:
            self._tell(self._waiting.popleft()[2])

    patch.setattr(HostedShard, "_wait_for", wait_for)


DEFECTS: dict[str, Defect] = {
    "a fenced generation commits": Defect(fenced_generations_may_commit, 250, 150),
    "a commit in the name of the next generation": Defect(members_commit_in_the_name_of_the_next_generation, 350, 16),
    "markers lost": Defect(markers_are_lost_with_the_coordinator, 40),
    "a late batch not verified": Defect(what_comes_late_is_not_verified, 40),
    "a late end": Defect(a_late_end_ends_what_is_open, 350, 32),
    "zombies not fenced": Defect(zombies_are_not_fenced, 40),
    "producer ids given twice": Defect(producer_ids_are_given_twice, 20),
    "offsets lost at the load": Defect(offsets_are_lost_at_the_load, 30),
    "offsets of transactions lost at the load": Defect(offsets_of_transactions_are_lost_at_the_load, 30),
    "unstable offsets told": Defect(offsets_are_told_while_a_transaction_commits_others, 60),
    "open transactions read": Defect(the_last_stable_offset_is_the_high_watermark, 20),
    "aborted transactions read": Defect(aborted_transactions_are_not_told, 20),
    "open transactions forgotten at a restart": Defect(producers_are_forgotten_at_a_restart, 30),
    "told before it is committed": Defect(told_before_it_is_committed, 250, 12),
}


@pytest.mark.parametrize("name", DEFECTS)
def test_a_planted_defect_of_coordinators_is_found(
    name: str, monkeypatch: pytest.MonkeyPatch, record_property: Any
) -> None:
    defect = DEFECTS[name]
    defect.plant(monkeypatch)
    run = first_failure(coordinators, defect.seeds, defect.first)
    record_property("seeds", run.seed + 1)
    assert "anomalies in" in run.failure
    again = run_seed(coordinators, run.seed)
    assert (again.digest, again.failure) == (run.digest, run.failure), "a failing seed repeats exactly"
