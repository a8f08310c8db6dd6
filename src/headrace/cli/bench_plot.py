"""A measurement as a picture: an HTML page that needs nothing else, or a PNG by matplotlib where that is installed."""

from __future__ import annotations

import html
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from headrace.cli import Misused
from headrace.cli.bench_result import Result
from headrace.cli.latencies import PERCENTILES, bound_text, time_short
from headrace.cli.progress import rate_text
from headrace.cli.quantities import count_text, size_text
from headrace.errors import HeadraceError

WIDTH: Final = 860
HEIGHT: Final = 260
LEFT: Final = 80
BOTTOM: Final = 40
_LINE_INCHES: Final = 0.18
"""Of the conditions, in a PNG."""
_COLOURS: Final = ("#2a78b8", "#d9822b", "#3a9d5d")
_STYLE: Final = """
:root { color-scheme: light dark; --ink: #1c2733; --quiet: #66737f; --line: #d5dce2; --paper: #fff; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6ebf0; --quiet: #93a1ad; --line: #35414c; --paper: #151b21; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); max-width: 900px;
  margin: 2em auto; padding: 0 1em; }
h1 { font-size: 1.5em; margin-bottom: 0; } h2 { font-size: 1.1em; margin: 2em 0 .3em; }
p.big { font-size: 1.3em; } p, td.name, th { color: var(--quiet); } p.big { color: var(--ink); }
table { border-collapse: collapse; } td, th { padding: .15em 1.2em .15em 0; text-align: left; font-weight: normal; }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; }
svg { width: 100%; height: auto; } svg text { fill: var(--quiet); font-size: 12px; }
svg .grid { stroke: var(--line); } svg rect:hover, svg circle:hover { opacity: .7; }
"""


def check_plot(path: Path | None) -> None:
    """Before a measurement of minutes, whether its picture can be written."""
    if path is None:
        return
    if path.suffix not in (".html", ".png"):
        raise Misused(f"--plot {path}: write a file that ends in .html or .png")
    if not path.absolute().parent.is_dir():
        raise Misused(f"--plot {path}: there is no folder {path.parent}")
    if path.suffix == ".png":
        _pyplot()


def write_plot(path: Path, result: Result) -> None:
    try:
        if path.suffix == ".png":
            _write_png(path, result)
        else:
            path.write_text(page(result))
    except OSError as error:
        raise HeadraceError(f"{path} can't be written: {error.strerror}.") from error


# --- HTML -------------------------------------------------------------------------------------------------------------


def page(result: Result) -> str:
    """One file with its drawings in it."""
    told = html.escape
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">',
        f"<title>headrace bench {told(result.what)}</title><style>{_STYLE}</style></head><body>",
        f"<h1>headrace bench {told(result.what)}</h1>",
        f'<p class="big">{rate_text(result.records_per_second)} records/s, '
        f"{size_text(round(result.bytes_per_second))}/s</p>",
        f"<p>{count_text(result.records)} records, {size_text(result.bytes)} in {result.seconds:.1f} s</p>",
    ]
    if result.series:
        parts += ["<h2>Throughput by time</h2>", _line_chart(result)]
    if result.latencies:
        parts += ["<h2>Latency</h2>", _percentile_table(result)]
    for number, (name, latencies) in enumerate(result.latencies.items()):
        parts += [
            f"<h2>{told(name.capitalize())}</h2>",
            _bars(latencies.slices(), latencies.count, _COLOURS[number % 3]),
        ]
    rows = "".join(
        f'<tr><td class="name">{told(name.replace("_", " "))}</td><td>{told(str(value))}</td></tr>'
        for name, value in result.conditions.items()
    )
    parts += ["<h2>Conditions</h2>", f"<table>{rows}</table>", "</body></html>"]
    return "\n".join(parts) + "\n"


def _line_chart(result: Result) -> str:
    length = result.series[-1][0]
    digits = 0 if length >= 20 else 1 if length >= 2 else 3
    points = [
        (end, size, f"{end:.{digits}f} s: {size_text(round(size))}/s, {records:,.0f} records/s")
        for end, size, records in result.rates()
    ]
    most_y = max(y for _, y, _ in points) or 1.0
    drawn = [_frame(), *_levels(most_y, lambda level: f"{size_text(round(level))}/s")]
    path = " ".join(f"{_x(x / length):.1f},{_y(y / most_y):.1f}" for x, y, _ in [(0.0, *points[0][1:]), *points])
    drawn.append(f'<polyline points="{path}" fill="none" stroke="{_COLOURS[0]}" stroke-width="2"/>')
    if len(points) <= 240:
        drawn += [
            f'<circle cx="{_x(x / length):.1f}" cy="{_y(y / most_y):.1f}" r="3" fill="{_COLOURS[0]}">'
            f"<title>{html.escape(text)}</title></circle>"
            for x, y, text in points
        ]
    drawn += [
        f'<text x="{_x(share):.0f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">'
        f"{length * share:.{digits}f} s</text>"
        for share in (0, 0.25, 0.5, 0.75, 1)
    ]
    return _svg(drawn)


