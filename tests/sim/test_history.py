"""The checker finds each anomaly in a history that has it, and nothing in one that has none."""

from __future__ import annotations

import pytest

from headrace.testing.sim.history import Entry, History, Kind, MachineCrash, Outcome, Poll, Promise, Write

ACKED, MAYBE, REFUSED = Outcome.ACKNOWLEDGED, Outcome.MAYBE, Outcome.REFUSED


def write(
    value: str,
    at: float,
    offset: int | None = None,
    *,
    outcome: Outcome | None = None,
    producer: str = "p",
    promise: Promise = Promise.PROCESS_CRASHES,
    at_most_once: bool = True,
    in_order: bool = True,
    visible_from: float | None = None,
) -> Write:
    """Sent at a time, answered a tenth later; without an offset nobody answered."""
    outcome = outcome or (MAYBE if offset is None else ACKED)
    end = float("inf") if outcome is MAYBE else at + 0.1
    return Write(
        value, 0, producer, at, end, outcome, offset, promise, at_most_once, in_order, visible_from=visible_from
    )


def poll(at: float, *entries: tuple[int, str], by: str = "c", session: int = 0, last: bool = False) -> Poll:
    return Poll(by, session, 0, at, at + 0.1, [Entry(*entry) for entry in entries], reads_to_end=last)


def kinds(writes: list[Write], polls: list[Poll], crashes: tuple[float, ...] = (), hosts: str = "a") -> list[Kind]:
    machine_crashes = [MachineCrash(at, host) for at, host in zip(crashes, hosts * len(crashes), strict=False)]
    return [anomaly.kind for anomaly in History(writes, polls, machine_crashes).anomalies()]


GOOD = [write("a", 1, 0), write("b", 2, 1), write("c", 3, 2)]


def test_a_good_history_has_no_anomaly() -> None:
    everything = poll(9, (0, "a"), (1, "b"), (2, "c"), last=True, by="final")
    assert kinds(GOOD, [poll(4, (0, "a"), (1, "b")), poll(5, (2, "c")), everything]) == []
    assert kinds([], []) == []


def test_partitions_are_looked_at_one_by_one() -> None:
    other = Write("x", 1, "p", 1, 1.1, ACKED, 0)
    there = Poll("c", 0, 1, 4, 4.1, [Entry(0, "x")], reads_to_end=True)
    assert kinds([*GOOD, other], [poll(9, (0, "a"), (1, "b"), (2, "c"), last=True), there]) == []


# --- each anomaly -----------------------------------------------------------------------------------------------------


def test_an_acknowledged_write_that_is_not_there_at_the_end_is_lost() -> None:
    assert kinds(GOOD, [poll(9, (0, "a"), (1, "b"), last=True)]) == [Kind.LOST_WRITE]


def test_an_acknowledged_write_that_readers_passed_is_lost() -> None:
    found = kinds(GOOD, [poll(9, (0, "a"), (2, "c"))])
    assert found == [Kind.LOST_WRITE, Kind.GAP]


def test_what_lies_beyond_all_reads_is_not_lost_yet() -> None:
    assert kinds(GOOD, [poll(9, (0, "a"))]) == []


def test_a_write_that_was_sent_after_the_last_read_began_is_not_lost() -> None:
    assert kinds([*GOOD, write("d", 10, 3)], [poll(9, (0, "a"), (1, "b"), (2, "c"), last=True)]) == []


def test_a_value_at_two_offsets_is_a_duplicate() -> None:
    assert kinds(GOOD[:1], [poll(9, (0, "a"), (1, "a"))]) == [Kind.DUPLICATE]


def test_a_maybe_is_there_once_at_most() -> None:
    assert kinds([write("a", 1)], [poll(9, (0, "a"), (1, "a"), last=True)]) == [Kind.DUPLICATE]


def test_a_value_that_stands_elsewhere_than_its_acknowledgement_said_is_a_duplicate() -> None:
    assert kinds([write("a", 1, 7)], [poll(9, (0, "a"), last=True)]) == [Kind.DUPLICATE]


def test_a_producer_that_is_not_idempotent_may_write_twice() -> None:
    assert kinds([write("a", 1, 0, at_most_once=False)], [poll(9, (0, "a"), (1, "a"))]) == []


def test_writes_of_one_producer_in_the_wrong_order_are_reordered() -> None:
    writes = [write("a", 1), write("b", 1.01)]
    assert kinds(writes, [poll(9, (0, "b"), (1, "a"), last=True)]) == [Kind.REORDERED]


