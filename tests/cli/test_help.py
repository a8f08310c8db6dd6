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


@pytest.mark.parametrize("name", [name for name in commands() if name != "group"])
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
