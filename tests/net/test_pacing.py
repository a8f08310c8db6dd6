"""Connections within the machine are not paced, whatever the system's congestion control; others are left alone."""

import asyncio
import socket
from typing import Any

import pytest

from headrace.net import pacing
from headrace.net.connection import Connection
from headrace.net.listener import Listener
from headrace.net.peer import Peer
from tests.net.loops import LOOPS, Run, runner

on_every_real_loop = pytest.mark.parametrize(
    "run", [pytest.param(runner(name), id=name) for name in LOOPS if name != "sim"]
)
of_linux = pytest.mark.skipif(not hasattr(socket, "TCP_CONGESTION"), reason="congestion control is chosen on Linux")


def nothing(connection: Connection, frame: memoryview) -> None: ...


class Faked(asyncio.Transport):
    """A transport that tells what it is asked for, and of a socket with a congestion control."""

    def __init__(self, here: str, there: str, control: bytes, offered: tuple[bytes, ...]) -> None:
        super().__init__({"sockname": (here, 9092), "peername": (there, 40_000), "socket": self})
        self.control = control
        self._offered = offered

    def getsockopt(self, level: int, option: int, size: int) -> bytes:
        return self.control.ljust(size, b"\0")

    def setsockopt(self, level: int, option: int, value: bytes) -> None:
        if value not in self._offered:
            raise FileNotFoundError(2, "No such file or directory")
        self.control = value


@of_linux
@pytest.mark.parametrize(
    ("here", "there", "before", "offered", "after"),
    [
        ("127.0.0.1", "127.0.0.1", b"bbr", (b"cubic", b"reno"), b"cubic"),
        ("::1", "::1", b"bbr3", (b"reno",), b"reno"),
        ("127.0.0.1", "127.0.0.1", b"bbr", (), b"bbr"),
        ("127.0.0.1", "127.0.0.1", b"dctcp", (b"cubic", b"reno"), b"dctcp"),
        ("10.0.0.1", "10.0.0.2", b"bbr", (b"cubic", b"reno"), b"bbr"),
    ],
)
def test_only_what_paces_is_changed_and_only_within_the_machine(
    here: str, there: str, before: bytes, offered: tuple[bytes, ...], after: bytes
) -> None:
    transport = Faked(here, there, before, offered)
    pacing.unpace(transport)
    assert transport.control == after


def control_of(transport: Any) -> bytes:
    found: bytes = transport.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16)
    return found.rstrip(b"\0")


@of_linux
@on_every_real_loop
def test_a_client_of_the_same_machine_is_not_paced_nor_is_what_we_connect_to(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    # BBR is not on every machine, so what this one has is taken for something that paces. Reno is everywhere.
    monkeypatch.setattr(pacing, "PACED", b"")
    monkeypatch.setattr(pacing, "UNPACED", (b"unheard of", b"reno"))

    async def scenario() -> None:
        listener = Listener("test", nothing)
        host, port = await listener.start("127.0.0.1", 0)
        peer = Peer(host, port, "test")
        await peer.connect(timeout_seconds=30)
        while not listener.connections:
            await asyncio.sleep(0.01)
        (accepted,) = listener.connections.values()
        assert peer._link is not None
        assert control_of(accepted._transport) == control_of(peer._link._transport) == b"reno"
        peer.close()
        await listener.stop()

    run(scenario())


@on_every_real_loop
def test_what_is_small_is_sent_at_once_to_clients_and_by_them(run: Run) -> None:
    """The end of a reply, behind what came from a file, would wait for 40 ms until the client confirms the rest."""

    async def scenario() -> None:
        listener = Listener("test", nothing)
        for host in ("127.0.0.1", "0.0.0.0"):
            port = (await listener.start(host, 0))[1]
            peer = Peer("127.0.0.1", port, "test")
            await peer.connect(timeout_seconds=30)
            while not listener.connections:
                await asyncio.sleep(0.01)
            (accepted,) = listener.connections.values()
            assert peer._link is not None
            for transport in (accepted._transport, peer._link._transport):
                assert transport is not None
                assert transport.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            peer.close()
            await listener.stop()
            listener = Listener("test", nothing)

    run(scenario())


def test_a_transport_without_a_socket_is_left_alone() -> None:
    pacing.unpace(asyncio.Transport())
