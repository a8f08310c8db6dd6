"""The rules of the high watermark, alone: random appends and flushes against a model that remembers every record."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headrace.replica.in_sync import NEVER, InSync

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.booleans(), st.integers(1, 3)),
        st.tuples(st.just("flush"), st.just(False), st.just(0)),
        st.tuples(st.just("flushed"), st.booleans(), st.integers(0, 3)),
        st.tuples(st.just("failed"), st.just(False), st.just(0)),
    ),
    max_size=60,
)


def alone() -> InSync:
    made = InSync()
    made.set_replicas((1,), (1,), 1)
    return made


@given(STEPS)
def test_the_high_watermark_of_one_replica_is_never_past_a_promised_record_that_is_not_on_the_disk(
    steps: list[tuple[str, bool, int]],
) -> None:
    in_sync, mark, log_end, point = alone(), 0, 0, 0
    promised: list[int] = []
    flushes: list[int] = []
    for kind, flag, number in steps:
        if kind == "append":
            if flag:
                in_sync.must_sync(log_end)
                promised.append(log_end)
            log_end += number
        elif kind == "flush":
            in_sync.flushing(log_end)
            flushes.append(log_end)
        elif kind == "flushed" and flushes:  # in any order
            point = max(point, flushes.pop(number % len(flushes) if flag else 0))
            in_sync.flushed(point)
        elif kind == "failed":
            in_sync.not_flushed()
        before, mark = mark, in_sync.high_watermark(mark, log_end)
        not_there = [offset for offset in promised if offset >= point]
        assert before <= mark <= min([log_end, *not_there])
    in_sync.flushing(log_end)
    in_sync.flushed(log_end)
    assert in_sync.high_watermark(mark, log_end) == log_end
    assert in_sync.bound == NEVER


@given(STEPS)
def test_whatever_nobody_promised_is_visible_at_once(steps: list[tuple[str, bool, int]]) -> None:
    in_sync, mark, log_end, point = alone(), 0, 0, 0
    promised: list[int] = []
    for kind, flag, number in steps:
        if kind == "append":
            if flag:
                in_sync.must_sync(log_end)
                promised.append(log_end)
            log_end += number
        elif kind == "flush":
            in_sync.flushing(log_end)
            point = log_end
            in_sync.flushed(point)
        mark = in_sync.high_watermark(mark, log_end)
        assert mark == min([log_end, *(offset for offset in promised if offset >= point)])


def test_below_min_insync_replicas_nothing_more_becomes_visible() -> None:
    in_sync = InSync()
    in_sync.set_replicas((1, 2), (1,), 2)
    assert not in_sync.is_enough
    assert in_sync.high_watermark(3, 5) == 3


def test_min_insync_replicas_above_the_number_of_replicas_asks_for_all_of_them() -> None:
    in_sync = InSync()
    in_sync.set_replicas((1,), (1,), 3)
    assert in_sync.is_enough


def test_one_flush_is_asked_for_whatever_is_promised_before_it_begins() -> None:
    in_sync = alone()
    assert [in_sync.must_sync(offset) for offset in (0, 1, 2)] == [True, False, False]
    in_sync.flushing(3)
    assert in_sync.must_sync(3)
