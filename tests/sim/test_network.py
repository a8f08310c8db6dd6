"""The simulated network where it differs from a quiet one: cuts, partitions, resets, refusals, small windows."""

from __future__ import annotations

import asyncio
import socket

import pytest

from headrace.errors import HeadraceError
from headrace.net.listener import Listener
from headrace.net.peer import Disconnected, Peer
from headrace.protocol.messages import HeartbeatRequest
from headrace.testing.sim.process import Process
from headrace.testing.sim.simulation import Simulation
from tests.sim.test_processes import answer, connected, for_ever, heartbeat, serve, simulate


class Client:
    """A process that does what a test asks of it."""

    def __init__(self, simulation: Simulation, name: str) -> None:
        self.process = simulation.host(name).start("client", for_ever)

    async def connect(self, host: str, timeout_seconds: float = 300) -> Peer:
        peer: Peer = await self.process.spawn(connected(host, timeout_seconds))
        return peer

    def beat(self, peer: Peer, number: int, timeout_seconds: float = 300) -> asyncio.Task[int]:
        return self.process.spawn(heartbeat(peer, number, timeout_seconds))


def test_a_cut_holds_bytes_back_until_it_heals() -> None:
    async def scenario(simulation: Simulation) -> None:
        simulation.host("a").start("main", serve)
        client = Client(simulation, "b")
        peer = await client.connect("a")
        simulation.network.cut("a", "b")
        beats = [client.beat(peer, number) for number in range(10)]
        await asyncio.sleep(20)
        assert not any(beat.done() for beat in beats)
        simulation.network.heal("a", "b")
        assert [await beat for beat in beats] == list(range(10))

    simulate(scenario)


@pytest.mark.parametrize(("source", "target", "arrives"), [("a", "b", True), ("b", "a", False)])
def test_a_link_can_be_cut_in_one_direction(source: str, target: str, arrives: bool) -> None:
    seen: list[int] = []

    async def noting(process: Process) -> None:
        def handler(connection: object, frame: memoryview) -> None:
            seen.append(len(frame))
            answer(connection, frame)

        await Listener("test", handler).start("a", 9092)
        await asyncio.Event().wait()

    async def scenario(simulation: Simulation) -> None:
        simulation.host("a").start("main", noting)
        client = Client(simulation, "b")
        peer = await client.connect("a")
        simulation.network.cut(source, target, both=False)
        beat = client.beat(peer, 1)
        await asyncio.sleep(5)
        assert not beat.done()
        assert bool(seen) == arrives
        simulation.network.heal("a", "b")
        assert await beat == 1

    simulate(scenario)


def test_who_sends_into_a_cut_for_long_is_told() -> None:
    async def scenario(simulation: Simulation) -> None:
        simulation.host("a").start("main", serve)
        client = Client(simulation, "b")
        peer = await client.connect("a")
        simulation.network.cut("b", "a")
        with pytest.raises(Disconnected):
            await client.beat(peer, 1)
        with pytest.raises(Disconnected, match="did not answer"):
            await client.connect("a")

    simulate(scenario)


def test_a_connection_that_waits_for_the_network_comes_when_it_heals() -> None:
    async def scenario(simulation: Simulation) -> None:
        simulation.host("a").start("main", serve)
        client = Client(simulation, "b")
        simulation.network.cut("a", "b")
        connecting = asyncio.ensure_future(client.connect("a"))
        await asyncio.sleep(5)
        assert not connecting.done()
        simulation.network.heal_all()
        assert await client.beat(await connecting, 3) == 3

    simulate(scenario)


def test_a_partition_parts_groups_and_nobody_else() -> None:
    async def scenario(simulation: Simulation) -> None:
        names = ["a", "b", "c", "d"]
        for name in names:
            simulation.host(name).start("main", serve)
        clients = {name: Client(simulation, name) for name in names}
        simulation.network.partition(["a", "b"], ["c"])
        for source in names:
            for target in names:
                parted = {source, target} in ({"a", "c"}, {"b", "c"})
                try:
                    await clients[source].connect(target, timeout_seconds=1)
                    assert not parted
                except Disconnected:
                    assert parted

    simulate(scenario)


