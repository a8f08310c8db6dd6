"""Which half seconds of a measurement count is decided by the machine's host alone."""

from __future__ import annotations

from bench.node.calm import Acknowledgements, Figures, calm_of
from bench.node.load import Result


def measured(*slices: tuple[int, list[int]], seconds: float | None = None) -> Acknowledgements:
    found = Acknowledgements()
    found.add(Result(1.0, 0.1, slices=slices), seconds)
    return found


def calm(found: Acknowledgements) -> Figures:
    return calm_of([found])[0]


def test_the_calmest_quarter_counts_however_long_anything_took() -> None:
    noisy = [(9, [1_000])] * 4
    slow_and_calm = [(0, [50_000])] * 3
    found = measured(*noisy, *slow_and_calm, *noisy)
    assert calm(found).p50_ms == 50.0
    assert calm(found).stolen_percent == 0
    assert found.all.p50_ms == 1.0


def test_what_was_stolen_in_the_next_half_second_counts_too() -> None:
    """Who waited at the end of one waited there."""
    found = measured((0, [9_000]), (5, [1_000]), (0, [2_000]), (0, [3_000]), (5, [1_000]))
    assert calm(found).p99_ms == 2.0


def test_all_that_are_as_calm_count() -> None:
    found = measured(*[(0, [latency]) for latency in (1_000, 2_000, 3_000, 4_000, 5_000)])
    assert (calm(found).p50_ms, found.all.p50_ms) == (3.0, 3.0)


def test_who_is_compared_is_held_to_the_same() -> None:
    quiet = measured(*[(0, [1_000])] * 4, *[(9, [8_000])] * 8)
    busy = measured(*[(9, [2_000])] * 8)
    assert [one.p99_ms for one in calm_of([quiet, busy])] == [8.0, 2.0]
    assert calm(quiet).p99_ms == 1.0


def test_a_round_may_be_shorter_than_a_half_second() -> None:
    found = measured((3, [1_000]), seconds=0.2)
    assert (calm(found).p50_ms, found.all.p50_ms) == (1.0, 1.0)


def test_only_the_first_seconds_of_a_round_may_count() -> None:
    found = measured((0, [1_000]), (0, [1_000]), (0, [7_000]), (0, [7_000]), seconds=1.6)
    assert found.all.p99_ms == 1.0
