"""Scripts with what they give written into them, below each command and indented: they read as documentation.

`SCRIPTS_REWRITE=1 pytest` writes them anew: look at the diff.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Protocol


class Script(Protocol):
    def command(self, line: str) -> list[str]:
        """Do what the line says; returns what happened."""


def check(path: Path, begin: Callable[[], Script]) -> None:
    """The script gives what is written in it."""
    written = path.read_text()
    happened = run(written, begin)
    if os.environ.get("SCRIPTS_REWRITE"):
        path.write_text(happened)
    else:
        assert happened == written


def run(text: str, begin: Callable[[], Script]) -> str:
    """The script with what happens now; it begins anew at each line of `===`."""
    script = begin()
    lines = []
    for line in text.splitlines():
        if line.startswith("  "):
            continue
        lines.append(line)
        if line.startswith("==="):
            script = begin()
        elif line and not line.startswith("#"):
            lines += [f"  {happened}" for happened in script.command(line)]
    return "\n".join(lines) + "\n"