def test_a_reset_breaks_connections_between_two_hosts_and_no_other() -> None:
    async def scenario(simulation: Simulation) -> None:
        simulation.host("a").start("main", serve)
        one, two = Client(simulation, "b"), Client(simulation, "c")
        first, second = await one.connect("a"), await two.connect("a")
        simulation.network.reset("a", "b")
        await asyncio.sleep(1)
        assert not first.is_connected
        assert await two.beat(second, 7) == 7

    simulate(scenario)


def test_a_refused_connection_is_one_sentence() -> None:
    async def scenario(simulation: Simulation) -> None:
        simulation.host("a").start("main", serve)
        client = Client(simulation, "b")
        simulation.network.weather.refuse_chance = 1.0
        with pytest.raises(Disconnected, match="can't connect to a:9092: Connection refused"):
            await client.connect("a")
        with pytest.raises(Disconnected, match="can't connect to nobody:9092: "):
            await client.connect("nobody")

    simulate(scenario)


def test_a_listener_on_the_loopback_is_not_reached_from_other_hosts() -> None:
    async def local(process: Process) -> None:
        await Listener("test", answer).start("127.0.0.1", 9092)
        await connected("localhost")
        await connected("127.0.0.1")
        await asyncio.Event().wait()

    async def scenario(simulation: Simulation) -> None:
        simulation.host("a").start("main", local)
        with pytest.raises(Disconnected, match="refused"):
            await Client(simulation, "b").connect("a")

    simulate(scenario)


def test_the_same_port_on_two_hosts_and_every_address_of_one() -> None:
    async def everywhere(process: Process) -> None:
        assert await Listener("test", answer).start("0.0.0.0", 9092) == ("0.0.0.0", 9092)
        with pytest.raises(HeadraceError, match="in use"):
            await Listener("test", answer).start("127.0.0.1", 9092)
        with pytest.raises(HeadraceError, match="no address b"):
            await Listener("test", answer).start("b", 9093)
        await asyncio.Event().wait()

    async def scenario(simulation: Simulation) -> None:
        simulation.host("a").start("main", everywhere)
        simulation.host("b").start("main", serve)
        client = Client(simulation, "c")
        for host in ("a", "b", simulation.host("a").address):
            assert await client.beat(await client.connect(host), 1) == 1

    simulate(scenario)


class Recorder(asyncio.Protocol):
    """Notes what the loop tells it, and does not read unless told to."""

    def __init__(self, *, reads: bool = True) -> None:
        self.reads = reads
        self.data = bytearray()
        self.told: list[str] = []
        self.lost: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()
        self.transport: asyncio.Transport = None  # type: ignore[assignment]

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        if not self.reads:
            transport.pause_reading()

    def data_received(self, data: bytes) -> None:
        self.data += data

    def eof_received(self) -> bool:
        self.told.append("end")
        return True

    def pause_writing(self) -> None:
        self.told.append("pause")

    def resume_writing(self) -> None:
        self.told.append("resume")

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.set_result(exc)


