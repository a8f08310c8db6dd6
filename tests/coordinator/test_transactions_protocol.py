"""How transactions begin and end, in both protocols, as a producer sees it."""

from __future__ import annotations

import pytest

from tests.coordinator.transaction_script import Coordinator


def test_a_transaction_is_committed_and_its_producer_gets_the_next_epoch() -> None:
    Coordinator().play("""
        init a                  -> 0:0
        add a 0:0 t-0 t-1       -> NONE
        state a                 -> Ongoing
        commit a 0:0            -> 0:1          # KIP-890: the next transaction has another epoch
        state a                 -> PrepareCommit
        markers a               -> commit 0:1 t-0 t-1
        marked a
        state a                 -> CompleteCommit
        add a 0:1 t-1           -> NONE
        abort a 0:1             -> 0:2
        markers a               -> abort 0:2 t-1
        marked a
        state a                 -> CompleteAbort
    """)


def test_a_producer_of_the_protocol_before_keeps_its_epoch() -> None:
    Coordinator().play("""
        init a                  -> 0:0
        add1 a 0:0 t-0          -> NONE
        commit1 a 0:0           -> 0:0
        markers a               -> commit 0:0 t-0
        marked a
        add1 a 0:0 t-0          -> NONE
        abort1 a 0:0            -> 0:0
        markers a               -> abort 0:0 t-0
    """)


def test_what_comes_before_the_transaction_is_complete_waits_for_it() -> None:
    Coordinator().play("""
        init a                  -> 0:0
        add a 0:0 t-0           -> NONE
        commit a 0:0            -> 0:1
        add a 0:1 t-0           -> waits
        marked a
        answer add              -> NONE
        state a                 -> Ongoing
    """)


def test_what_waited_too_long_is_told_to_come_again() -> None:
    Coordinator().play("""
        init a                  -> 0:0
        add a 0:0 t-0           -> NONE
        commit a 0:0            -> 0:1
        add a 0:1 t-0           -> waits
        verify a 0:1 t-0        -> waits
        wait 100
        answer add              -> CONCURRENT_TRANSACTIONS
        answer verify           -> CONCURRENT_TRANSACTIONS
        marked a
        add a 0:1 t-0           -> NONE
    """)


def test_only_so_many_wait() -> None:
    coordinator = Coordinator()
    coordinator.play("""
        init a                  -> 0:0
        add a 0:0 t-0           -> NONE
        commit a 0:0            -> 0:1
    """)
    answers = [coordinator.do("add", "a", "0:1", "t-0") for _ in range(17)]
    assert answers == ["waits"] * 16 + ["CONCURRENT_TRANSACTIONS"]


def test_an_end_does_not_overtake_the_partitions_that_its_producer_added_before() -> None:
    """librdkafka sends both without a pause, and gives up for ever when it is told INVALID_TXN_STATE."""
    Coordinator().play("""
        init a                  -> 0:0
        add1 a 0:0 t-0          -> NONE
        commit1 a 0:0           -> 0:0
        add1 a 0:0 t-0          -> waits
        abort1 a 0:0            -> waits
        marked a
        answer add              -> NONE
        answer abort            -> 0:0
        state a                 -> PrepareAbort
        markers a               -> abort 0:0 t-0
    """)


def test_what_stands_in_line_keeps_its_order_over_the_next_transactions_too() -> None:
    Coordinator().play("""
        init a                  -> 0:0
        add1 a 0:0 t-0          -> NONE
        commit1 a 0:0           -> 0:0
        add1 a 0:0 t-0          -> waits
        abort1 a 0:0            -> waits
        add1 a 0:0 t-1          -> waits
        commit1 a 0:0           -> waits
        marked a
        answer abort            -> 0:0
        answer commit           -> waits
        markers a               -> abort 0:0 t-0
        marked a
        answer add              -> NONE
        answer commit           -> 0:0
        markers a               -> commit 0:0 t-1
    """)


def test_nothing_overtakes_the_line_between_its_steps() -> None:
    Coordinator().play("""
        init a                  -> 0:0
        add1 a 0:0 t-0          -> NONE
        commit1 a 0:0           -> 0:0
        add1 a 0:0 t-0          -> waits
        marked a
        abort1 a 0:0            -> 0:0          # not called yet, the line is there: behind the first of it
        answer add              -> NONE
        state a                 -> PrepareAbort
    """)


