"""All the settings that there are, and the values that one node runs with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, Final, cast

from headrace.config.broker import CleanerConfig, RequestConfig, StorageConfig
from headrace.config.client_metrics import ClientMetricsConfig
from headrace.config.cluster import IdentityConfig, TopicsConfig
from headrace.config.coordinators import GroupConfig, OffsetsConfig
from headrace.config.fetch import FetchConfig
from headrace.config.group import Group
from headrace.config.group_settings import GroupSettings
from headrace.config.http import HttpConfig
from headrace.config.known import known_settings
from headrace.config.listeners import ListenerConfig
from headrace.config.quorum import QuorumConfig
from headrace.config.setting import Scope, Setting, unknown
from headrace.config.topic import LogConfig
from headrace.config.transactions import TransactionConfig
from headrace.errors import Error, Refused

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
    "http": HttpConfig,
}
"""The broker's own settings, by the attribute of NodeConfig that holds them."""

LISTENER_PREFIX: Final = "listener.name."

TOPIC: Final[dict[str, Setting]] = LogConfig.settings


ALIASES: Final = {"broker.id": "node.id", "log.dir": "log.dirs"}
"""Kafka's other names for settings of a node."""


@cache
def broker_settings() -> dict[str, Setting]:
    """Every setting of a broker by its name: those that it takes, and those that no part reads."""
    return known_settings() | _taken_settings()


@cache
def _taken_settings() -> dict[str, Setting]:
    """Those of a broker itself, and those that topics default to."""
    own = {name: setting for group in GROUPS.values() for name, setting in group.settings.items()}
    twins = {twin.name: twin for setting in TOPIC.values() for twin in setting.broker_twins()}
    return own | twins


@cache
def unit_names() -> dict[str, tuple[str, ...]]:
    """The broker's settings that are one thing in several units, each with all of them, the one that wins first."""
    return {name: setting.synonyms for setting in TOPIC.values() for name in setting.synonyms}


def settings_named(name: str) -> Iterator[Setting]:
    """The settings of that name: a topic's, a broker's, or both (compression.type), a group's, or of client metrics."""
    for table in (TOPIC, broker_settings(), GroupSettings.settings, ClientMetricsConfig.settings):
        if name in table:
            yield table[name]


class NodeConfig:
    """What one node runs with, one group for each part of it."""

    __slots__ = (*GROUPS, "log", "texts")

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
    http: HttpConfig
    log: LogConfig
    """What topics default to."""
    texts: dict[str, str]
    """What was set, by Kafka's names."""

    def __init__(self, *, texts: Mapping[str, str] | None = None, **groups: Group) -> None:
        """Groups by their attribute; those that are left out have their defaults."""
        for name, group in GROUPS.items():
            setattr(self, name, groups.pop(name, None) or group())
        self.log = cast("LogConfig", groups.pop("log", None) or LogConfig())
        if groups:
            raise TypeError(f"a node has no settings of {next(iter(groups))!r}")
        self.texts = dict(texts) if texts is not None else self._texts()

    @classmethod
    def parse(cls, texts: Mapping[str, str]) -> NodeConfig:
        """From the broker's settings as text, under Kafka's names. An unknown name is refused with the nearest one."""
        texts = without_aliases(texts)
        _check_names(texts)
        groups: dict[str, Any] = {name: group.parse(_only(texts, group)) for name, group in GROUPS.items()}
        _check_voters(texts.get("controller.quorum.voters", ""), groups["identity"].node_id)
        return cls(**groups, log=LogConfig.of_broker(texts), texts=texts)

    def changed_by(self, texts: Mapping[str, str]) -> NodeConfig:
        """With these over what it has. They are not among its `texts`, which are what the node was started with."""
        if not texts:
            return self
        _check_names(texts)
        groups: dict[str, Any] = {}
        for name, group in GROUPS.items():
            own, current = _only(texts, group), getattr(self, name)
            groups[name] = group.parse(own, current) if own else current
        return NodeConfig(**groups, log=LogConfig.of_broker(texts, self.log), texts=self.texts)

    def _texts(self) -> dict[str, str]:
        """What differs from the defaults, of a node's settings that a program made."""
        texts = {name: text for group in GROUPS for name, text in getattr(self, group).texts().items()}
        for name, text in self.log.texts().items():
            if TOPIC[name].synonyms:
                texts[TOPIC[name].synonyms[0]] = text
        return texts


def without_aliases(texts: Mapping[str, str]) -> dict[str, str]:
    """With Kafka's main name for what was set under another. Raises Refused when two names say different things."""
    plain = {name: text for name, text in texts.items() if name not in ALIASES}
    for alias, name in ALIASES.items():
        if alias in texts and (alias != "broker.id" or texts[alias] != "-1"):
            if alias == "broker.id" and plain.get(name, texts[alias]).strip() != texts[alias].strip():
                raise Refused(
                    Error.INVALID_CONFIG,
                    f"{name} is {plain[name]} and {alias} is {texts[alias]}, and both name the node; leave one out.",
                )
            plain.setdefault(name, texts[alias])  # log.dirs counts, and log.dir where there is none
    return plain


def _check_names(texts: Mapping[str, str]) -> None:
    """Also the values of those that no part of the node takes."""
    taken = _taken_settings()
    for name, text in texts.items():
        if name in taken:
            continue
        if name not in known_settings():
            if name.startswith(LISTENER_PREFIX):
                raise Refused(Error.INVALID_CONFIG, f"{name}: settings of one listener alone are not taken yet.")
            raise unknown(name, [*broker_settings(), *ALIASES], Scope.BROKER)
        known_settings()[name].parse(text)


def _check_voters(text: str, node_id: int) -> None:
    others = [voter for voter in text.split(",") if voter.strip() and voter.strip().partition("@")[0] != str(node_id)]
    if others:
        raise Refused(
            Error.INVALID_CONFIG,
            f"controller.quorum.voters names {others[0].strip()}, and a cluster has one node yet: {node_id}.",
        )


def _only(texts: Mapping[str, str], group: type[Group]) -> dict[str, str]:
    return {name: text for name, text in texts.items() if name in group.settings}
