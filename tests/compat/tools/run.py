"""One run: every command line, what it had to say, and whether it did; told while it goes on."""

from __future__ import annotations

import re
import shlex
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.compat.tools import programs

TIMEOUT_S: Final = 180
STOP_TIMEOUT_S: Final = 30
SHOWN_CHARACTERS: Final = 3000

# Kafka's jars come without a logger, which each program says first.
_NOISE: Final = re.compile(r"^SLF4J: .*\n|^The consumer rebalance protocol \(KIP-848\).*\n", re.MULTILINE)

Wanted = str | re.Pattern[str]


class Step:
    """A command line that was run. `why` says what was wrong with it; a step that was skipped has neither."""

    __slots__ = ("line", "skipped", "wanted", "why")

    def __init__(self, line: str, wanted: str, why: str = "", skipped: str = "") -> None:
        self.line = line
        self.wanted = wanted
        self.why = why
        self.skipped = skipped


class Section:
    __slots__ = ("note", "steps", "title")

    def __init__(self, title: str, note: str = "") -> None:
        self.title = title
        self.note = note
        self.steps: list[Step] = []


class Run:
    """Runs command lines in a folder, against a node."""

    def __init__(self, folder: Path, bootstrap: str) -> None:
        self.folder = folder
        self.bootstrap = bootstrap
        self.sections: list[Section] = []

    @property
    def steps(self) -> list[Step]:
        return [step for section in self.sections for step in section.steps]

    @property
    def failures(self) -> list[Step]:
        return [step for step in self.steps if step.why]

    def begin(self, title: str, note: str = "") -> None:
        self.sections.append(Section(title, note))
        print(f"\n{title}", flush=True)

    def tool(self, line: str, *wanted: Wanted, given: str = "", ends: int = 0, hides: Wanted = "") -> str:
        """Runs it; it must end with `ends`, show all that is wanted and nothing of what is hidden."""
        began_s = time.monotonic()
        said, code = self._said(line, given)
        self._judge(line, said, code, ends, wanted, hides, time.monotonic() - began_s)
        return said

    @contextmanager
    def staying(self, line: str, *wanted: Wanted, until: Wanted) -> Iterator[None]:
        """A program that runs on beside the others: from when it has said `until`, to the end of the block."""
        path = self.folder / "staying.txt"
        began_s = time.monotonic()
        with open(path, "wb") as out:
            child = subprocess.Popen(
                self._command(line), cwd=self.folder, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT
            )
        try:
            while time.monotonic() < began_s + TIMEOUT_S and child.poll() is None:
                if not missing(until, normal(path.read_text(errors="replace"))):
                    break
                time.sleep(0.1)
            yield
        finally:
            child.terminate()
            try:
                child.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
            said = normal(path.read_text(errors="replace"))
            self._judge(line, said, 0, 0, (until, *wanted), "", time.monotonic() - began_s)

    def check(self, line: str, wanted: str, why: str) -> None:
        """Something that is looked at without a program; `why` is empty when it is right."""
        self._tell(Step(line, wanted, why), 0.0, "")

    def skip(self, line: str, why: str) -> None:
        self._tell(Step(line, "", skipped=why), 0.0, "")

    def write(self, name: str, text: str) -> None:
        """A file that a command line names."""
        (self.folder / name).write_text(text)

    def _said(self, line: str, given: str) -> tuple[str, int]:
        try:
            done = subprocess.run(
                self._command(line),
                cwd=self.folder,
                input=given,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                timeout=TIMEOUT_S,
                check=False,
            )
        except subprocess.TimeoutExpired as late:
            said = (late.stdout or b"").decode(errors="replace")
            return normal(f"{said}\n(stopped after {TIMEOUT_S} s)\n"), -1
        return normal(done.stdout), done.returncode

    def _command(self, line: str) -> list[str]:
        return programs.command(shlex.split(line), self.bootstrap)

    def _judge(
        self, line: str, said: str, code: int, ends: int, wanted: tuple[Wanted, ...], hides: Wanted, took_s: float
    ) -> None:
        why = ""
        lacking = [shown(want) for want in wanted if missing(want, said)]
        if code != ends:
            why = f"ends with {code} instead of {ends}"
        elif lacking:
            why = f"does not show {', '.join(lacking)}"
        elif hides and not missing(hides, said):
            why = f"shows {shown(hides)}"
        ending = [f"exit code {ends}"] if ends or not (wanted or hides) else []
        absent = [f"not {shown(hides)}"] if hides else []
        self._tell(Step(line, "; ".join([*map(shown, wanted), *absent, *ending]), why), took_s, said)

    def _tell(self, step: Step, took_s: float, said: str) -> None:
        self.sections[-1].steps.append(step)
        result = "FAILED" if step.why else "skipped" if step.skipped else "ok"
        print(f"  {result:<7} {took_s:5.1f} s  {step.line}", flush=True)
        if step.why:
            print(f"          {step.why}; it said:\n{said[-SHOWN_CHARACTERS:]}", flush=True)


def normal(said: str) -> str:
    """Without noise and without the padding of tables."""
    return re.sub(r"[ \t]+", " ", _NOISE.sub("", said))


def missing(want: Wanted, said: str) -> bool:
    return want not in said if isinstance(want, str) else want.search(said) is None


def shown(want: Wanted) -> str:
    return want if isinstance(want, str) else want.pattern
