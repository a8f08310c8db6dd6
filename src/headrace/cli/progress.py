"""A bar on standard error while something takes long, where a person looks; nothing elsewhere."""

from __future__ import annotations

import sys
from typing import Any, Self

from rich.console import Console
from rich.text import Text


class Bar:
    """Used with `with`. Without a total it shows that something goes on, and how much was done."""

    __slots__ = ("_progress", "_task", "_title", "_total")

    def __init__(self, title: str, total: float | None, *, wanted: bool = True) -> None:
        self._title = title
        self._total = total
        self._task: Any = None
        self._progress: Any = None
        if wanted and sys.stderr.isatty():
            from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

            share = [TaskProgressColumn()] if total else []
            self._progress = Progress(
                TextColumn("{task.description}"),
                BarColumn(bar_width=24),
                *share,
                TextColumn("{task.fields[told]}", style="dim"),
                console=Console(stderr=True, highlight=False, emoji=False),
                transient=True,
                refresh_per_second=8,
            )

    def __enter__(self) -> Self:
        if self._progress is not None:
            self._progress.start()
            self._task = self._progress.add_task(self._title, total=self._total, told="")
        return self

    def __exit__(self, *_: object) -> None:
        if self._progress is not None:
            self._progress.stop()

    def show(self, done: float, told: str) -> None:
        """How far it is, and a few words on it."""
        if self._progress is not None:
            self._progress.update(self._task, completed=done, told=Text(told).plain)


def rate_text(rate: float) -> str:
    """Something a second: 3 digits that count."""
    return f"{rate:,.0f}" if rate >= 100 else f"{rate:.3g}"
