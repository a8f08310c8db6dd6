"""Runs the commands that docs/command-line.md shows against a fresh node, so that what it shows is what they print.

    python -m tests.cli.transcripts     # writes the page anew

A block starts with `$ headrace …`; what follows is the output in a pipe. What differs from run to run has a fixed form
in the page: ids, the port, how much of the disk is free.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
import tempfile
from pathlib import Path
from typing import Final

from tests.cli.running import Cli
from tests.compat.process import Process
from tests.transcripts import BLOCK, ROOT

PAGE: Final = ROOT / "docs" / "command-line.md"
_JSON: Final = re.compile(r"```json\n(.*?)```", re.DOTALL)
"""The file of records that the page shows."""
_FIXED: Final = (
    (r"\b[\w-]{22}\b(?=$| \(|\.$)", "Vt4oXqV5SbC3fBz0T5uJ8w"),
    (r"127\.0\.0\.1:\d{5}", "127.0.0.1:9092 "),
    (r" +disk free$", "       disk free"),
    (r" +[\d.]+ [KMGT]iB \(\d+%\)$", "  70.0 GiB (28%)"),
)


def rendered(page: str) -> str:
    """The page with the output of its commands as it is now."""
    with tempfile.TemporaryDirectory() as folder:
        # Its records are of a fixed time, which gets older and older: nothing is to be deleted for that meanwhile.
        node = Process(Path(folder) / "data", "--set", "log.retention.check.interval.ms=86400000")
        node.start()
        before, place = dict(os.environ), os.getcwd()
        (Path(folder) / "payments.jsonl").write_text(_JSON.search(page)[1])  # type: ignore[index]
        os.chdir(folder)
        os.environ |= {"HEADRACE_BOOTSTRAP": node.bootstrap, "COLUMNS": "120"}
        try:
            cli = Cli(node.bootstrap)
            return BLOCK.sub(lambda block: f"$ {block[1]}\n{shown(cli, block[1])}", page)
        finally:
            os.chdir(place)
            os.environ.clear()
            os.environ.update(before)
            node.stop()


def shown(cli: Cli, command: str) -> str:
    told = cli(*shlex.split(command)[1:])
    text = told.out + told.err + (f"(exit code {told.code})\n" if told.code else "")
    for pattern, fixed in _FIXED:
        text = re.sub(pattern, fixed, text, flags=re.MULTILINE)
    return text


if __name__ == "__main__":
    new = rendered(PAGE.read_text())
    PAGE.write_text(new)
    sys.exit(0)
