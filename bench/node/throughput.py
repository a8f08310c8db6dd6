"""Produce, side by side: `python -m bench.node.throughput [--peers ours,kafka,bare] [--rounds 4] [--clients raw]`.

All peers run at once and take turns under load; the first round warms up and is not counted. Each figure is the median
of the other rounds: records a second by wall time, and the CPU seconds of the broker's process for a million records.
Every measurement has a topic of its own, which is gone from disk and memory before the next one begins.
"""

from __future__ import annotations

from functools import partial
from typing import Final, NamedTuple

from bench.node import load, peers
from bench.node.report import arguments_of, middle, ratio, say, show, undisturbed
from bench.node.topics import topic_of

CASES: Final = {
    "100 B, 9,000 a batch": load.Work(100, 9_000, 9_000_000),
    "1 KB, 1,000 a batch": load.Work(1_000, 1_000, 1_000_000),
    "1 KB, 100 a batch": load.Work(1_000, 100, 1_000_000),
    "100 B, 10 a batch": load.Work(100, 10, 400_000),
    "100 B, 1 a request": load.Work(100, 1, 60_000),
}
CLIENTS: Final = ("raw", "librdkafka")


class Spent(NamedTuple):
    wall_s: float
    cpu_s: float
    client_cpu_s: float


def measure(peer: peers.Peer, client: str, work: load.Work, in_flight: int) -> Spent:
    with topic_of(peer, load.PARTITIONS) as topic:
        before = peer.cpu_s()
        if client == "raw":
            result = load.produce(peer.bootstrap, topic, work, in_flight=in_flight).result()
        else:
            result = load.librdkafka("produce", peer.bootstrap, topic, work).result()
        return Spent(result.wall_s, peer.cpu_s() - before, result.cpu_s)


def row(
    running: dict[str, peers.Peer], client: str, name: str, work: load.Work, rounds: int, in_flight: int
) -> list[str]:
    spent: dict[str, list[Spent]] = {peer: [] for peer in running}
    stolen: list[float] = []
    for _ in range(rounds):
        for peer in running.values():
            found, percent = undisturbed(partial(measure, peer, client, work, in_flight))
            spent[peer.name].append(found)
            stolen.append(percent)
    wall = {peer: middle([one.wall_s for one in all_of]) for peer, all_of in spent.items()}
    cpu = {peer: middle([one.cpu_s for one in all_of]) for peer, all_of in spent.items()}
    first, *others = running
    cells = [name]
    for key in running:
        cells += [f"{work.records / wall[key] / 1000:,.0f}", f"{cpu[key] / work.records * 1e6:.2f}"]
    for other in others:
        cells += [ratio(wall[other], wall[first]), ratio(cpu[first], cpu[other])]
    cells.append(f"{middle([one.client_cpu_s for one in spent[first]]) / wall[first]:.2f}")
    cells.append(f"{middle(stolen):.1f}%")
    say(f"{client}, acks={work.acks}: " + "  ".join(cells))
    return cells


def main() -> None:
    parser = arguments_of(__doc__, peers.NAMES)
    parser.add_argument("--clients", default=",".join(CLIENTS))
    parser.add_argument("--acks", default="1,-1")
    parser.add_argument("--in-flight", type=int, default=load.IN_FLIGHT, help="requests on a connection, raw client")
    parser.add_argument("--cases", default="", help="only those with this in their name")
    arguments = parser.parse_args()
    names = tuple(arguments.peers.split(","))
    header = ["records"]
    for name in names:
        header += [f"{name} k/s", "CPU s/M"]
    for name in names[1:]:
        header += [f"x {name}", f"CPU to {name}"]
    header += ["client's cores", "stolen"]
    with peers.running(names) as running:
        for client in arguments.clients.split(","):
            for acks in map(int, arguments.acks.split(",")):
                rows = [
                    row(
                        running,
                        client,
                        name,
                        work._replace(acks=acks, records=int(work.records * arguments.scale)),
                        arguments.rounds,
                        arguments.in_flight,
                    )
                    for name, work in CASES.items()
                    if arguments.cases in name and not (client == "librdkafka" and work.batch == 1)
                ]
                fsync = "no fsync" if acks == 1 else "ours fsyncs before it answers, the others do not"
                level = "1" if acks == 1 else "all"
                in_flight = f", {arguments.in_flight} requests in flight on each" if client == "raw" else ""
                conditions = f"{client} client, {load.PARTITIONS} partitions, 1 connection each{in_flight}; {fsync}"
                if client != "raw":
                    conditions = f"librdkafka, {load.PARTITIONS} partitions, one producer each; {fsync}"
                show(f"Produce, acks={level}, {client} client", conditions, header, rows)


if __name__ == "__main__":
    main()
