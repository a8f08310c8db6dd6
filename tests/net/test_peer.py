"""A link to a broker: many requests under way, and every way to lose it."""

import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from headrace.errors import ProtocolError
from headrace.net.connection import Connection
from headrace.net.listener import Listener
from headrace.net.peer import Disconnected, Peer
from headrace.protocol.frame import Request, read_request, write_response
from headrace.protocol.messages import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    ProduceRequest,
)
from tests.net.loops import Run, on_every_loop


@asynccontextmanager
async def broker(handler: Any) -> AsyncIterator[Peer]:
    listener = Listener("broker", handler)
    host, port = await listener.start("127.0.0.1", 0)
    peer = Peer(host, port, "test")
    await peer.connect(timeout_seconds=30)
    try:
        yield peer
    finally:
        peer.close()
        await listener.stop()


def answer(connection: Connection, frame: memoryview) -> None:
    request = read_request(frame)
    assert isinstance(request, Request)
    if isinstance(request.body, ProduceRequest):
        connection.reply([])
    elif isinstance(request.body, HeartbeatRequest):
        response = HeartbeatResponse(throttle_time_ms=request.body.generation_id)
        connection.reply(write_response(response, request.version, request.correlation_id))
    else:
        connection.reply(write_response(ApiVersionsResponse(), request.version, request.correlation_id))


@on_every_loop
def test_requests_are_pipelined_and_each_gets_its_own_response(run: Run) -> None:
    async def scenario() -> None:
        async with broker(answer) as peer:
            futures = [peer.send(HeartbeatRequest(group_id="g", generation_id=n), n % 4 + 1) for n in range(500)]
            peer.send_without_reply(ProduceRequest(acks=0), 9)
            assert isinstance(await peer.call(ApiVersionsRequest(), 3, 30), ApiVersionsResponse)
            assert [(await future).throttle_time_ms for future in futures] == list(range(500))
            assert peer.waiting == 0

    run(scenario())


@on_every_loop
def test_a_response_that_whoever_asked_no_longer_wants_is_dropped(run: Run) -> None:
    async def scenario() -> None:
        async with broker(answer) as peer:
            peer.send(HeartbeatRequest(generation_id=1), 1).cancel()
            assert (await peer.call(HeartbeatRequest(generation_id=2), 1, 30)).throttle_time_ms == 2

    run(scenario())


@on_every_loop
def test_a_link_that_breaks_fails_what_waits_on_it(run: Run) -> None:
    async def scenario() -> None:
        async with broker(lambda connection, frame: connection.abort()) as peer:
            futures = [peer.send(HeartbeatRequest(), 1) for _ in range(3)]
            for future in futures:
                with pytest.raises(Disconnected, match="closed the connection"):
                    await future
            assert not peer.is_connected
            with pytest.raises(Disconnected, match="there is no connection to 127.0.0.1"):
                peer.send(HeartbeatRequest(), 1)

    run(scenario())


@on_every_loop
def test_an_answer_that_does_not_come_breaks_the_link(run: Run) -> None:
    async def scenario() -> None:
        def never(connection: Connection, frame: memoryview) -> None:
            connection.reserve()

        async with broker(never) as peer:
            other = peer.send(HeartbeatRequest(), 1)
            with pytest.raises(Disconnected, match=r"did not answer HeartbeatRequest within 0\.05 s"):
                await peer.call(HeartbeatRequest(), 1, 0.05)
            with pytest.raises(Disconnected):
                await other

    run(scenario())


@on_every_loop
def test_answers_out_of_order_or_unreadable_break_the_link(run: Run) -> None:
    def garbage(connection: Connection, frame: memoryview) -> None:
        connection.reply([struct.pack(">ii", 6, 0) + b"\0\0"])

    def stranger(connection: Connection, frame: memoryview) -> None:
        connection.reply([struct.pack(">ii", 4, 4711)])

    async def scenario() -> None:
        async with broker(garbage) as peer:
            with pytest.raises(ProtocolError, match="HeartbeatResponse v1: "):
                await peer.call(HeartbeatRequest(), 1, 30)
        async with broker(stranger) as peer:
            with pytest.raises(Disconnected, match="answered request 4711 before 0"):
                await peer.call(HeartbeatRequest(), 1, 30)

    run(scenario())


@on_every_loop
def test_nobody_there_is_one_sentence(run: Run) -> None:
    async def scenario() -> None:
        async with broker(answer) as peer:
            port = peer.port
        with pytest.raises(Disconnected, match=f"can't connect to 127.0.0.1:{port}: "):
            await Peer("127.0.0.1", port, "test").connect(timeout_seconds=30)

    run(scenario())


@pytest.mark.parametrize(
    ("host", "port"), [("kafka..example.net", 9092), ("a" * 64, 9092), ("a\0b", 9092), ("0", 70_000)]
)
@on_every_loop
def test_an_address_that_there_can_not_be_is_nobody_there(run: Run, host: str, port: int) -> None:
    """A broker may say that it is anywhere."""

    async def scenario() -> None:
        with pytest.raises(Disconnected, match=f":{port}: "):
            await Peer(host, port, "test").connect(timeout_seconds=30)

    run(scenario())
