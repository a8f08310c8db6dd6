"""Producers that start, start again, are fenced, wear their epochs out, and are forgotten."""

from __future__ import annotations

from typing import Any

from headrace.coordinator.transactions.shard import LOOKED_AT_A_STEP
from headrace.coordinator.transactions.transaction import Transaction
from tests.coordinator.transaction_script import Coordinator


def test_a_producer_that_starts_again_fences_the_one_before() -> None:
    Coordinator().play("""
        init a                  -> 0:0
        init a                  -> 0:1
        add a 0:0 t-0           -> PRODUCER_FENCED
        abort a 0:0             -> PRODUCER_FENCED
        add a 0:1 t-0           -> NONE
    """)


def test_the_open_transaction_of_a_producer_that_starts_again_is_aborted_first() -> None:
    Coordinator().play("""
        init a                  -> 0:0
        add a 0:0 t-0           -> NONE
        init a                  -> waits
        state a                 -> PrepareAbort
        markers a               -> abort 0:1 t-0        # above the epoch of what the zombie may still write
        commit a 0:0            -> INVALID_TXN_STATE
        marked a
        answer init             -> 0:2
        add a 0:0 t-0           -> PRODUCER_FENCED
    """)


def test_without_transaction_version_2_it_is_the_same() -> None:
    Coordinator(version=0).play("""
        init a                  -> 0:0
        add1 a 0:0 t-0          -> NONE
        init a                  -> waits
        markers a               -> abort 0:1 t-0
        commit1 a 0:0           -> PRODUCER_FENCED
        marked a
        answer init             -> 0:2
    """)


def test_an_open_transaction_without_partitions_needs_no_markers() -> None:
    coordinator = Coordinator()
    coordinator.play("""
        init a                  -> 0:0
        add a 0:0
        state a                 -> Ongoing
        init a                  -> 0:2
        state a                 -> Empty
    """)
    assert not coordinator.runtime.effects


def test_two_that_start_at_once_get_an_epoch_each() -> None:
    Coordinator().play("""
        init a                  -> 0:0
        add a 0:0 t-0           -> NONE
        init a                  -> waits
        marked a
        answer init             -> 0:2
        init a                  -> 0:3
    """)


def test_a_producer_goes_on_after_an_error_with_the_next_epoch() -> None:
    """KIP-360."""
    Coordinator().play("""
        init a                  -> 0:0
        init a expected=0:0     -> 0:1
        init a expected=0:0     -> 0:1          # the answer was lost
        init a expected=0:1     -> 0:2
        init a expected=0:0     -> PRODUCER_FENCED
        init a expected=7:2     -> PRODUCER_FENCED
        init a                  -> 0:3
        init a expected=0:2     -> PRODUCER_FENCED      # another one has started since
    """)


def test_a_producer_that_goes_on_after_its_transaction_was_aborted_may_ask_again() -> None:
    """The answer to InitProducerId was lost, once with the transaction open and once after its time."""
    Coordinator().play("""
        init a                  -> 0:0
        add a 0:0 t-0           -> NONE
        init a expected=0:0     -> waits
        marked a
        answer init             -> 0:1
        init a expected=0:0     -> 0:1
        init a expected=0:1     -> 0:2
        init a expected=0:0     -> PRODUCER_FENCED
    """)
    Coordinator().play("""
        init a timeout=30000    -> 0:0
        add a 0:0 t-0           -> NONE
        wait 40000
        marked a
        init a expected=0:0     -> 0:1
        init a expected=0:0     -> 0:1
    """)


def test_a_zombie_that_goes_on_does_not_abort_the_transaction_of_its_successor() -> None:
    Coordinator().play("""
        init a                  -> 0:0
        init a                  -> 0:1
        add a 0:1 t-0           -> NONE
        init a expected=0:0     -> PRODUCER_FENCED
        state a                 -> Ongoing
    """)


