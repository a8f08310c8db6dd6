"""What verifying and counting found, as tables and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.text import Text

from headrace.cli.columns import Column, Columns
from headrace.cli.quantities import count_text, plural, share_text, size_text, time_text, wrapped
from headrace.storage.inventory import Inventory
from headrace.storage.statistics import CodecUse, Statistics
from headrace.storage.verify_report import Problem, Report, Severity

DIRECTORY: Final = "(directory)"
_STYLES: Final = {Severity.DAMAGE: "bold red", Severity.REPAIRABLE: "yellow", Severity.NOTE: "dim"}
_INDENT: Final = " " * 12


# --- verify -----------------------------------------------------------------------------------------------------------

REPORT_COLUMNS: Final = (
    Column("partition", "cyan"),
    Column(">segments", rank=3),
    Column(">size", rank=1),
    Column(">batches", rank=2),
    Column(">records", rank=4),
    Column(">start", rank=6),
    Column(">end", rank=5),
    Column("result"),
)


def print_reports(inventory: Inventory, reports: Sequence[Report]) -> list[str]:
    """Prints all, and returns the columns that had no room."""
    with Columns(REPORT_COLUMNS) as columns:
        for report in reports:
            if report.name or report.problems:
                columns.row(_report_cells(report))
    console = Console(highlight=False)
    for report in reports:
        for problem in report.problems:
            _print_problem(console, problem)
        if report.left_out:
            console.print(
                f"\n{report.name or DIRECTORY} has {plural(report.left_out, 'problem')} more.", soft_wrap=True
            )
    console.print("\n" + _verdict(inventory, reports), soft_wrap=not console.is_terminal)
    return columns.left_off


def _report_cells(report: Report) -> Sequence[str]:
    if not report.name:
        return (DIRECTORY, "", "", "", "", "", "", _result(report))
    return (
        report.name,
        count_text(report.segments),
        size_text(report.size_bytes),
        count_text(report.batches),
        count_text(report.records),
        "-" if report.start_offset is None else str(report.start_offset),
        "-" if report.end_offset is None else str(report.end_offset),
        _result(report),
    )


def _result(report: Report) -> str:
    words = [
        f"{report.counts[Severity.DAMAGE]} damaged" if report.counts[Severity.DAMAGE] else "",
        f"{report.counts[Severity.REPAIRABLE]} repairable" if report.counts[Severity.REPAIRABLE] else "",
        plural(report.counts[Severity.NOTE], "note") if report.counts[Severity.NOTE] else "",
    ]
    told = [word for word in words if word]
    return ", ".join(told if not report.is_sound else ["OK", *told])


def _print_problem(console: Console, problem: Problem) -> None:
    place = problem.path if problem.position is None else f"{problem.path}, byte {problem.position}"
    head = Text(f"\n{problem.severity.value:<12}", style=_STYLES[problem.severity])
    head.append(place, style="default")
    console.print(head, soft_wrap=True)
    for text, style in ((f"{problem.what}.", ""), (problem.advice, "dim")):
        if text:
            shown = wrapped(text, console.width, _INDENT) if console.is_terminal else _INDENT + text
            console.print(Text(shown, style=style), soft_wrap=True)


def _verdict(inventory: Inventory, reports: Sequence[Report]) -> str:
    of = [report for report in reports if report.name]
    what = (
        f"{plural(len(of), 'partition')}, {plural(sum(report.segments for report in of), 'segment')}, "
        f"{size_text(sum(report.size_bytes for report in of))}, "
        f"{plural(sum(report.batches for report in of), 'batch')}"
    )
    counts = {severity: sum(report.counts[severity] for report in reports) for severity in Severity}
    if counts[Severity.DAMAGE] or counts[Severity.REPAIRABLE]:
        return f"{what}: {counts[Severity.DAMAGE]} damaged, {counts[Severity.REPAIRABLE]} repairable."
    return f"{what}: no damage."


def reports_json(inventory: Inventory, reports: Sequence[Report]) -> dict[str, Any]:
    return {
        "directory": inventory.disk.root,
        "is_clean_stop": inventory.is_clean,
        "is_sound": all(report.is_sound for report in reports),
        "partitions": [_report_json(report) for report in reports if report.name],
        "problems": [_problem_json(problem) for report in reports if not report.name for problem in report.problems],
    }


def _report_json(report: Report) -> dict[str, Any]:
    return {
        "name": report.name,
        "is_sound": report.is_sound,
        "segments": report.segments,
        "size_bytes": report.size_bytes,
        "batches": report.batches,
        "records": report.records,
        "start_offset": report.start_offset,
        "end_offset": report.end_offset,
        "counts": {severity.value: count for severity, count in report.counts.items()},
        "problems": [_problem_json(problem) for problem in report.problems],
    }


def _problem_json(problem: Problem) -> dict[str, Any]:
    return {**problem._asdict(), "severity": problem.severity.value}


# --- stat -------------------------------------------------------------------------------------------------------------

STATISTICS_COLUMNS: Final = (
    Column("partition", "cyan"),
    Column(">segments", rank=3),
    Column(">size"),
    Column(">indexes", rank=6),
    Column(">start", rank=4),
    Column(">end", rank=1),
    Column(">batches", rank=5),
    Column(">records", rank=1),
    Column("codecs", rank=6),
    Column(">ratio", rank=3),
    Column("first time (UTC)", rank=7),
    Column("last time (UTC)", rank=2),
    Column(">producers", rank=8),
    Column(">transactional", rank=9),
    Column(">control", rank=9),
)


def print_statistics(folder: Path, shown: Sequence[Statistics], total: Statistics, count: int) -> list[str]:
    """Prints all, and returns the columns that had no room."""
    with Columns(STATISTICS_COLUMNS) as columns:
        for one in shown:
            columns.row(_statistics_cells(one))
        if count != 1:
            columns.row(_statistics_cells(total, f"total of {plural(count, 'partition')}"))
        if total.unreadable_bytes:
            left_out = f"{plural(total.unreadable_bytes, 'byte')} of no sound batch are left out"
            columns.line(f"{left_out}; see headrace log verify {folder}")
    return columns.left_off


def _statistics_cells(one: Statistics, name: str | None = None) -> Sequence[str]:
    return (
        name or one.name,
        count_text(one.segments),
        size_text(one.size_bytes),
        size_text(one.index_bytes),
        "" if one.start_offset is None else str(one.start_offset),
        "" if one.end_offset is None else str(one.end_offset),
        count_text(one.batches),
        count_text(one.records),
        _codecs(one),
        "-" if one.ratio is None else f"{one.ratio:.2f}",
        time_text(one.first_timestamp, in_seconds=True),
        time_text(one.last_timestamp, in_seconds=True),
        count_text(len(one.producers)),
        share_text(one.transactional_records, one.records),
        share_text(one.control_batches, one.batches),
    )


def _codecs(one: Statistics) -> str:
    """With their share of the bytes, where there are several."""
    uses = sorted(one.codecs.items(), key=lambda item: -item[1].stored_bytes)
    if len(uses) < 2:
        return "".join(codec.text for codec, _ in uses) or "-"
    stored = sum(use.stored_bytes for _, use in uses)
    return ", ".join(f"{codec.text} {share_text(use.stored_bytes, stored)}" for codec, use in uses)


def statistics_json(inventory: Inventory, shown: Sequence[Statistics], total: Statistics) -> dict[str, Any]:
    return {
        "directory": inventory.disk.root,
        "partitions": [_one_json(one) for one in shown],
        "total": _one_json(total),
    }


def _one_json(one: Statistics) -> dict[str, Any]:
    return {
        "name": one.name,
        "segments": one.segments,
        "size_bytes": one.size_bytes,
        "index_bytes": one.index_bytes,
        "start_offset": one.start_offset,
        "end_offset": one.end_offset,
        "first_timestamp": one.first_timestamp,
        "last_timestamp": one.last_timestamp,
        "batches": one.batches,
        "records": one.records,
        "control_batches": one.control_batches,
        "transactional_records": one.transactional_records,
        "producers": len(one.producers),
        "unreadable_bytes": one.unreadable_bytes,
        "ratio": one.ratio,
        "codecs": {codec.text: _codec_json(use) for codec, use in sorted(one.codecs.items())},
    }


def _codec_json(use: CodecUse) -> dict[str, Any]:
    return {
        "batches": use.batches,
        "records": use.records,
        "stored_bytes": use.stored_bytes,
        "decompressed_bytes": use.decompressed_bytes,
        "ratio": use.ratio,
    }
