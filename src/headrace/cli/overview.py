"""What `headrace --help` shows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from headrace import __version__
from headrace.cli.unpadded import unpadded

if TYPE_CHECKING:
    from headrace.cli import Command


@unpadded()
def print_overview(commands: Mapping[str, Command]) -> None:
    console = Console(highlight=False)
    console.print(f"[bold]headrace {__version__}[/]: a distributed message log that speaks the Kafka protocol.\n")
    console.print("[bold]Usage:[/] headrace COMMAND ...\n")

    rows = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    rows.add_column(style="cyan", no_wrap=True)
    rows.add_column()
    for name, command in commands.items():
        rows.add_row(f"  {name}", command.summary)
    rows.add_row("  --version", "Print the version.")
    console.print("[bold]Commands[/]")
    console.print(rows)

    console.print("\n[bold]Examples[/]")
    for command in commands.values():
        console.print(Text(f"  {command.example}"), soft_wrap=True)
    console.print("\nEach command explains itself: [cyan]headrace COMMAND --help[/]")
    console.print("Your shell can complete them: [cyan]headrace --install-completion[/]")


@contextmanager
def tidied(command: Any) -> Iterator[None]:
    """For a command that prints its help."""
    tidy(command)
    with unpadded():
        yield


def tidy(command: Any) -> None:
    """Takes out of a command's help what tells people nothing: that a flag is a <bool>, and arguments a <list[str]>."""
    context = typer.Context(command)
    for parameter in command.get_params(context):
        if parameter.param_type_name == "argument":
            parameter.display_type_rich = lambda ctx: None
        elif parameter.is_flag:
            parameter.metavar = ""
    for each in getattr(command, "commands", {}).values():
        tidy(each)
