"""When those who send large replies rest."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from headrace.broker.senders import AFTER_S, RESTS, Senders
from headrace.metrics.requests import RequestFigures
from headrace.net.sending import Done


class Thread:
    def __init__(self) -> None:
        self.jobs: list[Any] = []

    def run(self, job: Callable[[], Any], done: Done) -> None:
        self.jobs.append((job, done))


@pytest.mark.parametrize(("cores", "most"), [(1, RESTS), (4, RESTS), (5, 0)])
def test_they_rest_while_records_are_produced_and_a_little_longer_where_they_share_processors(
    cores: int, most: int
) -> None:
    now_s = 100.0
    senders = Senders([Thread(), Thread(), Thread()], cores, lambda: now_s)
    sender = senders.of(1)

    def rests() -> int:
        return sender.rests

    assert not rests(), "nobody tells what is produced"
    senders.produced = figures = RequestFigures("Produce")
    assert not rests()
    for kind in (figures.at_once, figures.total):
        kind.observe(10_000)
        assert rests() == most
        now_s += AFTER_S / 2
        assert rests() == most
        kind.observe(10_000)
        assert rests() == most
        now_s += AFTER_S * 0.9
        assert rests() == most
        now_s += AFTER_S / 2
        assert not rests()


def test_what_was_produced_long_before_gives_nobody_a_rest() -> None:
    now_s = 100.0
    senders = Senders([Thread()], 1, lambda: now_s)
    senders.produced = figures = RequestFigures("Produce")
    for _ in range(2):
        figures.at_once.observe(10_000)
        assert not senders.of(1).rests, "nobody has looked for a while"
        now_s += AFTER_S
    now_s -= AFTER_S / 2
    figures.at_once.observe(10_000)
    assert senders.of(1).rests


def test_a_connection_has_one_of_the_threads() -> None:
    threads = [Thread(), Thread(), Thread()]
    senders = Senders(threads, 2, lambda: 0.0)
    for port in (7, 8, 9, 7):
        senders.of(port).run(lambda: None, lambda result, error: None)
    assert [len(thread.jobs) for thread in threads] == [1, 2, 1]
    assert senders
    assert not Senders([], 2, lambda: 0.0)
