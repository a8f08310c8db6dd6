"""Bytes of a file on their way to a socket: what is sent, what is asked for meanwhile, and who is let pass."""

from __future__ import annotations

import errno
import os
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.net import file_send, sending
from headrace.net.file_send import NAPS_MAX, REST_US_MAX, STEP_BYTES
from tests.net.sent_files import OneSender, SentFile
from tests.plain_forms import plain_form

CALM = bytearray(1)
CONTENT = os.urandom(1 << 20) * 3


PLAIN = plain_form("net/file_send.py")
FORMS = pytest.mark.parametrize("form", [file_send, PLAIN], ids=lambda form: form.__name__)


@pytest.fixture(scope="module")
def descriptor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    path = tmp_path_factory.mktemp("sent") / "file"
    path.write_bytes(CONTENT)
    opened = os.open(path, os.O_RDONLY)
    yield opened
    os.close(opened)


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    left, right = socket.socketpair()
    left.setblocking(False)
    yield left, right
    left.close()
    right.close()


class Calls:
    """What the plain form asks of the system."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: list[tuple[int, int]] = []
        self.order: list[str] = []
        self.naps = 0
        self.sync_beats = bytearray([1])
        self.ends_after = -1
        """So many naps."""
        self._sendfile = os.sendfile
        monkeypatch.setattr(os, "posix_fadvise", self._advise)
        monkeypatch.setattr(os, "sendfile", self._send)
        monkeypatch.setattr(PLAIN.time, "sleep", self._nap)

    def _advise(self, descriptor: int, start: int, size: int, advice: int) -> None:
        if advice == os.POSIX_FADV_WILLNEED:
            self.asked.append((start, size))
            self.order.append("asked")

    def _send(self, *arguments: Any) -> int:
        self.order.append("sent")
        return self._sendfile(*arguments)

    def _nap(self, seconds: float) -> None:
        self.naps += 1
        if self.naps == self.ends_after:
            self.sync_beats[0] += 1


@FORMS
@given(st.integers(0, len(CONTENT)), st.integers(0, len(CONTENT)), st.integers(0, 4 << 20))
def test_what_the_socket_takes_is_sent_and_counted(
    form: Any, descriptor: int, position: int, size: int, ahead_size: int
) -> None:
    left, right = socket.socketpair()
    with left, right:
        left.setblocking(False)
        sent = form.send(left.fileno(), descriptor, position, size, position + size, ahead_size, CALM, 0)
        left.close()
        if not size or position == len(CONTENT):
            assert sent == 0
            return
        assert 0 < sent <= min(size, len(CONTENT) - position)
        received = bytearray()
        while piece := right.recv(1 << 20):
            received += piece
        assert received == CONTENT[position : position + sent]


@FORMS
def test_a_socket_that_takes_nothing_is_told_by_its_number(
    form: Any, descriptor: int, ends: tuple[socket.socket, socket.socket]
) -> None:
    to = ends[0].fileno()
    while form.send(to, descriptor, 0, len(CONTENT), 0, 0, CALM, 0) > 0:
        pass
    assert form.send(to, descriptor, 0, len(CONTENT), 0, 0, CALM, 0) == -errno.EAGAIN
    ends[1].close()
    assert form.send(to, descriptor, 0, len(CONTENT), 0, 0, CALM, 0) == -errno.EPIPE


@FORMS
def test_a_sync_that_does_not_end_is_not_waited_for_for_ever(
    form: Any, descriptor: int, ends: tuple[socket.socket, socket.socket]
) -> None:
    assert form.send(ends[0].fileno(), descriptor, 0, 1000, 1000, 1000, bytearray([1]), 0) == 1000


def test_who_has_waited_long_for_a_sync_does_not_wait_for_the_same_again(
    descriptor: int, ends: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = Calls(monkeypatch)
    send_all(ends, descriptor, 4 * STEP_BYTES, 1 << 20, calls.sync_beats)
    assert calls.naps == NAPS_MAX
    assert len(calls.asked) >= 4


def test_a_socket_that_takes_nothing_waits_for_nobody(
    descriptor: int, ends: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = Calls(monkeypatch)
    to = ends[0].fileno()
    while PLAIN.send(to, descriptor, 0, len(CONTENT), 0, 0, CALM, 0) > 0:
        pass
    assert PLAIN.send(to, descriptor, 0, len(CONTENT), 0, 1 << 20, calls.sync_beats, 0) == -errno.EAGAIN
    assert not calls.naps
    assert not calls.asked


def test_what_is_ahead_is_asked_for_in_steps_along_with_what_is_sent(
    descriptor: int, ends: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = Calls(monkeypatch)
    send_all(ends, descriptor, 4 * STEP_BYTES, 1 << 20, CALM)
    assert calls.asked[0][0] == AHEAD
    assert max(size for _, size in calls.asked) <= 1 << 18
    assert sum(size for _, size in calls.asked) == 1 << 20
    assert calls.order[:4] == ["sent", "asked", "sent", "asked"]
    assert not calls.naps


def test_nothing_is_asked_for_while_a_sync_is_under_way(
    descriptor: int, ends: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = Calls(monkeypatch)
    calls.ends_after = 3
    PLAIN.send(ends[0].fileno(), descriptor, 0, 1000, 1000, 1000, calls.sync_beats, 0)
    assert calls.naps == 3
    assert calls.asked == [(1000, 1000)]


def test_who_has_waited_for_one_sync_does_not_wait_for_the_next(
    descriptor: int, ends: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = Calls(monkeypatch)
    nap = calls._nap

    def two_beats(seconds: float) -> None:
        nap(seconds)
        calls.sync_beats[0] = (calls.sync_beats[0] + 2) & 0xFF

    monkeypatch.setattr(PLAIN.time, "sleep", two_beats)
    calls.sync_beats[0] = 0xFF
    PLAIN.send(ends[0].fileno(), descriptor, 0, 1000, 1000, 1000, calls.sync_beats, 0)
    assert calls.naps == 1 < NAPS_MAX


def test_without_anything_ahead_nobody_is_waited_for(
    descriptor: int, ends: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = Calls(monkeypatch)
    assert PLAIN.send(ends[0].fileno(), descriptor, 0, 1000, 0, 0, calls.sync_beats, 0) == 1000
    assert not calls.naps
    assert not calls.asked


def test_behind_each_step_that_asks_for_more_it_rests_for_longer_than_it_had_a_processor(
    descriptor: int, ends: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    Calls(monkeypatch)
    rested: list[float] = []
    work_ns = iter([0, 100_000, 100_000, 350_000, 350_000, 90_000_000, 90_000_000])
    monkeypatch.setattr(PLAIN.time, "sleep", rested.append)
    monkeypatch.setattr(PLAIN.time, "thread_time_ns", lambda: next(work_ns))
    send_all(ends, descriptor, 3 * STEP_BYTES, 3 * STEP_BYTES, CALM, rests=4)
    assert rested == [pytest.approx(400e-6), pytest.approx(1000e-6), REST_US_MAX / 1e6]


@pytest.mark.parametrize(("ahead_size", "rests"), [(0, 4), (1 << 20, 0)])
def test_who_has_nothing_to_ask_for_or_disturbs_nobody_does_not_rest(
    descriptor: int,
    ends: tuple[socket.socket, socket.socket],
    monkeypatch: pytest.MonkeyPatch,
    ahead_size: int,
    rests: int,
) -> None:
    calls = Calls(monkeypatch)
    send_all(ends, descriptor, 3 * STEP_BYTES, ahead_size, CALM, rests=rests)
    assert not calls.naps


@FORMS
def test_a_rest_is_as_long_as_was_asked_for(
    form: Any, descriptor: int, ends: tuple[socket.socket, socket.socket]
) -> None:
    began = time.perf_counter()
    assert form.send(ends[0].fileno(), descriptor, 0, 1000, 1000, 1000, CALM, 1_000_000) == 1000
    assert time.perf_counter() - began >= REST_US_MAX / 1e6


def test_a_stretch_asks_for_all_that_is_ahead_however_little_the_socket_takes(
    descriptor: int, ends: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = Calls(monkeypatch)
    monkeypatch.setattr(sending, "send", PLAIN.send)
    stretch = sending.Stretch(SentFile((100, 1 << 20)), descriptor, 0, len(CONTENT))
    stretch.look_ahead()
    received = bytearray()
    while stretch.size_bytes:
        try:
            stretch.send(ends[0].fileno(), 1 << 20, 0)
        except BlockingIOError:
            received += ends[1].recv(300_000)
    ends[0].close()
    while piece := ends[1].recv(1 << 20):
        received += piece
    assert received == CONTENT
    asked = 100
    for start, size in calls.asked:
        assert start <= asked
        asked = max(asked, start + size)
    assert asked == 100 + (1 << 20)


def test_a_stretch_of_nothing_is_left_out(descriptor: int) -> None:
    parts = [sending.Stretch(SentFile(), descriptor, 0, size) for size in (0, 10, 0)]
    reply = sending.Sending(
        [b"", sending.Stretches(parts)], OneSender(lambda job, done: None), False, lambda error: None
    )
    assert reply.left_bytes == 10
    assert [part.size_bytes for part in reply._parts] == [10]


AHEAD = 1 << 22


def send_all(
    ends: tuple[socket.socket, socket.socket],
    descriptor: int,
    size: int,
    ahead_size: int,
    sync_beats: bytearray,
    rests: int = 0,
) -> None:
    """In one call, while somebody reads."""
    ends[0].setblocking(True)
    drained = threading.Thread(target=_drain, args=(ends[1], size), daemon=True)
    drained.start()
    assert PLAIN.send(ends[0].fileno(), descriptor, 0, size, AHEAD, ahead_size, sync_beats, rests) == size
    drained.join()


def _drain(taken: socket.socket, size: int) -> None:
    while size and (piece := taken.recv(size)):
        size -= len(piece)
