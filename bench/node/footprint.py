"""What a node needs: `python -m bench.node.footprint [--peers ours,kafka] [--gigabytes 10]`.

From the start of the process to the first answered Metadata, on a folder that is formatted already; resident memory
then, after so much data was produced and fetched back (1 MB batches of 1 KB records), and with a thousand connections
that have asked for ApiVersions and are idle.
"""

from __future__ import annotations

import time
from typing import Final

from bench.node import load, peers
from bench.node.report import arguments_of, middle, ratio, say, show
from bench.node.topics import topic_of
from headrace.protocol import messages as m
from tests.compat.wire import Wire

CONNECTIONS: Final = 1_000
SETTLE_S: Final = 2.0
BULK: Final = load.Work(1_000, 1_000, 1_000_000)
"""A gigabyte at a time, then it is deleted."""


class Footprint:
    def __init__(self, peer: peers.Peer) -> None:
        self.peer = peer
        self.started_s: list[float] = []
        self.start_cpu_s: list[float] = []
        self.idle_mb = self.connections_mb = self.after_mb = self.most_mb = 0.0

    def start(self) -> None:
        """The caller stops it."""
        self.peer.start()
        self.started_s.append(self.peer.started_s)
        self.start_cpu_s.append(self.peer.cpu_s())

    def connect(self) -> None:
        before = self.peer.resident_mb()
        wires = [Wire(self.peer.bootstrap) for _ in range(CONNECTIONS)]
        for wire in wires:
            wire.ask(m.ApiVersionsRequest(), 0)
        time.sleep(SETTLE_S)
        self.connections_mb = self.peer.resident_mb() - before
        for wire in wires:
            wire.close()

    def carry(self, gigabytes: int) -> None:
        for _ in range(gigabytes):
            with topic_of(self.peer, load.PARTITIONS) as topic:
                load.produce(self.peer.bootstrap, topic, BULK).result()
                load.fetch(self.peer.bootstrap, topic, BULK.records // load.PARTITIONS).result()
            self.most_mb = max(self.most_mb, self.peer.resident_mb())
        time.sleep(SETTLE_S)
        self.after_mb = self.peer.resident_mb()


def measure(peer: peers.Peer, rounds: int, gigabytes: int) -> Footprint:
    found = Footprint(peer)
    for number in range(rounds + 1):  # the first formats
        found.start()
        if number < rounds:
            peer.stop()
    time.sleep(SETTLE_S)
    found.idle_mb = peer.resident_mb()
    found.connect()
    found.carry(gigabytes)
    peer.stop()
    peer.pid = 0
    return found


def main() -> None:
    parser = arguments_of(__doc__, ("ours", "kafka"))
    parser.add_argument("--gigabytes", type=float, default=10, help="that go through it")
    arguments = parser.parse_args()
    gigabytes = max(1, int(arguments.gigabytes * arguments.scale))
    found: dict[str, Footprint] = {}
    with peers.running(tuple(arguments.peers.split(",")), start=False) as stopped:
        for name, peer in stopped.items():
            found[name] = measure(peer, arguments.rounds, gigabytes)
            say(f"{name} is measured")
    figures = {
        "start to first answered Metadata, s": {key: middle(one.started_s) for key, one in found.items()},
        "CPU of that, s": {key: middle(one.start_cpu_s) for key, one in found.items()},
        "resident when idle, MB": {key: one.idle_mb for key, one in found.items()},
        f"more with {CONNECTIONS:,} idle connections, MB": {key: one.connections_mb for key, one in found.items()},
        f"resident after {gigabytes} GB in and out, MB": {key: one.after_mb for key, one in found.items()},
        "the most after any of them, MB": {key: one.most_mb for key, one in found.items()},
    }
    first, *others = found
    lines = [
        [name, *(f"{values[key]:.2f}" for key in found), *(ratio(values[first], values[key]) for key in others)]
        for name, values in figures.items()
    ]
    header = ["", *found, *(f"of {key}" for key in others)]
    show("Footprint", "one peer at a time; Kafka with a heap of 1 GB", header, lines)


if __name__ == "__main__":
    main()
