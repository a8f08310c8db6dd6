"""The page of settings in the docs, made from the settings themselves: `python -m headrace.config.page`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from headrace.config.broker import CleanerConfig, RequestConfig, StorageConfig
from headrace.config.cluster import IdentityConfig, TopicsConfig
from headrace.config.fetch import FetchConfig
from headrace.config.group import Group
from headrace.config.listeners import ListenerConfig
from headrace.config.quorum import QuorumConfig
from headrace.config.setting import INT64_MAX, Kind, Setting
from headrace.config.topic import LogConfig

SECTIONS: Final[tuple[tuple[str, type[Group]], ...]] = (
    ("Topics", LogConfig),
    ("The node", IdentityConfig),
    ("Listeners", ListenerConfig),
    ("Creation of topics", TopicsConfig),
    ("Requests", RequestConfig),
    ("Fetches", FetchConfig),
    ("Storage", StorageConfig),
    ("Compaction", CleanerConfig),
    ("The metadata quorum", QuorumConfig),
)

_OPENING: Final = """\
# Settings

This page is made from the settings themselves (`make docs`). `headrace config explain NAME`
says the same in a terminal.

The names are Kafka's wherever Kafka has the setting. A topic's setting can be set on the topic; where it is not, the
broker's setting of the same meaning counts, and where that is not set either, the default. Of several names for one
thing the first that is set wins.

A setting that is *not honoured yet* is known and its values are checked, but the part of Headrace that would act on it
is not there yet.
"""

_DURATIONS: Final = ((86_400_000, "day"), (3_600_000, "hour"), (60_000, "minute"), (1000, "second"))
_SIZES: Final = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


def page() -> str:
    """The whole page, as Markdown."""
    return _OPENING + "".join(f"\n## {title}\n{_section(group.settings.values())}" for title, group in SECTIONS)


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
    return "honoured" if setting.honoured else "not honoured yet"


def _section(settings: Iterable[Setting]) -> str:
    return "".join(_entry(setting) for setting in sorted(settings, key=lambda setting: setting.name))


def _entry(setting: Setting) -> str:
    lines = [f"\n### {setting.name}\n", setting.doc, ""]
    lines.append(f"- Takes: {setting.allowed}")
    lines.append(f"- Default: {default_of(setting)}")
    if setting.synonyms:
        lines.append(f"- On the broker: {', '.join(f'`{name}`' for name in setting.synonyms)}")
    lines.append(f"- A change takes effect {setting.change.value}")
    if not setting.honoured:
        lines.append("- Not honoured yet")
    if setting.kafka:
        lines.append(f"- {setting.kafka}")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(page(), end="")
