"""Commits of offsets a second: `python -m bench.groups.commits [--peers ours,kafka]`.

Each connection is a consumer without a group's protocol that commits one partition, waits for the answer, and commits
again. Both brokers sync each batch before it counts (`log.flush.interval.messages=1`). Peers take turns; the first
round is not counted. The client is written in C and sends requests that were encoded beforehand, the same for both.

The bar: at least twice Kafka's.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from bench.groups.coordinators import coordinators_ready
from bench.node import load, peers
from bench.node.report import arguments_of, middle, ratio, say, show
from bench.node.topics import topic_of
from headrace.protocol import messages as m
from headrace.protocol.frame import write_request

COMMITS: Final = {1: 6_000, 20: 40_000, 200: 80_000}
"""By connections: how many of them a round has."""
VERSION: Final = 9
DURABLE: Final = ("log.flush.interval.messages=1",)
CORRELATION_ID: Final = 7


class Result(NamedTuple):
    a_second: float
    cpu_us: float
    p99_ms: float


def frame_of(topic: str, group: str) -> bytes:
    kind = m.OffsetCommitRequest
    partition = kind.OffsetCommitRequestPartition(partition_index=0, committed_offset=12345, committed_metadata="")
    request = kind(group_id=group, topics=[kind.OffsetCommitRequestTopic(name=topic, partitions=[partition])])
    return b"".join(write_request(request, VERSION, CORRELATION_ID, "a-bench"))


def commit(peer: peers.Peer, topic: str, connections: int, commits: int) -> Result:
    frames = [frame_of(topic, f"g{number}") for number in range(connections)]
    error_at = (
        4 + 4 + 1 + 4 + 1 + 1 + len(topic) + 1 + 4
    )  # size, correlation id, tags, throttle, topics, name, ..., index
    start_cpu_s = peer.cpu_s()
    result = load.ask(peer.bootstrap, frames, commits, error_at).result()
    return Result(commits / result.wall_s, (peer.cpu_s() - start_cpu_s) / commits * 1e6, result.p99_ms)


def main() -> None:
    parser = arguments_of(__doc__, ("ours", "kafka"))
    options = parser.parse_args()
    names = tuple(options.peers.split(","))
    rows = []
    with peers.running(names, DURABLE) as running:
        for connections, commits in COMMITS.items():
            found: dict[str, list[Result]] = {name: [] for name in running}
            for peer in running.values():
                coordinators_ready(peer, (f"g{number}" for number in range(connections)))
            for number in range(options.rounds):
                for name, peer in running.items():
                    say(f"{name}, {connections} connections, round {number}")
                    with topic_of(peer, 1) as topic:
                        found[name].append(commit(peer, topic, connections, int(commits * options.scale)))
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
