"""`headrace bench`, as a user runs it, and what it draws."""

from __future__ import annotations

import importlib.util
import os
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.cli import bench_load
from headrace.cli.bench_plot import page, write_plot
from headrace.cli.bench_result import Result
from headrace.cli.latencies import Latencies, bar, time_short
from headrace.cli.progress import Bar
from tests.cli.running import Cli
from tests.cli.terminal import Terminal, headrace
from tests.compat.process import Process

SHORT = ["--duration", "300ms", "--warmup", "0"]
FEW = ["--records", "50", "--duration", "1m", "--warmup", "0"]
"""Ends with the fiftieth, however slow the machine is."""


@given(st.lists(st.floats(1e-6, 100), min_size=1, max_size=200))
def test_percentiles_are_right_to_two_percent(times: list[float]) -> None:
    latencies = Latencies()
    for seconds in times:
        latencies.add(seconds)
    ranked = sorted(times)
    for percent in (50.0, 99.0, 100.0):
        exact = ranked[max(0, -(-len(ranked) * int(percent) // 100) - 1)]
        assert latencies.percentile_s(percent) == pytest.approx(exact, rel=0.021)
    assert sum(count for _, _, count in latencies.slices()) == len(times)


def test_bars_and_times() -> None:
    assert (bar(1, 4), bar(0.5, 4), bar(0, 4), bar(0.001, 4)) == ("████", "██", "", "▏")
    assert [time_short(seconds) for seconds in (12.34, 0.5, 0.0123, 0.000045)] == [
        "12.3 s",
        "500 ms",
        "12.3 ms",
        "45.0 µs",
    ]


def test_a_page_needs_nothing_else() -> None:
    result = Result("latency", {"topic": "<script>"}, records=3, bytes=300, seconds=2)
    result.latencies["acknowledged"] = latencies = Latencies()
    for seconds in (0.001, 0.002, 0.5):
        latencies.add(seconds)
    result.series = [(1.0, 1, 100), (2.0, 2, 200)]
    drawn = page(result)
    assert "<script>" not in drawn
    assert "http" not in drawn
    assert drawn.count("<svg") == 2


def test_a_page_of_nothing_is_drawn() -> None:
    drawn = page(Result("latency", {}, latencies={"acknowledged": Latencies()}))
    assert drawn.count("<svg") == 1


@pytest.mark.parametrize("what", ["produce", "latency"])
def test_measured_with_a_topic_of_its_own_which_is_gone_afterwards(cli: Cli, what: str, tmp_path: Path) -> None:
    plot = tmp_path / "plot.html"
    length = FEW if what == "produce" else SHORT
    told = cli("bench", what, *length, "--rate", "200", "--json", "--plot", str(plot))
    assert (told.code, told.err) == (0, f"Drawn in {plot}.\n")
    measured = told.json
    assert measured["records"] > 0
    assert measured["failed"] == 0
    assert measured["latency"]["acknowledged"]["p50_ms"] > 0
    assert ("end to end" in measured["latency"]) == (what == "latency")
    assert measured["settings"]["topic"] not in cli.done("topic", "list", "--names").out.split()
    assert "<svg" in plot.read_text()


@pytest.mark.parametrize("what", ["produce", "latency"])
def test_no_record_is_sent_before_it_is_due(cli: Cli, what: str) -> None:
    measured = cli.done("bench", what, *SHORT, "--rate", "300", "--acks", "0", "--linger", "0", "--json").json
    assert measured["latency"]["acknowledged"]["min_ms"] >= 0


def test_a_table_and_a_histogram(cli: Cli, topic: str) -> None:
    shown = cli.done("bench", "produce", "--topic", topic, *FEW, "-z", "lz4", "--record-size", "1KiB").out
    assert shown.startswith("bench produce\n")
    assert "records/s" in shown
    assert "its limits are in the figures" in shown
    assert "p99.9" in shown
    assert "█" in shown
    assert topic in cli.done("topic", "list", "--names").out.split()


def test_reading_is_measured(cli: Cli, topic: str) -> None:
    assert cli.done("bench", "consume", "--topic", topic, "--json").json["records"] == 10
    assert cli.done("bench", "consume", "--records", "2000", "--json").json["records"] >= 2000


def test_a_short_run_is_drawn_too(cli: Cli, topic: str, tmp_path: Path) -> None:
    plot = tmp_path / "plot.html"
    told = cli("bench", "consume", "--topic", topic, "--json", "--plot", str(plot)).json
    assert told["series"]
    assert sum(sample["records"] for sample in told["series"]) == 10
    assert "Throughput by time" in plot.read_text()


def test_samples_of_a_long_run_are_put_together(monkeypatch: pytest.MonkeyPatch) -> None:
    result = Result("consume", {})
    now = 0.0
    monkeypatch.setattr(bench_load, "time", SimpleNamespace(perf_counter=lambda: now))
    watch = bench_load.Watch(bench_load.Load("t", 1, 1, 0, "all", "none", 60, None, None, 0), result, Bar("", None))
    while not watch.is_over():
        now += 1 / 64
        result.records += 1
    watch.stop()
    ends = [end for end, _, _ in result.series]
    assert ends == sorted(ends)
    assert ends[-1] == 60
    assert 60 <= len(ends) < 100
    assert {records for _, _, records in result.rates()} == {64}
    assert sum(records for _, records, _ in result.series) == result.records


@pytest.mark.parametrize("what", ["produce", "latency", "consume"])
def test_librdkafka_can_be_the_client(cli: Cli, what: str) -> None:
    options = {"produce": FEW, "latency": [*SHORT, "--rate", "200"], "consume": ["--records", "500"]}[what]
    measured = cli.done("bench", what, *options, "--client", "librdkafka", "--json").json
    assert measured["records"] > 0
    assert measured["conditions"]["client"].startswith("librdkafka ")


def test_a_png_is_drawn_by_matplotlib_or_it_says_how(cli: Cli, tmp_path: Path) -> None:
    plot = tmp_path / "plot.png"
    told = cli("bench", "latency", *SHORT, "--plot", str(plot))
    if importlib.util.find_spec("matplotlib") is None:
        assert told.code == 1
        assert "pip install matplotlib" in told.err
    else:
        assert told.code == 0, told.err
        assert plot.read_bytes().startswith(b"\x89PNG")


def test_ctrl_c_tells_what_was_measured(cli: Cli) -> None:
    terminal = Terminal("bench", "latency", "--warmup", "0", "--duration", "10m", "--bootstrap", cli.bootstrap)
    terminal.until("records/s")
    assert terminal.interrupted() == 130
    assert "Stopped by Ctrl-C" in terminal.shown
    assert "Traceback" not in terminal.shown
    assert not [name for name in cli.done("topic", "list", "--names").out.split() if name in terminal.shown]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["produce", "--record-size", "big"], "--record-size big: write a size"),
        (["produce", "--duration", "long"], "--duration long: write a time"),
        (["produce", "--plot", "x.gif"], "write a file that ends in .html or .png"),
        (["produce", "--plot", "/nowhere/x.html"], "there is no folder /nowhere"),
        (["latency", "--record-size", "4"], "--record-size is at least 8"),
        (["produce", "--loud"], "No such option: --loud"),
    ],
)
def test_wrong_use(cli: Cli, options: list[str], said: str) -> None:
    assert said in cli.failed("bench", *options, code=2)


