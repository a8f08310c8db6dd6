"""The address of a server: who gets it, at which addresses of the machine, and who is told that it is taken."""

import asyncio
import errno
import socket
from typing import Any

import pytest

from headrace.errors import HeadraceError
from headrace.net.binding import Binding, at_each, cannot_listen, everywhere, plain_host
from headrace.net.connection import Connection
from headrace.net.listener import Listener
from tests.net.loops import LOOPS, Run, on_every_loop, runner

on_every_real_loop = pytest.mark.parametrize(
    "run", [pytest.param(runner(name), id=name) for name in LOOPS if name != "sim"]
)


def has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as six:
            six.bind(("::1", 0))
    except OSError:
        return False
    return True


def nothing(connection: Connection, frame: memoryview) -> None: ...


async def free_port() -> int:
    listener = Listener("test", nothing)
    _, port = await listener.bind("127.0.0.1", 0)
    await listener.stop()
    return port


@on_every_loop
@pytest.mark.parametrize("second_host", ["127.0.0.1", "0.0.0.0"])
def test_of_two_that_take_one_address_before_either_listens_one_is_told(run: Run, second_host: str) -> None:
    async def scenario() -> None:
        port = await free_port()
        first, second = Listener("first", nothing), Listener("second", nothing)
        await first.bind("127.0.0.1", port)

        async def serve_both() -> None:
            await second.bind(second_host, port)
            await first.serve()
            await second.serve()

        with pytest.raises(HeadraceError, match=f":{port} is in use by another process. Stop it, or choose another"):
            await serve_both()
        await second.stop()
        await first.stop()

    run(scenario())


@on_every_loop
def test_nobody_can_connect_before_it_serves_nor_after_it_stopped(run: Run) -> None:
    async def scenario() -> None:
        listener = Listener("test", nothing)
        host, port = await listener.bind("127.0.0.1", 0)
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection(host, port)
        await listener.serve()
        _, writer = await asyncio.open_connection(host, port)
        writer.close()
        await listener.stop()
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection(host, port)

    run(scenario())


@on_every_real_loop
@pytest.mark.skipif(not has_ipv6(), reason="the machine has no IPv6")
@pytest.mark.parametrize("host", ["", "0.0.0.0", "0", "::"])
def test_every_address_of_the_machine_is_of_ipv4_and_of_ipv6_on_one_port(run: Run, host: str) -> None:
    async def scenario() -> None:
        seen: list[str] = []
        came = asyncio.Event()

        def handle(connection: Connection, frame: memoryview) -> None:
            seen.append(connection.peer_host)
            came.set()

        listener = Listener("test", handle)
        _, port = await listener.start(host, 0)
        for target in ("127.0.0.1", "::1"):
            came.clear()
            _, writer = await asyncio.open_connection(target, port)
            writer.write(b"\0\0\0\1a")
            await came.wait()
            writer.close()
        assert seen == ["127.0.0.1", "::1"]  # as limits and groups know it
        await listener.stop()

    run(scenario())


def test_hosts_of_ipv4_are_written_plainly() -> None:
    assert plain_host("::ffff:10.0.0.7") == "10.0.0.7"
    assert plain_host("10.0.0.7") == "10.0.0.7"
    assert plain_host("::ffff:0:a00:7") == "::ffff:0:a00:7"
    assert plain_host("fe80::1%eth0") == "fe80::1%eth0"


# --- machines that are not this one -----------------------------------------------------------------------------------


class Machine:
    """Makes sockets; has some addresses, and some ports of them are taken."""

    def __init__(self, *addresses: str, families: tuple[int, ...] = (socket.AF_INET, socket.AF_INET6)) -> None:
        self.addresses = addresses
        self.families = families
        self.taken: set[tuple[str, int]] = set()
        self.next_port = 40_000
        self.open: list[Any] = []

    def new_socket(self, family: int, kind: int, protocol: int) -> Any:
        if family not in self.families:
            raise OSError(errno.EAFNOSUPPORT, "Address family not supported by protocol")
        return MachineSocket(self)


class MachineSocket:
    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.name = ("", 0)
        machine.open.append(self)

    def setsockopt(self, *_: int) -> None: ...

    def bind(self, address: tuple[Any, ...]) -> None:
        host, port, *_ = address
        if host not in self.machine.addresses:
            raise OSError(errno.EADDRNOTAVAIL, "Cannot assign requested address")
        if not port:
            port = self.machine.next_port
            self.machine.next_port += 1
        if (host, port) in self.machine.taken:
            raise OSError(errno.EADDRINUSE, "Address already in use")
        self.name = (host, port)

    def getsockname(self) -> tuple[str, int]:
        return self.name

    def close(self) -> None:
        self.machine.open.remove(self)


FOUR, SIX = (socket.AF_INET, ("127.0.0.1", 0)), (socket.AF_INET6, ("::1", 0, 0, 0))


def test_every_address_of_a_machine_without_ipv6_is_of_ipv4() -> None:
    without_protocol = Machine("0.0.0.0", families=(socket.AF_INET,))
    assert everywhere(9092, without_protocol.new_socket).getsockname() == ("0.0.0.0", 9092)
    without_address = Machine("0.0.0.0")
    assert everywhere(9092, without_address.new_socket).getsockname() == ("0.0.0.0", 9092)
    assert len(without_address.open) == 1
    with_both = Machine("0.0.0.0", "::")
    with_both.taken.add(("::", 9092))
    with pytest.raises(OSError, match="in use"):
        everywhere(9092, with_both.new_socket)
    assert not with_both.open


def test_the_addresses_of_a_name_share_a_port_that_is_free_at_each() -> None:
    machine = Machine("127.0.0.1", "::1")
    machine.taken |= {("::1", 40_000), ("::1", 40_001)}
    sockets = at_each([FOUR, SIX], 0, machine.new_socket)
    assert [bound.getsockname() for bound in sockets] == [("127.0.0.1", 40_002), ("::1", 40_002)]
    assert machine.open == sockets


def test_a_port_that_is_taken_at_one_address_of_a_name_is_taken() -> None:
    machine = Machine("127.0.0.1", "::1")
    machine.taken.add(("::1", 9092))
    with pytest.raises(OSError, match="in use"):
        at_each([FOUR, SIX], 9092, machine.new_socket)
    assert not machine.open


def test_of_the_addresses_of_a_name_those_count_that_the_machine_has() -> None:
    """As localhost has ::1 in many a container without IPv6."""
    machine = Machine("127.0.0.1")
    assert [bound.getsockname() for bound in at_each([SIX, FOUR], 9092, machine.new_socket)] == [("127.0.0.1", 9092)]
    with pytest.raises(OSError, match="Cannot assign"):
        at_each([SIX], 9092, machine.new_socket)
    assert len(machine.open) == 1


@on_every_real_loop
def test_a_name_is_looked_up(run: Run) -> None:
    async def scenario() -> None:
        binding = await Binding.take("localhost", 0)
        assert binding.host in ("127.0.0.1", "::1")
        binding.close()
        with pytest.raises(socket.gaierror):
            await Binding.take("no.such.host.invalid", 0)

    run(scenario())


def test_an_ipv6_address_is_told_in_brackets() -> None:
    error = OSError(errno.EADDRINUSE, "in use")
    assert cannot_listen(error, "::1", 9092).startswith("[::1]:9092 is in use by another process.")
