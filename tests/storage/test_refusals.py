"""Appends that a disk has no room for are told of once, and then by their number."""

from __future__ import annotations

import pytest

from headrace.storage.refusals import SILENT_MS, Refusals


def test_refusals_are_told_of_at_once_and_then_by_their_number(caplog: pytest.LogCaptureFixture) -> None:
    refusals = Refusals()
    for now_ms in (1000, 1001, 1000 + SILENT_MS - 1, 1000 + SILENT_MS):
        refusals.note("t-0 refuses an append", OSError("no room"), now_ms)
    assert [record.getMessage() for record in caplog.records] == [
        "t-0 refuses an append: no room",
        "t-0 refuses an append: no room (and 2 more since this was last said)",
    ]


def test_another_reason_is_told_of_at_once(caplog: pytest.LogCaptureFixture) -> None:
    refusals = Refusals()
    refusals.note("t-0 refuses an append", OSError("no room"), 1000)
    refusals.note("t-0 refuses an append", MemoryError("no memory"), 1001)
    assert len(caplog.records) == 2


def test_a_clock_that_is_set_back_does_not_silence_it(caplog: pytest.LogCaptureFixture) -> None:
    refusals = Refusals()
    refusals.note("now", OSError(), 10 * SILENT_MS)
    refusals.note("and long before", OSError(), 0)
    assert len(caplog.records) == 2
