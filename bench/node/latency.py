"""How long an acknowledgement takes: `python -m bench.node.latency [--peers ours,kafka] [--cases 10,000]`.

One-record requests of 100 B leave at a fixed rate whether or not earlier ones are answered, on one connection to each
of two partitions, and each counts from when it was due. Peers take turns; the first round warms up and is not counted.
The percentiles are of all requests of the others together, and beside it of those in the half seconds in which the
machine's host took least (`bench/node/calm.py`).

With acks=all ours fsyncs before it answers and the others do not; `flush.messages=1` makes both do so with acks=1.
The bulk producer beside it sends 90 MB/s in batches of 1 MB, acks=1, to a topic of its own, for so long that what it
sends reaches the disk with every peer: Linux begins after 30 s, or with a tenth of the memory.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from bench.node import load, peers
from bench.node.calm import Acknowledgements, calm_of
from bench.node.report import arguments_of, ratio, say, show
from bench.node.topics import topic_of

RECORD_BYTES: Final = 100
ROUND_S: Final = 10
BULK: Final = load.Work(1_000, 1_000, 0)
BULK_A_SECOND: Final = 90
BULK_LEAD_S: Final = 3
BULK_ROUND_S: Final = 50
BULK_ROUNDS_MAX: Final = 5


class Case(NamedTuple):
    rate: int
    acks: int = 1
    flush_messages: bool = False
    beside_bulk: bool = False


CASES: Final = {
    "1,000/s, acks=1": Case(1_000),
    "1,000/s, acks=all": Case(1_000, -1),
    "1,000/s, acks=1, flush.messages=1": Case(1_000, flush_messages=True),
    "1,000/s, acks=all, beside 90 MB/s": Case(1_000, -1, beside_bulk=True),
    "10,000/s, acks=1": Case(10_000),
    "10,000/s, acks=all": Case(10_000, -1),
}


def measure(peer: peers.Peer, case: Case, duration_s: float) -> load.Result:
    settings = {"flush_messages": "1"} if case.flush_messages else {}
    duration_s = BULK_ROUND_S if case.beside_bulk else duration_s
    work = load.Work(RECORD_BYTES, 1, int(case.rate * duration_s), case.acks)
    with topic_of(peer, load.PARTITIONS, **settings) as topic, topic_of(peer, load.PARTITIONS) as other:
        if not case.beside_bulk:
            return load.produce(peer.bootstrap, topic, work, rate=case.rate).result()
        bulk_records = int((duration_s + BULK_LEAD_S) * BULK_A_SECOND) * BULK.batch
        bulk = load.produce(peer.bootstrap, other, BULK._replace(records=bulk_records), rate=BULK_A_SECOND)
        load.produce(peer.bootstrap, topic, work._replace(records=case.rate), rate=case.rate).result()
        result = load.produce(peer.bootstrap, topic, work, rate=case.rate).result()
        bulk.result()
        return result


def rows(running: dict[str, peers.Peer], name: str, case: Case, rounds: int, duration_s: float) -> list[list[str]]:
    found = {peer: Acknowledgements() for peer in running}
    for number in range(rounds):
        for key, peer in running.items():
            result = measure(peer, case, duration_s)
            say(f"{name}, round {number}: {key} p50 {result.p50_ms:.2f}, p99 {result.p99_ms:.2f}")
            if number or rounds == 1:
                found[key].add(result)
    first = next(iter(running))
    everywhere = {key: one.all for key, one in found.items()}
    calm = dict(zip(found, calm_of(found.values()), strict=True))
    lines = []
    for key in running:
        line = [name if key == first else "", key]
        for figures in (everywhere, calm):
            of = figures[key]
            line += [f"{of.p50_ms:.2f}", f"{of.p99_ms:.2f}", f"{of.p999_ms:.2f}"]
            line += [ratio(figures[first].p99_ms, of.p99_ms), f"{of.stolen_percent:.1f}%"]
        say("  ".join([name, *line[1:]]))
        lines.append(line)
    return lines


def main() -> None:
    parser = arguments_of(__doc__, ("ours", "kafka"))
    parser.add_argument("--cases", default="", help="only those with this in their name")
    arguments = parser.parse_args()
    lines: list[list[str]] = []
    duration_s = ROUND_S * arguments.scale
    with peers.running(tuple(arguments.peers.split(","))) as running:
        for name, case in CASES.items():
            if arguments.cases in name:
                rounds = min(arguments.rounds, BULK_ROUNDS_MAX) if case.beside_bulk else arguments.rounds
                lines += rows(running, name, case, rounds, duration_s)
    header = ["requests", "peer", "p50 ms", "p99 ms", "p99.9 ms", "our p99 to it", "stolen"]
    header += ["calm p50", "calm p99", "calm p99.9", "calm, to it", "calm, stolen"]
    conditions = (
        f"100 B records, one a request, open loop for {duration_s:g} s a round ({BULK_ROUND_S} beside bulk), "
        f"{load.PARTITIONS} partitions, 1 connection each; acks=all: ours fsyncs, Kafka does not; "
        "first of all requests, then of those in calm half seconds; "
        "stolen: what the machine's host took of the processors"
    )
    show("Latency of an acknowledgement", conditions, header, lines)


if __name__ == "__main__":
    main()
