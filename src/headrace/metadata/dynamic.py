"""What a node runs with when the image's settings of brokers lie over those it was started with. PURE."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from headrace.config import NodeConfig, Scope, Setting, broker_settings
from headrace.config.node import LISTENER_PREFIX
from headrace.config.setting import Change, unknown
from headrace.errors import Error, Refused
from headrace.metadata.image import Image, ResourceType

ALL_BROKERS: Final = ""
"""The name of the resource whose settings are those of every broker that has none of its own."""


class Dynamic:
    """The settings of one node over time. An image that changes none of them costs two comparisons."""

    __slots__ = ("_defaults", "_own", "config", "left_out", "node_id", "started_with")

    def __init__(self, started_with: NodeConfig, node_id: int) -> None:
        self.started_with = started_with
        self.node_id = node_id
        self.config = started_with
        """What it runs with."""
        self.left_out: dict[str, str] = {}
        """Settings of the image that this node does not take, and why: they may be of a later version."""
        self._defaults: Mapping[str, str] = {}
        self._own: Mapping[str, str] = {}

    def follow(self, image: Image) -> bool:
        """True when it runs with something else now."""
        defaults = image.settings(ResourceType.BROKER, ALL_BROKERS)
        own = image.settings(ResourceType.BROKER, str(self.node_id))
        if defaults == self._defaults and own == self._own:
            return False
        self._defaults, self._own = defaults, own
        texts = {**defaults, **own}
        self.left_out = {}
        try:
            self.config = self.started_with.changed_by(texts)
        except Refused:
            self.config = self._one_by_one(texts)
        return True

    def _one_by_one(self, texts: Mapping[str, str]) -> NodeConfig:
        taken: dict[str, str] = {}
        for name, text in texts.items():
            try:
                self.started_with.changed_by({**taken, name: text})
                taken[name] = text
            except Refused as refused:
                self.left_out[name] = refused.text
        return self.started_with.changed_by(taken)


def check_broker_settings(texts: Mapping[str, str], *, of_all: bool) -> None:
    """Refuses what can't be set while brokers run. Kafka's code for all of it is INVALID_REQUEST (KAFKA-13609)."""
    known = broker_settings()
    for name, text in texts.items():
        setting = known.get(name)
        if setting is None:
            if name.startswith(LISTENER_PREFIX):
                raise _invalid(f"{name}: settings of one listener alone are not taken yet.")
            raise _invalid(unknown(name, known, Scope.BROKER).text)
        _check_broker_setting(setting, text, of_all)


def _check_broker_setting(setting: Setting, text: str, of_all: bool) -> None:
    if not setting.is_dynamic:
        raise _invalid(f"{setting.name} can't be set while a broker runs; set it where the broker is started.")
    if of_all and setting.change is Change.BROKER:
        raise _invalid(f"{setting.name} can't be set for all brokers; name one.")
    try:
        setting.parse(text)
    except Refused as refused:
        raise _invalid(refused.text) from refused


def _invalid(text: str) -> Refused:
    return Refused(Error.INVALID_REQUEST, text)
