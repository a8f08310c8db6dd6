"""What heartbeats of classic groups cost: `python -m bench.groups.heartbeats [--peers ours,kafka] [--groups 10000]`.

Groups of two members that heartbeat every 3 s, evenly spread, each by itself in a packet of its own; several members
share a connection, because a process may not open as many. CPU is that of the broker while they beat, less what it
takes when they are silent. The client is one process of asyncio on the same machine.

The bar: 10,000 groups take at most a third of a core.
"""

from __future__ import annotations

import asyncio
import struct
import time
from collections.abc import Iterable
from itertools import cycle, islice
from typing import Any, Final, NamedTuple, cast

import uvloop

from bench.node import peers
from bench.node.report import arguments_of, middle, say, show
from headrace.net.peer import Peer
from headrace.protocol import messages as m
from headrace.protocol.frame import write_request
from tests.compat.wire import Wire

CONNECTIONS: Final = 2000
INTERVAL_S: Final = 3.0
SESSION_MS: Final = 300_000
ROUND_S: Final = 12.0
TICK_S: Final = 0.005
JOINED_AT_ONCE: Final = 200
SETTINGS: Final = ("group.initial.rebalance.delay.ms=300",)
_REPLY: Final = struct.Struct(">iibihb")
"""Size, correlation id, tags, throttle time, error, tags: of v4."""


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
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def send(self, frame: bytes) -> None:
        assert self.transport is not None
        self._sent_s.append(time.perf_counter())
        self.transport.write(frame)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while len(self._buffer) >= _REPLY.size:
            reply, self._buffer = self._buffer[: _REPLY.size], self._buffer[_REPLY.size :]
            if _REPLY.unpack(reply)[4]:
                raise SystemExit(f"a heartbeat was refused: {_REPLY.unpack(reply)}")
            self._waited.append(time.perf_counter() - self._sent_s.pop(0))


def coordinator_ready(peer: peers.Peer, groups: Iterable[str]) -> None:
    with Wire(peer.bootstrap) as wire:
        for group in groups:
            asked = m.OffsetFetchRequest.OffsetFetchRequestGroup(group_id=group, topics=None)
            while wire.ask(m.FindCoordinatorRequest(coordinator_keys=[group]), 4).coordinators[0].error_code:
                time.sleep(0.1)
            while wire.ask(m.OffsetFetchRequest(groups=[asked]), 8).groups[0].error_code:
                time.sleep(0.1)


async def member(peer: Peer, group: str) -> bytes:
    """Joins and gets its assignment; returns its heartbeat."""
    body = m.JoinGroupRequest(
        group_id=group,
        session_timeout_ms=SESSION_MS,
        rebalance_timeout_ms=60_000,
        protocol_type="consumer",
        protocols=[m.JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=bytes(64))],
    )
    joined: Any = await peer.send(body, 3)
    assert not joined.error_code, joined
    assignments = [
        m.SyncGroupRequest.SyncGroupRequestAssignment(member_id=one.member_id, assignment=bytes(32))
        for one in joined.members
    ]
    asked = m.SyncGroupRequest(
        group_id=group,
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        assignments=assignments,
    )
    synced: Any = await peer.send(asked, 3)
    assert not synced.error_code, synced
    beat = m.HeartbeatRequest(group_id=group, generation_id=joined.generation_id, member_id=joined.member_id)
    return b"".join(write_request(beat, 4, 7, "a-bench"))


async def form(host: str, port: int, groups: list[str]) -> list[bytes]:
    """All groups, some at a time; both members of one wait for each other."""
    frames: list[bytes] = []
    links = [Peer(host, port, "a-bench") for _ in range(2 * JOINED_AT_ONCE)]
    await asyncio.gather(*(link.connect(30) for link in links))
    for start in range(0, len(groups), JOINED_AT_ONCE):
        some = groups[start : start + JOINED_AT_ONCE]
        frames += await asyncio.gather(
            *(member(links[2 * number + half], group) for number, group in enumerate(some) for half in (0, 1))
        )
    for link in links:
        link.close()
    return frames


async def beat(peer: peers.Peer, groups: list[str], frames: dict[str, list[bytes]], seconds: float) -> Result:
    host, _, port = peer.bootstrap.rpartition(":")
    if peer.name not in frames:
        say(f"{peer.name}: {len(groups)} groups are formed")
        frames[peer.name] = await form(host, int(port), groups)
    loop = asyncio.get_running_loop()
    waited: list[float] = []
    beats = [
        (await loop.create_connection(lambda: Beats(waited), host, int(port)))[1]
        for _ in range(min(CONNECTIONS, len(frames[peer.name])))
    ]
    await asyncio.sleep(0.5)
    idle_cores = await cores_over(peer, seconds / 3)
    sending = cycle(zip(cycle(beats), frames[peer.name], strict=False))
    a_second = len(frames[peer.name]) / INTERVAL_S
    task = loop.create_task(send_evenly(sending, a_second))
    await asyncio.sleep(INTERVAL_S)
    waited.clear()
    busy_cores = await cores_over(peer, seconds)
    found = sorted(waited)
    task.cancel()
    for one in beats:
        assert one.transport is not None
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


def main() -> None:
    parser = arguments_of(__doc__, ("ours", "kafka"))
    parser.add_argument("--groups", type=int, default=10_000)
    options = parser.parse_args()
    names = tuple(options.peers.split(","))
    groups = [f"group-{number}" for number in range(options.groups)]
    frames: dict[str, list[bytes]] = {}
    found: dict[str, list[Result]] = {name: [] for name in names}
    with peers.running(names, SETTINGS) as running:
        for peer in running.values():
            coordinator_ready(peer, groups[:: max(len(groups) // 500, 1)])
        for number in range(options.rounds):
            for name, peer in running.items():
                say(f"{name}, round {number}")
                found[name].append(uvloop.run(beat(peer, groups, frames, ROUND_S * options.scale)))
    show(
        "Heartbeats of classic groups",
        f"{len(groups):,} groups of 2 members, a heartbeat every {INTERVAL_S:g} s each, {CONNECTIONS} connections",
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


if __name__ == "__main__":
    main()
