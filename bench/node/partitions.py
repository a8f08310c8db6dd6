"""Many partitions on one node: `python -m bench.node.partitions [--partitions 10000] [--peers ours]`.

Topics of 100 partitions are created one after another; every partition answers, and gets a record. Then the CPU of a
full Metadata, a clean stop and start, and produce to one partition, in turns with a node that has no other.
"""

from __future__ import annotations

import statistics
import time
from functools import partial
from pathlib import Path
from typing import Final

from bench.node import load, peers
from bench.node.report import arguments_of, middle, ratio, say, show, undisturbed
from bench.node.topics import make_topic, topic_of
from headrace.protocol import messages as m
from headrace.protocol.batch_builder import build
from tests.compat.wire import Wire

TOPIC_PARTITIONS: Final = 100
METADATA_VERSION: Final = 12
ASKED: Final = 10
CASES: Final = {
    "1 MB batches": load.Work(1_000, 1_000, 1_000_000),
    "10 records of 100 B a batch": load.Work(100, 10, 400_000),
    "one record of 100 B a request": load.Work(100, 1, 60_000),
}


def metadata_cost(peer: peers.Peer, partitions: int) -> tuple[float, float]:
    """CPU of the broker and wall, in milliseconds, of a Metadata of all topics."""
    cpu_ms, wall_ms = [], []
    with Wire(peer.bootstrap) as wire:
        for _ in range(ASKED):
            cpu_before, before = peer.cpu_s(), time.perf_counter()
            wire.send(m.MetadataRequest(topics=None), METADATA_VERSION)
            frame = wire.receive_frame()
            wall_ms.append((time.perf_counter() - before) * 1000)
            cpu_ms.append((peer.cpu_s() - cpu_before) * 1000)
            if len(frame) < partitions * 20:
                raise RuntimeError(f"{len(frame)} bytes of Metadata can't be all {partitions:,} partitions")
            wire._asked.clear()
    return statistics.median(cpu_ms), statistics.median(wall_ms)


def create(peer: peers.Peer, partitions: int) -> tuple[list[str], float]:
    began = time.monotonic()
    topics = [make_topic(peer, TOPIC_PARTITIONS) for _ in range(partitions // TOPIC_PARTITIONS)]
    return topics, time.monotonic() - began


def fill(peer: peers.Peer, topics: list[str]) -> None:
    """A record in each: logs that never held any may be cheaper to open."""
    records = build([(None, b"one", (), int(time.time() * 1000))])
    data = [m.ProduceRequest.PartitionProduceData(index=at, records=records) for at in range(TOPIC_PARTITIONS)]
    with Wire(peer.bootstrap) as wire:
        for topic in topics:
            named = m.ProduceRequest.TopicProduceData(name=topic, partition_data=data)
            answer = wire.ask(m.ProduceRequest(acks=1, timeout_ms=30_000, topic_data=[named]), load.PRODUCE_VERSION)
            if any(one.error_code for one in answer.responses[0].partition_responses):
                raise RuntimeError(f"{peer.name} refused a record: {answer}")


def restart(peer: peers.Peer) -> tuple[float, float, float]:
    """Seconds of the stop, of the start, and of the CPU of the start."""
    began = time.monotonic()
    peer.stop()
    stopped_s = time.monotonic() - began
    peer.start()
    return stopped_s, peer.started_s, peer.cpu_s()


def produce_once(peer: peers.Peer, work: load.Work) -> tuple[float, float]:
    """Wall and the broker's CPU, in seconds."""
    with topic_of(peer, 1) as topic:
        before = peer.cpu_s()
        result = load.produce(peer.bootstrap, topic, work, partitions=1).result()
        return result.wall_s, peer.cpu_s() - before


def produce(crowded: peers.Peer, single: peers.Peer, rounds: int, scale: float) -> list[list[str]]:
    lines = []
    for name, work in CASES.items():
        work = work._replace(records=int(work.records * scale))
        spent: dict[str, list[tuple[float, float]]] = {"crowded": [], "single": []}
        stolen: list[float] = []
        for _ in range(rounds):
            for key, peer in (("crowded", crowded), ("single", single)):
                found, percent = undisturbed(partial(produce_once, peer, work))
                spent[key].append(found)
                stolen.append(percent)
        wall = {key: middle([one[0] for one in all_of]) for key, all_of in spent.items()}
        cpu = {key: middle([one[1] for one in all_of]) for key, all_of in spent.items()}
        rates = [f"{work.records / wall[key] / 1000:,.0f}" for key in spent]
        ratios = [ratio(wall["single"], wall["crowded"]), ratio(cpu["crowded"], cpu["single"])]
        lines.append([name, *rates, *ratios, f"{middle(stolen):.1f}%"])
        say("  ".join(lines[-1]))
    return lines


def measure(name: str, partitions: int, rounds: int, scale: float) -> None:
    with peers.running((name,)) as running:
        crowded = running[name]
        single = peers.Peer(name, Path(f"{crowded.folder}-single"))
        single.start()
        try:
            topics, created_s = create(crowded, partitions)
            fill(crowded, topics)
            say(f"{partitions:,} partitions created in {created_s:.1f} s")
            cpu_ms, wall_ms = metadata_cost(crowded, partitions)
            resident_mb = crowded.resident_mb()
            stopped_s, started_s, start_cpu_s = restart(crowded)
            lines = [
                ["created, s", f"{created_s:.1f}"],
                ["CPU of a full Metadata, ms", f"{cpu_ms:.1f}"],
                ["wall of a full Metadata, ms", f"{wall_ms:.1f}"],
                ["clean stop, s", f"{stopped_s:.2f}"],
                ["start to first answered Metadata, s", f"{started_s:.2f}"],
                ["CPU of that, s", f"{start_cpu_s:.2f}"],
                ["resident before, after the restart, MB", f"{resident_mb:.0f}, {crowded.resident_mb():.0f}"],
            ]
            conditions = f"topics of {TOPIC_PARTITIONS} partitions, a record in each"
            show(f"{partitions:,} partitions on one node: {name}", conditions, ["", "figure"], lines)
            header = ["produce to one", f"among {partitions:,} k/s", "alone k/s", "ratio", "CPU to alone", "stolen"]
            conditions = f"raw client, acks=1, 1 connection, {load.IN_FLIGHT} requests in flight"
            show(f"Produce to one of many: {name}", conditions, header, produce(crowded, single, rounds, scale))
        finally:
            single.stop()


def main() -> None:
    parser = arguments_of(__doc__, ("ours",))
    parser.add_argument("--partitions", type=int, default=10_000)
    arguments = parser.parse_args()
    for name in arguments.peers.split(","):
        measure(name, arguments.partitions, arguments.rounds, arguments.scale)


if __name__ == "__main__":
    main()
