"""What a shell may complete: `headrace --install-completion` teaches it to ask, and this answers.

Only the command that is being written is loaded.
"""

from __future__ import annotations

import os
from importlib import import_module
from inspect import Parameter, Signature
from typing import Any, Final

import typer
from typer._completion_shared import _get_shell_name, get_completion_script, install
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from headrace.cli import COMMANDS, COMPLETE_VARIABLE, Misused, load

SHELLS: Final = ("bash", "zsh", "fish", "powershell", "pwsh")


def complete(arguments: list[str]) -> int:
    """Installs or shows the completion, or answers what a shell asks through the environment."""
    if COMPLETE_VARIABLE not in os.environ:
        return _teach(arguments[0], arguments[1:])
    app = typer.Typer(cls=_Commands, help="A distributed message log that speaks the Kafka protocol.")
    app.callback()(_nothing)
    try:
        get_command(app).main(args=[], prog_name="headrace")
    except SystemExit as answered:
        return answered.code if isinstance(answered.code, int) else 0
    return 0


def _teach(option: str, given: list[str]) -> int:
    shell = given[0] if given else _get_shell_name()
    if shell not in SHELLS or len(given) > 1:
        raise Misused(f"{option} takes the name of a shell: {', '.join(SHELLS)}")
    if option == "--show-completion":
        print(get_completion_script(prog_name="headrace", complete_var=COMPLETE_VARIABLE, shell=shell))
        return 0
    _, path = install(shell=shell, prog_name="headrace", complete_var=COMPLETE_VARIABLE)
    print(f"Completion for {shell} is installed in {path}; it counts from the next shell on.")
    return 0


def _nothing() -> None:
    pass


class _Commands(TyperGroup):
    """All commands by their names, each loaded when it is looked at."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        command = COMMANDS.get(cmd_name)
        if command is None:
            return None
        if not ctx.resilient_parsing or cmd_name not in _words(ctx):
            return TyperCommand(cmd_name, help=command.summary)
        found = load(cmd_name, command)
        return get_command(found) if hasattr(found, "registered_commands") else _plain(cmd_name, command.target)


def _words(context: Any) -> list[str]:
    return [*context.args, *getattr(context, "_protected_args", ())]


def _plain(name: str, target: str) -> Any:
    """A command that takes its arguments apart itself, with argparse: its options, as Typer's."""
    parser = import_module(target.partition(":")[0])._parser()

    def command(**given: Any) -> None: ...

    options = {
        action.dest: (bool if action.nargs == 0 else str, typer.Option(*action.option_strings, help=action.help))
        for action in parser._actions
        if action.option_strings
    }
    command.__annotations__ = {option: kind for option, (kind, _) in options.items()}
    command.__signature__ = Signature(  # type: ignore[attr-defined]
        [
            Parameter(option, Parameter.KEYWORD_ONLY, default=default, annotation=kind)
            for option, (kind, default) in options.items()
        ]
    )
    app = typer.Typer(add_completion=False)
    app.command(name, add_help_option=False)(command)
    return get_command(app)
