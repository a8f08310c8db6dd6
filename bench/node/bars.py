"""Where we stand, in one table: `python -m bench.node.bars [--only latency] [--again] [--markdown]`.

Runs the benches of a node, one after another, and holds what they found to the bars that we have set ourselves. It
takes an hour, or two on a busy host; what was stopped goes on with the bench that it was at. `--again` begins anew.
Ends with 1 if a bar was missed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from rich.table import Table

from bench.node.report import TABLES, console

KEPT: Final = TABLES.with_name("bars.jsonl")

STEPS: Final = {
    "footprint": ("bench.node.footprint", "--rounds", "3"),
    "partitions": ("bench.node.partitions", "--rounds", "6"),
    "produce": ("bench.node.throughput", "--clients", "librdkafka", "--peers", "ours,kafka"),
    "bare": ("bench.node.throughput", "--acks", "1", "--peers", "ours,bare", "--scale", "4"),
    "consume": ("bench.node.consume", "--rounds", "6", "--gigabytes", "0", "--peers", "ours,kafka"),
    "latency": ("bench.node.latency", "--scale", "0.4", "--rounds", "16"),
    "replay": ("bench.node.consume", "--rounds", "5", "--cases", "replay", "--peers", "ours"),
}
"""By name, what is run for it. To the bare loop 4 GB a round: of less, what that writes never reaches the disk. Latency
in many short rounds: what a host takes changes within seconds, and peers that take turns quickly get the same of it."""


class Bar(NamedTuple):
    """A cell of one of the tables, and what it may be."""

    title: str
    row: tuple[str, ...]
    column: str
    least: float | None = None
    most: float | None = None

    def is_met(self, found: float) -> bool:
        return (self.least is None or found >= self.least) and (self.most is None or found <= self.most)

    @property
    def text(self) -> str:
        return f"at least {self.least:g}" if self.least is not None else f"at most {self.most:g}"


def all_bars() -> Iterator[Bar]:
    for acks, large, cpu in (("1", 1.1, 0.6), ("all", 1.0, 1.0)):
        for records, least, most in (
            ("100 B, 9,000 a batch", large, cpu),
            ("1 KB, 1,000 a batch", large, cpu),
            ("100 B, 10 a batch", 3, 0.35),
        ):
            title = f"Produce, acks={acks}, librdkafka client"
            yield Bar(title, (records,), "x kafka", least=least)
            yield Bar(title, (records,), "CPU to kafka", most=most)
    for records in ("100 B, 9,000 a batch", "1 KB, 1,000 a batch", "1 KB, 100 a batch", "100 B, 10 a batch"):
        yield Bar("Produce, acks=1, librdkafka client", (records,), "x bare", least=0.8)
    for records, least in (("100 B, 9,000 a batch", 0.9), ("1 KB, 1,000 a batch", 0.9), ("100 B, 1 a request", 0.4)):
        yield Bar("Produce, acks=1, raw client", (records,), "x bare", least=least)
    for requests, most in (
        ("1,000/s, acks=1", 1.0),
        ("1,000/s, acks=all", 1.5),
        ("1,000/s, acks=1, flush.messages=1", 0.5),
        ("1,000/s, acks=all, beside 90 MB/s", 1.0),
        ("10,000/s, acks=1", 0.1),
    ):
        yield Bar("Latency of an acknowledgement", (requests, "kafka"), "our p99 to it", most=most)
    for records in ("1 KB, 1,000 a batch", "100 B, 9,000 a batch", "1 KB, 10 a batch"):
        for client in ("raw", "librdkafka"):
            yield Bar("Consume", (records, client), "x kafka", least=1.0)
            yield Bar("Consume", (records, client), "CPU to kafka", most=0.7)
    for acks in ("1", "all"):
        yield Bar("Acknowledgements beside a replay from cold disk", ("ours", acks, "p99_ms"), "ratio", most=2.0)
    yield Bar("Footprint", ("start to first answered Metadata, s",), "of kafka", most=0.1)
    yield Bar("Footprint", ("resident when idle, MB",), "of kafka", most=0.2)
    yield Bar("Footprint", ("more with 1,000 idle connections, MB",), "ours", most=20)
    yield Bar("Footprint", ("resident after 10 GB in and out, MB",), "ours", most=150)
    for row, most in (
        ("created, s", 60),
        ("CPU of a full Metadata, ms", 50),
        ("start to first answered Metadata, s", 5),
    ):
        yield Bar("10,000 partitions on one node: ours", (row,), "figure", most=most)
    for row in ("1 MB batches", "10 records of 100 B a batch", "one record of 100 B a request"):
        yield Bar("Produce to one of many: ours", (row,), "ratio", least=0.9)


class Tables:
    """What was shown, cell by cell; of the same cell the last."""

    def __init__(self, path: Path) -> None:
        self.done: list[str] = []
        self._cells: dict[tuple[str, tuple[str, ...], str], str] = {}
        for line in path.read_text().splitlines() if path.exists() else ():
            kept = json.loads(line)
            if "step" in kept:
                self.done.append(kept["step"])
            else:
                self._add(kept["title"], kept["header"], kept["rows"])

    def _add(self, title: str, header: list[str], rows: list[list[str]]) -> None:
        above = [""] * len(header)
        for row in rows:
            above = [cell or over for cell, over in zip(row, above, strict=True)]  # a name is not said twice
            for at, column in enumerate(header):
                for words in range(1, len(row)):
                    self._cells[title, tuple(above[:words]), column] = row[at]

    def find(self, bar: Bar) -> float | None:
        found = self._cells.get((bar.title, bar.row, bar.column))
        return None if found is None else float(found.replace(",", ""))


def run(name: str) -> None:
    """One bench, whose tables are kept."""
    module, *options = STEPS[name]
    subprocess.run([sys.executable, "-m", module, *options], env={**os.environ, "BENCH_TABLES": str(KEPT)}, check=True)
    with KEPT.open("a") as file:
        print(json.dumps({"step": name}), file=file)


def judge(tables: Tables, as_markdown: bool) -> bool:
    """Shows what came out; whether all that was measured is as it should be."""
    header = ("", "of", "what", "bar", "found", "")
    lines: list[tuple[str, ...]] = []
    verdicts: Counter[str] = Counter()
    title = ""
    for bar in all_bars():
        found = tables.find(bar)
        verdict = "not measured" if found is None else "met" if bar.is_met(found) else "MISSED"
        verdicts[verdict] += 1
        name, title = "" if bar.title == title else bar.title, bar.title
        lines.append((name, ", ".join(bar.row), bar.column, bar.text, "" if found is None else f"{found:g}", verdict))
    if as_markdown:
        print("\n".join("| " + " | ".join(line) + " |" for line in (header, ("---",) * len(header), *lines)))
    else:
        count = ", ".join(f"{count} {verdict}" for verdict, count in verdicts.items())
        table = Table(title="Bars", caption=count, title_justify="left", caption_justify="left")
        for column in header:
            table.add_column(column, justify="right" if column == "found" else "left")
        for line in lines:
            table.add_row(*line, style="bold red" if line[-1] == "MISSED" else None)
        console.print(table)
    return not verdicts["MISSED"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(STEPS), help=f"of {', '.join(STEPS)}")
    parser.add_argument("--again", action="store_true", help="measure anew what was measured before")
    parser.add_argument("--markdown", action="store_true", help="print the table as Markdown")
    arguments = parser.parse_args()
    names = [name for name in arguments.only.split(",") if name]
    if unknown := [name for name in names if name not in STEPS]:
        parser.error(f"there is no {unknown[0]}; there are {', '.join(STEPS)}")
    if arguments.again:
        KEPT.unlink(missing_ok=True)
    done = Tables(KEPT).done
    for name in names:
        if name not in done:
            run(name)
    return 0 if judge(Tables(KEPT), arguments.markdown) else 1


if __name__ == "__main__":
    sys.exit(main())
