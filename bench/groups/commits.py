"""Commits of offsets a second: `python -m bench.groups.commits [--peers ours,kafka]`.

Each connection is a consumer without a group's protocol that commits one partition, waits for the answer, and commits
again. Both brokers sync each batch before it counts (`log.flush.interval.messages=1`). Peers take turns; the first
round is not counted. The client is one process of asyncio on the same machine, the same for both.

The bar: at least twice Kafka's.
"""

from __future__ import annotations

import asyncio
import struct
import time
from typing import Final, NamedTuple, cast

import uvloop

from bench.node import peers
from bench.node.report import arguments_of, middle, ratio, say, show
from bench.node.topics import topic_of
from headrace.protocol import messages as m
from headrace.protocol.frame import write_request
from tests.compat.wire import Wire

CONNECTIONS: Final = (1, 20, 200)
ROUND_S: Final = 6.0
VERSION: Final = 9
DURABLE: Final = ("log.flush.interval.messages=1",)
CORRELATION_ID: Final = 7
_SIZE: Final = struct.Struct(">i")


class Result(NamedTuple):
    a_second: float
    cpu_us: float
    p99_ms: float


class Committer(asyncio.Protocol):
    def __init__(self, frame: bytes, found: list[float]) -> None:
        self._frame = frame
        self._found = found
        self._buffer = b""
        self._sent_s = 0.0
        self._is_ended = False
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._send()

    def _send(self) -> None:
        assert self._transport is not None
        self._sent_s = time.perf_counter()
        self._transport.write(self._frame)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        if len(self._buffer) < 4 or len(self._buffer) < 4 + _SIZE.unpack_from(self._buffer)[0]:
            return
        reply, self._buffer = self._buffer, b""
        if reply[-5:-3] != b"\x00\x00":  # the error, before the tags of the partition, the topic and the response
            raise SystemExit(f"a commit was refused: {reply!r}")
        self._found.append(time.perf_counter() - self._sent_s)
        if not self._is_ended:
            self._send()

    def end(self) -> None:
        self._is_ended = True
        assert self._transport is not None
        self._transport.close()


def frame_of(topic: str, group: str) -> bytes:
    kind = m.OffsetCommitRequest
    partition = kind.OffsetCommitRequestPartition(partition_index=0, committed_offset=12345, committed_metadata="")
    request = kind(group_id=group, topics=[kind.OffsetCommitRequestTopic(name=topic, partitions=[partition])])
    return b"".join(write_request(request, VERSION, CORRELATION_ID, "a-bench"))


async def commit(peer: peers.Peer, topic: str, connections: int, seconds: float) -> Result:
    host, _, port = peer.bootstrap.rpartition(":")
    loop = asyncio.get_running_loop()
    found: list[float] = []
    committers = [
        (
            await loop.create_connection(
                lambda number=number: Committer(frame_of(topic, f"g{number}"), found),  # type: ignore[misc]
                host,
                int(port),
            )
        )[1]
        for number in range(connections)
    ]
    await asyncio.sleep(seconds / 4)
    found.clear()
    start_s, start_cpu_s = time.perf_counter(), peer.cpu_s()
    await asyncio.sleep(seconds)
    count, took_s, cpu_s = len(found), time.perf_counter() - start_s, peer.cpu_s() - start_cpu_s
    waited = sorted(found[:count])
    for committer in committers:
        committer.end()
    await asyncio.sleep(0.05)
    return Result(count / took_s, cpu_s / count * 1e6, waited[int(count * 0.99)] * 1000)


def ready(peer: peers.Peer, connections: int) -> None:
    """The coordinators of all groups are there and loaded."""
    with Wire(peer.bootstrap) as wire:
        for number in range(connections):
            asked = m.OffsetFetchRequest.OffsetFetchRequestGroup(group_id=f"g{number}", topics=None)
            while wire.ask(m.FindCoordinatorRequest(coordinator_keys=[f"g{number}"]), 4).coordinators[0].error_code:
                time.sleep(0.1)
            while wire.ask(m.OffsetFetchRequest(groups=[asked]), 8).groups[0].error_code:
                time.sleep(0.1)


def main() -> None:
    parser = arguments_of(__doc__, ("ours", "kafka"))
    parser.add_argument("--connections", default=",".join(map(str, CONNECTIONS)))
    options = parser.parse_args()
    names = tuple(options.peers.split(","))
    seconds = ROUND_S * options.scale
    rows = []
    with peers.running(names, DURABLE) as running:
        for connections in map(int, options.connections.split(",")):
            found: dict[str, list[Result]] = {name: [] for name in running}
            for peer in running.values():
                ready(peer, connections)
            for number in range(options.rounds):
                for name, peer in running.items():
                    say(f"{name}, {connections} connections, round {number}")
                    with topic_of(peer, 1) as topic:
                        found[name].append(uvloop.run(commit(peer, topic, connections, seconds)))
            ours = middle([result.a_second for result in found[names[0]]])
            for name, results in found.items():
                a_second = middle([result.a_second for result in results])
                rows.append(
                    [
                        f"{connections} connections, {name}",
                        f"{a_second:,.0f}",
                        ratio(ours, a_second),
                        f"{middle([result.cpu_us for result in results]):.0f}",
                        f"{middle([result.p99_ms for result in results]):.1f}",
                    ]
                )
    show(
        "Commits of offsets",
        "one partition a commit, one commit in flight a connection, each batch synced before it counts",
        ("", "commits/s", "ours to it", "CPU µs a commit", "p99 ms"),
        rows,
    )


if __name__ == "__main__":
    main()
