"""Heartbeats of many groups, by either protocol, and what they cost the broker.

Groups of two members, whose heartbeats are evenly spread, each by itself in a packet of its own; several members share
a connection, because a process may not open as many. CPU is that of the broker while they beat, less what it takes when
they are silent. The client is one process of asyncio on the same machine.
"""

from __future__ import annotations

import asyncio
import struct
import time
from collections.abc import Awaitable, Callable
from itertools import cycle, islice
from typing import Any, Final, NamedTuple

import uvloop

from bench.groups.coordinators import coordinators_ready
from bench.node import peers
from bench.node.report import arguments_of, middle, say, show
from headrace.net.peer import Peer

CONNECTIONS: Final = 2000
ROUND_S: Final = 12.0
TICK_S: Final = 0.005
JOINED_AT_ONCE: Final = 200
_REPLY: Final = struct.Struct(">i9xh")
"""Size; correlation id, tags and throttle time; error: of both protocols."""


class Kind(NamedTuple):
    title: str
    interval_s: float
    settings: tuple[str, ...]
    formed: Callable[[Peer, Peer, str], Awaitable[list[bytes]]]
    """Forms a group of two members, by a link of each; returns their heartbeats."""
    prepare: Callable[[peers.Peer], None] = lambda peer: None


class Result(NamedTuple):
    cores: float
    beats_a_second: float
    p99_ms: float


class Beats(asyncio.Protocol):
    """A connection; replies come in the order of the requests."""

    def __init__(self, waited: list[float]) -> None:
        self._waited = waited
        self._buffer = b""
        self._sent_s: list[float] = []
        self.transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def send(self, frame: bytes) -> None:
        self._sent_s.append(time.perf_counter())
        self.transport.write(frame)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while len(self._buffer) >= _REPLY.size:
            size, error = _REPLY.unpack_from(self._buffer)
            if len(self._buffer) < size + 4:
                break
            if error:
                raise SystemExit(f"a heartbeat was refused: {error}")
            self._buffer = self._buffer[size + 4 :]
            self._waited.append(time.perf_counter() - self._sent_s.pop(0))


async def form(kind: Kind, host: str, port: int, groups: list[str]) -> list[bytes]:
    """All groups, some at a time."""
    frames: list[bytes] = []
    links = [(Peer(host, port, "a-bench"), Peer(host, port, "a-bench")) for _ in range(JOINED_AT_ONCE)]
    await asyncio.gather(*(link.connect(30) for pair in links for link in pair))
    for start in range(0, len(groups), JOINED_AT_ONCE):
        some = zip(links, groups[start : start + JOINED_AT_ONCE], strict=False)
        for beats in await asyncio.gather(*(kind.formed(*pair, group) for pair, group in some)):
            frames += beats
    for pair in links:
        for link in pair:
            link.close()
    return frames


async def beat(
    kind: Kind, peer: peers.Peer, groups: list[str], frames: dict[str, list[bytes]], seconds: float
) -> Result:
    host, _, port = peer.bootstrap.rpartition(":")
    if peer.name not in frames:
        say(f"{peer.name}: {len(groups)} groups are formed")
        frames[peer.name] = await form(kind, host, int(port), groups)
    loop = asyncio.get_running_loop()
    waited: list[float] = []
    beats = [
        (await loop.create_connection(lambda: Beats(waited), host, int(port)))[1]
        for _ in range(min(CONNECTIONS, len(frames[peer.name])))
    ]
    await asyncio.sleep(0.5)
    idle_cores = await cores_over(peer, seconds / 3)
    sending = cycle(zip(cycle(beats), frames[peer.name], strict=False))
    task = loop.create_task(send_evenly(sending, len(frames[peer.name]) / kind.interval_s))
    await asyncio.sleep(kind.interval_s)
    waited.clear()
    busy_cores = await cores_over(peer, seconds)
    found = sorted(waited)
    task.cancel()
    for one in beats:
        one.transport.close()
    await asyncio.sleep(0.2)
    return Result(busy_cores - idle_cores, len(found) / seconds, found[int(len(found) * 0.99)] * 1000)


async def send_evenly(sending: Any, a_second: float) -> None:
    start_s, sent = time.perf_counter(), 0
    while True:
        due = int((time.perf_counter() - start_s) * a_second)
        for connection, frame in islice(sending, due - sent):
            connection.send(frame)
        sent = due
        await asyncio.sleep(TICK_S)


async def cores_over(peer: peers.Peer, seconds: float) -> float:
    start_s, start_cpu_s = time.perf_counter(), peer.cpu_s()
    await asyncio.sleep(seconds)
    return (peer.cpu_s() - start_cpu_s) / (time.perf_counter() - start_s)


def main(description: str | None, kind: Kind) -> None:
    parser = arguments_of(description, ("ours", "kafka"))
    parser.add_argument("--groups", type=int, default=10_000)
    options = parser.parse_args()
    names = tuple(options.peers.split(","))
    groups = [f"group-{number}" for number in range(options.groups)]
    frames: dict[str, list[bytes]] = {}
    found: dict[str, list[Result]] = {name: [] for name in names}
    with peers.running(names, kind.settings) as running:
        for peer in running.values():
            kind.prepare(peer)
            coordinators_ready(peer, groups[:: max(len(groups) // 500, 1)])
        for number in range(options.rounds):
            for name, peer in running.items():
                say(f"{name}, round {number}")
                found[name].append(uvloop.run(beat(kind, peer, groups, frames, ROUND_S * options.scale)))
    show(
        kind.title,
        f"{len(groups):,} groups of 2 members, a heartbeat every {kind.interval_s:g} s each, {CONNECTIONS} connections",
        ("", "cores", "µs a heartbeat", "heartbeats/s", "p99 ms"),
        [
            [
                name,
                f"{middle([one.cores for one in results]):.2f}",
                f"{middle([one.cores / one.beats_a_second * 1e6 for one in results]):.0f}",
                f"{middle([one.beats_a_second for one in results]):,.0f}",
                f"{middle([one.p99_ms for one in results]):.1f}",
            ]
            for name, results in found.items()
        ],
    )
