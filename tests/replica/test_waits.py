from __future__ import annotations

from collections.abc import Callable
from functools import partial

from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import Error
from headrace.replica.waits import CANCELLED_MIN, OffsetWaits, Waits
from tests.replica.hosts import SteppedLoop


def new_waits() -> tuple[SteppedLoop, Waits]:
    loop = SteppedLoop()
    return loop, Waits(loop.call_at, loop.time)


@given(st.lists(st.tuples(st.integers(0, 50), st.booleans()), max_size=30), st.lists(st.integers(0, 20), max_size=5))
def test_all_that_is_not_cancelled_is_called_at_its_time_in_order(
    asked: list[tuple[int, bool]], pauses: list[int]
) -> None:
    loop, waits = new_waits()
    called: list[tuple[float, int]] = []

    def call(number: int) -> None:
        called.append((round((loop.now_s - 1000) * 1000, 3), number))

    handles = [waits.after_ms(delay_ms, partial(call, number)) for number, (delay_ms, _) in enumerate(asked)]
    for handle, (_, is_cancelled) in zip(handles, asked, strict=True):
        if is_cancelled:
            handle.cancel()
    for pause_ms in (*pauses, 100):
        loop.pass_ms(pause_ms)
    expected = sorted((delay_ms, number) for number, (delay_ms, is_cancelled) in enumerate(asked) if not is_cancelled)
    assert called == expected
    assert len(waits) == 0


def test_a_callback_that_fails_or_asks_again_does_not_hold_up_the_others() -> None:
    loop, waits = new_waits()
    called: list[str] = []

    def fails() -> None:
        waits.after_ms(0, lambda: called.append("again"))
        raise ValueError

    waits.after_ms(1, fails)
    waits.after_ms(1, lambda: called.append("other"))
    loop.pass_ms(2)
    assert called == ["other", "again"]


def test_cancelled_entries_are_dropped_later_too_when_a_callback_made_the_heap_be_cleaned() -> None:
    """Those of the heap before were counted off once more, and thousands would have had to be cancelled first."""
    loop, waits = new_waits()

    def ask_twice() -> None:
        waits.after_ms(1000, lambda: None)
        waits.after_ms(1000, lambda: None)

    waits.after_ms(1, ask_twice)
    for handle in [waits.after_ms(2, lambda: None) for _ in range(3 * CANCELLED_MIN)]:
        handle.cancel()
    loop.pass_ms(2)
    for handle in [waits.after_ms(1000, lambda: None) for _ in range(2 * CANCELLED_MIN)]:
        handle.cancel()
    waits.after_ms(1000, lambda: None)
    assert len(waits) < CANCELLED_MIN


def test_a_callback_that_asks_for_later_does_not_put_off_what_is_due_before() -> None:
    """A long poll went unanswered when a task of the upkeep set itself up again while it waited."""
    loop, waits = new_waits()
    called: list[str] = []

    def ask_for_later() -> None:
        waits.after_ms(300_000, lambda: called.append("much later"))

    waits.after_ms(1, ask_for_later)
    waits.after_ms(500, lambda: called.append("a long poll"))
    loop.pass_ms(2)
    loop.pass_ms(500)
    assert called == ["a long poll"]


def test_cancelled_waits_do_not_pile_up() -> None:
    _, waits = new_waits()
    for _ in range(10 * CANCELLED_MIN):
        waits.after_ms(30_000, lambda: None).cancel()
    assert len(waits) <= 3 * CANCELLED_MIN


def test_a_wait_that_is_cancelled_twice_or_too_late_is_harmless() -> None:
    loop, waits = new_waits()
    called: list[int] = []
    wait = waits.after_ms(1, lambda: called.append(1))
    loop.pass_ms(5)
    wait.cancel()
    wait.cancel()
    waits.after_ms(1, lambda: called.append(2))
    loop.pass_ms(5)
    assert called == [1, 2]


def test_offsets_are_reached_in_their_order_and_a_duplicate_waits_for_its_original_only() -> None:
    waits, told = OffsetWaits(), list[tuple[int, Error]]()

    def tell(offset: int) -> Callable[[Error], None]:
        return lambda error: told.append((offset, error))

    for offset in (3, 6, 4):
        waits.add(offset, tell(offset))
    waits.reached(5)
    assert told == [(3, Error.NONE), (4, Error.NONE)]
    waits.fail(Error.KAFKA_STORAGE_ERROR)
    assert told[2:] == [(6, Error.KAFKA_STORAGE_ERROR)]
    assert not len(waits)
