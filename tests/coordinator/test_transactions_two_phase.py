"""Two-phase commit (KIP-939): somebody else decides, and the transaction outlives its producer."""

from __future__ import annotations

import pytest

from tests.coordinator.transaction_script import Coordinator


def two_phase() -> Coordinator:
    return Coordinator(transaction_two_phase_commit_enable=True)


def test_it_must_be_allowed() -> None:
    Coordinator().play("""
        init a 2pc              -> TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    """)
    two_phase().play("""
        init a keep             -> INVALID_REQUEST
        init a 2pc              -> 0:0
    """)


def test_such_a_transaction_has_no_time_out() -> None:
    two_phase().play("""
        init a 2pc timeout=-1   -> 0:0
        add a 0:0 t-0           -> NONE
        wait 864000000
        state a                 -> Ongoing
        fail-over
        wait 864000000
        commit a 0:0            -> 0:1
    """)


@pytest.mark.parametrize("end", ["commit", "abort"])
def test_a_producer_that_starts_again_may_keep_what_it_had_prepared_and_ends_it(end: str) -> None:
    two_phase().play(f"""
        init a 2pc              -> 0:0
        add a 0:0 t-0           -> NONE
        init a 2pc keep         -> 0:1 keeps 0:0
        {end} a 0:0             -> PRODUCER_FENCED
        add a 0:1 t-1           -> INVALID_TXN_STATE    # there is nothing to do with it but to end it
        init a 2pc keep         -> 0:2 keeps 0:0        # it crashed once more
        fail-over
        {end} a 0:1             -> PRODUCER_FENCED
        {end} a 0:2             -> 0:3
        markers a               -> {end} 0:3 t-0
        {end} a 0:2             -> waits
        marked a
        answer {end}            -> 0:3
        add a 0:3 t-0           -> NONE
    """)


def test_a_producer_that_starts_again_without_keeping_it_aborts_it() -> None:
    two_phase().play("""
        init a 2pc              -> 0:0
        add a 0:0 t-0           -> NONE
        init a 2pc keep         -> 0:1 keeps 0:0
        init a 2pc              -> waits
        markers a               -> abort 0:2 t-0
        marked a
        answer init             -> 0:3
    """)


def test_there_may_be_nothing_to_keep() -> None:
    two_phase().play("""
        init a 2pc keep         -> 0:0
        add a 0:0 t-0           -> NONE
        commit a 0:0            -> 0:1
        init a 2pc keep         -> waits        # until it is known how it ended
        marked a
        answer init             -> 0:2
    """)


def test_who_keeps_a_transaction_with_the_epochs_used_up_gets_another_id() -> None:
    two_phase().play("""
        init a 2pc              -> 0:0
        wear-out a 32766
        add a 0:32766 t-0       -> NONE
        init a 2pc keep         -> 1:0 keeps 0:32766
        init a 2pc keep         -> 1:1 keeps 0:32766
        commit a 1:0            -> PRODUCER_FENCED
        commit a 1:1            -> 1:2
        markers a               -> commit 0:32767 t-0
        fail-over
        commit a 1:1            -> waits
        marked a
        answer commit           -> 1:2
        add a 1:2 t-0           -> NONE
    """)
