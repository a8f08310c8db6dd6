"""Rows in aligned columns that are never cut: a terminal wraps them if it must, and a pipe gets them whole."""

from collections.abc import Sequence
from itertools import zip_longest

from rich.console import Console
from rich.text import Text


def print_columns(rows: Sequence[Sequence[str]], styles: Sequence[str] = (), header: Sequence[str] = ()) -> None:
    """Every column as wide as its widest cell; one whose header starts with `>` is aligned to the right."""
    console = Console(highlight=False)
    to_right = [title.startswith(">") for title in header]
    titles = [title.removeprefix(">") for title in header]
    widths = [max(map(len, column)) for column in zip_longest(titles, *rows, fillvalue="")]
    if titles:
        console.print(_line(titles, widths, ["bold"] * len(titles), to_right), soft_wrap=True)
    for row in rows:
        console.print(_line(row, widths, styles, to_right), soft_wrap=True)


def _line(row: Sequence[str], widths: list[int], styles: Sequence[str], to_right: list[bool]) -> Text:
    line = Text()
    for index, (cell, width) in enumerate(zip(row, widths, strict=False)):
        padded = cell.rjust(width) if index < len(to_right) and to_right[index] else cell.ljust(width)
        line.append(padded, style=styles[index] if index < len(styles) else "")
        line.append("  ")
    line.rstrip()
    return line