def test_a_producer_goes_on_after_the_answer_to_its_last_end_was_lost() -> None:
    Coordinator().play("""
        init a                  -> 0:0
        add a 0:0 t-0           -> NONE
        abort a 0:0             -> 0:1
        marked a
        fail-over
        init a expected=0:0     -> 0:1
    """)


def test_hazard_6_when_the_epochs_are_used_up_there_is_another_producer_id() -> None:
    Coordinator().play("""
        init a                  -> 0:0
        wear-out a 32765
        add a 0:32765 t-0       -> NONE
        commit a 0:32765        -> 0:32766
        marked a
        add a 0:32766 t-0       -> NONE
        commit a 0:32766        -> 1:0
        markers a               -> commit 0:32767 t-0   # the last epoch is the markers' alone
        commit a 0:32766        -> waits
        fail-over                                       # and it is not forgotten
        markers a               -> commit 0:32767 t-0
        add a 1:0 t-0           -> waits
        marked a
        answer add              -> NONE
        state a                 -> Ongoing
        add a 0:32766 t-0       -> INVALID_PRODUCER_ID_MAPPING
    """)


def test_the_end_that_used_the_epochs_up_may_be_asked_again() -> None:
    Coordinator().play("""
        init a                  -> 0:0
        wear-out a 32766
        add a 0:32766 t-0       -> NONE
        abort a 0:32766         -> 1:0
        marked a
        abort a 0:32766         -> 1:0
        init a expected=0:32766 -> 1:0
        init a expected=0:32766 -> 1:0
        commit a 0:32766        -> INVALID_PRODUCER_ID_MAPPING
    """)


def test_a_producer_that_starts_with_the_epochs_used_up_gets_another_id() -> None:
    Coordinator(version=0).play("""
        init a                  -> 0:0
        wear-out a 32765
        init a                  -> 0:32766
        init a                  -> 1:0
        wear-out a 32766
        init a expected=1:32766 -> 2:0
        init a expected=1:32766 -> 2:0
    """)


def test_fencing_uses_the_last_epoch_up() -> None:
    Coordinator().play("""
        init a                  -> 0:0
        wear-out a 32766
        add a 0:32766 t-0       -> NONE
        init a                  -> waits
        markers a               -> abort 0:32767 t-0
        marked a
        answer init             -> 1:1
    """)


def test_a_producer_that_is_fenced_with_its_epochs_used_up_goes_on_with_another_id() -> None:
    """Epoch 32767 is the markers' alone: what it began could never end."""
    late = """
        init a timeout=30000    -> 0:0
        wear-out a 32766
        add a 0:32766 t-0       -> NONE
        wait 40000
        markers a               -> abort 0:32767 t-0
        marked a
    """
    Coordinator().play(f"""{late}
        abort a 0:32766         -> 1:0
        abort a 0:32766         -> 1:0          # the answer was lost
        init a expected=0:32766 -> 1:0
    """)
    Coordinator().play(f"""{late}
        fail-over
        init a expected=0:32766 -> 1:0
        init a expected=0:32766 -> 1:0
        add a 1:0 t-0           -> NONE
        commit a 1:0            -> 1:1
        markers a               -> commit 1:1 t-0
    """)
    Coordinator().play("""
        init a                  -> 0:0
        wear-out a 32766
        add a 0:32766 t-0       -> NONE
        init a expected=0:32766 -> waits
        markers a               -> abort 0:32767 t-0
        marked a
        answer init             -> 1:0
    """)


def test_who_has_its_epochs_used_up_is_fenced_when_there_is_a_producer_id_for_it() -> None:
    Coordinator().play("""
        init a timeout=30000    -> 0:0
        wear-out a 32766
        add a 0:32766 t-0       -> NONE
        have-producer-ids no
        init a                  -> COORDINATOR_LOAD_IN_PROGRESS
        wait 40000
        state a                 -> Ongoing
        have-producer-ids yes
        wait 10000
        markers a               -> abort 0:32767 t-0
        marked a
        abort a 0:32766         -> 1:0
    """)


