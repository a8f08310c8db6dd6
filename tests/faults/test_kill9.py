"""The short form of the campaign; the long one is a command."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.compat.process import Process
from tests.faults.kill9 import PARTITIONS, Place, Reader, Sent, campaign, check


def test_nothing_acknowledged_is_lost_by_a_kill_under_load(tmp_path: Path) -> None:
    if os.environ.get("HEADRACE_COMPAT_BOOTSTRAP"):
        pytest.skip("the node that HEADRACE_COMPAT_BOOTSTRAP names is not ours to kill")
    assert campaign(2, tmp_path, seed=1, told=lambda done, count: None) > 0


def a_load(values: list[bytes]) -> tuple[Sent, dict[Place, list[bytes]]]:
    """What a producer was told that is stored, and where it is."""
    load = Sent("topic", None, must_all_arrive=True, count=len(values))
    stored: dict[Place, list[bytes]] = {("topic", index): values[index::PARTITIONS] for index in range(PARTITIONS)}
    for (topic, index), some in stored.items():
        load.acknowledged |= {((topic, index), offset): value for offset, value in enumerate(some)}
    return load, stored


def no_reader() -> Reader:
    reader = Reader.__new__(Reader)
    reader.seen, reader.faults = {}, []
    return reader


@pytest.mark.parametrize(
    ("damage", "found"),
    [
        (lambda values: values.pop(), "is missing"),
        (lambda values: values.__setitem__(1, b"4711"), "acknowledged was"),
        (lambda values: values.append(values[0]), "has something twice"),
        (lambda values: values.append(b"1000"), "has gaps"),
        (lambda values: values.append(b"-1"), "is out of order"),
    ],
)
def test_the_checker_finds_what_was_lost_changed_doubled_or_moved(
    damage: Callable[[list[bytes]], object], found: str
) -> None:
    load, stored = a_load([b"%d" % number for number in range(20)])
    check([load], no_reader(), stored)
    damage(stored["topic", 0])
    with pytest.raises(AssertionError, match=found):
        check([load], no_reader(), stored)


def test_the_checker_finds_a_value_that_changed_since_it_was_read() -> None:
    load, stored = a_load([b"%d" % number for number in range(20)])
    reader = no_reader()
    reader.seen[("topic", 0), 3] = b"another"
    with pytest.raises(AssertionError, match="offset 3 changed"):
        check([load], reader, stored)


def test_a_loss_on_the_disk_between_two_lives_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last acknowledged bytes of a log are cut off while the node is dead: as if they had never been written."""
    if os.environ.get("HEADRACE_COMPAT_BOOTSTRAP"):
        pytest.skip("the node that HEADRACE_COMPAT_BOOTSTRAP names is not ours to kill")
    kill = Process.kill

    def kill_and_cut(node: Process) -> None:
        kill(node)
        # Of the topic that was made last, whose producer never retries: the other would end with a fatal error.
        folders = sorted(
            node.data.glob("compat.*"), key=lambda folder: (folder / "partition.metadata").stat().st_mtime_ns
        )
        for log in (log for folder in folders[PARTITIONS:] for log in folder.glob("*.log")):
            os.truncate(log, log.stat().st_size // 2)

    monkeypatch.setattr(Process, "kill", kill_and_cut)
    with pytest.raises(AssertionError, match=r"is missing|went back|acknowledged was"):
        campaign(2, tmp_path, seed=1, told=lambda done, count: None)
