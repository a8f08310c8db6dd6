"""`headrace top`, and what it reads."""

from __future__ import annotations

import json
import os

import pytest

from headrace.cli.metrics_text import between, buckets, by_label, merged, parse, percentile_s
from tests.cli.other_node import metrics_of_another
from tests.cli.running import Cli
from tests.cli.terminal import Terminal, headrace, lines_of

TEXT = r"""# HELP x what it is
# TYPE x counter
x{topic="a\"b",node="1"} 3
x{topic="a\"b",node="2"} 4
x{topic="c"} 1e3
plain 7
broken{ nonsense
h_bucket{api="Produce",le="0.1"} 50
h_bucket{api="Produce",le="0.2"} 100
h_bucket{api="Produce",le="+Inf"} 100
"""


def test_metrics_are_read() -> None:
    samples = parse(TEXT)
    assert by_label(samples, "x", "topic") == {'a"b': 7.0, "c": 1000.0}
    assert samples["plain"] == [({}, 7.0)]
    histogram = buckets(samples, "h", "api")["Produce"]
    assert percentile_s(histogram, 50) == 0.1
    assert percentile_s(histogram, 75) == 0.15000000000000002
    assert percentile_s(between(histogram, histogram), 50) is None
    assert merged([histogram, histogram])[0.1] == 100


def test_one_look_as_a_table_and_as_json(cli: Cli, topic: str) -> None:
    group = f"{topic}-group"
    cli.done("consume", topic, "--group", group, "--count", "4")
    told = cli.done("top", "--once", "--interval", "200ms", "--json").json
    mine = next(one for one in told["topics"] if one["topic"] == topic)
    assert (mine["partitions"], mine["end_offsets"], mine["records_in_per_second"]) == (3, 10, 0.0)
    its = next(one for one in told["groups"] if one["group"] == group)
    assert (its["lag"], its["state"]) == (6, "Empty")
    assert told["disks"][0]["total_bytes"] > 0
    shown = cli.done("top", "--once", "--interval", "200ms", "--no-groups").out
    assert topic in shown
    assert group not in shown
    assert "records/s in" in shown
    cli.done("topic", "create", f"{topic}-too")
    assert cli.done("top", "--once", "--interval", "200ms", "--rows", "1").out.count("… and ") >= 1


def test_metrics_that_are_not_there_are_noted(cli: Cli, topic: str) -> None:
    told = cli.done("top", "--once", "--interval", "200ms", "--json", "--metrics", "127.0.0.1:1").json
    assert told["notes"] == ["no metrics from 127.0.0.1:1: [Errno 111] Connection refused"]
    assert told["requests"] == []


def test_metrics_of_another_cluster_are_not_taken_for_those_of_this_one(cli: Cli) -> None:
    with metrics_of_another() as address:
        told = cli.done("top", "--once", "--interval", "200ms", "--json", "--metrics", address).json
    assert told["notes"] == [
        f"{address} tells metrics of something else; say where this cluster's are: --metrics HOST:PORT"
    ]
    assert told["requests"] == []


@pytest.mark.skipif("HEADRACE_COMPAT_BOOTSTRAP" in os.environ, reason="Kafka has no such port")
def test_metrics_are_found_where_the_node_chose_to_tell_them(cli: Cli) -> None:
    told = cli.done("top", "--once", "--interval", "200ms", "--json").json
    assert told["notes"] == []
    assert told["requests"]


def test_a_line_of_json_for_each_look(cli: Cli) -> None:
    lines = cli.done("top", "--json", "--count", "2", "--interval", "200ms").out.splitlines()
    assert [json.loads(line)["brokers"] for line in lines] == [1, 1]


def test_a_terminal_is_drawn_anew_until_ctrl_c(cli: Cli, topic: str) -> None:
    terminal = Terminal("top", "--interval", "200ms", "--bootstrap", cli.bootstrap)
    terminal.until("records/s in")
    assert terminal.interrupted() == 130
    assert "Traceback" not in terminal.shown
    plain = Terminal("top", "--once", "--interval", "200ms", "--bootstrap", cli.bootstrap, NO_COLOR="1")
    assert plain.end() == 0
    assert "\x1b[36m" not in plain.shown
    assert "records/s in" in plain.shown


def test_a_dumb_terminal_is_shown_one_picture_after_the_other(cli: Cli, topic: str) -> None:
    """Nothing can be drawn anew there, and nothing would be shown before the end."""
    terminal = Terminal("top", "--interval", "200ms", "--bootstrap", cli.bootstrap, TERM="dumb")
    terminal.until("records/s in")
    assert terminal.process.poll() is None
    assert terminal.interrupted() == 130
    assert "\x1b" not in terminal.shown


def test_wrong_use_and_no_cluster(cli: Cli) -> None:
    assert "--interval often: write a time" in cli.failed("top", "--interval", "often", code=2)
    assert "No such option: --loud" in cli.failed("top", "--loud", code=2)
    done = headrace("top", "--bootstrap", "127.0.0.1:1")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("headrace: No broker answers at 127.0.0.1:1")


def test_nothing_is_cut_off_on_a_terminal_of_24_lines(cli: Cli, topic: str) -> None:
    for number in range(6):
        cli.done("topic", "create", f"{topic}-with-a-rather-long-name-{number}")
    for number in range(3):
        cli.done("consume", topic, "--group", f"{topic}-{number}", "--count", "1")
    size = {"COLUMNS": "60", "LINES": "24"}
    terminal = Terminal("top", "--interval", "200ms", "--count", "1", "--bootstrap", cli.bootstrap, **size)
    assert terminal.end() == 0
    lines = lines_of(terminal)
    assert [line for line in lines if len(line) > 60] == []
    assert len(lines) <= 24
    assert any(line.startswith("broker 1") for line in lines)
    assert any("topics more" in line for line in lines)
