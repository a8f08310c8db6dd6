"""What a measurement found: for a person with a histogram, for a program as JSON."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from rich.text import Text

from headrace.cli.columns import GAP, Cell, Column, cell_width
from headrace.cli.latencies import PERCENTILES, Latencies, bar, bound_text, time_short
from headrace.cli.output import NAME, QUIET, print_facts, print_table, say, width_of_terminal
from headrace.cli.progress import rate_text
from headrace.cli.quantities import count_text, plural, share_text, size_text

BAR_MAX, BAR_MIN = 40, 10
INDENT: Final = "  "
_RANKS: Final = {50.0: 0, 99.0: 1, 99.9: 4}
"""What of a latency is left off last."""
_SPARKS: Final = "▁▂▃▄▅▆▇█"
SPARKS_MAX, SPARKS_MIN = 60, 10
_SPARKS_TITLE: Final = "  throughput by time"


@dataclass(slots=True)
class Result:
    what: str
    """produce, consume or latency."""
    conditions: dict[str, Any]
    """In words."""
    settings: dict[str, Any] = field(default_factory=dict)
    """The same for programs."""
    seconds: float = 0.0
    records: int = 0
    bytes: int = 0
    failed: int = 0
    first_failure: str | None = None
    is_interrupted: bool = False
    latencies: dict[str, Latencies] = field(default_factory=dict)
    """By what was timed."""
    series: list[tuple[float, int, int]] = field(default_factory=list)
    """Records and bytes of each sample, with the time at its end."""

    def fail(self, error: object) -> None:
        self.failed += 1
        self.first_failure = self.first_failure or str(error)

    @property
    def records_per_second(self) -> float:
        return self.records / self.seconds if self.seconds else 0.0

    @property
    def bytes_per_second(self) -> float:
        return self.bytes / self.seconds if self.seconds else 0.0

    def rates(self) -> list[tuple[float, float, float]]:
        """Bytes and records a second of each sample, with the time at its end."""
        begins = [0.0, *(end for end, _, _ in self.series)]
        spans = [max(end - begin, 1e-9) for begin, (end, _, _) in zip(begins, self.series, strict=False)]
        return [
            (end, size / span, records / span) for (end, records, size), span in zip(self.series, spans, strict=True)
        ]

    def as_json(self) -> dict[str, Any]:
        return {
            "bench": self.what,
            "conditions": self.conditions,
            "settings": self.settings,
            "seconds": round(self.seconds, 3),
            "records": self.records,
            "bytes": self.bytes,
            "records_per_second": round(self.records_per_second, 1),
            "bytes_per_second": round(self.bytes_per_second, 1),
            "failed": self.failed,
            "first_failure": self.first_failure,
            "interrupted": self.is_interrupted,
            "latency": {name: latencies.as_json() for name, latencies in self.latencies.items()},
            "series": [
                {"second": round(at, 3), "records": records, "bytes": size} for at, records, size in self.series
            ],
        }


def print_result(result: Result) -> None:
    say(Text(f"bench {result.what}", "bold"))
    facts: list[tuple[str, Cell]] = [(name.replace("_", " "), str(value)) for name, value in result.conditions.items()]
    print_facts(facts, indent=INDENT)
    say("")
    if not result.records:
        say("Nothing was measured.")
        return
    say(
        Text.assemble(
            "  ",
            (f"{rate_text(result.records_per_second)} records/s", f"bold {NAME}"),
            f"   {size_text(round(result.bytes_per_second))}/s   ",
            (f"{plural(result.records, 'record')}, {size_text(result.bytes)} in {result.seconds:.1f} s", QUIET),
        )
    )
    if len(result.series) > 1:
        room = width_of_terminal() - len(INDENT) - len(_SPARKS_TITLE)
        sparks = _sparks([rate for _, rate, _ in result.rates()], min(max(room, SPARKS_MIN), SPARKS_MAX))
        say(Text.assemble("  ", sparks, (_SPARKS_TITLE, QUIET)))
    if result.failed:
        say(Text(f"  {plural(result.failed, 'record')} failed: {result.first_failure}", "red"))
    if result.latencies:
        say("")
        _print_percentiles(result)
    for name, latencies in result.latencies.items():
        say("")
        say(Text(f"  {name}", "bold"))
        _print_histogram(latencies)


def _print_percentiles(result: Result) -> None:
    columns = [
        Column("latency", NAME),
        Column(">mean", rank=3),
        *(Column(f">p{percent:g}", rank=_RANKS.get(percent, 5)) for percent in PERCENTILES),
        Column(">max", rank=2),
    ]
    rows = [
        [
            name,
            time_short(latencies.mean_s),
            *(time_short(latencies.percentile_s(percent)) for percent in PERCENTILES),
            time_short(latencies.max_s),
        ]
        for name, latencies in result.latencies.items()
    ]
    print_table(columns, rows, indent=INDENT)


def _print_histogram(latencies: Latencies) -> None:
    slices = latencies.slices()
    most = max((count for _, _, count in slices), default=0)
    columns = [Column(">from"), Column(">to"), Column("", NAME), Column(">share"), Column(">count", QUIET, 1)]
    rows: list[list[Cell]] = [
        [bound_text(low), bound_text(high), "", share_text(count, latencies.count), count_text(count)]
        for low, high, count in slices
    ]
    titles = [column.title.removeprefix(">") for column in columns]
    others = sum(max(map(cell_width, cells)) + len(GAP) for cells in zip(titles, *rows, strict=True))
    width = min(max(width_of_terminal() - len(INDENT) - others, BAR_MIN), BAR_MAX)
    for row, (_, _, count) in zip(rows, slices, strict=True):
        row[2] = bar(count / most, width).ljust(width)
    print_table(columns, rows, indent=INDENT)


def _sparks(values: list[float], most_sparks: int) -> str:
    group = -(-len(values) // most_sparks)
    means = [sum(values[at : at + group]) / len(values[at : at + group]) for at in range(0, len(values), group)]
    most = max(means) or 1
    return "".join(_SPARKS[min(int(mean / most * 8), 7)] for mean in means)
