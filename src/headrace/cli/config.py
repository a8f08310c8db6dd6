"""`headrace config`: what can be set and what it does; and, in config_cluster, what a running cluster has set."""

from __future__ import annotations

import json
from typing import Annotated, Any, Final

import typer
from rich.console import Console
from rich.table import Table

from headrace.cli import config_cluster
from headrace.cli.unpadded import unpadded
from headrace.config import TOPIC, Kind, Scope, Setting, broker_settings, settings_named
from headrace.config.client_metrics import ClientMetricsConfig
from headrace.config.group_settings import GroupSettings
from headrace.config.node import ALIASES
from headrace.config.page import default_of, effect_of, in_words, summary_of
from headrace.config.setting import unknown

app = typer.Typer(
    help="Explain settings, and get and set those of a running cluster.\n\n"
    "Names are Kafka's where Kafka has the setting. list and explain need no running node.\n\n"
    "Examples:\n\n"
    "- `headrace config explain retention.ms`\n"
    "- `headrace config list --scope topic`\n"
    "- `headrace config get --topic orders`\n"
    "- `headrace config set --topic orders retention.ms=7d`",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
)

app.command("get")(config_cluster.get)
app.command("set")(config_cluster.set_)
app.command("unset")(config_cluster.unset)
app.command("resources")(config_cluster.resources)

_ON: Final = {
    Scope.BROKER: "a broker",
    Scope.TOPIC: "a topic",
    Scope.GROUP: "a group",
    Scope.CLIENT_METRICS: "a subscription to clients' metrics",
}

Json = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]


@app.command("list")
def list_settings(
    scope: Annotated[Scope | None, typer.Option(help="Only the settings of a topic, a broker, a group...")] = None,
    as_json: Json = False,
) -> None:
    """List all settings with their defaults.

    Examples:

    - `headrace config list --scope topic`
    - `headrace config list --json`
    """
    tables = {
        Scope.TOPIC: TOPIC,
        Scope.BROKER: broker_settings(),
        Scope.GROUP: GroupSettings.settings,
        Scope.CLIENT_METRICS: ClientMetricsConfig.settings,
    }
    settings = [table[name] for at, table in tables.items() if scope in (None, at) for name in sorted(table)]
    if as_json:
        print(json.dumps([_as_json(setting) for setting in settings], indent=2))
        return
    console = Console(highlight=False)
    rows = Table(box=None, header_style="bold", padding=(0, 2, 0, 0))
    for title, style in (("scope", ""), ("setting", "cyan"), ("default", "")):
        rows.add_column(title, style=style, no_wrap=True)
    left = max(len(s.scope.value) for s in settings) + max(len(s.name) + len(in_words(s)) for s in settings) + 14
    if console.width >= left + 40:  # room for a useful part of a sentence
        rows.add_column("what it does", no_wrap=True, max_width=console.width - left)
    for setting in settings:
        cells = (setting.scope.value, setting.name, in_words(setting), summary_of(setting).replace("`", ""))
        rows.add_row(*cells[: len(rows.columns)])
    with unpadded():
        console.print(rows)


@app.command("explain")
def explain(
    name: Annotated[str, typer.Argument(help="The setting, by its name.", metavar="NAME")],
    as_json: Json = False,
) -> None:
    """Say what one setting does, what it takes, and where its default comes from.

    Examples:

    - `headrace config explain retention.ms`
    """
    found = list(settings_named(ALIASES.get(name, name)))
    if not found:
        raise unknown(name, dict.fromkeys([*TOPIC, *broker_settings(), *GroupSettings.settings, *ALIASES]))
    if as_json:
        print(json.dumps([_as_json(setting) for setting in found], indent=2))
        return
    console = Console(highlight=False)
    with unpadded():
        for position, setting in enumerate(found):
            if position:
                console.print()
            _explain(console, setting)


def _explain(console: Console, setting: Setting) -> None:
    console.print(f"[bold cyan]{setting.name}[/], set on {_ON[setting.scope]}", soft_wrap=True)
    rows = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    rows.add_column(style="bold", no_wrap=True)
    rows.add_column(overflow="fold")
    rows.add_row("  what", setting.doc.replace("`", ""))
    rows.add_row("  takes", setting.allowed)
    rows.add_row("  default", default_of(setting))
    if setting.synonyms:
        rows.add_row("  on the broker", ", then ".join(setting.synonyms))
    rows.add_row("  changes", setting.change.value)
    rows.add_row("  effect", effect_of(setting))
    if setting.kafka:
        rows.add_row("  Kafka", setting.kafka)
    console.print(rows)


def _as_json(setting: Setting) -> dict[str, Any]:
    return {
        "name": setting.name,
        "scope": setting.scope.value,
        "type": Kind(setting.kind).name.lower(),
        "default": None if setting.default is None else setting.format(setting.default),
        "takes": setting.allowed,
        "changes": setting.change.value,
        "effect": setting.effect.name.lower(),
        "why": setting.why or None,
        "honoured": setting.honoured,
        "synonyms": list(setting.synonyms),
        "doc": setting.doc,
    }
