"""`--help` of every command: its examples can be copied, and whoever reads it from a pipe gets no padding."""

from __future__ import annotations

import re
from typing import Any

import pytest
from typer.main import get_command

from headrace.cli import COMMANDS, load, main

Capture = pytest.CaptureFixture[str]


def commands() -> dict[str, Any]:
    """Every Typer command and group of commands, by how it is called."""
    found: dict[str, Any] = {}
    for name, command in COMMANDS.items():
        app = load(name, command)
        if not hasattr(app, "registered_commands"):
            continue
        found[name] = get_command(app)
        found.update({f"{name} {each}": sub for each, sub in getattr(found[name], "commands", {}).items()})
    return found


@pytest.mark.parametrize("name", commands())
def test_every_example_is_a_line_that_can_be_copied(
    name: str, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERMINAL_WIDTH", "80")
    examples = re.findall(r"^ *- `(.*)`$", commands()[name].help, re.MULTILINE)
    assert examples, "there are none"
    assert all("headrace " in example for example in examples)
    assert main([*name.split(), "--help"]) == 0
    lines = [line.strip().removeprefix("•").strip() for line in capsys.readouterr().out.splitlines()]
    assert set(examples) <= set(lines)


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--help"],
        ["topic"],
        ["consume", "--help"],
        ["config", "list"],
        ["config", "explain", "compression.type"],
        ["config", "explain", "interval.ms"],
    ],
)
def test_a_pipe_gets_no_spaces_at_the_ends_of_lines(arguments: list[str], capsys: Capture) -> None:
    main(arguments)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) > 5
    assert [line for line in lines if line != line.rstrip()] == []


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["topic", "create", "x", "-p", "0"], "--partitions must be at least 1, not '0'."),
        (["topic", "create", "x", "-p", "foo"], "--partitions must be a whole number, not 'foo'."),
        (["topic", "create", "x", "-r", "99999"], "--replication must be at most 32767, not '99999'."),
        (["topic", "list", "--sort", "foo"], "--sort must be one of name, size, records, partitions, not 'foo'."),
        (["bench", "produce", "--rate", "0"], "--rate must be at least 0.1, not '0'."),
        (["produce", "x", "--rate", "foo"], "--rate must be a number, not 'foo'."),
        (["txn", "list", "--producer-id", "1", "--producer-id", "x"], "--producer-id must be a whole number, not 'x'."),
    ],
)
def test_a_value_that_can_not_be_is_told_in_our_words(arguments: list[str], expected: str, capsys: Capture) -> None:
    assert main(arguments) == 2
    assert capsys.readouterr().err.startswith(f"headrace: {expected} See: headrace {arguments[0]}")
