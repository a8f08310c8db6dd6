"""A picture on a terminal that is drawn again and again in its place."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import TypeVar

from rich.console import Console, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from headrace.cli.output import NAME, QUIET

Seen = TypeVar("Seen")


async def draw(
    looks: AsyncIterator[Seen], drawn: Callable[[Console, Seen], RenderableType], wanted: int | None = None
) -> None:
    """Each look as it is drawn, until so many of them have been shown. What is too long for the terminal is cut off."""
    console = Console(highlight=False, emoji=False)
    left = -1 if wanted is None else wanted
    waiting = Text("looking …", QUIET)
    with Live(waiting, console=console, auto_refresh=False, vertical_overflow="crop") as live:
        async for seen in looks:
            live.update(drawn(console, seen), refresh=True)
            left -= 1
            if not left:
                return


def table(*titles: str) -> Table:
    """Columns, the first of them names; a title that starts with > aligns its column to the right."""
    made = Table(box=None, padding=(0, 2, 0, 0), header_style="bold", pad_edge=False)
    for number, title in enumerate(titles):
        made.add_column(
            title.removeprefix(">"),
            justify="right" if title[:1] == ">" else "left",
            style=NAME if not number else "",
            no_wrap=True,
            overflow="ellipsis",
            min_width=len(title.removeprefix(">")) if number else 12,
        )
    return made
