"""An echo service and its clients on `net`, in trouble: what the simulated network and the real framing make of it.

What must hold: a connection's requests reach the handler in order, whole and without a gap; a reply is the one of its
request, byte for byte; nothing unreadable ever arrives; after the trouble everybody is served.
"""

from __future__ import annotations

import asyncio
import random
from typing import Any

from headrace.errors import HeadraceError
from headrace.net.connection import Connection
from headrace.net.listener import Limits, Listener
from headrace.net.peer import Disconnected, Peer
from headrace.protocol.frame import Request, read_request, write_response
from headrace.protocol.messages import SyncGroupRequest, SyncGroupResponse
from headrace.testing.sim.chaos import Chaos, Odds
from headrace.testing.sim.process import Process
from headrace.testing.sim.simulation import Simulation, Violation

PORT = 9092
VERSION = 3
CLIENTS = 2
TROUBLE_SECONDS = 4.0


async def echo(simulation: Simulation) -> None:
    server = simulation.host("server")
    server.start("echo", lambda process: serve(simulation, process))
    clients = [EchoClient(simulation, f"client-{number}") for number in range(CLIENTS)]
    for client in clients:
        simulation.host(client.name).start("client", client.run)
    await Chaos(simulation, [server], Odds(machine_crash=1), gap_seconds=0.4, outage_seconds=0.3).run(TROUBLE_SECONDS)
    for client in clients:
        client.answered_since_trouble = 0
    async with asyncio.timeout(120):
        while not all(client.answered_since_trouble >= 3 for client in clients):
            await asyncio.sleep(0.05)
    if simulation.findings:
        raise Violation(simulation.findings[0])


async def serve(simulation: Simulation, process: Process) -> None:
    chance = process.chance
    limits = Limits(requests_in_flight=chance.randint(1, 12), write_bytes=1 << chance.randint(12, 18))
    await Listener("echo", EchoHandler(simulation, process.chance), limits).start("server", PORT)
    await asyncio.Event().wait()


class EchoHandler:
    """Answers at once or later. Requests of one connection are numbered, so a lost one shows."""

    def __init__(self, simulation: Simulation, chance: random.Random) -> None:
        self._simulation = simulation
        self._chance = chance

    def __call__(self, connection: Connection, frame: memoryview) -> None:
        request = read_request(frame)
        assert isinstance(request, Request)
        body = request.body
        expected = connection.state or 0
        if body.generation_id != expected:
            self._simulation.finding(f"request {body.generation_id} came where {expected} was due")
        connection.state = body.generation_id + 1
        response = SyncGroupResponse(
            throttle_time_ms=body.generation_id, assignment=bytes(body.assignments[0].assignment)
        )
        buffers = write_response(response, request.version, request.correlation_id)
        if self._chance.random() < 0.5:
            connection.reply(buffers)
        else:
            slot = connection.reserve()
            asyncio.get_running_loop().call_later(self._chance.expovariate(1 / 0.005), slot.fill, buffers)


class EchoClient:
    def __init__(self, simulation: Simulation, name: str) -> None:
        self.name = name
        self.answered_since_trouble = 0
        self._simulation = simulation

    async def run(self, process: Process) -> None:
        while True:
            try:
                await self._link(process.chance)
            except Disconnected as error:
                # Nobody here sends what can't be read, so whoever reads it is wrong.
                if "can't be read" in str(error):
                    self._simulation.finding(f"{self.name}: {error}")
            except HeadraceError as error:
                self._simulation.finding(f"{self.name}: {error}")
            await asyncio.sleep(process.chance.uniform(0, 0.1))

    async def _link(self, chance: random.Random) -> None:
        peer = Peer("server", PORT, self.name)
        await peer.connect(timeout_seconds=2)
        number = 0
        try:
            while True:
                calls = []
                for _ in range(chance.randint(1, 20)):
                    calls.append(asyncio.ensure_future(self._call(peer, number, chance)))
                    number += 1
                for call in calls:
                    await call
                await asyncio.sleep(chance.expovariate(1 / 0.05))
        finally:
            peer.close()

    async def _call(self, peer: Peer, number: int, chance: random.Random) -> None:
        size = chance.choice((10, 10, 1000, 20_000))
        payload = chance.randbytes(8) * (size // 8)
        assignment = SyncGroupRequest.SyncGroupRequestAssignment(assignment=payload)
        request = SyncGroupRequest(group_id=self.name, generation_id=number, assignments=[assignment])
        response: Any = await peer.call(request, VERSION, timeout_seconds=3)
        if response.throttle_time_ms != number or bytes(response.assignment) != payload:
            self._simulation.finding(f"{self.name} asked {number} and got the answer to {response.throttle_time_ms}")
        self.answered_since_trouble += 1
