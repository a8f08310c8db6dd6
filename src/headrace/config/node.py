"""All the settings that there are, and the values that one node runs with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from headrace.config.broker import CleanerConfig, RequestConfig, StorageConfig
from headrace.config.group import Group
from headrace.config.setting import Scope, Setting, unknown
from headrace.config.topic import LogConfig

BROKER_GROUPS: Final[tuple[type[Group], ...]] = (RequestConfig, StorageConfig, CleanerConfig)

TOPIC: Final[dict[str, Setting]] = LogConfig.settings


def broker_settings() -> dict[str, Setting]:
    """Every setting of a broker by its name: its own, and those that topics default to."""
    own = {name: setting for group in BROKER_GROUPS for name, setting in group.settings.items()}
    return own | {twin.name: twin for setting in TOPIC.values() for twin in setting.broker_twins()}


def settings_named(name: str) -> Iterator[Setting]:
    """The settings of that name: a topic's, a broker's, or both (compression.type)."""
    for table in (TOPIC, broker_settings()):
        if name in table:
            yield table[name]


class NodeConfig:
    """What one node runs with, one group for each part of it."""

    __slots__ = ("cleaner", "log", "request", "storage")

    def __init__(
        self,
        request: RequestConfig | None = None,
        storage: StorageConfig | None = None,
        cleaner: CleanerConfig | None = None,
        log: LogConfig | None = None,
    ) -> None:
        self.request = request or RequestConfig()
        self.storage = storage or StorageConfig()
        self.cleaner = cleaner or CleanerConfig()
        self.log = log or LogConfig()

    @classmethod
    def parse(cls, texts: Mapping[str, str]) -> NodeConfig:
        """From the broker's settings as text, under Kafka's names. An unknown name is refused with the nearest one."""
        known = broker_settings()
        for name in texts:
            if name not in known:
                raise unknown(name, known, Scope.BROKER)
        return cls(
            RequestConfig.parse(_only(texts, RequestConfig)),
            StorageConfig.parse(_only(texts, StorageConfig)),
            CleanerConfig.parse(_only(texts, CleanerConfig)),
            LogConfig.of_broker(texts),
        )


def _only(texts: Mapping[str, str], group: type[Group]) -> dict[str, str]:
    return {name: text for name, text in texts.items() if name in group.settings}
