"""Rows in aligned columns that are never cut and that stream: a page of rows is held to see how wide they are, no more.

A pipe gets every column whole. A terminal that is too narrow gets fewer columns, the least important left off first and
named at the end; what must be there all the same is wrapped by the terminal.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Final, NamedTuple, Self

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

PAGE_ROWS: Final = 500
PAGE_CHARACTERS: Final = 1 << 20
GAP: Final = "  "
PADDED_MAX: Final = 60
"""A longer cell pushes what follows to the right in its own row only."""


Cell = str | Text
"""A text has a style of its own, which counts instead of the column's."""


class Column(NamedTuple):
    """A title that starts with `>` aligns its column to the right. The highest rank is left off first, 0 never.

    A live picture, which no terminal wraps, cuts the names in a column that `shrinks` before it leaves others off.
    """

    title: str
    style: str = ""
    rank: int = 0
    shrinks: bool = False


def print_columns(rows: Sequence[Sequence[Cell]], styles: Sequence[str] = (), header: Sequence[str] = ()) -> None:
    """All at once: every column as wide as its widest cell; a header that starts with `>` aligns it to the right."""
    count = max([len(header), *map(len, rows)])
    columns = [Column(header[n] if n < len(header) else "", styles[n] if n < len(styles) else "") for n in range(count)]
    with Columns(columns, page_rows=len(rows) + 1, padded_max=1 << 30) as printed:
        for row in rows:
            printed.row(row)


class Columns:
    """Rows go in one by one, and lines between them that belong to no column; used with `with`."""

    __slots__ = (
        "_columns",
        "_console",
        "_held",
        "_held_characters",
        "_padded_max",
        "_page_rows",
        "_shown",
        "_widths",
        "indent",
        "left_off",
    )

    def __init__(
        self,
        columns: Sequence[Column],
        *,
        indent: str = "",
        page_rows: int = PAGE_ROWS,
        padded_max: int = PADDED_MAX,
    ) -> None:
        self._columns = columns
        self._console = Console(highlight=False)
        self._page_rows = page_rows
        self._padded_max = padded_max
        self._held: list[Sequence[Cell] | str] = []
        self._held_characters = 0
        self._shown: list[int] | None = None
        self._widths: list[int] = [cell_len(column.title.removeprefix(">")) for column in columns]
        self.indent = indent
        self.left_off: list[str] = []
        """The titles of the columns that the terminal has no room for."""

    def row(self, cells: Sequence[Cell]) -> None:
        self._held.append(cells)
        self._held_characters += sum(map(len, cells))
        if len(self._held) >= self._page_rows or self._held_characters > PAGE_CHARACTERS:
            self.flush()

    def line(self, text: str) -> None:
        """A line across all columns."""
        self._held.append(text)
        if len(self._held) >= self._page_rows:
            self.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """What is held is shown even when the rows ended in an error: it came before it. Titles alone are not."""
        if error is None or (self._held and not isinstance(error, BrokenPipeError | KeyboardInterrupt)):
            self.flush()

    def flush(self) -> None:
        for row in self._held:
            if not isinstance(row, str):
                for number, cell in enumerate(row):
                    width = cell_width(cell)
                    if self._widths[number] < width <= self._padded_max:
                        self._widths[number] = width
        is_first = self._shown is None
        if self._shown is None:
            self._shown = self._choose()
        held, self._held, self._held_characters = self._held, [], 0
        if self._console.color_system is None:
            sys.stdout.write("".join(f"{line}\n" for line in self._plain(held, is_first)))
            return
        for text in self._styled(held, is_first):
            self._console.print(text, soft_wrap=True)

    def _choose(self) -> list[int]:
        """The columns that fit, the most important first, where there is something to fit into."""
        every = list(range(len(self._columns)))
        if not self._console.is_terminal:
            return every
        shown = fitting(self._columns, self._widths, self._console.width - len(self.indent))
        self.left_off = [self._titles()[number] for number in every if number not in shown]
        return shown

    def _titles(self) -> list[str]:
        return [column.title.removeprefix(">") for column in self._columns]

    def _cells(self, row: Sequence[Cell]) -> Iterator[tuple[Cell, int]]:
        """The padded cells, each with the number of its column."""
        for number in self._shown or ():
            if number < len(row):
                cell = row[number]
                pad = " " * (self._widths[number] - cell_width(cell))
                if isinstance(cell, Text):
                    is_right = self._columns[number].title[:1] == ">"
                    yield Text.assemble(*((pad, cell) if is_right else (cell, pad))), number
                else:
                    yield (pad + cell if self._columns[number].title[:1] == ">" else cell + pad), number

    def _plain(self, rows: Sequence[Sequence[Cell] | str], is_first: bool) -> Iterator[str]:
        if is_first and any(self._titles()):
            yield self.indent + GAP.join(str(cell) for cell, _ in self._cells(self._titles())).rstrip()
        for row in rows:
            if isinstance(row, str):
                yield row
            else:
                yield self.indent + GAP.join(str(cell) for cell, _ in self._cells(row)).rstrip()

    def _styled(self, rows: Sequence[Sequence[Cell] | str], is_first: bool) -> Iterator[Text]:
        if is_first and any(self._titles()):
            yield Text(self.indent + GAP.join(str(cell) for cell, _ in self._cells(self._titles())).rstrip(), "bold")
        for row in rows:
            if isinstance(row, str):
                yield Text(row, "bold")
                continue
            text = Text(self.indent)
            for cell, number in self._cells(row):
                style = self._columns[number].style
                text.append_text(cell) if isinstance(cell, Text) else text.append(cell, style=style)
                text.append(GAP)
            text.rstrip()
            yield text


def fitting(columns: Sequence[Column], widths: Sequence[int], room: int) -> list[int]:
    """The numbers of the columns that fit beside each other, the most important taken first."""
    shown = []
    room += len(GAP)
    for number in sorted(range(len(columns)), key=lambda number: (columns[number].rank, number)):
        width = widths[number] + len(GAP)
        if width <= room or not columns[number].rank:
            shown.append(number)
            room -= width
    return sorted(shown)


def cell_width(cell: Cell) -> int:
    if isinstance(cell, Text):
        return cell.cell_len
    return len(cell) if cell.isascii() else cell_len(cell)
