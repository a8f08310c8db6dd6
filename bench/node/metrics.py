"""What counting costs: `python -m bench.node.metrics [--before DIR] [--rounds 24]`.

DIR is a tree of ours without what is to be measured, a worktree of an earlier commit say, with its kernels compiled. By
default it is this one, which then shows how far figures of this machine can be trusted.
Both nodes run at once and take turns under the same load, one round each, and the next round the other way around. What
is compared is the CPU of the broker's process for a request. Rounds are short and many, and what others do on the
machine only ever adds to one: so the ratio that counts is that of the lower quartiles, beside that of the medians.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Final

from bench.node import load, peers
from bench.node.report import say, show
from bench.node.topics import topic_of

CASES: Final = {
    "one record a request, one in flight": (load.Work(100, 1, 6000), 1),
    "one record a request, 5 in flight": (load.Work(100, 1, 10_000), 5),
    "one record a request, 50 in flight": (load.Work(100, 1, 10_000), 50),
    "one record a request, 5 in flight, acks=all": (load.Work(100, 1, 3000, -1), 5),
    "1 MB a request, 5 in flight": (load.Work(1_000, 1_000, 100_000), 5),
}
HERE: Final = Path(__file__).parents[2]


def start(tree: Path, folder: Path) -> peers.Peer:
    """A node whose code is that of the tree."""
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = str(tree / "src")
    try:
        peer = peers.Peer("ours", folder)
        peer.start()
    finally:
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before
    return peer


def cpu_us(peer: peers.Peer, work: load.Work, in_flight: int) -> float:
    """Of the broker, for one request."""
    with topic_of(peer, load.PARTITIONS) as topic:
        before_s = peer.cpu_s()
        load.produce(peer.bootstrap, topic, work, in_flight=in_flight).result()
        return (peer.cpu_s() - before_s) / work.requests * 1e6


def compare(
    without: peers.Peer, with_: peers.Peer, work: load.Work, in_flight: int, rounds: int
) -> tuple[list[float], list[float]]:
    found: tuple[list[float], list[float]] = ([], [])
    for number in range(rounds + 1):
        turns = [(without, found[0]), (with_, found[1])]
        for peer, spent in turns if number % 2 else reversed(turns):
            spent.append(cpu_us(peer, work, in_flight))
    return found[0][1:], found[1][1:]  # the first round warms up


def lower_quartile(found: list[float]) -> float:
    return statistics.quantiles(found, n=4)[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", type=Path, default=HERE, metavar="DIR", help="a tree without it")
    parser.add_argument("--after", type=Path, default=HERE, metavar="DIR", help="a tree with it; this one")
    parser.add_argument("--rounds", type=int, default=24)
    parser.add_argument("--scale", type=float, default=1.0, help="less than 1 for a quick look")
    parser.add_argument("--cases", default="", help="only those with this in their name")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    scratch = Path(tempfile.mkdtemp(prefix="headrace-bench-"))
    running: list[peers.Peer] = []
    rows = []
    try:
        for name, tree in (("before", arguments.before), ("after", arguments.after)):
            running.append(start(tree, scratch / name))
        for name, (work, in_flight) in CASES.items():
            if arguments.cases not in name:
                continue
            scaled = work._replace(records=int(work.records * arguments.scale))
            without, with_ = compare(running[0], running[1], scaled, in_flight, arguments.rounds)
            low, low_with = lower_quartile(without), lower_quartile(with_)
            row = [
                name,
                f"{low:.2f}",
                f"{low_with:.2f}",
                f"{low_with / low:.3f}",
                f"{statistics.median(with_) / statistics.median(without):.3f}",
                f"{min(with_) / min(without):.3f}",
            ]
            say("  ".join(row))
            rows.append(row)
    finally:
        for peer in running:
            peer.stop()
        shutil.rmtree(scratch)
    show(
        "What counting costs",
        f"raw client, 2 partitions, 1 connection each, {arguments.rounds} rounds, acks=1 where nothing is said",
        ["load", "before, µs", "after, µs", "ratio", "of medians", "of the least"],
        rows,
    )


if __name__ == "__main__":
    main()