def test_when_no_producer_id_is_at_hand_the_producer_asks_again() -> None:
    Coordinator().play("""
        have-producer-ids no
        init a                  -> COORDINATOR_LOAD_IN_PROGRESS
        state a                 -> none
        have-producer-ids yes
        init a                  -> 0:0
        wear-out a 32766
        add a 0:32766 t-0       -> NONE
        have-producer-ids no
        commit a 0:32766        -> COORDINATOR_LOAD_IN_PROGRESS
        state a                 -> Ongoing
        have-producer-ids yes
        commit a 0:32766        -> 1:0
    """)


def test_a_transaction_past_its_time_is_aborted_and_its_producer_fenced() -> None:
    Coordinator().play("""
        init a timeout=30000    -> 0:0
        add a 0:0 t-0           -> NONE
        wait 30000
        state a                 -> Ongoing
        wait 10000                              # they are looked for every ten seconds
        state a                 -> PrepareAbort
        markers a               -> abort 0:1 t-0
        commit a 0:0            -> INVALID_TXN_STATE
        marked a
        abort a 0:0             -> 0:1          # its producer learns its epoch so, and goes on
        add a 0:0 t-0           -> PRODUCER_FENCED
    """)


def test_the_time_of_a_transaction_goes_on_after_a_fail_over() -> None:
    Coordinator().play("""
        init a timeout=30000    -> 0:0
        add a 0:0 t-0           -> NONE
        wait 20000
        fail-over
        wait 20000
        state a                 -> PrepareAbort
    """)


def test_a_time_out_must_be_within_bounds() -> None:
    Coordinator().play("""
        init a timeout=0        -> INVALID_TRANSACTION_TIMEOUT
        init a timeout=-1       -> INVALID_TRANSACTION_TIMEOUT
        init a timeout=900001   -> INVALID_TRANSACTION_TIMEOUT
        state a                 -> none
        init a timeout=900000   -> 0:0
    """)


def test_a_transactional_id_is_forgotten_when_nothing_happens_to_it_for_long() -> None:
    coordinator = Coordinator()
    coordinator.play("""
        init a                  -> 0:0
        init b                  -> 1:0
        init c timeout=900000   -> 2:0
        add b 1:0 t-0           -> NONE
        commit b 1:0            -> 1:1          # whose markers are never written
        wait 600000000
        init c                  -> 2:1
        state a                 -> Empty
        wait 8400000
        state a                 -> none
        state b                 -> PrepareCommit
        state c                 -> Empty
        add a 0:0 t-0           -> INVALID_PRODUCER_ID_MAPPING
        init a                  -> 3:0
    """)
    assert sum(record.value is None for record, _, _ in coordinator.runtime.log) == 1, "a tombstone"


def test_thousands_of_old_ids_are_forgotten_in_steps() -> None:
    coordinator = Coordinator()
    for number in range(2500):
        coordinator.do("init", f"a{number}")
    coordinator.play("""
        wait 700000000
        state a0                -> none
        state a2499             -> none
    """)


def test_what_is_listed() -> None:
    Coordinator().play("""
        init a                  -> 0:0
        init b                  -> 1:0
        add b 1:0 t-0           -> NONE
        wait 5000
        list                    -> a b
        list open=4999          -> b
        list open=5000          ->
    """)


class Counted(dict[str, Transaction]):
    """Counts how many of it are looked at."""

    looked_at = 0

    def get(self, key: str, default: Any = None) -> Any:
        self.looked_at += 1
        return super().get(key, default)

    def items(self) -> Any:
        self.looked_at += len(self)
        return super().items()


def test_each_of_many_ids_is_looked_at_once_when_old_ones_are_looked_for() -> None:
    coordinator = Coordinator()
    for number in range(10 * LOOKED_AT_A_STEP):
        coordinator.do("init", f"a{number}")
    coordinator.do("wait", "600000000")
    coordinator.shard.transactions = counted = Counted(coordinator.shard.transactions)
    coordinator.do("wait", "8400000")
    assert not counted
    assert counted.looked_at <= 4 * 10 * LOOKED_AT_A_STEP, "some hours in which all were young, and the last"
