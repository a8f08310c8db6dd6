"""What changes on a running node when the image's settings of brokers do."""

from __future__ import annotations

import logging
from collections.abc import Callable

from headrace.broker.listeners import Listeners
from headrace.broker.transaction_coordinator import TransactionCoordinator
from headrace.config import CleanerConfig, NodeConfig
from headrace.metadata.delta import Delta
from headrace.metadata.dynamic import Dynamic
from headrace.metadata.image import Image, ResourceType
from headrace.replica.manager import Replicas
from headrace.replica.moves import Moves
from headrace.replica.topic_settings import TopicSettings
from headrace.replica.upkeep import Upkeep
from headrace.storage.workers import Workers

logger = logging.getLogger(__name__)


class DynamicConfig:
    """Follows the image: `apply` is a subscriber of the loader. Parts that want to know use `subscribe`."""

    __slots__ = ("_subscribers", "dynamic")

    def __init__(self, dynamic: Dynamic) -> None:
        self.dynamic = dynamic
        self._subscribers: list[Callable[[NodeConfig], None]] = []

    @property
    def config(self) -> NodeConfig:
        """What the node runs with now."""
        return self.dynamic.config

    def subscribe(self, changed: Callable[[NodeConfig], None]) -> None:
        """Called on the loop with all settings when some of them have changed."""
        self._subscribers.append(changed)

    def apply(self, delta: Delta, image: Image) -> None:
        if any(kind == ResourceType.BROKER for kind, _ in delta.changed_configs):
            self.follow(image)

    def follow(self, image: Image) -> None:
        before = self.config
        if not self.dynamic.follow(image):
            return
        for name, why in self.dynamic.left_out.items():
            logger.warning("the cluster's setting %s is left out: %s", name, why)
        config = self.config
        if config is before:
            return
        logger.info("the settings of this broker have changed")
        for changed in self._subscribers:
            try:
                changed(config)
            except Exception:  # the others must know
                logger.exception("a part of the node can't take the settings that changed")


def follow_topics(dynamic: DynamicConfig, settings: TopicSettings, replicas: Replicas) -> None:
    """What topics default to."""

    def changed(config: NodeConfig) -> None:
        if config.log != settings.defaults:
            settings.set_defaults(config.log, replicas.image)
            replicas.configure_all()

    dynamic.subscribe(changed)


def follow_connections(dynamic: DynamicConfig, listeners: Listeners) -> None:
    dynamic.subscribe(lambda config: listeners.configure(config.listener))


def follow_upkeep(dynamic: DynamicConfig, upkeep: Upkeep) -> None:
    dynamic.subscribe(lambda config: upkeep.configure(config.storage))


def follow_moves(dynamic: DynamicConfig, moves: Moves) -> None:
    dynamic.subscribe(lambda config: moves.configure(config.storage.replica_alter_log_dirs_io_max_bytes_per_second))


def follow_transactions(dynamic: DynamicConfig, transactions: TransactionCoordinator) -> None:
    dynamic.subscribe(lambda config: transactions.configure(config.transactions))


class CleanerWorkers:
    """As many as log.cleaner.threads says. One that is not needed any more is kept for when it is again."""

    __slots__ = ("_made", "_workers_of")

    def __init__(self, workers_of: Callable[[str], Workers]) -> None:
        self._workers_of = workers_of
        self._made: list[Workers] = []

    def take(self, count: int) -> list[Workers]:
        while len(self._made) < count:
            self._made.append(self._workers_of(f"cleaner-{len(self._made)}"))
        return self._made[:count]

    def follow(self, dynamic: DynamicConfig, replicas: Replicas) -> None:
        current: CleanerConfig = dynamic.config.cleaner

        def changed(config: NodeConfig) -> None:
            nonlocal current
            if replicas.cleaner is not None and config.cleaner != current:
                current = config.cleaner
                replicas.cleaner.configure(current, self.take(current.log_cleaner_threads))
                replicas.cleaner.poll()

        dynamic.subscribe(changed)
