"""All the settings that there are, and the values that one node runs with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, cast

from headrace.config.broker import CleanerConfig, RequestConfig, StorageConfig
from headrace.config.cluster import IdentityConfig, TopicsConfig
from headrace.config.coordinators import GroupConfig, OffsetsConfig
from headrace.config.fetch import FetchConfig
from headrace.config.group import Group
from headrace.config.listeners import ListenerConfig
from headrace.config.quorum import QuorumConfig
from headrace.config.setting import Scope, Setting, unknown
from headrace.config.topic import LogConfig
from headrace.config.transactions import TransactionConfig

GROUPS: Final[dict[str, type[Group]]] = {
    "identity": IdentityConfig,
    "listener": ListenerConfig,
    "topics": TopicsConfig,
    "request": RequestConfig,
    "fetch": FetchConfig,
    "storage": StorageConfig,
    "cleaner": CleanerConfig,
    "quorum": QuorumConfig,
    "transactions": TransactionConfig,
    "groups": GroupConfig,
    "offsets": OffsetsConfig,
}
"""The broker's own settings, by the attribute of NodeConfig that holds them."""

TOPIC: Final[dict[str, Setting]] = LogConfig.settings


def broker_settings() -> dict[str, Setting]:
    """Every setting of a broker by its name: its own, and those that topics default to."""
    own = {name: setting for group in GROUPS.values() for name, setting in group.settings.items()}
    return own | {twin.name: twin for setting in TOPIC.values() for twin in setting.broker_twins()}


def settings_named(name: str) -> Iterator[Setting]:
    """The settings of that name: a topic's, a broker's, or both (compression.type)."""
    for table in (TOPIC, broker_settings()):
        if name in table:
            yield table[name]


class NodeConfig:
    """What one node runs with, one group for each part of it."""

    __slots__ = (*GROUPS, "log")

    identity: IdentityConfig
    listener: ListenerConfig
    topics: TopicsConfig
    request: RequestConfig
    fetch: FetchConfig
    storage: StorageConfig
    cleaner: CleanerConfig
    quorum: QuorumConfig
    transactions: TransactionConfig
    groups: GroupConfig
    offsets: OffsetsConfig
    log: LogConfig
    """What topics default to."""

    def __init__(self, **groups: Group) -> None:
        """Groups by their attribute; those that are left out have their defaults."""
        for name, group in GROUPS.items():
            setattr(self, name, groups.pop(name, None) or group())
        self.log = cast("LogConfig", groups.pop("log", None) or LogConfig())
        if groups:
            raise TypeError(f"a node has no settings of {next(iter(groups))!r}")

    @classmethod
    def parse(cls, texts: Mapping[str, str]) -> NodeConfig:
        """From the broker's settings as text, under Kafka's names. An unknown name is refused with the nearest one."""
        known = broker_settings()
        for name in texts:
            if name not in known:
                raise unknown(name, known, Scope.BROKER)
        groups = {name: group.parse(_only(texts, group)) for name, group in GROUPS.items()}
        return cls(**groups, log=LogConfig.of_broker(texts))


def _only(texts: Mapping[str, str], group: type[Group]) -> dict[str, str]:
    return {name: text for name, text in texts.items() if name in group.settings}
