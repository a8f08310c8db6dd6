"""Connections to a listener: order, limits, and clients that misbehave."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from headrace.errors import HeadraceError, ProtocolError
from headrace.net.budget import Budget
from headrace.net.connection import POLITE_FRAMES, Connection, Slot
from headrace.net.crowd import Crowd
from headrace.net.framing import RECEIVE_BYTES, TRUSTED_BYTES, Receiver
from headrace.net.listener import Limits, Listener
from tests.net.loops import Run, on_every_loop, runner


def framed(frame: bytes) -> bytes:
    return len(frame).to_bytes(4) + frame


class Echo:
    """Answers a frame with itself; `later…` when it is told to; `none…` never; `bad…` is no frame."""

    def __init__(self) -> None:
        self.slots: dict[bytes, Slot] = {}
        self.seen: list[bytes] = []

    def __call__(self, connection: Connection, frame: memoryview) -> None:
        data = bytes(frame)
        self.seen.append(data)
        if data.startswith(b"later"):
            self.slots[data] = connection.reserve()
        elif data.startswith(b"none"):
            connection.reply([])
        elif data.startswith(b"bad"):
            raise ProtocolError("bad at byte 0")
        elif data.startswith(b"bug"):
            raise RuntimeError("a defect")
        elif data.startswith(b"big"):
            connection.reply([bytearray(framed(bytes(1 << 20)))])
        else:
            connection.reply([bytearray(len(data).to_bytes(4)), memoryview(data)])

    def answer(self, name: bytes) -> None:
        self.slots.pop(name).fill([bytearray(framed(name))])


@asynccontextmanager
async def listening(handler: Any, budget: Budget | None = None, **limits: Any) -> AsyncIterator[tuple[Listener, int]]:
    listener = Listener("test", handler, Limits(**limits), budget)
    _, port = await listener.start("127.0.0.1", 0)
    try:
        yield listener, port
    finally:
        await listener.stop()


async def read_frame(reader: asyncio.StreamReader) -> bytes:
    size = int.from_bytes(await reader.readexactly(4))
    return await reader.readexactly(size)


async def eventually(condition: Any) -> None:
    while not condition():
        await asyncio.sleep(0.002)


@on_every_loop
def test_replies_keep_the_order_of_their_requests(run: Run) -> None:
    async def scenario() -> None:
        echo = Echo()
        async with listening(echo) as (_, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"".join(map(framed, (b"a", b"later 1", b"none", b"b", b"later 2", b"c"))))
            assert await read_frame(reader) == b"a"
            await eventually(lambda: len(echo.seen) == 6)
            echo.answer(b"later 2")
            echo.answer(b"later 1")
            assert [await read_frame(reader) for _ in range(4)] == [b"later 1", b"b", b"later 2", b"c"]
            writer.close()

    run(scenario())


@on_every_loop
def test_the_shared_buffer_is_filled_and_handed_back_before_anything_else_runs(run: Run) -> None:
    """The contract by which all connections share one buffer: many senders at once, no byte of one in another."""

    async def scenario() -> None:
        async with listening(Echo()) as (_, port):

            async def client(number: int) -> None:
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                body = bytes([number]) * (RECEIVE_BYTES // 3 + number * 1000)
                for _ in range(20):
                    writer.write(framed(body))
                    assert await read_frame(reader) == body
                writer.close()

            await asyncio.gather(*(client(number) for number in range(8)))

    run(scenario())


@on_every_loop
def test_a_client_that_closes_its_side_still_gets_its_replies(run: Run) -> None:
    async def scenario() -> None:
        echo = Echo()
        async with listening(echo) as (_, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(framed(b"later"))
            writer.write_eof()
            await eventually(lambda: echo.slots)
            await asyncio.sleep(0.02)
            echo.answer(b"later")
            assert await read_frame(reader) == b"later"
            assert await reader.read() == b""
            writer.close()

    run(scenario())


@on_every_loop
def test_bytes_that_are_no_frame_close_that_connection_and_no_other(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with listening(Echo(), frame_bytes=1000) as (listener, port):
            good_reader, good_writer = await asyncio.open_connection("127.0.0.1", port)
            for hostile in (b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"GET / HTTP/1.1\r\n\r\n", framed(b"bad")):
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(hostile)
                with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
                    await reader.readexactly(1)
                writer.close()
            assert listener.counters.frames_refused == 4
            good_writer.write(framed(b"still here"))
            assert await read_frame(good_reader) == b"still here"
            good_writer.close()

    with caplog.at_level(logging.WARNING):
        run(scenario())
    assert "this port speaks the Kafka protocol" in caplog.text


@on_every_loop
def test_who_looks_closely_sees_connections_come_and_go(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    """`--log-level net=debug`, which is what the docs tell to try."""

    async def scenario() -> None:
        async with listening(Echo()) as (listener, port):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            await eventually(lambda: listener.connections)
            writer.close()
            await eventually(lambda: not listener.connections)

    with caplog.at_level(logging.DEBUG, logger="headrace.net"):
        run(scenario())
    said = [record.getMessage() for record in caplog.records if record.name == "headrace.net.listener"]
    assert [line.rpartition("> ")[2] for line in said] == [
        "has come; there are 1 in all",
        "is gone; there are 0 in all",
    ]


@on_every_loop
def test_a_handler_that_fails_costs_its_connection_only(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with listening(Echo()) as (_, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(framed(b"bug"))
            with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
                await reader.readexactly(1)
            writer.close()
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(framed(b"fine"))
            assert await read_frame(reader) == b"fine"
            writer.close()

    run(scenario())
    assert "a defect" in caplog.text


@on_every_loop
def test_a_client_with_too_many_requests_under_way_is_not_read_from(run: Run) -> None:
    async def scenario() -> None:
        echo = Echo()
        async with listening(echo, requests_in_flight=5) as (_, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            names = [f"later {number:03}".encode() for number in range(100)]
            writer.write(b"".join(map(framed, names)))
            await eventually(lambda: len(echo.seen) == 5)
            await asyncio.sleep(0.02)
            assert len(echo.seen) == 5
            for name in names:
                await eventually(lambda name=name: name in echo.slots)
                assert len(echo.slots) <= 5
                echo.answer(name)
            assert [await read_frame(reader) for _ in names] == names
            writer.close()

    run(scenario())


@on_every_loop
def test_frames_that_waited_for_replies_are_handled_together_when_the_replies_are_there(run: Run) -> None:
    """One by one, each would cost a write of its own and a copy of everything that waits behind it."""

    async def scenario() -> None:
        echo = Echo()
        async with listening(echo, requests_in_flight=5) as (_, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            names = [f"later {number:03}".encode() for number in range(20)]
            writer.write(b"".join(map(framed, names)))
            for group in range(0, 20, 5):
                await eventually(lambda group=group: len(echo.seen) == group + 5)
                for name in names[group : group + 5]:
                    echo.answer(name)
                    assert len(echo.seen) == group + 5
            assert [await read_frame(reader) for _ in names] == names
            writer.close()

    run(scenario())


class Writes:
    """The transport of a connection, and what each write to it was."""

    def __init__(self, transport: Any) -> None:
        self._transport = transport
        self.made: list[bytes] = []

    def write(self, data: Any) -> None:
        self.made.append(bytes(data))
        self._transport.write(data)

    def writelines(self, buffers: Any) -> None:
        self.made.append(b"".join(map(bytes, buffers)))
        self._transport.writelines(buffers)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


@on_every_loop
def test_a_reply_that_no_other_waits_with_leaves_at_once_and_those_of_one_round_leave_together(run: Run) -> None:
    async def scenario() -> None:
        echo = Echo()
        async with listening(echo) as (_, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(framed(b"later 1"))
            await eventually(lambda: len(echo.seen) == 1)
            connection = echo.slots[b"later 1"]._connection
            connection._transport = writes = Writes(connection._transport)  # type: ignore[assignment]
            echo.answer(b"later 1")
            assert writes.made == [framed(b"later 1")]
            assert await read_frame(reader) == b"later 1"
            names = [b"later 2", b"later 3", b"later 4"]
            writer.write(b"".join(map(framed, names)))
            await eventually(lambda: len(echo.seen) == 4)
            for name in names:
                echo.answer(name)
            assert [await read_frame(reader) for _ in names] == names
            assert writes.made == [framed(b"later 1"), b"".join(map(framed, names))]
            writer.close()

    run(scenario())


@on_every_loop
def test_hazard_15_replies_that_wait_for_one_before_them_are_bounded(run: Run) -> None:
    async def scenario() -> None:
        echo = Echo()
        async with listening(echo, write_bytes=1 << 20) as (_, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(framed(b"later") + framed(b"big") * 200)
            await eventually(lambda: len(echo.seen) > 1)
            await asyncio.sleep(0.02)
            seen = len(echo.seen)
            assert seen < 100
            echo.answer(b"later")
            assert await read_frame(reader) == b"later"
            for _ in range(200):
                await read_frame(reader)
            assert len(echo.seen) == 201
            writer.close()

    run(scenario())


@on_every_loop
def test_a_client_that_does_not_read_is_not_read_from_and_then_disconnected(run: Run) -> None:
    async def scenario() -> None:
        echo = Echo()
        async with listening(echo, write_bytes=1 << 20, slow_ms=500) as (listener, port):
            # A stream stops reading when twice its limit lies there unread.
            _, writer = await asyncio.open_connection("127.0.0.1", port, limit=1024)
            writer.write(framed(b"big") * 500)
            await eventually(lambda: listener.counters.slow_closed == 1)
            assert len(echo.seen) < 100
            await eventually(lambda: not listener.connections)
            writer.close()

    run(scenario())


@on_every_loop
def test_a_client_that_stops_in_the_middle_of_a_request_is_disconnected(run: Run) -> None:
    async def scenario() -> None:
        async with listening(Echo(), slow_ms=250) as (listener, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write((50 << 20).to_bytes(4) + b"the beginning")
            with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
                await reader.readexactly(1)
            assert listener.counters.slow_closed == 1
            assert listener.budget.held_bytes == 0
            writer.close()

    run(scenario())


@on_every_loop
def test_hazard_15_clients_that_announce_large_requests_and_send_a_trickle_make_room_for_others(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with listening(Echo(), Budget((3 << 20) + 100)) as (listener, port):
            trickling = [await asyncio.open_connection("127.0.0.1", port) for _ in range(3)]
            for _, writer in trickling:
                writer.write((1 << 20).to_bytes(4) + b"the beginning")
            await eventually(lambda: listener.budget.held_bytes > 3 << 20)

            async def trickle() -> None:
                while True:
                    for _, writer in trickling:
                        writer.write(b"x")
                    await asyncio.sleep(0.1)

            going_on = asyncio.ensure_future(trickle())
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            body = bytes(2 << 20)
            writer.write(framed(body)[:100])
            await eventually(lambda: listener.budget.waiting)
            writer.write(framed(body)[100:])
            assert await read_frame(reader) == body
            going_on.cancel()
            # No more of them were closed than it took.
            assert (listener.counters.slow_closed, len(listener.connections)) == (2, 2)
            writer.close()
            for _, writer in trickling:
                writer.close()

    with caplog.at_level(logging.WARNING):
        run(scenario())
    assert "hardly anything comes of its request of 1048580 bytes, and others wait for the memory" in caplog.text


@on_every_loop
def test_a_client_that_waited_for_memory_has_all_its_time_from_then_on(run: Run) -> None:
    async def scenario() -> None:
        async with listening(Echo(), Budget(1000)) as (listener, port):
            listener.budget.hold(1000)
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(framed(b"a request")[:8])
            await eventually(lambda: listener.budget.waiting)
            (connection,) = listener.connections.values()
            await eventually(lambda: listener.tick - connection.active_at > 4)
            listener.budget.give_back(1000)
            assert connection.is_inside_frame
            assert connection.active_at == listener.tick
            writer.write(framed(b"a request")[8:])
            assert await read_frame(reader) == b"a request"
            writer.close()

    run(scenario())


@on_every_loop
def test_idle_connections_are_closed_and_busy_ones_are_not(run: Run) -> None:
    async def scenario() -> None:
        echo = Echo()
        async with listening(echo, idle_ms=250) as (listener, port):
            idle_reader, idle_writer = await asyncio.open_connection("127.0.0.1", port)
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(framed(b"later"))
            assert await idle_reader.read() == b""
            assert listener.counters.idle_closed == 1
            echo.answer(b"later")
            assert await read_frame(reader) == b"later"
            idle_writer.close()
            writer.close()

    run(scenario())


@on_every_loop
def test_connections_beyond_the_limits_are_refused(run: Run) -> None:
    async def scenario() -> None:
        either: list[dict[str, Any]] = [{"connections": 2}, {"connections_per_address": 2}]
        for limits in either:
            async with listening(Echo(), **limits) as (listener, port):
                kept = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]
                await eventually(lambda listener=listener: len(listener.connections) == 2)
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
                    await reader.readexactly(1)
                writer.close()
                assert (listener.counters.accepted, listener.counters.refused) == (2, 1)
                kept[0][1].close()
                await eventually(lambda listener=listener: len(listener.connections) == 1)
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(framed(b"welcome"))
                assert await read_frame(reader) == b"welcome"
                writer.close()
                kept[1][1].close()

    run(scenario())


@on_every_loop
def test_limits_on_connections_count_over_all_listeners_that_share_them(run: Run) -> None:
    async def scenario() -> None:
        for limits in (
            Limits(connections=3),
            Limits(connections_per_address=3),
            Limits(connections_by_address={"127.0.0.1": 3}),
        ):
            crowd = Crowd()
            listeners = [Listener(name, Echo(), limits, crowd=crowd) for name in ("one", "two")]
            one, two = [(await listener.start("127.0.0.1", 0))[1] for listener in listeners]
            kept = [await asyncio.open_connection("127.0.0.1", port) for port in (one, two, two)]
            await eventually(lambda crowd=crowd: crowd.count == 3)
            for port in (one, two):
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
                    await reader.readexactly(1)
                writer.close()
            assert [(listener.counters.accepted, listener.counters.refused) for listener in listeners] == [
                (1, 1),
                (2, 1),
            ]
            kept[1][1].close()
            await eventually(lambda crowd=crowd: crowd.count == 2)
            reader, writer = await asyncio.open_connection("127.0.0.1", one)
            writer.write(framed(b"welcome"))
            assert await read_frame(reader) == b"welcome"
            writer.close()
            for _, writer in kept:
                writer.close()
            await eventually(lambda crowd=crowd: not crowd.count)
            assert not crowd.by_address
            for listener in listeners:
                await listener.stop()

    run(scenario())


@on_every_loop
def test_stopping_lets_replies_under_way_finish(run: Run) -> None:
    async def scenario() -> None:
        echo = Echo()
        listener = Listener("test", echo)
        _, port = await listener.start("127.0.0.1", 0)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(framed(b"later"))
        await eventually(lambda: echo.slots)
        stopping = asyncio.ensure_future(listener.stop(grace_seconds=5))
        await asyncio.sleep(0.02)
        echo.answer(b"later")
        assert await read_frame(reader) == b"later"
        await stopping
        assert await reader.read() == b""
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", port)
        writer.close()

    run(scenario())


@on_every_loop
def test_a_port_in_use_is_one_sentence(run: Run) -> None:
    async def scenario() -> None:
        async with listening(Echo()) as (_, port):
            with pytest.raises(HeadraceError, match=f"127.0.0.1:{port} is in use by another process"):
                await Listener("second", Echo()).start("127.0.0.1", port)

    run(scenario())


@pytest.mark.parametrize("name", ["uvloop", "asyncio"])  # where what is sent first is there first
def test_who_has_small_requests_does_not_wait_for_a_large_one_that_came_first(name: str) -> None:
    async def check() -> None:
        echo = Echo()
        async with listening(echo) as (_, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            _, bulk_writer = await asyncio.open_connection("127.0.0.1", port)
            for number in range(10):
                small, large = b"small %d" % number, b"none %d" % number + bytes(3 * RECEIVE_BYTES)
                if not number:  # once is enough: it is found to come between large ones
                    writer.write(framed(small))
                    assert await reader.readexactly(4 + len(small)) == framed(small)
                bulk_writer.write(framed(large)[:-1])
                await bulk_writer.drain()
                await asyncio.sleep(0.02)
                echo.seen.clear()
                bulk_writer.write(framed(large)[-1:])
                writer.write(framed(small))
                assert await reader.readexactly(4 + len(small)) == framed(small)
                while len(echo.seen) < 2:
                    await asyncio.sleep(0.001)
                assert echo.seen == [small, large]
            writer.close()
            bulk_writer.close()

    runner(name)(check())


@on_every_loop
def test_where_nobody_else_has_any_large_requests_come_without_a_rest(run: Run) -> None:
    async def check() -> None:
        echo = Echo()
        async with listening(echo) as (listener, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            large = b"none" + bytes(3 * RECEIVE_BYTES)
            writer.write(framed(b"mine") + framed(large) + framed(b"mine") + framed(large) + framed(b"last"))
            assert await reader.readexactly(24) == framed(b"mine") * 2 + framed(b"last")
            assert echo.seen == [b"mine", large, b"mine", large, b"last"]
            (connection,) = listener.connections.values()
            assert not connection.rests_between_slices()
            other, other_writer = await asyncio.open_connection("127.0.0.1", port)
            other_writer.write(framed(b"other"))
            await other.readexactly(9)
            polite = [connection.rests_between_slices() for _ in range(POLITE_FRAMES + 1)]
            assert polite == [True] * POLITE_FRAMES + [False]
            writer.close()
            other_writer.close()

    run(check())


@on_every_loop
def test_a_large_request_for_which_there_is_no_memory_ends_its_connection(run: Run) -> None:
    class Poor(Receiver):
        def take_buffer(self, size_bytes: int) -> bytearray:
            if size_bytes > TRUSTED_BYTES:
                raise MemoryError
            return super().take_buffer(size_bytes)

    async def check() -> None:
        async with listening(Echo()) as (listener, port):
            listener.receiver = Poor(64 << 20, listener.budget)
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            other_reader, other = await asyncio.open_connection("127.0.0.1", port)
            other.write(framed(b"small"))
            await other_reader.readexactly(9)
            writer.write(framed(bytes(2 * TRUSTED_BYTES)))
            with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
                await reader.readexactly(1)
            assert listener.budget.held_bytes == 0
            other.close()

    run(check())
