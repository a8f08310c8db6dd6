"""The page of settings in the docs, made from the settings themselves: `python -m headrace.config.page`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from headrace.config import known
from headrace.config.client_metrics import ClientMetricsConfig
from headrace.config.group_settings import GroupSettings
from headrace.config.known import Section
from headrace.config.node import ALIASES, GROUPS
from headrace.config.setting import INT64_MAX, Effect, Kind, Setting
from headrace.config.topic import LogConfig

TITLES: Final = {
    "identity": "The node",
    "listener": "Listeners",
    "topics": "Creation of topics",
    "request": "Requests",
    "fetch": "Fetches",
    "storage": "Storage",
    "cleaner": "Compaction",
    "quorum": "The metadata quorum",
    "transactions": "Transactions",
    "groups": "Groups, on the broker",
    "offsets": "Committed offsets",
    "http": "Metrics and health",
}
"""Of the groups of a broker's settings, by their name in NodeConfig."""

_OPENING: Final = """\
# Settings

This page is made from the settings themselves (`make docs`). `headrace config explain NAME`
says the same in a terminal.

The names are Kafka's wherever Kafka has the setting, and every setting of a topic and a broker of Kafka 4.2 is here. A
topic's setting can be set on the topic; where it is not, the broker's setting of the same meaning counts, and where
that is not set either, the default. Of several names for one thing the first that is set wins.

## Where settings come from

`headrace serve` takes a broker's settings from these, and what stands further down wins:

1. the defaults on this page
2. a file of Kafka's: `--properties server.properties`, in the syntax of Java. What it can't take it says, one line each
3. a TOML file: `--config headrace.toml`, with the names as they are here or in tables: `log.retention.hours = 24` is a
   `[log.retention]` with `hours = 24`. Lists and numbers are written as TOML has them
4. the environment: `HEADRACE_LOG_RETENTION_HOURS=24`
5. flags: `--set log.retention.hours=24`, `--data`, `--listen`

While a node runs, settings that take effect *at once* can be changed in the cluster, and stay there: for one broker,
which wins over all of the above, or for all brokers, which wins over all but that (`headrace config set`,
`kafka-configs`, or any admin client).

## What becomes of a value

Every value is checked. A setting is **honoured**; or it is **stored**, which means that any value that Kafka takes is
taken and described, and that it can have no effect, for the reason that is given; or it is **refused** unless it is the
default, because to take it would be a promise that is not kept, again with the reason. None is ignored in silence.
"""

_KNOWN_OPENING: Final = """
## Settings of Kafka's that no part of a node reads

{aliases}

They are described to clients like all others.
"""

_DURATIONS: Final = ((86_400_000, "day"), (3_600_000, "hour"), (60_000, "minute"), (1000, "second"))
_SIZES: Final = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


def page() -> str:
    """The whole page, as Markdown."""
    groups = [
        ("Topics", LogConfig.settings),
        ("Groups", GroupSettings.settings),
        ("Client metrics", ClientMetricsConfig.settings),
        *((TITLES.get(name, name.capitalize()), group.settings) for name, group in GROUPS.items()),
    ]
    parts = [f"\n## {title}\n{_section(settings.values())}" for title, settings in groups]
    aliases = " ".join(f"`{alias}` is another name for `{name}`." for alias, name in ALIASES.items())
    parts.append(_KNOWN_OPENING.format(aliases=aliases))
    return _OPENING + "".join(parts) + "".join(_known_section(section) for section in known.SECTIONS)


def default_of(setting: Setting) -> str:
    """The default as it is written, and in units that a person reads."""
    if setting.default is None:
        return "not set"
    text, words = setting.format(setting.default), in_words(setting)
    return text if words == text else f"{text} ({words})"


def in_words(setting: Setting) -> str:
    """The default in units that a person reads."""
    value = setting.default
    if setting.kind in (Kind.INT, Kind.LONG, Kind.DOUBLE) and value is not None:
        if value in (INT64_MAX, 1.7976931348623157e308):
            return "no limit"
        scales = {"milliseconds": _DURATIONS, "bytes": _SIZES}.get(setting.unit, ())
        for scale, unit in scales:
            if value >= scale and value % scale == 0:
                count = value // scale
                return f"{count} {unit}{'s' if scales is _DURATIONS and count != 1 else ''}"
    return setting.format(value) or ("not set" if value is None else "empty")


def summary_of(setting: Setting) -> str:
    """The first sentence of what it does."""
    return setting.doc.partition(". ")[0].rstrip(".") + "."


def effect_of(setting: Setting) -> str:
    """What becomes of a value, and why when it has no effect."""
    if setting.effect is Effect.HONOURED:
        return "honoured"
    return f"{setting.effect.value}: {setting.why[:1].lower()}{setting.why[1:]}"


def _known_section(section: Section) -> str:
    why = section.why[0].upper() + section.why[1:]
    what = "Refused unless it is the default" if section.refuses else "Stored, and without an effect"
    rows = [
        f"| `{setting.name}` | {_cell(default_of(setting))} | {_TYPES[setting.kind]} | {_MODES[setting.change.name]} | "
        f"{setting.doc} |"
        for setting in known.settings_of(section)
    ]
    head = "| setting | default | type | can change | what it is in Kafka |\n| --- | --- | --- | --- | --- |"
    return f"\n### {section.title}\n\n{what}. {why}\n\n{head}\n" + "\n".join(rows) + "\n"


_TYPES: Final = {kind: kind.name.lower() for kind in Kind}
_MODES: Final = {"RESTART": "at a restart", "CLUSTER": "while running", "BROKER": "while running, one broker"}


def _cell(text: str) -> str:
    return text.replace("|", "\\|") or "empty"


def _section(settings: Iterable[Setting]) -> str:
    return "".join(_entry(setting) for setting in sorted(settings, key=lambda setting: setting.name))


def _entry(setting: Setting) -> str:
    lines = [f"\n### {setting.name}\n", setting.doc, ""]
    lines.append(f"- Takes: {setting.allowed}")
    lines.append(f"- Default: {default_of(setting)}")
    if setting.synonyms:
        lines.append(f"- On the broker: {', '.join(f'`{name}`' for name in setting.synonyms)}")
    lines.append(f"- A change takes effect {setting.change.value}")
    lines.append(f"- {effect_of(setting)[0].upper()}{effect_of(setting)[1:]}")
    if setting.kafka:
        lines.append(f"- {setting.kafka}")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(page(), end="")