def test_a_write_sent_after_another_was_acknowledged_stands_behind_it() -> None:
    writes = [write("a", 1, 1, producer="p"), write("b", 2, 0, producer="q")]
    assert kinds(writes, [poll(9, (0, "b"), (1, "a"), last=True)]) == [Kind.REORDERED]
    at_the_same_time = [write("a", 1, 1, producer="p"), write("b", 1.05, 0, producer="q")]
    assert kinds(at_the_same_time, [poll(9, (0, "b"), (1, "a"), last=True)]) == []


def test_a_producer_without_order_keeps_the_order_of_its_acknowledgements() -> None:
    overlapping = [write("a", 1, 1, in_order=False), write("b", 1.05, 0, in_order=False)]
    assert kinds(overlapping, [poll(9, (0, "b"), (1, "a"), last=True)]) == []
    one_by_one = [write("a", 1, 1, in_order=False), write("b", 2, 0, in_order=False)]
    assert kinds(one_by_one, [poll(9, (0, "b"), (1, "a"), last=True)]) == [Kind.REORDERED]


def test_two_values_at_one_offset_are_divergent() -> None:
    writes = [write("a", 1), write("b", 1, producer="q")]
    assert kinds(writes, [poll(4, (0, "a"), by="c"), poll(5, (0, "b"), by="d")]) == [Kind.DIVERGENT]


def test_an_acknowledgement_and_a_read_that_disagree_are_divergent() -> None:
    found = kinds([write("a", 1, 0), write("b", 1, producer="q")], [poll(5, (0, "b"), last=True)])
    assert found == [Kind.DIVERGENT, Kind.LOST_WRITE]


def test_a_poll_that_skips_what_is_there_for_good_has_a_gap() -> None:
    others = poll(9, (0, "a"), (1, "b"), (2, "c"), by="d")
    assert kinds(GOOD, [poll(4, (0, "a")), poll(5, (2, "c")), others]) == [Kind.GAP]


def test_offsets_that_hold_no_records_are_no_gap() -> None:
    writes = [write("a", 1, 0), write("b", 2, 5)]
    assert kinds(writes, [poll(4, (0, "a"), (5, "b"), last=True)]) == []


@pytest.mark.parametrize("second", [1, 0])
def test_a_session_that_goes_back_has_an_inversion(second: int) -> None:
    polls = [poll(4, (0, "a"), (1, "b")), poll(5, (second, "ab"[second])), poll(9, (0, "a"), by="d")]
    assert kinds(GOOD[:2], polls) == [Kind.INVERSION]


def test_a_new_session_may_go_back() -> None:
    polls = [poll(4, (0, "a"), (1, "b")), poll(5, (0, "a"), (1, "b"), session=1)]
    assert kinds(GOOD[:2], polls) == []


def test_what_nobody_wrote_is_a_phantom() -> None:
    assert kinds(GOOD[:1], [poll(4, (0, "a"), (1, "?"))]) == [Kind.PHANTOM]


def test_what_was_refused_or_aborted_is_not_read() -> None:
    assert kinds([write("a", 1, outcome=REFUSED)], [poll(4, (0, "a"))]) == [Kind.REFUSED_READ]


def test_nothing_is_read_before_it_was_sent_or_before_its_commit_was_asked_for() -> None:
    assert kinds([write("a", 5, 0)], [poll(4, (0, "a"))]) == [Kind.READ_TOO_EARLY]
    assert kinds([write("a", 1, 0, visible_from=5)], [poll(4, (0, "a"))]) == [Kind.READ_TOO_EARLY]
    assert kinds([write("a", 1, 0, visible_from=3)], [poll(4, (0, "a"))]) == []


# --- maybe ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("entries", [[(0, "a"), (1, "b")], [(0, "a")]])
def test_what_nobody_answered_may_be_there_or_not(entries: list[tuple[int, str]]) -> None:
    assert kinds([write("a", 1, 0), write("b", 2)], [poll(9, *entries, last=True)]) == []


def test_an_acknowledgement_that_promises_nothing_may_be_lost() -> None:
    assert kinds([write("a", 1, 0, promise=Promise.NOTHING)], [poll(9, last=True)]) == []


def test_what_was_read_once_is_there_for_good() -> None:
    polls = [poll(4, (0, "a")), poll(9, last=True)]
    assert kinds([write("a", 1)], polls) == [Kind.LOST_WRITE]
    assert kinds([write("a", 1)], polls, crashes=(5,)) == []
    assert kinds([write("a", 1, promise=Promise.ALL_MACHINES)], polls, crashes=(5,)) == [Kind.LOST_WRITE]


