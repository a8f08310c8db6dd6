"""Runs the commands that docs/log-tools.md shows, so that what it shows is what they print.

    python -m tests.transcripts     # writes the page anew

A block of a transcript starts with `$ headrace …`; what follows is the output in a pipe. The folders are Kafka's of the
fixtures: `data` as they are, and `spoilt` with damage of every kind.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from headrace.cli import main

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "log-tools.md"
SHOWN_AS = "/srv"

BLOCK = re.compile(r"(?<=```console\n)\$ (headrace .*)\n(?:.*\n)*?(?=```)")


def rendered(page: str) -> str:
    """The page with the output of its commands as it is now."""
    with folders() as work:
        return BLOCK.sub(lambda block: f"$ {block[1]}\n{run(block[1], work)}", page)


@contextlib.contextmanager
def folders() -> Iterator[Path]:
    """A folder with `data` and `spoilt` in it, which is the current one meanwhile."""
    before = os.getcwd()
    with tempfile.TemporaryDirectory() as name:
        work = Path(name).resolve()
        for folder in ("data", "spoilt"):
            shutil.copytree(ROOT / "tests" / "fixtures" / "kafka", work / folder)
            (work / folder / "expected.json").unlink()
        _spoil(work / "spoilt")
        os.chdir(work)
        try:
            yield work
        finally:
            os.chdir(before)


def run(command: str, work: Path) -> str:
    """What it prints, and its exit code where that is not 0."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        code = main(shlex.split(command)[1:])
    text = out.getvalue().replace(str(work), SHOWN_AS)
    return text + (f"(exit code {code})\n" if code else "")


def _spoil(data: Path) -> None:
    for folder in ("__cluster_metadata-0", "__consumer_offsets-0", "append-time-0", "codecs-0", "compacted-0"):
        shutil.rmtree(data / folder)
    _flip(data / "plain-0" / "00000000000000000000.log", 200)
    _flip(data / "segments-0" / "00000000000000000006.index", 15)
    (data / "idempotent-0" / "00000000000000000004.log").unlink()
    (data / ".kafka_cleanshutdown").unlink()
    tail = data / "transactions-0" / "00000000000000000018.log"
    tail.write_bytes(tail.read_bytes() + tail.read_bytes()[:50])
    for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
        lines = (data / name).read_text().splitlines()[2:]
        kept = sorted(line for line in lines if (data / f"{line.split()[0]}-0").exists())
        (data / name).write_text("\n".join(["0", str(len(kept)), *kept, ""]))
    (data / "cleaner-offset-checkpoint").unlink()


def _flip(path: Path, position: int) -> None:
    content = bytearray(path.read_bytes())
    content[position] ^= 1
    path.write_bytes(content)


if __name__ == "__main__":
    new = rendered(PAGE.read_text())
    PAGE.write_text(new)
    sys.exit(0)
