"""Every setting that Kafka has is known here, of its type, and with its default or a word on why not.

`fixtures/kafka_settings.tsv` is what a fresh Apache Kafka 4.3 answers to DescribeConfigs (a topic, a broker, a group):
scope, name, type, default.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.config import TOPIC, Setting, broker_settings
from headrace.config.group_settings import GroupSettings
from headrace.config.node import ALIASES

TABLES = {"topic": TOPIC, "broker": broker_settings(), "group": GroupSettings.settings}
NEW_IN_4_3 = ("cordoned.log.dirs", "assignment.interval.ms")
"""What Kafka 4.2 did not have."""
ITS_OWN = {
    "listeners": "a node that nobody told otherwise is for its own machine",
    "node.id": "it has to be given in Kafka",
    "broker.id": "it has to be given in Kafka",
    "process.roles": "they have to be given in Kafka",
    "controller.listener.names": "they have to be given in Kafka",
    "log.dirs": "data belongs where whoever started the node sees it",
    "log.dir": "data belongs where whoever started the node sees it",
}
"""Defaults that are not Kafka's because they can't be, or should not."""
LISTS = ("listener.security.protocol.map",)
"""Called a string by Kafka, which reads it as a list."""


def described_by_kafka() -> list[tuple[str, str, str, str]]:
    lines = (Path(__file__).parent / "fixtures" / "kafka_settings.tsv").read_text().splitlines()
    rows = [line.split("\t") for line in lines]
    return [(scope, name, kind, default) for scope, name, kind, default in rows if not name.endswith(NEW_IN_4_3)]


KAFKAS = described_by_kafka()


def found(scope: str, name: str) -> Setting:
    return TABLES[scope][ALIASES.get(name, name)]


def test_every_setting_of_kafka_is_known() -> None:
    assert len(KAFKAS) > 370
    assert [name for scope, name, *_ in KAFKAS if ALIASES.get(name, name) not in TABLES[scope]] == []


@pytest.mark.parametrize("scope", TABLES)
def test_settings_have_kafkas_types(scope: str) -> None:
    ours = {name: found(scope, name).kind.name.lower() for of, name, *_ in KAFKAS if of == scope and name not in LISTS}
    assert ours == {name: kind for of, name, kind, _ in KAFKAS if of == scope and name not in LISTS}


@pytest.mark.parametrize("scope", TABLES)
def test_a_default_is_kafkas_or_it_says_why_not(scope: str) -> None:
    for of, name, _, default in KAFKAS:
        if of != scope or name in ITS_OWN:
            continue
        setting = found(scope, name)
        ours = "" if setting.default is None else setting.format(setting.default)
        if sorted(ours.split(",")) != sorted(default.split(",")):
            assert setting.kafka, f"{name} is {ours}, and {default} in Kafka"
