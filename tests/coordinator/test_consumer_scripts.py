"""Each script in `scripts/consumer` gives what is written in it. `SCRIPTS_REWRITE=1 pytest` writes it anew: look at the
diff."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.coordinator.consumer_script import ConsumerScript

SCRIPTS = sorted((Path(__file__).parent / "scripts" / "consumer").glob("*.txt"))


def run(text: str) -> str:
    script = ConsumerScript()
    lines = []
    for line in text.splitlines():
        if line.startswith("  "):
            continue
        lines.append(line)
        if line.startswith("==="):
            script = ConsumerScript()
        elif line and not line.startswith("#"):
            lines += [f"  {happened}" for happened in script.command(line)]
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_a_script_gives_what_is_written_in_it(path: Path) -> None:
    text = path.read_text()
    happened = run(text)
    if os.environ.get("SCRIPTS_REWRITE"):
        path.write_text(happened)
        text = happened
    assert happened == text
