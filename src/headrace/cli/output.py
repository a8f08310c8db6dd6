"""What commands print: a table, facts, a sentence, JSON; and the question before something is lost.

Standard output has the answer and nothing else. Colour is for terminals; NO_COLOR turns it off.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import typer
from rich.console import Console
from rich.text import Text

from headrace.cli import Misused
from headrace.cli.columns import GAP, Cell, Column, Columns
from headrace.cli.streams import takes_any_character

GOOD = "green"
WARN = "yellow"
BAD = "red"
QUIET = "dim"
NAME = "cyan"

FACT_MIN: Final = 20


def print_json(value: Any) -> None:
    print(json.dumps(value, indent=2, ensure_ascii=not takes_any_character()))


def print_json_line(value: Any) -> None:
    """One of several that come by and by."""
    print(json.dumps(value, ensure_ascii=not takes_any_character()), flush=True)


def print_table(columns: Sequence[Column], rows: Iterable[Sequence[Cell]], *, indent: str = "") -> None:
    """Rows in columns. A terminal that is too narrow gets fewer of them, and is told which are left off."""
    with Columns(columns, indent=indent) as printed:
        for row in rows:
            printed.row(row)
    tell_left_off(printed.left_off)


def tell_left_off(titles: Sequence[str]) -> None:
    if any(titles):
        say(left_off_text(list(filter(None, titles))), QUIET)


def left_off_text(titles: Sequence[str]) -> str:
    return f"(left off: {', '.join(titles)}; a wider terminal, a pipe and --json have them)"


def print_facts(facts: Iterable[tuple[str, Cell]], *, indent: str = "") -> None:
    """Names and what they are, one a line; on a terminal that is too narrow, over several."""
    rows: list[tuple[str, Cell]] = list(facts)
    console = Console(highlight=False)
    if console.is_terminal:
        room = max(console.width - len(indent) - len(GAP) - max((len(name) for name, _ in rows), default=0), FACT_MIN)
        rows = [
            (name if not number else "", line)
            for name, fact in rows
            for number, line in enumerate(Text.assemble(fact).wrap(console, room) or (Text(),))
        ]
    print_table([Column("", "bold"), Column("")], rows, indent=indent)


def say(text: str | Text, style: str = "") -> None:
    """One line of the answer; over several on a terminal that is too narrow, broken between words."""
    _print(Console(highlight=False, markup=False, emoji=False), Text(text, style) if isinstance(text, str) else text)


def remark(text: str) -> None:
    """For the person beside the answer: to standard error."""
    _print(Console(stderr=True, highlight=False, markup=False, emoji=False), Text(text, QUIET))


def width_of_terminal() -> int:
    """What fits on a line; a pipe takes anything."""
    console = Console()
    return console.width if console.is_terminal else sys.maxsize


def _print(console: Console, text: Text) -> None:
    console.print(text, soft_wrap=not console.is_terminal)


def sure(question: str, preview: Callable[[], None], *, yes: bool) -> None:
    """Goes on when the person has seen what would happen and agrees, or has said so already with --yes."""
    if yes:
        return
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise Misused(
            f"{question.rstrip('?')}? There is no terminal to ask at: say --yes, or see first with --dry-run."
        )
    preview()
    if not typer.confirm(question, err=True):
        remark("Nothing was changed.")
        raise typer.Exit(1)
