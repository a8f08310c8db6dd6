"""Where the time of a request goes: counted in line by connections, told in slices."""

from __future__ import annotations

import asyncio
from typing import Any

from headrace.metrics.requests import RequestFigures, Stopwatch
from headrace.net.connection import Connection, Slot
from headrace.net.listener import Listener

FRAME = (3).to_bytes(4) + b"abc"


class Clock:
    def __init__(self) -> None:
        self.now_ns = 1000

    def __call__(self) -> int:
        return self.now_ns


class Transport(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.written: list[Any] = []

    def write(self, data: Any) -> None:
        self.written.append(data)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 5


class Served:
    """One connection, whose handler takes time, and answers at once or by a slot."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.figures = RequestFigures("Produce")
        self.local_ns = 100
        self.slots: list[Slot] = []
        self.is_slow = False
        listener = Listener("test", self.handle, stopwatch=Stopwatch(self.clock))
        self.connection = Connection(listener)
        self.connection.connection_made(Transport())

    def handle(self, connection: Connection, frame: memoryview) -> RequestFigures:
        self.clock.now_ns += self.local_ns
        if self.is_slow:
            self.slots.append(connection.reserve())
        else:
            connection.reply([b"reply"])
        return self.figures

    def receive(self, data: bytes) -> None:
        self.connection.get_buffer(-1)[: len(data)] = data
        self.connection.buffer_updated(len(data))

    def sums(self) -> list[int]:
        return [found.sum_ns for found in self.figures.slices()]

    def counts(self) -> list[int]:
        return [found.count for found in self.figures.slices()]


def test_a_request_that_comes_alone_and_is_answered_at_once_is_local_time_and_nothing_else() -> None:
    served = Served()
    served.receive(FRAME)
    assert served.sums() == [100, 0, 100, 0, 0]
    assert served.counts() == [1] * 5
    assert served.figures.total.count == 0, "it took the short way"


def test_requests_that_come_together_are_answered_together() -> None:
    served = Served()
    served.receive(FRAME * 3)
    total, queue, local, remote, send = served.sums()
    assert total == 3 * 300, "none is answered before the last one is"
    assert (queue, local, remote, send) == (0 + 100 + 200, 300, 0, 200 + 100 + 0)
    assert served.counts() == [3] * 5


def test_requests_of_several_apis_that_come_together_are_told_apart() -> None:
    served = Served()
    produce, fetch = served.figures, RequestFigures("Fetch")
    turns = iter([produce, produce, fetch, produce])

    def handle(connection: Connection, frame: memoryview) -> RequestFigures:
        figures = next(turns)
        connection.listener.stopwatch.switch(figures)  # as the router does
        served.handle(connection, frame)
        return figures

    served.connection.listener.handler = handle
    served.receive(FRAME * 4)
    assert (produce.answered, fetch.answered) == (3, 1)
    assert [found.sum_ns for found in fetch.slices()] == [300, 200, 100, 0, 0]
    assert [found.sum_ns for found in produce.slices()][2] == 300


def test_a_connection_that_is_served_while_another_one_is_does_not_take_its_time() -> None:
    served, other = Served(), Served()
    other.clock = served.clock
    other.connection.stopwatch = served.connection.stopwatch

    def handle(connection: Connection, frame: memoryview) -> RequestFigures:
        other.receive(FRAME)
        return served.handle(connection, frame)

    served.connection.listener.handler = handle
    served.receive(FRAME * 2)
    assert (served.counts(), other.counts()) == ([2] * 5, [2] * 5)
    assert served.sums()[2] == other.sums()[2] == 200


def test_a_frame_that_came_in_parts_is_queued_from_when_it_was_whole() -> None:
    served = Served()
    served.receive(FRAME[:5])
    served.clock.now_ns += 1_000_000
    rest = served.connection.get_buffer(-1)
    rest[: len(FRAME) - 5] = FRAME[5:]
    served.connection.buffer_updated(len(FRAME) - 5)
    assert served.sums() == [100, 0, 100, 0, 0]


def test_a_reply_that_comes_later_waited() -> None:
    async def check() -> None:
        served = Served()
        served.is_slow = True
        served.receive(FRAME)
        assert served.figures.answered == 0
        served.clock.now_ns += 1000
        served.slots[0].fill([b"reply"])
        assert served.sums() == [1100, 0, 100, 1000, 0]
        assert served.counts() == [1] * 5

    asyncio.run(check())


def test_a_reply_behind_another_one_waits_to_be_sent() -> None:
    async def check() -> None:
        served = Served()
        served.is_slow = True
        served.receive(FRAME)
        served.receive(FRAME)
        served.slots[1].fill([b"second"])
        served.is_slow = False
        served.receive(FRAME)  # answered at once, and waits for both
        assert served.figures.answered == 0
        served.clock.now_ns += 500
        served.slots[0].fill([b"first"])
        assert served.counts() == [3] * 5
        total, queue, local, remote, send = served.sums()
        assert total == queue + local + remote + send
        assert queue == 0
        assert local == 300
        assert send >= 2 * 500
        assert served.connection.waiting_replies == 0

    asyncio.run(check())


def test_bytes_that_a_client_has_not_read_are_counted() -> None:
    async def check() -> None:
        served = Served()
        served.is_slow = True
        served.receive(FRAME * 2)
        served.slots[1].fill([b"1234567"])
        assert served.connection.unsent_bytes == 7 + 5

    asyncio.run(check())
