"""What DescribeConfigs says of a setting: its value, where that comes from, and what it would be without that."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import Any, Final

from headrace.config import LogConfig, NodeConfig, Setting, broker_settings
from headrace.config.node import ALIASES, unit_names
from headrace.metadata.dynamic import ALL_BROKERS, Dynamic
from headrace.metadata.image import Image, ResourceType
from headrace.named_tuple import NamedTuple
from headrace.protocol import messages as m

Described = m.DescribeConfigsResponse.DescribeConfigsResourceResult
Synonym = m.DescribeConfigsResponse.DescribeConfigsSynonym

UNKNOWN_TYPE: Final = 0
NOTHING_SET: Final = frozenset(
    {
        "advertised.listeners",
        "broker.rack",
        "early.start.listeners",
        "inter.broker.listener.name",
        "metadata.log.dir",
    }
)
"""Settings that have no value in Kafka when they are not set, where others have an empty one."""


class Source(IntEnum):
    """Where a value comes from, by Kafka's numbers."""

    TOPIC = 1
    BROKER = 2
    ALL_BROKERS = 3
    STARTED_WITH = 4
    DEFAULT = 5
    LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8


class Found(NamedTuple):
    name: str
    text: str | None
    source: Source


class ConfigView:
    """The settings of brokers under one image."""

    __slots__ = ("_chosen", "_config", "_layers")

    def __init__(self, image: Image, dynamic: Dynamic, chosen: Mapping[str, str]) -> None:
        """`chosen` is what settings came to that leave the value to this node."""
        self._chosen = chosen
        self._config: NodeConfig = dynamic.config
        own = image.settings(ResourceType.BROKER, str(dynamic.node_id))
        of_all = image.settings(ResourceType.BROKER, ALL_BROKERS)
        self._layers: tuple[tuple[Source, Mapping[str, str]], ...] = (
            (Source.BROKER, own),
            (Source.ALL_BROKERS, of_all),
            (Source.STARTED_WITH, dynamic.started_with.texts),
        )

    # --- brokers ------------------------------------------------------------------------------------------------------

    def broker(self) -> list[Described]:
        """All that this node runs with."""
        known = broker_settings()
        entries = [self._broker_entry(setting) for setting in known.values()]
        for alias, name in ALIASES.items():
            setting = known[name]
            found = [Found(alias, one.text, one.source) for one in self.chain([name])]
            entries.append(_entry(setting, alias, found, read_only=True))
        return entries

    def of_all_brokers(self, texts: Mapping[str, str]) -> list[Described]:
        """What is set for all brokers, and nothing else."""
        known = broker_settings()
        return [
            _entry(known[name], name, [Found(name, text, Source.ALL_BROKERS)], read_only=not known[name].is_dynamic)
            for name, text in texts.items()
            if name in known
        ]

    def _broker_entry(self, setting: Setting) -> Described:
        names = unit_names().get(setting.name, (setting.name,))
        found = self.chain(names)
        # Behind its own name only: what log.retention.hours is does not depend on log.retention.ms.
        while found and found[0].name != setting.name:
            found = found[1:]
        entry = _entry(setting, setting.name, found, read_only=not setting.is_dynamic)
        entry.value = self._chosen.get(setting.name, entry.value)
        return entry

    def chain(self, names: Iterable[str]) -> list[Found]:
        """What of these is set, or has a default: the one that counts first."""
        names, known = tuple(names), broker_settings()
        found = [Found(name, texts[name], source) for source, texts in self._layers for name in names if name in texts]
        for name in names:
            default = known[name].default
            if default is not None:
                found.append(Found(name, known[name].format(default), Source.DEFAULT))
        return found

    # --- topics and groups --------------------------------------------------------------------------------------------

    def topic(self, texts: Mapping[str, str]) -> list[Described]:
        """All settings of a topic that has these of its own."""
        config, _ = LogConfig.parse_leniently(texts, self._config.log)
        return [
            self._defaulted(setting, getattr(config, field), texts, Source.TOPIC)
            for field, setting in LogConfig.fields.items()
        ]

    def resource(
        self, settings: Mapping[str, Setting], values: Any, texts: Mapping[str, str], source: Source
    ) -> list[Described]:
        """All settings of a group or of a subscription to metrics, with their `values`."""
        return [
            self._defaulted(setting, getattr(values, name.replace(".", "_")), texts, source)
            for name, setting in settings.items()
        ]

    def _defaulted(self, setting: Setting, value: Any, texts: Mapping[str, str], source: Source) -> Described:
        # A default that has another unit would be taken for one of this setting's.
        own = setting.synonyms[:1]
        found = [one for one in self.chain(setting.synonyms) if one.source is not Source.DEFAULT or one.name in own]
        if setting.name in texts:
            found = [Found(setting.name, setting.format(value), source), *found]
        entry = _entry(setting, setting.name, found, read_only=False)
        entry.value = setting.format(value)
        return entry


def _entry(setting: Setting, name: str, found: list[Found], *, read_only: bool) -> Described:
    hides = setting.is_sensitive
    if name in NOTHING_SET and found and found[0].text == "":
        found = []
    source = found[0].source if found else Source.DEFAULT
    return Described(
        name=name,
        value=found[0].text if found and not hides else None,
        read_only=read_only,
        config_source=source,
        is_sensitive=hides,
        synonyms=[Synonym(name=one.name, value=None if hides else one.text, source=one.source) for one in found],
        config_type=setting.kind,
        documentation=setting.doc,
    )


def logger_entry(name: str, level: str) -> Described:
    return Described(
        name=name,
        value=level,
        read_only=False,
        config_source=Source.LOGGER,
        is_sensitive=False,
        synonyms=[],
        config_type=UNKNOWN_TYPE,
        documentation=None,
    )
