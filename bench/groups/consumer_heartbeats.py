"""What heartbeats of the new consumer protocol cost: `python -m bench.groups.consumer_heartbeats [--peers ours,kafka]`.

As `bench.groups.heartbeats`, with groups of two members that heartbeat every 5 s.

The bar: 10,000 groups take at most a fifth of a core.
"""

from __future__ import annotations

import asyncio
import time
from itertools import cycle
from typing import Any, Final

import uvloop

from bench.groups.heartbeats import CONNECTIONS, JOINED_AT_ONCE, Result, coordinator_ready, cores_over, send_evenly
from bench.node import peers
from bench.node.report import arguments_of, middle, say, show
from headrace.net.peer import Peer
from headrace.protocol import messages as m
from headrace.protocol.frame import write_request
from tests.compat.wire import Wire

INTERVAL_S: Final = 5.0
ROUND_S: Final = 12.0
TOPIC: Final = "beaten"
SETTINGS: Final = (
    "group.consumer.session.timeout.ms=600000",
    "group.consumer.max.session.timeout.ms=600000",
)
_ERROR_AT: Final = 13
"""Behind size, correlation id, tags and throttle time."""


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
        while len(self._buffer) >= 4 and len(self._buffer) >= (size := int.from_bytes(self._buffer[:4]) + 4):
            if error := int.from_bytes(self._buffer[_ERROR_AT : _ERROR_AT + 2], signed=True):
                raise SystemExit(f"a heartbeat was refused: {error}")
            self._buffer = self._buffer[size:]
            self._waited.append(time.perf_counter() - self._sent_s.pop(0))


async def formed(peer: Peer, group: str) -> list[bytes]:
    """Two members, one after the other, until each has a partition; returns their heartbeats."""
    kind = m.ConsumerGroupHeartbeatRequest
    ids, epochs = (f"{group}-a", f"{group}-b"), [0, 0]
    owned: list[list[Any]] = [[], []]
    while True:
        for number in (0, 1):
            body = kind(
                group_id=group,
                member_id=ids[number],
                member_epoch=epochs[number],
                rebalance_timeout_ms=60_000,
                subscribed_topic_names=[TOPIC],
                topic_partitions=owned[number],
            )
            told: Any = await peer.send(body, 1)
            assert not told.error_code, told
            epochs[number] = told.member_epoch
            owned[number] = [
                kind.TopicPartitions(topic_id=topic.topic_id, partitions=topic.partitions)
                for topic in told.assignment.topic_partitions
            ]
        if epochs[0] == epochs[1] and owned[0] and owned[1]:
            beats = (kind(group_id=group, member_id=ids[number], member_epoch=epochs[number]) for number in (0, 1))
            return [b"".join(write_request(beat, 1, 7, "a-bench")) for beat in beats]


async def form(host: str, port: int, groups: list[str]) -> list[bytes]:
    frames: list[bytes] = []
    links = [Peer(host, port, "a-bench") for _ in range(JOINED_AT_ONCE)]
    await asyncio.gather(*(link.connect(30) for link in links))
    for start in range(0, len(groups), JOINED_AT_ONCE):
        some = groups[start : start + JOINED_AT_ONCE]
        for pair in await asyncio.gather(*(formed(links[number], group) for number, group in enumerate(some))):
            frames += pair
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
    task = loop.create_task(send_evenly(sending, len(frames[peer.name]) / INTERVAL_S))
    await asyncio.sleep(INTERVAL_S)
    waited.clear()
    busy_cores = await cores_over(peer, seconds)
    found = sorted(waited)
    task.cancel()
    for one in beats:
        one.transport.close()
    await asyncio.sleep(0.2)
    return Result(busy_cores - idle_cores, len(found) / seconds, found[int(len(found) * 0.99)] * 1000)


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
            with Wire(peer.bootstrap) as wire:
                topic = m.CreateTopicsRequest.CreatableTopic(name=TOPIC, num_partitions=2, replication_factor=1)
                wire.ask(m.CreateTopicsRequest(topics=[topic], timeout_ms=30_000), 7)
            coordinator_ready(peer, groups[:: max(len(groups) // 500, 1)])
        for number in range(options.rounds):
            for name, peer in running.items():
                say(f"{name}, round {number}")
                found[name].append(uvloop.run(beat(peer, groups, frames, ROUND_S * options.scale)))
    show(
        "Heartbeats of the new consumer protocol",
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