def test_a_topic_that_is_not_there(cli: Cli, topic: str) -> None:
    assert "did you mean" in cli.failed("bench", "produce", "--topic", f"{topic}x")


@pytest.mark.skipif("HEADRACE_COMPAT_BOOTSTRAP" in os.environ, reason="it takes a folder from a node of ours")
def test_a_topic_without_a_leader_is_told_at_once(tmp_path: Path) -> None:
    node = Process(Path(f"{tmp_path}/one,{tmp_path}/two"))
    node.start()
    for topic in ("first", "second"):
        assert headrace("topic", "create", topic, "--partitions", "1", "--bootstrap", node.bootstrap).returncode == 0
    assert node.stop() == 0
    (lost,) = (tmp_path / "two").glob("*-0")
    node.data = tmp_path / "one"
    node.start()
    try:
        for what in ("produce", "consume", "latency"):
            done = headrace("bench", what, "--topic", lost.name.removesuffix("-0"), "--bootstrap", node.bootstrap)
            assert (done.returncode, done.stdout) == (1, "")
            assert "has a leader" in done.stderr
    finally:
        assert node.stop() == 0


def test_a_narrow_terminal_has_no_line_that_is_wrapped(cli: Cli) -> None:
    terminal = Terminal("bench", "latency", *SHORT, "--bootstrap", cli.bootstrap, COLUMNS="60")
    assert terminal.end() == 0
    told = terminal.shown[terminal.shown.index("bench latency") :]
    lines = [line.rstrip() for line in re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", told).splitlines()]
    assert [line for line in lines if len(line) > 60] == []
    titles = next(line.split() for line in lines if line.startswith("  latency "))
    assert titles[-1] == "max"
    assert {"p50", "p99"} < set(titles)
    assert any("p95" in line for line in lines if line.startswith("(left off: "))
    assert [line.split() for line in lines if line.split()[:2] == ["from", "to"]] == [
        ["from", "to", "share", "count"]
    ] * 2


def test_a_png_has_the_conditions_on_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    figure = pytest.importorskip("matplotlib.figure")
    drawn: list[str] = []
    save = figure.Figure.savefig

    def look(self: Any, *arguments: Any, **named: Any) -> None:
        drawn.extend(text.get_text() for text in self.texts)
        save(self, *arguments, **named)

    monkeypatch.setattr(figure.Figure, "savefig", look)
    result = Result("latency", {"acks": "all", "warm_up": "1 s, not counted"}, seconds=1.0, records=1)
    result.latencies["acknowledged"] = latencies = Latencies()
    latencies.add(0.01)
    write_plot(tmp_path / "plot.png", result)
    assert "acks: all" in "\n".join(drawn)
    assert "warm up: 1 s, not counted" in "\n".join(drawn)
