"""The bars of speed name cells of tables that benches show, and a bench that is renamed does not leave one behind."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from pathlib import Path

from bench.node import bars, consume, latency, partitions, throughput


def kept(path: Path, *tables: Mapping[str, object]) -> bars.Tables:
    path.write_text("".join(json.dumps(table) + "\n" for table in tables))
    return bars.Tables(path)


def test_bars_are_of_cases_that_are_measured() -> None:
    measured: dict[str, Collection[str]] = {
        "Produce": throughput.CASES,
        "Latency": latency.CASES,
        "Consume": consume.CASES,
        "Produce to one of many": partitions.CASES,
    }
    for bar in bars.all_bars():
        kind = next((kind for kind in sorted(measured, key=len, reverse=True) if bar.title.startswith(kind)), None)
        if kind is not None:
            assert bar.row[0] in measured[kind], bar


def test_a_cell_is_found_by_its_row_where_a_name_is_not_said_twice(tmp_path: Path) -> None:
    rows = [["1,000/s", "ours", "1.00"], ["", "kafka", "1,000.25"]]
    tables = kept(tmp_path / "kept", {"title": "Latency", "header": ["requests", "peer", "p99"], "rows": rows})
    assert tables.find(bars.Bar("Latency", ("1,000/s", "kafka"), "p99", most=1)) == 1000.25
    assert tables.find(bars.Bar("Latency", ("1,000/s", "bare"), "p99", most=1)) is None


def test_of_the_same_cell_the_last_counts_and_steps_that_are_done_are_known(tmp_path: Path) -> None:
    first, second = (
        {"title": "Start", "header": ["", "ours"], "rows": [["start, s", found]]} for found in ("0.5", "0.25")
    )
    tables = kept(tmp_path / "kept", first, {"step": "footprint"}, second)
    assert tables.find(bars.Bar("Start", ("start, s",), "ours", most=1)) == 0.25
    assert tables.done == ["footprint"]


def test_a_bar_is_met_at_its_very_edge() -> None:
    least, most = bars.Bar("", (), "", least=1.1), bars.Bar("", (), "", most=0.6)
    assert (least.is_met(1.1), least.is_met(1.09)) == (True, False)
    assert (most.is_met(0.6), most.is_met(0.61)) == (True, False)
