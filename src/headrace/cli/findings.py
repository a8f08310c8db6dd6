"""What was looked at and how it is: good, a note, or trouble; each trouble with what to do about it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from rich.console import Console
from rich.text import Text

from headrace.cli.output import BAD, GOOD, NAME, WARN, say
from headrace.cli.quantities import wrapped


class Level(StrEnum):
    GOOD = "good"
    NOTE = "note"
    """Worth knowing; nothing needs to be done."""
    WARNING = "warning"
    """It works, and not as well or as safely as it could."""
    PROBLEM = "problem"
    """Something does not work, or is about to stop working."""


_MARKS: Final = {
    Level.GOOD: ("ok", GOOD),
    Level.NOTE: ("note", NAME),
    Level.WARNING: ("warn", WARN),
    Level.PROBLEM: ("FAIL", BAD),
}


@dataclass(slots=True)
class Finding:
    level: Level
    what: str
    """The thing looked at, in a word or two."""
    text: str
    advice: str = ""

    def as_json(self) -> dict[str, Any]:
        return {"level": self.level.value, "what": self.what, "text": self.text, "advice": self.advice or None}


def is_wrong(findings: Iterable[Finding]) -> bool:
    """Whether something has to be done: an exit code of 1."""
    return any(finding.level in (Level.WARNING, Level.PROBLEM) for finding in findings)


def print_findings(findings: Sequence[Finding]) -> None:
    """One a line, `ok` or what is wrong; what to do about it on the next."""
    console = Console(highlight=False)
    width = console.width if console.is_terminal else 120
    widest = max((len(finding.what) for finding in findings), default=0)
    for finding in findings:
        mark, style = _MARKS[finding.level]
        indent = 2 + 6 + widest + 2
        lines = wrapped(finding.text, max(width, indent + 30), " " * indent).splitlines()
        say(
            Text.assemble(
                "  ",
                (f"{mark:<6}", style),
                (f"{finding.what:<{widest}}  ", "bold" if style != GOOD else ""),
                "\n".join([lines[0].strip(), *lines[1:]]),
            )
        )
        if finding.advice:
            say(Text(wrapped(finding.advice, max(width, indent + 30), " " * indent), style))
