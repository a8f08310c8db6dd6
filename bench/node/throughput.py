"""Produce, side by side: `python -m bench.node.throughput [--peers ours,kafka,bare] [--rounds 4] [--clients raw]`.

All peers run at once and take turns under load; the first round warms up and is not counted. Each cell is the median
of the other rounds: records a second by wall time, and the CPU seconds of the broker's process for a million records.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
from typing import Final, NamedTuple

from bench.node import peers
from bench.node.load import PARTITIONS
from bench.node.topics import make_topic, remove_topic


class Case(NamedTuple):
    record_bytes: int
    batch: int
    records: int


CASES: Final = {
    "100 B, 10,000 a batch": Case(100, 9_000, 3_000_000),
    "1 KB, 1 MB a batch": Case(1_000, 1_000, 600_000),
    "1 KB, 100 a batch": Case(1_000, 100, 200_000),
    "100 B, 10 a batch": Case(100, 10, 300_000),
    "100 B, 1 a request": Case(100, 1, 40_000),
}


class Spent(NamedTuple):
    wall_s: float
    cpu_s: float


def measure(peer: peers.Peer, client: str, case: Case, acks: int) -> Spent:
    topic = make_topic(peer, PARTITIONS)
    command = [sys.executable, "-m", "bench.node.load", client, peer.bootstrap, topic]
    before = peer.cpu_s()
    printed = subprocess.check_output([*command, *map(str, case), str(acks)], text=True)
    spent = Spent(float(printed), peer.cpu_s() - before)
    remove_topic(peer, topic)
    return spent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", default=",".join(peers.NAMES))
    parser.add_argument("--rounds", type=int, default=4, help="the first is not counted")
    parser.add_argument("--clients", default="raw,librdkafka")
    parser.add_argument("--acks", default="1,-1")
    parser.add_argument("--cases", default="", help="only those with this in their name")
    arguments = parser.parse_args()
    names = tuple(arguments.peers.split(","))
    print(f"{peers.conditions()}; {PARTITIONS} partitions")
    header = f"{'case':24} {'client':10} {'acks':4}" + "".join(f" {name + ' k/s':>11} {'CPU s/M':>8}" for name in names)
    print(header + "".join(f" {'x ' + name:>8} {'CPU':>5}" for name in names[1:]))
    with peers.running(names) as running:
        for client in arguments.clients.split(","):
            for acks in map(int, arguments.acks.split(",")):
                for name, case in CASES.items():
                    if arguments.cases in name and not (client == "librdkafka" and case.batch == 1):
                        show(running, client, acks, name, case, arguments.rounds)


def show(running: dict[str, peers.Peer], client: str, acks: int, name: str, case: Case, rounds: int) -> None:
    spent: dict[str, list[Spent]] = {peer: [] for peer in running}
    for _ in range(rounds):
        for peer in running.values():
            spent[peer.name].append(measure(peer, client, case, acks))
    wall = {peer: statistics.median(s.wall_s for s in found[1:] or found) for peer, found in spent.items()}
    cpu = {peer: statistics.median(s.cpu_s for s in found[1:] or found) for peer, found in spent.items()}
    line = f"{name:24} {client:10} {acks:4}"
    for key in running:
        line += f" {case.records / wall[key] / 1000:11,.0f} {cpu[key] / case.records * 1e6:8.2f}"
    first, *others = running
    for other in others:
        line += f" {wall[other] / wall[first]:8.2f} {cpu[first] / max(cpu[other], 0.01):5.2f}"
    print(line, flush=True)


if __name__ == "__main__":
    main()