async def pair(*, reads: bool = True) -> tuple[Recorder, Recorder]:
    """Two ends of a connection; the second may not read."""
    loop = asyncio.get_running_loop()
    far = Recorder(reads=reads)
    server = await loop.create_server(lambda: far, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    _, near = await loop.create_connection(Recorder, "127.0.0.1", port)
    await asyncio.sleep(0.1)
    server.close()
    return near, far


def test_a_writer_stops_and_goes_on_by_its_limits() -> None:
    async def scenario(simulation: Simulation) -> None:
        simulation.network.weather.window_bytes_min = simulation.network.weather.window_bytes_max = 10_000
        near, far = await pair(reads=False)
        near.transport.set_write_buffer_limits(high=50_000, low=20_000)
        data = bytes(range(256)) * 1000
        near.transport.write(data)
        await asyncio.sleep(10)
        assert near.told == ["pause"]
        assert near.transport.get_write_buffer_size() == len(data) - 10_000
        far.transport.resume_reading()
        await asyncio.sleep(10)
        assert near.told == ["pause", "resume"]
        assert bytes(far.data) == data

    simulate(scenario)


def test_a_half_closed_connection_still_brings_answers() -> None:
    async def scenario(simulation: Simulation) -> None:
        near, far = await pair()
        near.transport.write(b"question")
        near.transport.write_eof()
        with pytest.raises(RuntimeError, match="write_eof"):
            near.transport.write(b"more")
        await asyncio.sleep(1)
        assert (bytes(far.data), far.told) == (b"question", ["end"])
        far.transport.write(b"answer")
        far.transport.close()
        assert await far.lost is None
        await asyncio.sleep(1)
        assert (bytes(near.data), near.told) == (b"answer", ["end"])

    simulate(scenario)


def test_a_connection_closed_with_bytes_unread_is_reset() -> None:
    async def scenario(simulation: Simulation) -> None:
        near, far = await pair(reads=False)
        near.transport.write(b"nobody reads this")
        await asyncio.sleep(1)
        far.transport.close()
        assert isinstance(await near.lost, ConnectionResetError)

    simulate(scenario)


def test_bytes_for_a_connection_that_is_closed_are_answered_by_a_reset() -> None:
    async def scenario(simulation: Simulation) -> None:
        near, far = await pair()
        far.transport.abort()
        await asyncio.sleep(1)
        assert near.told == ["end"]
        near.transport.write(b"hello?")
        await asyncio.sleep(1)
        near.transport.write(b"hello?")
        assert isinstance(await near.lost, ConnectionResetError)

    simulate(scenario)


def test_what_was_written_before_a_close_arrives_and_after_an_abort_may_not() -> None:
    async def scenario(simulation: Simulation) -> None:
        simulation.network.weather.window_bytes_min = simulation.network.weather.window_bytes_max = 1000
        near, far = await pair()
        near.transport.write(bytes(50_000))
        near.transport.close()
        assert near.transport.is_closing()
        await asyncio.sleep(5)
        assert len(far.data) == 50_000
        near, far = await pair()
        near.transport.write(bytes(50_000))
        near.transport.abort()
        await asyncio.sleep(5)
        assert len(far.data) < 50_000

    simulate(scenario)


def test_a_paused_reader_stops_its_sender_by_the_window() -> None:
    async def scenario(simulation: Simulation) -> None:
        process = simulation.host("a").start("main", serve)
        client = Client(simulation, "b")
        peer = await client.connect("a")
        process.pause()

        async def flood() -> int:
            sent = 0
            async with asyncio.timeout(5):
                while True:
                    peer.send_without_reply(HeartbeatRequest(group_id="x" * 10_000), 1)
                    sent += 1
                    await peer.drain()

        with pytest.raises(TimeoutError):
            await client.process.spawn(flood())

    simulate(scenario)


def test_a_server_that_accepts_nothing_keeps_callers_waiting() -> None:
    async def stopped(process: Process) -> None:
        await asyncio.get_running_loop().create_server(asyncio.Protocol, "a", 9092, backlog=2)
        process.pause()
        await asyncio.Event().wait()

    async def scenario(simulation: Simulation) -> None:
        simulation.host("a").start("main", stopped)
        client = Client(simulation, "b")
        await asyncio.sleep(1)
        await client.connect("a")
        await client.connect("a")
        with pytest.raises(Disconnected, match="did not answer"):
            await client.connect("a", timeout_seconds=3)

    simulate(scenario)


def test_names_are_found_and_strangers_are_not() -> None:
    async def scenario(simulation: Simulation) -> None:
        loop = asyncio.get_running_loop()
        simulation.host("a")
        (found,) = await loop.getaddrinfo("a", 1)
        assert found[4] == (simulation.host("a").address, 1)
        with pytest.raises(socket.gaierror):
            await loop.getaddrinfo("nobody", 1)

    simulate(scenario)
