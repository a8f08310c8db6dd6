"""What is told of settings that were changed, whatever a broker says on the way there."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.cli import settings_change
from headrace.cli.settings_change import Changed, change_settings
from headrace.client import ConfigChange, ConfigEntry, ConfigOperation, ConfigResource, ConfigSource
from headrace.client.admin.configs import ConfigSynonym

BROKER = ConfigResource.broker(1)
NAME = "log.cleaner.threads"
DEFAULT = ConfigSynonym(NAME, "1", ConfigSource.DEFAULT)


def entry(value: str, source: ConfigSource, *below: ConfigSynonym) -> ConfigEntry:
    return ConfigEntry(NAME, value, source, False, False, [ConfigSynonym(NAME, value, source), *below])


def changed(
    monkeypatch: pytest.MonkeyPatch, change: ConfigChange, before: ConfigEntry, *told: ConfigEntry
) -> tuple[Changed, int]:
    """What comes of it where a broker tells these, one after the other and the last one for ever; and what was left."""
    left = [before, *told]

    async def describe(resources: Sequence[ConfigResource], *, synonyms: bool = False) -> dict[ConfigResource, Any]:
        return {BROKER: {NAME: left.pop(0) if len(left) > 1 else left[0]}}

    async def alter(*_: Any, **__: Any) -> None: ...

    monkeypatch.setattr(settings_change, "PAUSES_S", (0.0,) * 7)
    client: Any = SimpleNamespace(admin=SimpleNamespace(describe_configs=describe, alter_configs=alter))
    [one] = asyncio.run(change_settings(client, BROKER, [change], dry_run=False))
    return one, len(left)


def test_a_value_that_is_older_than_its_source_is_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kafka tells where a value comes from before it tells the value."""
    unset = ConfigChange(NAME, None, ConfigOperation.DELETE)
    before = entry("2", ConfigSource.DYNAMIC_BROKER, DEFAULT)
    stale, last = entry("2", ConfigSource.DEFAULT), entry("1", ConfigSource.DEFAULT)
    one, _ = changed(monkeypatch, unset, before, before, stale, stale, last)
    assert one.after == last


def test_a_value_that_is_the_same_below_is_no_reason_to_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    unset = ConfigChange(NAME, None, ConfigOperation.DELETE)
    before, last = entry("1", ConfigSource.DYNAMIC_BROKER, DEFAULT), entry("1", ConfigSource.DEFAULT)
    one, left = changed(monkeypatch, unset, before, last, before)
    assert (one.after, left) == (last, 1)


def test_what_never_changes_is_told_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    unset = ConfigChange(NAME, None, ConfigOperation.DELETE)
    before, stale = entry("2", ConfigSource.DYNAMIC_BROKER, DEFAULT), entry("2", ConfigSource.DEFAULT)
    assert changed(monkeypatch, unset, before, stale)[0].after == stale


def test_a_value_that_was_the_default_is_set_when_its_source_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    before, last = entry("1", ConfigSource.DEFAULT), entry("1", ConfigSource.DYNAMIC_BROKER, DEFAULT)
    one, _ = changed(monkeypatch, ConfigChange(NAME, "1"), before, before, last)
    assert one.after == last


def test_a_list_that_already_has_a_word_is_no_reason_to_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    more = ConfigChange(NAME, "b", ConfigOperation.APPEND)
    before = entry("a,b", ConfigSource.DYNAMIC_BROKER)
    one, left = changed(monkeypatch, more, before, before, entry("a", ConfigSource.DYNAMIC_BROKER))
    assert (one.after, left) == (before, 1)
