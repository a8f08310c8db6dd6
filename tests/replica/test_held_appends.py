"""Turns of one partition's appends."""

from __future__ import annotations

from headrace.replica.held_appends import HeldAppends, Turn


def test_appends_run_in_the_order_in_which_they_came_whatever_is_released_first() -> None:
    line, ran = HeldAppends(), list[str]()
    first = line.hold(lambda: ran.append("first"))
    second = line.hold(lambda: ran.append("second"))
    third = line.hold(lambda: ran.append("third"))
    second.release()
    assert (ran, bool(line)) == ([], True)
    first.release()
    assert (ran, len(line)) == (["first", "second"], 1)
    third.release()
    assert (ran, bool(line)) == (["first", "second", "third"], False)


def test_an_append_that_releases_or_joins_does_not_run_inside_of_another() -> None:
    line, ran = HeldAppends(), list[str]()

    def begins() -> None:
        later.release()
        line.hold(lambda: ran.append("joined")).release()
        ran.append("first")

    first = line.hold(begins)
    later: Turn = line.hold(lambda: ran.append("later"))
    first.release()
    assert ran == ["first", "later", "joined"]


def test_one_that_fails_does_not_hold_the_others() -> None:
    line, ran = HeldAppends(), list[str]()

    def fails() -> None:
        raise ValueError("as planned")

    failing = line.hold(fails)
    line.hold(lambda: ran.append("after")).release()
    failing.release()
    assert (ran, bool(line)) == (["after"], False)
