"""How `make compat` judges what a tool says, and what it writes and says itself; no tool is run here."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from bench.peers import kafka
from headrace.errors import HeadraceError
from tests.compat.tools import __main__ as command
from tests.compat.tools import programs
from tests.compat.tools.page import page
from tests.compat.tools.run import Run


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Its programs are Python's, one line each, and say what they are given."""
    program = (
        "import sys; print('SLF4J: no logger'); print('a  table\\tof', sys.stdin.read()); sys.exit(int(sys.argv[1]))"
    )
    monkeypatch.setattr(programs, "command", lambda words, bootstrap: [sys.executable, "-c", program, *words[1:]])
    run = Run(tmp_path, "127.0.0.1:9092")
    run.begin("Some")
    return run


def test_a_command_passes_when_it_shows_what_is_wanted(run: Run) -> None:
    assert run.tool("say 0", "a table of words", re.compile("^a .* words$", re.MULTILINE), given="words") == (
        "a table of words\n"
    )
    assert run.failures == []


@pytest.mark.parametrize(
    ("line", "wanted", "hides", "why"),
    [
        ("say 3", "a table", "", "ends with 3 instead of 0"),
        ("say 0", "a chair", "", "does not show a chair"),
        ("say 0", "a table", "table", "shows table"),
    ],
)
def test_a_command_fails_and_the_next_is_run(run: Run, line: str, wanted: str, hides: str, why: str) -> None:
    run.tool(line, wanted, hides=hides)
    run.tool("say 0")
    assert [step.why for step in run.steps] == [why, ""]
    assert [step.why for step in run.failures] == [why]


def test_the_page_tells_what_passes_what_fails_and_what_is_skipped(run: Run) -> None:
    run.tool("say 0", "a table")
    run.tool("say 4", "x|y", ends=5)
    run.skip("kcat", "it is not installed")
    lines = page(run.sections, [("Java", "17")], [("kafka-jmx", "there is no JVM")]).splitlines()
    assert "**1 of 3 pass, 1 fail, 1 are skipped.**" in lines
    assert "| `say 0` | `a table` | passes |" in lines
    assert "| `say 4` | `x\\|y; exit code 5` | **fails**: ends with 4 instead of 5 |" in lines
    assert "| `kcat` |  | skipped: it is not installed |" in lines
    assert "| kafka-jmx | there is no JVM |" in lines


def test_without_java_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", "")
    assert command.main([]) == 2
    assert capsys.readouterr().err.startswith("compat: Java is missing, and Kafka's tools need it; install Java 17")


def test_without_maven_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("KAFKA_HOME", str(tmp_path))
    monkeypatch.setattr(programs, "java_version", lambda: "17.0.1")
    with pytest.raises(HeadraceError, match="Maven is missing"):
        programs.require()


def test_an_old_java_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "java_version", lambda: "11.0.2")
    with pytest.raises(HeadraceError, match="Java 11.0.2 is too old"):
        programs.require()


def test_a_section_that_there_is_not_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["nonsense"]) == 2
    assert "there is no section nonsense; there are topics," in capsys.readouterr().err


def test_the_address_is_put_where_each_program_takes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka, "java", lambda name, *arguments, options: list(arguments))
    assert programs.command(["kafka-topics", "--list"], "h:1") == ["--bootstrap-server", "h:1", "--list"]
    assert programs.command(["kafka-cluster", "cluster-id"], "h:1") == ["cluster-id", "--bootstrap-server", "h:1"]
    assert programs.command(["kafka-e2e-latency", "t"], "h:1") == ["h:1", "t"]
    assert programs.command(["kafka-dump-log", "--files", "f"], "h:1") == ["--files", "f"]
    assert programs.command(["kcat", "-L"], "h:1") == ["kcat", "-b", "h:1", "-L"]
