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
from headrace.cli.columns import GAP, Cell, Column, Columns, cell_width
from headrace.cli.streams import takes_any_character

GOOD = "green"
WARN = "yellow"
BAD = "red"
QUIET = "dim"
NAME = "cyan"

FOLDED_MIN: Final = 20


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
    print_table([Column("", "bold"), Column("")], folded(list(facts), indent), indent=indent)


def folded(rows: Sequence[Sequence[Cell]], indent: str = "") -> Sequence[Sequence[Cell]]:
    """The same with the last cell over several rows, broken between words, where a terminal has no room for it."""
    console = Console(highlight=False)
    if not console.is_terminal or not rows:
        return rows
    others = [max(map(cell_width, cells)) + len(GAP) for cells in zip(*(row[:-1] for row in rows), strict=True)]
    room = max(console.width - len(indent) - sum(others), FOLDED_MIN)
    return [
        [*(row[:-1] if not number else [""] * len(others)), line]
        for row in rows
        for number, line in enumerate(Text.assemble(row[-1]).wrap(console, room) or (Text(),))
    ]


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
