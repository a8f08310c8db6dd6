"""Every setting once: name, type, default, bounds, scope and what it does. Parsing and the docs page come from that."""

from headrace.config.broker import CleanerConfig, RequestConfig, StorageConfig
from headrace.config.cluster import IdentityConfig, TopicsConfig
from headrace.config.listeners import ListenerConfig
from headrace.config.node import TOPIC, NodeConfig, broker_settings, settings_named
from headrace.config.quorum import QuorumConfig
from headrace.config.setting import Change, Kind, Scope, Setting
from headrace.config.topic import CompressionType, LogConfig, TimestampType

__all__ = [
    "TOPIC",
    "Change",
    "CleanerConfig",
    "CompressionType",
    "IdentityConfig",
    "Kind",
    "ListenerConfig",
    "LogConfig",
    "NodeConfig",
    "QuorumConfig",
    "RequestConfig",
    "Scope",
    "Setting",
    "StorageConfig",
    "TimestampType",
    "TopicsConfig",
    "broker_settings",
    "settings_named",
]
