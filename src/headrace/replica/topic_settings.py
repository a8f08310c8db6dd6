"""The settings of each topic: what the image has of its own, over the defaults of this broker."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from headrace.config import LogConfig
from headrace.metadata.image import Image, ResourceType

logger = logging.getLogger(__name__)


class TopicSettings:
    """Topics with the same settings share them as one object, and so does what the logs work out from it."""

    __slots__ = ("_made", "_topics", "defaults", "on_changed")

    def __init__(self, defaults: LogConfig) -> None:
        self.defaults = defaults
        self._topics: dict[str, LogConfig] = {}
        self._made: dict[LogConfig, LogConfig] = {defaults: defaults}
        self.on_changed: Callable[[], None] = lambda: None
        """Called when some topic has other settings."""

    def of(self, topic: str) -> LogConfig:
        return self._topics.get(topic, self.defaults)

    def flush_ms_min(self) -> int:
        """The least flush.ms that any topic has."""
        return min(config.flush_ms for config in (self.defaults, *self._topics.values()))

    def set_defaults(self, defaults: LogConfig, image: Image) -> None:
        """The broker has other settings: so have topics, as far as they leave them open."""
        self.defaults = defaults
        self._made = {defaults: defaults}
        self._topics = {}
        for kind, name in image.configs:
            if kind == ResourceType.TOPIC:
                self._change(name, image)
        self.on_changed()

    def changed(self, topic: str, image: Image) -> LogConfig:
        """The image has other settings of a topic, or none any more."""
        config = self._change(topic, image)
        self.on_changed()
        return config

    def _change(self, topic: str, image: Image) -> LogConfig:
        texts = image.settings(ResourceType.TOPIC, topic)
        if not texts:
            self._topics.pop(topic, None)
            return self.defaults
        made = self._parse(topic, texts)
        self._topics[topic] = made = self._made.setdefault(made, made)
        if len(self._made) > 2 * len(self._topics) + 100:
            self._made = {config: config for config in (self.defaults, *self._topics.values())}
        return made

    def _parse(self, topic: str, texts: Mapping[str, str]) -> LogConfig:
        """The controller has checked them, but it may be of a later version than this node."""
        made, left_out = LogConfig.parse_leniently(texts, self.defaults)
        for name, why in left_out.items():
            logger.warning("topic %s: %s=%s is left out: %s", topic, name, texts[name], why)
        return made