@pytest.mark.parametrize("pause_ms", [0, 100])
def test_who_could_not_begin_may_give_up(pause_ms: int) -> None:
    """The markers take long. Its first partition was sent away, and now it aborts: there is nothing of it."""
    coordinator = Coordinator(add_partitions_to_txn_retry_backoff_max_ms=pause_ms)
    coordinator.play("""
        init a                  -> 0:0
        add1 a 0:0 t-0          -> NONE
        commit1 a 0:0           -> 0:0
        abort1 a 0:0            -> INVALID_TXN_STATE    # it was committed
        add1 a 0:0 t-1
        wait 100
        answer add              -> CONCURRENT_TRANSACTIONS
        abort1 a 0:0            -> 0:0
        state a                 -> PrepareCommit
        marked a
        abort1 a 0:0            -> 0:0                  # the answer was lost
        add1 a 0:0 t-0          -> NONE
        commit1 a 0:0           -> 0:0
        abort1 a 0:0            -> INVALID_TXN_STATE
    """)


def test_who_gives_up_in_line_is_told_to_come_again_and_then_that_it_is_done() -> None:
    Coordinator().play("""
        init a                  -> 0:0
        add1 a 0:0 t-0          -> NONE
        commit1 a 0:0           -> 0:0
        add1 a 0:0 t-0          -> waits
        abort1 a 0:0            -> waits
        wait 100
        answer add              -> CONCURRENT_TRANSACTIONS
        answer abort            -> CONCURRENT_TRANSACTIONS
        marked a
        abort1 a 0:0            -> 0:0
        state a                 -> CompleteCommit
    """)


def test_who_asks_for_partitions_behind_an_abort_is_not_told_that_what_was_committed_is_aborted() -> None:
    Coordinator().play("""
        init a                  -> 0:0
        add1 a 0:0 t-0          -> NONE
        commit1 a 0:0           -> 0:0
        commit1 a 0:0           -> waits        # once more
        abort1 a 0:0            -> waits
        add1 a 0:0 t-1          -> waits
        marked a
        answer abort            -> INVALID_TXN_STATE
        answer add              -> NONE
    """)


def test_who_is_sent_away_a_second_time_may_give_up_too() -> None:
    Coordinator().play("""
        init a                  -> 0:0
        add1 a 0:0 t-0          -> NONE
        commit1 a 0:0           -> 0:0
        add1 a 0:0 t-0          -> waits
        commit1 a 0:0           -> waits
        verify a 0:0 t-0        -> waits
        add1 a 0:0 t-1          -> waits
        marked a
        wait 100
        answer add              -> CONCURRENT_TRANSACTIONS
        abort1 a 0:0            -> 0:0
    """)


def test_who_waits_is_told_to_look_for_the_new_coordinator() -> None:
    Coordinator().play("""
        init a                  -> 0:0
        add a 0:0 t-0           -> NONE
        commit a 0:0            -> 0:1
        add a 0:1 t-0           -> waits
        fail-over
        answer add              -> NOT_COORDINATOR
    """)


def test_markers_of_a_decided_transaction_are_sent_again_by_the_next_coordinator() -> None:
    coordinator = Coordinator()
    coordinator.play("""
        init a                  -> 0:0
        init b                  -> 1:0
        add a 0:0 t-0           -> NONE
        add b 1:0 t-0           -> NONE
        commit a 0:0            -> 0:1
        fail-over
        markers a               -> commit 0:1 t-0
        state b                 -> Ongoing
        marked a
        state a                 -> CompleteCommit
    """)
    assert len(coordinator.runtime.effects) == 1
    assert coordinator.effect("a").coordinator_epoch == 2, "the partitions fence the coordinator before"


@pytest.mark.parametrize("add", ["add", "verify"])
def test_who_is_not_the_producer_of_the_transaction_can_add_nothing(add: str) -> None:
    Coordinator().play(f"""
        {add} a 0:0 t-0         -> INVALID_PRODUCER_ID_MAPPING
        init a                  -> 0:0
        {add} a 7:0 t-0         -> INVALID_PRODUCER_ID_MAPPING
        {add} a 0:1 t-0         -> PRODUCER_FENCED
        init a                  -> 0:1
        {add} a 0:0 t-0         -> PRODUCER_FENCED
    """)


