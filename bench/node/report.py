"""Tables of what was measured. The first peer is ours; ratios are ours to the others.

Each table that is shown is kept as a line of JSON, too, in $BENCH_TABLES or in `build/bench/tables.jsonl`.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final, TypeVar

from rich.console import Console
from rich.table import Table

from bench.node import peers

T = TypeVar("T")

WIDTH: Final = 170
TABLES: Final = Path(__file__).parents[2] / "build" / "bench" / "tables.jsonl"
CALM_PERCENT: Final = 1.0
CALM_TRIES: Final = 2
console: Final = Console(width=None if Console().is_terminal else WIDTH)


def arguments_of(text: str | None, peer_names: Sequence[str]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", default=",".join(peer_names), help=f"of {', '.join(peers.NAMES)}; ours first")
    parser.add_argument("--rounds", type=int, default=4, help="interleaved; the first is not counted")
    parser.add_argument("--scale", type=float, default=1.0, help="less than 1 for a quick look")
    return parser


def show(title: str, conditions: str, header: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """The first column to the left, numbers to the right."""
    rows = list(rows)
    everywhere = f"{os.cpu_count()} cores shared by broker and client, load {os.getloadavg()[0]:.1f} before"
    table = Table(title=title, caption=f"{conditions}; {everywhere}.", title_justify="left", caption_justify="left")
    for number, name in enumerate(header):
        table.add_column(name, justify="right" if number else "left")
    for row in rows:
        table.add_row(*row)
    console.print(table)
    kept = Path(os.environ.get("BENCH_TABLES", TABLES))
    kept.parent.mkdir(parents=True, exist_ok=True)
    with kept.open("a") as file:
        print(json.dumps({"title": title, "conditions": table.caption, "header": header, "rows": rows}), file=file)


class Stolen:
    """How much of the processors the host of a virtual machine kept for others since this was made: nobody's tail is
    shorter than that."""

    def __init__(self) -> None:
        self._before = self._ticks()

    def percent(self) -> float:
        stolen, all_ticks = (now - before for now, before in zip(self._ticks(), self._before, strict=True))
        return 100 * stolen / all_ticks if all_ticks else 0.0

    @staticmethod
    def _ticks() -> tuple[int, int]:
        ticks = [int(word) for word in Path("/proc/stat").read_text("ascii").split("\n", 1)[0].split()[1:9]]
        return ticks[7], sum(ticks)


def undisturbed(measure: Callable[[], T]) -> tuple[T, float]:
    """What was measured while the host took little of the processors, and how many percent that was.

    Where it took more, it is measured once again, and that with less stolen counts. The rule is the same for every
    peer, and looks at nothing else.
    """
    tries: list[tuple[T, float]] = []
    while not tries or (tries[-1][1] > CALM_PERCENT and len(tries) < CALM_TRIES):
        host = Stolen()
        found = measure()
        tries.append((found, host.percent()))
    return min(tries, key=lambda one: one[1])


def say(text: str) -> None:
    """What is under way: a bench takes minutes."""
    console.print(f"[dim]{text}[/dim]", highlight=False)


def middle(found: Sequence[float]) -> float:
    """The median of all rounds but the first."""
    return statistics.median(found[1:] or found)


def ratio(mine: float, other: float) -> str:
    return f"{mine / other:.2f}" if other else "-"
