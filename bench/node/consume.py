"""Consume, and what a replay does to producers: `python -m bench.node.consume [--peers ours,kafka,bare]`.

First how fast records come out of the page cache: a raw client with one connection a partition and one fetch of up to
1 MB under way on each, and librdkafka as users have it. Then what acknowledgements take while another client replays
data that is not in memory any more: one-record requests at 1,000 a second, alone and beside the replay, as ratio.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from bench.node import load, peers
from bench.node.calm import Acknowledgements, calm_of
from bench.node.report import arguments_of, middle, ratio, say, show, undisturbed
from bench.node.topics import topic_of

CASES: Final = {
    "1 KB, 1,000 a batch": load.Work(1_000, 1_000, 1_000_000),
    "100 B, 9,000 a batch": load.Work(100, 9_000, 4_500_000),
    "1 KB, 10 a batch": load.Work(1_000, 10, 400_000),
}
CLIENTS: Final = ("raw", "librdkafka")
BULK: Final = load.Work(1_000, 1_000, 0)
PROBE_A_SECOND: Final = 1_000
PROBE_S_MIN: Final = 3.0


def read(peer: peers.Peer, client: str, topic: str, work: load.Work) -> tuple[float, float]:
    """Wall and the broker's CPU, in seconds."""
    before = peer.cpu_s()
    if client == "raw":
        result = load.fetch(peer.bootstrap, topic, work.records // load.PARTITIONS).result()
    else:
        result = load.librdkafka("consume", peer.bootstrap, topic, work).result()
    return result.wall_s, peer.cpu_s() - before


def throughput(
    running: dict[str, peers.Peer], work: load.Work, name: str, clients: list[str], rounds: int
) -> list[list[str]]:
    """Each peer's data is written once, and read in turns."""
    work = work._replace(records=work.requests // load.PARTITIONS * load.PARTITIONS * work.batch)
    spent: dict[tuple[str, str], list[tuple[float, float]]] = {}
    stolen: dict[str, list[float]] = {}
    topics = {key: topic_of(peer, load.PARTITIONS) for key, peer in running.items()}
    named = {key: topic.__enter__() for key, topic in topics.items()}
    try:
        for key, peer in running.items():
            load.produce(peer.bootstrap, named[key], work).result()
        for _ in range(rounds):
            for client in clients:
                for key, peer in running.items():
                    found, percent = undisturbed(partial(read, peer, client, named[key], work))
                    spent.setdefault((client, key), []).append(found)
                    stolen.setdefault(client, []).append(percent)
    finally:
        for topic in topics.values():
            topic.__exit__(None, None, None)
    first, *others = running
    lines = []
    for client in clients:
        wall = {key: middle([one[0] for one in spent[client, key]]) for key in running}
        cpu = {key: middle([one[1] for one in spent[client, key]]) for key in running}
        line = [name, client]
        for key in running:
            line += [f"{work.records / wall[key] / 1000:,.0f}", f"{cpu[key] / work.records * 1e6:.2f}"]
        for key in others:
            line += [ratio(wall[key], wall[first]), ratio(cpu[first], cpu[key])]
        line.append(f"{middle(stolen[client]):.1f}%")
        say("  ".join(line))
        lines.append(line)
    return lines


def replay(peer: peers.Peer, gigabytes: float, acks: int, rounds: int) -> list[list[str]]:
    """p99 alone and beside the replay."""
    records = int(gigabytes * 1_000) * BULK.batch // load.PARTITIONS * load.PARTITIONS
    alone, beside = Acknowledgements(), Acknowledgements()
    taken_s = []
    with topic_of(peer, load.PARTITIONS) as cold, topic_of(peer, load.PARTITIONS) as probed:
        load.produce(peer.bootstrap, cold, BULK._replace(records=records)).result()
        peer.forget_cache()
        probe_s = max(PROBE_S_MIN, load.fetch(peer.bootstrap, cold, records // load.PARTITIONS).result().wall_s)
        probe = load.Work(100, 1, int(probe_s * PROBE_A_SECOND), acks)
        for number in range(rounds):
            peer.forget_cache()
            before = load.produce(peer.bootstrap, probed, probe, rate=PROBE_A_SECOND).result()
            replaying = load.fetch(peer.bootstrap, cold, records // load.PARTITIONS)
            during = load.produce(peer.bootstrap, probed, probe, rate=PROBE_A_SECOND).result()
            taken_s.append(replaying.result().wall_s)
            if number:  # the first warms up
                alone.add(before)
                beside.add(during, taken_s[-1])
            say(f"{peer.name}  acks={acks}  p99 {before.p99_ms:.2f} alone, {during.p99_ms:.2f} beside")
    lines = []
    replayed = f"{gigabytes * 1000 / middle(taken_s):,.0f}"
    for name in ("p50_ms", "p99_ms", "p999_ms"):
        line = [peer.name, "all" if acks < 0 else str(acks), name]
        for figures in ([alone.all, beside.all], calm_of([alone, beside])):
            single, together = (getattr(one, name) for one in figures)
            line += [f"{single:.2f}", f"{together:.2f}", ratio(together, single)]
            line.append(", ".join(f"{one.stolen_percent:.1f}%" for one in figures))
        lines.append([*line, replayed])
        say("  ".join(lines[-1]))
    return lines


def main() -> None:
    parser = arguments_of(__doc__, peers.NAMES)
    parser.add_argument("--clients", default=",".join(CLIENTS))
    parser.add_argument("--cases", default="", help="only those with this in their name; 'replay' is the replay only")
    parser.add_argument("--gigabytes", type=float, default=10, help="that are replayed from the disk; 0 for none")
    arguments = parser.parse_args()
    names = tuple(arguments.peers.split(","))
    header = ["records", "client"]
    for name in names:
        header += [f"{name} k/s", "CPU s/M"]
    for name in names[1:]:
        header += [f"x {name}", f"CPU to {name}"]
    header.append("stolen")
    with peers.running(names) as running:
        lines: list[list[str]] = []
        for name, work in CASES.items():
            if arguments.cases in name:
                work = work._replace(records=int(work.records * arguments.scale))
                lines += throughput(running, work, name, arguments.clients.split(","), arguments.rounds)
        if lines:
            show("Consume", f"{load.PARTITIONS} partitions, from the page cache", header, lines)
        lines = []
        for peer in running.values():
            if (
                not peer.is_bare and arguments.gigabytes
            ):  # it has no room in its design for a reader that waits for the disk
                for acks in (1, -1):
                    lines += replay(peer, arguments.gigabytes * arguments.scale, acks, max(2, arguments.rounds - 1))
    conditions = (
        f"100 B records, one a request, {PROBE_A_SECOND:,}/s; {arguments.gigabytes * arguments.scale:g} GB in "
        "batches of 1 MB read from disk beside it by a raw client; acks=all: ours fsyncs, Kafka does not; "
        "first of all requests, then of those in calm half seconds; "
        "stolen: what the machine's host took of the processors, alone and beside it"
    )
    header = ["peer", "acks", "", "alone", "beside a replay", "ratio", "stolen"]
    header += ["calm, alone", "calm, beside", "calm, ratio", "calm, stolen", "replay MB/s"]
    if lines:
        show("Acknowledgements beside a replay from cold disk", conditions, header, lines)


if __name__ == "__main__":
    main()