def test_a_partition_is_verified_only_in_the_transaction_that_it_was_added_to() -> None:
    Coordinator().play("""
        init a                  -> 0:0
        verify a 0:0 t-0        -> TRANSACTION_ABORTABLE
        add1 a 0:0 t-0          -> NONE
        verify a 0:0 t-0 t-1    -> NONE TRANSACTION_ABORTABLE
        abort1 a 0:0            -> 0:0
        verify a 0:0 t-0        -> waits
        marked a
        answer verify           -> TRANSACTION_ABORTABLE
    """)


def test_how_an_end_is_answered_by_the_protocol_before() -> None:
    Coordinator().play("""
        commit1 a 0:0           -> INVALID_PRODUCER_ID_MAPPING
        init a                  -> 0:0
        commit1 a 0:0           -> INVALID_TXN_STATE
        abort1 a 0:0            -> INVALID_TXN_STATE
        add1 a 0:0 t-0          -> NONE
        commit1 a 7:0           -> INVALID_PRODUCER_ID_MAPPING
        commit1 a 0:1           -> PRODUCER_FENCED
        commit1 a 0:0           -> 0:0
        abort1 a 0:0            -> INVALID_TXN_STATE
        commit1 a 0:0           -> waits
        marked a
        answer commit           -> 0:0
        commit1 a 0:0           -> 0:0
        abort1 a 0:0            -> INVALID_TXN_STATE
        add1 a 0:0 t-0          -> NONE
        abort1 a 0:0            -> 0:0
        commit1 a 0:0           -> INVALID_TXN_STATE
        marked a
        abort1 a 0:0            -> 0:0
        commit1 a 0:0           -> INVALID_TXN_STATE
    """)


def test_how_an_end_is_answered_by_transaction_version_2() -> None:
    Coordinator().play("""
        init a                  -> 0:0
        commit a 0:0            -> INVALID_TXN_STATE
        abort a 0:0             -> 0:1          # nothing to abort, and the epoch rises all the same
        state a                 -> CompleteAbort
        abort a 0:0             -> 0:1          # the answer was lost
        commit a 0:0            -> INVALID_TXN_STATE
        commit a 0:1            -> INVALID_TXN_STATE
        add a 0:1 t-0           -> NONE
        abort a 0:0             -> PRODUCER_FENCED
        commit a 0:1            -> 0:2
        commit a 0:1            -> waits
        abort a 0:1             -> INVALID_TXN_STATE
        commit a 0:2            -> waits        # the next transaction, which has nothing in it
        marked a
        answer commit           -> INVALID_TXN_STATE
        commit a 0:1            -> 0:2          # asked again after it was complete
        abort a 0:1             -> INVALID_TXN_STATE
        abort a 0:2             -> 0:3
        commit a 0:0            -> PRODUCER_FENCED
    """)


def test_the_next_transaction_may_be_ended_before_the_one_before_is_complete() -> None:
    """The producer goes on as soon as the end is decided. It is nobody's zombie, and must not be told so."""
    Coordinator().play("""
        init a                  -> 0:0
        add a 0:0 t-0           -> NONE
        commit a 0:0            -> 0:1
        abort a 0:1             -> waits
        marked a
        answer abort            -> 0:2
        add a 0:2 t-0           -> NONE
        abort a 0:2             -> 0:3
        abort a 0:3             -> waits
        marked a
        answer abort            -> 0:4
    """)


def test_hazard_6_an_end_that_comes_late_does_not_end_a_later_transaction() -> None:
    """Jepsen on Bufstream 0.1.0: with the protocol before, the second line would commit what the producer aborts."""
    Coordinator().play("""
        init a                  -> 0:0
        add a 0:0 t-0           -> NONE
        commit a 0:0            -> 0:1
        marked a
        add a 0:1 t-0           -> NONE
        commit a 0:0            -> PRODUCER_FENCED    # the first one again, from somewhere on the network
        state a                 -> Ongoing
        abort a 0:1             -> 0:2
    """)


def test_a_transaction_with_more_partitions_than_can_be_written_down_is_refused() -> None:
    coordinator = Coordinator()
    topics = [f"{'t' * 245}{number}-0" for number in range(5000)]
    assert coordinator.do("init", "a") == "0:0"
    assert coordinator.do("add", "a", "0:0", *topics) == "UNKNOWN_SERVER_ERROR"
    coordinator.play("""
        state a                 -> Empty
        add a 0:0 t-0           -> NONE
    """)