def _bars(slices: list[tuple[float, float, int]], total: int, colour: str) -> str:
    most = max((count for _, _, count in slices), default=0) or 1
    drawn = [_frame(), *_levels(most / max(total, 1), lambda level: f"{level * 100:.3g}%")]
    each = (WIDTH - LEFT - 20) / max(len(slices), 1)
    for number, (low, high, count) in enumerate(slices):
        left, top = LEFT + number * each, _y(count / most)
        text = f"{bound_text(low)} to {bound_text(high)}: {count_text(count)} ({100 * count / total:.2f}%)"
        drawn.append(
            f'<rect x="{left + 1:.1f}" y="{top:.1f}" width="{max(each - 2, 1):.1f}" '
            f'height="{HEIGHT - BOTTOM - top:.1f}" fill="{colour}"><title>{html.escape(text)}</title></rect>'
        )
        drawn.append(f'<text x="{left:.0f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{bound_text(low)}</text>')
    if slices:
        end = bound_text(slices[-1][1])
        drawn.append(f'<text x="{WIDTH - 20}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{end}</text>')
    return _svg(drawn)


def _percentile_table(result: Result) -> str:
    names = ["mean", *(f"p{percent:g}" for percent in PERCENTILES), "max"]
    head = "".join(f'<th class="number">{name}</th>' for name in names)
    rows = []
    for name, latencies in result.latencies.items():
        values = [latencies.mean_s, *(latencies.percentile_s(percent) for percent in PERCENTILES), latencies.max_s]
        cells = "".join(f'<td class="number">{time_short(value)}</td>' for value in values)
        rows.append(f'<tr><td class="name">{html.escape(name)}</td>{cells}</tr>')
    return f"<table><tr><th></th>{head}</tr>{''.join(rows)}</table>"


def _svg(drawn: list[str]) -> str:
    return f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img">' + "".join(drawn) + "</svg>"


def _frame() -> str:
    return f'<line class="grid" x1="{LEFT}" y1="{HEIGHT - BOTTOM}" x2="{WIDTH - 20}" y2="{HEIGHT - BOTTOM}"/>'


def _levels(most: float, text: Any) -> list[str]:
    drawn = []
    for share in (0.5, 1.0):
        y = _y(share)
        drawn.append(
            f'<line class="grid" x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - 20}" y2="{y:.1f}" stroke-dasharray="3 4"/>'
        )
        drawn.append(f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{html.escape(text(most * share))}</text>')
    return drawn


def _x(share: float) -> float:
    return LEFT + share * (WIDTH - LEFT - 20)


def _y(share: float) -> float:
    return HEIGHT - BOTTOM - share * (HEIGHT - BOTTOM - 20)


# --- PNG --------------------------------------------------------------------------------------------------------------


def _pyplot() -> Any:
    try:
        matplotlib = import_module("matplotlib")
    except ImportError:
        raise HeadraceError(
            "A PNG is drawn by matplotlib, which is not installed: `pip install matplotlib`, or write a page instead, "
            "with --plot FILE.html."
        ) from None
    matplotlib.use("Agg")
    return import_module("matplotlib.pyplot")


def _write_png(path: Path, result: Result) -> None:
    pyplot = _pyplot()
    panels = max(bool(result.series) + len(result.latencies), 1)
    conditions = [f"{name.replace('_', ' ')}: {value}" for name, value in result.conditions.items()]
    foot = _LINE_INCHES * (len(conditions) + 1)
    height = 3.2 * panels + foot
    figure, axes = pyplot.subplots(panels, 1, figsize=(9, height), squeeze=False)
    free = [row[0] for row in axes]
    title = (
        f"headrace bench {result.what}: {rate_text(result.records_per_second)} records/s, "
        f"{size_text(round(result.bytes_per_second))}/s"
    )
    figure.suptitle(title)
    if result.series:
        axis = free.pop(0)
        rates = [(end, size / (1 << 20)) for end, size, _ in result.rates()]
        axis.plot(*zip((0.0, rates[0][1]), *rates, strict=True), marker="o", markersize=3, markevery=slice(1, None))
        axis.set(xlabel="seconds", ylabel="MiB/s", xlim=(0, None), ylim=(0, 1.15 * max(rate for _, rate in rates) or 1))
    for colour, (name, latencies) in zip(_COLOURS, result.latencies.items(), strict=False):
        axis = free.pop(0)
        slices = latencies.slices()
        axis.bar(
            [bound_text(low) for low, _, _ in slices],
            [100 * count / latencies.count for _, _, count in slices],
            align="edge",
            width=0.96,
            color=colour,
        )
        p50, p99 = (time_short(latencies.percentile_s(percent)) for percent in (50.0, 99.0))
        axis.set(title=f"{name}: p50 {p50}, p99 {p99}", ylabel="%")
    figure.text(0.02, _LINE_INCHES / 2 / height, "\n".join(conditions), va="bottom", fontsize=8.5, linespacing=1.5)
    figure.tight_layout(rect=(0, foot / height, 1, 1))
    figure.savefig(path, dpi=110)
    pyplot.close(figure)
