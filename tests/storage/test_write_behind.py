"""Write-behind: in small pieces as long as it keeps up, all at once when it does not."""

from __future__ import annotations

import pytest

from headrace.storage.disk import File
from headrace.storage.write_behind import PIECE_BYTES, WriteBehind
from headrace.testing.disk import FaultyDisk
from headrace.testing.workers import SteppedWorkers

MEGABYTE = 1 << 20


class Ranges:
    """A file that notes of which ranges the write-back was started, and what else happens meanwhile."""

    def __init__(self) -> None:
        self.file: File = FaultyDisk().open("a", create=True)
        self.started: list[tuple[int, int]] = []
        self.workers = SteppedWorkers()
        self.pauses = 0
        self.more_after = 0
        self.behind = WriteBehind(self.workers, self._pause)

    def drain(self) -> None:
        while len(self.workers):
            self.workers.step()

    def _pause(self, seconds: float) -> None:
        self.pauses += 1
        if self.pauses == self.more_after:
            self.behind.start(self.file, MEGABYTE, MEGABYTE)


def ranges_of(found: Ranges, monkeypatch: pytest.MonkeyPatch) -> None:
    def start_writeback(position: int, size: int) -> None:
        found.started.append((position, size))

    monkeypatch.setattr(type(found.file), "start_writeback", lambda self, at, size: start_writeback(at, size))


def test_what_keeps_up_goes_in_pieces_that_are_all_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    found = Ranges()
    ranges_of(found, monkeypatch)
    found.behind.start(found.file, 100, MEGABYTE)
    found.drain()
    assert found.started == [(100 + at, PIECE_BYTES) for at in range(0, MEGABYTE, PIECE_BYTES)]
    assert found.pauses == len(found.started) - 1
    assert found.behind.is_idle


def test_when_more_comes_meanwhile_the_rest_goes_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    found = Ranges()
    found.more_after = 2
    ranges_of(found, monkeypatch)
    found.behind.start(found.file, 0, MEGABYTE)
    found.workers.step()
    rest = MEGABYTE - 2 * PIECE_BYTES
    assert found.started == [(0, PIECE_BYTES), (PIECE_BYTES, PIECE_BYTES), (2 * PIECE_BYTES, rest)]
    found.drain()
    assert sum(size for _, size in found.started) == 2 * MEGABYTE
    assert found.behind.is_idle


def test_without_pauses_there_are_no_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    found = Ranges()
    ranges_of(found, monkeypatch)
    behind = WriteBehind(found.workers)
    behind.start(found.file, 0, MEGABYTE)
    found.drain()
    assert found.started == [(0, MEGABYTE)]