# --- two kinds of crash -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("promise", "crashes", "is_lost"),
    [
        (Promise.PROCESS_CRASHES, (), True),  # crashes of processes are in no history: they excuse nothing
        (Promise.PROCESS_CRASHES, (5,), False),
        (Promise.PROCESS_CRASHES, (0.5,), True),  # before it was sent
        (Promise.ONE_MACHINE, (5,), True),
        (Promise.ONE_MACHINE, (5, 6), False),
        (Promise.ALL_MACHINES, (5, 6, 7), True),
    ],
)
def test_what_a_write_was_promised_says_what_it_survives(
    promise: Promise, crashes: tuple[float, ...], is_lost: bool
) -> None:
    found = kinds([write("a", 1, 0, promise=promise)], [poll(9, last=True)], crashes, hosts="abc")
    assert found == ([Kind.LOST_WRITE] if is_lost else [])


def test_one_machine_that_crashes_twice_is_one_machine() -> None:
    lost = kinds([write("a", 1, 0, promise=Promise.ONE_MACHINE)], [poll(9, last=True)], (5, 6), hosts="a")
    assert lost == [Kind.LOST_WRITE]


def test_after_a_loss_of_power_an_offset_may_hold_another_value_for_good() -> None:
    writes = [write("a", 1, 0), write("b", 6, 0, producer="q")]
    before, after = poll(4, (0, "a")), poll(7, (0, "b"), session=1)
    assert kinds(writes, [before, after], crashes=(5,)) == []
    assert kinds(writes, [before, after], crashes=()) == [Kind.DIVERGENT]
    assert kinds(writes, [before, after], crashes=(3,)) == [Kind.DIVERGENT], "the crash was before the first was read"
    back = poll(8, (0, "a"), session=2)
    assert Kind.DIVERGENT in kinds(writes, [before, after, back], crashes=(5,)), "a value that comes back"


def test_a_retry_may_come_to_its_old_offset_again_after_another_loss_of_power() -> None:
    writes = [write("a", 1, at_most_once=False), write("b", 6, 0, producer="q")]
    polls = [poll(4, (0, "a")), poll(7, (0, "b"), session=1), poll(9, (0, "a"), session=2)]
    assert kinds(writes, polls, crashes=(5, 8)) == []
    assert kinds(writes, polls, crashes=(5,)) == [Kind.DIVERGENT], "nothing took the second"
    writes[0].at_most_once = True
    assert Kind.DIVERGENT in kinds(writes, polls, crashes=(5, 8)), "it is sent once, and so it is not there again"


def test_after_a_loss_of_power_a_retry_may_stand_elsewhere() -> None:
    writes = [write("a", 1)]
    assert kinds(writes, [poll(4, (5, "a")), poll(7, (2, "a"), session=1)], crashes=(5,)) == []
    assert kinds(writes, [poll(4, (5, "a")), poll(7, (2, "a"), session=1)]) == [Kind.DUPLICATE]


def test_one_session_does_not_read_a_value_twice_whatever_crashed() -> None:
    polls = [poll(4, (5, "a")), poll(7, (8, "a"))]
    assert kinds([write("a", 1)], polls, crashes=(5,)) == [Kind.DUPLICATE]
    others = [poll(4, (2, "a")), poll(7, (2, "b"), (5, "a"), session=1)]
    assert kinds([write("a", 1), write("b", 1, producer="q")], others, crashes=(5,)) == []


def test_a_reader_of_what_a_crash_took_is_told() -> None:
    writes = [write("a", 1, 0), write("x", 2, 1), write("b", 6, 1), write("c", 7, 2)]
    final = poll(9, (0, "a"), (1, "b"), (2, "c"), last=True, by="final")
    untold = [poll(4, (0, "a"), (1, "x")), poll(8, (2, "c")), final]
    assert kinds(writes, untold, crashes=(5,)) == [Kind.NOT_TOLD]
    told = [poll(4, (0, "a"), (1, "x")), poll(8, (0, "a"), (1, "b"), (2, "c"), session=1), final]
    assert kinds(writes, told, crashes=(5,)) == []


def test_an_anomaly_is_a_sentence() -> None:
    (anomaly,) = History(GOOD, [poll(9, (0, "a"), (1, "b"), last=True)]).anomalies()
    assert str(anomaly) == (
        "lost write in partition 0: 'c', acknowledged at offset 2 (process crashes), is not there at the end"
    )
