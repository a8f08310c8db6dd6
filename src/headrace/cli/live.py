"""A picture on a terminal that is drawn again and again in its place, and its tables, which fit the terminal."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Final, TypeVar

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from headrace.cli.columns import GAP, Cell, Column, cell_width, fitting
from headrace.cli.output import QUIET
from headrace.cli.quantities import plural, wrapped

Seen = TypeVar("Seen")

SHRUNK_MIN: Final = 12


def is_possible() -> bool:
    """Whether what people look at can be drawn anew in its place, which a pipe and TERM=dumb can't do."""
    return sys.stdout.isatty() and not Console().is_dumb_terminal


async def draw(
    looks: AsyncIterator[Seen], drawn: Callable[[int, int, Seen], Sequence[Text]], wanted: int | None = None
) -> None:
    """Each look as lines for the width and height that the terminal has by then, until so many have been shown."""
    console = Console(highlight=False, emoji=False)
    left = -1 if wanted is None else wanted
    waiting = Text("looking …", QUIET)
    with Live(waiting, console=console, auto_refresh=False, vertical_overflow="crop") as live:
        async for seen in looks:
            # One line is for the cursor, and for what the shell says afterwards.
            lines = drawn(console.width, console.height - 1, seen)
            for line in lines:
                line.no_wrap, line.overflow = True, "crop"
            live.update(Group(*lines), refresh=True)
            left -= 1
            if not left:
                return


def table(columns: Sequence[Column], rows: Sequence[Sequence[Cell]], width: int | None) -> tuple[list[Text], list[str]]:
    """The titles and the rows, a line each, and the titles of the columns that there is no room for.

    Figures are never cut. Names are, where that makes room for a column; without a width everything is there.
    """
    titles = [column.title.removeprefix(">") for column in columns]
    widths = [max(map(cell_width, cells)) for cells in zip(titles, *rows, strict=True)]
    shown = list(range(len(columns)))
    if width is not None:
        whole = list(widths)
        shrinking = [number for number in shown if columns[number].shrinks]
        share = max(width // (len(shrinking) + 3), SHRUNK_MIN)
        for number in shrinking:
            widths[number] = min(widths[number], share)
        shown = fitting(columns, widths, width)
        spare = width - sum(widths[number] + len(GAP) for number in shown) + len(GAP)
        for number in shrinking:  # what is left over makes them longer again
            more = max(0, min(spare, whole[number] - widths[number]))
            widths[number] += more
            spare -= more
        while spare < 0 and any(widths[number] > 1 for number in shrinking):  # a figure that is cut is another figure
            widths[max(shrinking, key=widths.__getitem__)] -= 1
            spare += 1
    head = _line([(Text(titles[number], "bold"), columns[number], widths[number]) for number in shown])
    lines = [
        _line([(_styled(row[number], columns[number]), columns[number], widths[number]) for number in shown])
        for row in rows
    ]
    return [head, *lines], [title for number, title in enumerate(titles) if title and number not in shown]


def shared(room: int, there: Sequence[int], most: int | None = None) -> list[int]:
    """How many rows of each table there is room for: as many of each, and what the short ones leave to the others.

    A table has one row at least. One that is not whole takes a line to say how many more there are.
    """
    rows = [min(count, 1) for count in there]

    def lines() -> int:
        return sum(shown + (shown < count) for shown, count in zip(rows, there, strict=True))

    growing = set(range(len(rows)))
    while growing:
        number = min(growing, key=lambda number: (rows[number], number))
        rows[number] += 1
        if rows[number] > there[number] or (most is not None and rows[number] > most) or lines() > room:
            rows[number] -= 1
            growing.remove(number)
    return rows


def more(there: int, shown: int, noun: str) -> list[Text]:
    """Says that there are more rows than are shown."""
    return [Text(f"… and {plural(there - shown, noun)} more", QUIET)] if shown < there else []


def sentence(text: str, style: str, width: int | None) -> list[Text]:
    """Over as many lines as it takes, broken between words."""
    lines = [text] if width is None else wrapped(text, width, "").splitlines()
    return [Text(line, style) for line in lines]


def _styled(cell: Cell, column: Column) -> Text:
    return cell.copy() if isinstance(cell, Text) else Text(cell, column.style)


def _cut(name: Text, width: int) -> Text:
    """In the middle: names often begin or end alike, and seldom both."""
    if name.cell_len <= width:
        return name
    end = name[-((width - 1) // 2) :]
    while end.cell_len > (width - 1) // 2:
        end = end[1:]
    begin = name.copy()
    begin.truncate(width - 1 - end.cell_len)
    return Text.assemble(begin, "…", end)


def _line(cells: Sequence[tuple[Text, Column, int]]) -> Text:
    line = Text()
    for cell, column, width in cells:
        cell = _cut(cell, width)
        pad = " " * (width - cell.cell_len)
        line.append_text(Text.assemble(*((pad, cell) if column.title[:1] == ">" else (cell, pad))))
        line.append(GAP)
    line.rstrip()
    return line
