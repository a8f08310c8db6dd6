"""Settings through the admin clients that people have: confluent-kafka, kafka-python and aiokafka."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Any

import pytest
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.config_resource import ConfigResource as AioResource
from aiokafka.admin.config_resource import ConfigResourceType as AioType
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    ResourceType,
)
from kafka import KafkaAdminClient
from kafka.admin import AlterConfigOp
from kafka.admin import ConfigResource as PythonResource
from kafka.admin import ConfigResourceType as PythonType

from tests.compat.confluent import TIMEOUT_S
from tests.compat.conftest import is_ours


def described(admin: Any, kind: Any, name: str) -> dict[str, Any]:
    resource = ConfigResource(kind, name)
    found: dict[str, Any] = admin.describe_configs([resource], request_timeout=TIMEOUT_S)[resource].result(TIMEOUT_S)
    return found


def change(admin: Any, kind: Any, name: str, *changes: tuple[str, Any, str | None], **more: Any) -> None:
    entries = [ConfigEntry(key, value, incremental_operation=operation) for key, operation, value in changes]
    resource = ConfigResource(kind, name, incremental_configs=entries)
    admin.incremental_alter_configs([resource], request_timeout=TIMEOUT_S, **more)[resource].result(TIMEOUT_S)


# --- confluent-kafka --------------------------------------------------------------------------------------------------


def test_confluent_describes_a_topic(admin: Any, topic: str) -> None:
    entries = described(admin, ResourceType.TOPIC, topic)
    assert len(entries) >= 33
    retention = entries["retention.ms"]
    assert (retention.value, retention.is_default, retention.is_read_only) == ("604800000", True, False)
    assert entries["max.message.bytes"].synonyms["message.max.bytes"].value == "1048588"


def test_confluent_describes_a_broker(admin: Any) -> None:
    broker = str(next(iter(admin.list_topics(timeout=TIMEOUT_S).brokers)))
    entries = described(admin, ResourceType.BROKER, broker)
    assert len(entries) > 250
    assert (entries["node.id"].value, entries["node.id"].is_read_only) == (broker, True)
    assert entries["ssl.key.password"].is_sensitive
    assert not entries["log.cleaner.threads"].is_read_only


def test_confluent_sets_appends_subtracts_and_unsets(admin: Any, topic: str) -> None:
    kind = AlterConfigOpType
    change(
        admin,
        ResourceType.TOPIC,
        topic,
        ("retention.ms", kind.SET, "1000"),
        ("cleanup.policy", kind.APPEND, "compact"),
        validate_only=True,
    )
    assert described(admin, ResourceType.TOPIC, topic)["retention.ms"].value == "604800000"
    change(
        admin,
        ResourceType.TOPIC,
        topic,
        ("retention.ms", kind.SET, "1000"),
        ("cleanup.policy", kind.APPEND, "compact"),
    )
    entries = described(admin, ResourceType.TOPIC, topic)
    assert (entries["retention.ms"].value, entries["cleanup.policy"].value) == ("1000", "delete,compact")
    assert ConfigSource(entries["retention.ms"].source) is ConfigSource.DYNAMIC_TOPIC_CONFIG
    change(
        admin,
        ResourceType.TOPIC,
        topic,
        ("retention.ms", kind.DELETE, None),
        ("cleanup.policy", kind.SUBTRACT, "delete"),
    )
    entries = described(admin, ResourceType.TOPIC, topic)
    assert (entries["retention.ms"].is_default, entries["cleanup.policy"].value) == (True, "compact")


def test_confluent_replaces_all_settings_the_old_way(admin: Any, topic: str) -> None:
    for settings in ({"retention.ms": "1000", "segment.ms": "2000"}, {"segment.ms": "3000"}):
        resource = ConfigResource(ResourceType.TOPIC, topic, set_config=settings)
        with pytest.warns(DeprecationWarning, match="alter_configs"):
            futures = admin.alter_configs([resource], request_timeout=TIMEOUT_S)
        futures[resource].result(TIMEOUT_S)
    entries = described(admin, ResourceType.TOPIC, topic)
    own = {
        name: entry.value for name, entry in entries.items() if entry.source == ConfigSource.DYNAMIC_TOPIC_CONFIG.value
    }
    assert own == {"segment.ms": "3000"}


def test_confluent_is_told_what_is_wrong(admin: Any, topic: str) -> None:
    wrong = [
        (ResourceType.TOPIC, topic, ("retention.ms", AlterConfigOpType.SET, "soon"), KafkaError.INVALID_CONFIG),
        (ResourceType.TOPIC, topic, ("no.such", AlterConfigOpType.SET, "1"), KafkaError.INVALID_CONFIG),
        (ResourceType.TOPIC, "none", ("retention.ms", AlterConfigOpType.SET, "1"), KafkaError.UNKNOWN_TOPIC_OR_PART),
        (ResourceType.BROKER, "1", ("node.id", AlterConfigOpType.SET, "5"), KafkaError.INVALID_REQUEST),
    ]
    for kind, name, changes, error in wrong:
        with pytest.raises(KafkaException) as caught:
            change(admin, kind, name, changes)
        assert caught.value.args[0].code() == error
    with pytest.raises(KafkaException) as caught:
        described(admin, ResourceType.TOPIC, "none")
    assert caught.value.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_confluent_changes_a_broker_while_it_runs(admin: Any, topic: str) -> None:
    change(admin, ResourceType.BROKER, "1", ("log.cleaner.backoff.ms", AlterConfigOpType.SET, "14000"))
    wait_for(admin, "14000", ConfigSource.DYNAMIC_BROKER_CONFIG)
    change(admin, ResourceType.BROKER, "1", ("log.cleaner.backoff.ms", AlterConfigOpType.DELETE, None))
    wait_for(admin, "15000", ConfigSource.DEFAULT_CONFIG)


def wait_for(admin: Any, value: str, source: ConfigSource) -> None:
    """A broker of Kafka's follows the metadata a moment after the answer; ours has done so before."""
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        entry = described(admin, ResourceType.BROKER, "1")["log.cleaner.backoff.ms"]
        if (entry.value, entry.source) == (value, source.value):
            return
        assert not is_ours()
        assert time.monotonic() < deadline


# --- kafka-python -----------------------------------------------------------------------------------------------------


@pytest.fixture
def python_admin(cluster: str) -> Iterator[Any]:
    client = KafkaAdminClient(bootstrap_servers=cluster)
    yield client
    client.close()


@pytest.mark.parametrize("is_incremental", [True, False])
def test_kafka_python_changes_and_describes_a_topic(python_admin: Any, topic: str, is_incremental: bool) -> None:
    python_admin.alter_configs(
        [PythonResource(PythonType.TOPIC, topic, {"retention.ms": "1000"})], incremental=is_incremental
    )
    found = python_admin.describe_configs([PythonResource(PythonType.TOPIC, topic)], include_synonyms=True)
    (entry,) = found["topic"][topic].values()
    assert (entry["value"], entry["config_source"], entry["config_type"]) == ("1000", "DYNAMIC_TOPIC_CONFIG", "LONG")
    everything = python_admin.describe_configs([PythonResource(PythonType.TOPIC, topic)], config_filter="all")
    assert len(everything["topic"][topic]) >= 33
    refused = python_admin.alter_configs(
        [PythonResource(PythonType.TOPIC, topic, {"retention.ms": "x"})], incremental=is_incremental
    )
    assert "retention.ms" in refused["topic"][topic]
    python_admin.reset_configs([PythonResource(PythonType.TOPIC, topic, ["retention.ms"])], incremental=is_incremental)
    after = python_admin.describe_configs([PythonResource(PythonType.TOPIC, topic)], config_filter="all")
    back = after["topic"][topic]["retention.ms"]
    assert (back["value"], back["config_source"]) == ("604800000", "DEFAULT_CONFIG")


def test_kafka_python_describes_brokers_loggers_metrics_and_lists_them(python_admin: Any, topic: str) -> None:
    broker = PythonResource(PythonType.BROKER, "1")
    assert len(python_admin.describe_configs([broker], config_filter="all")["broker"]["1"]) > 250
    loggers = PythonResource(PythonType.BROKER_LOGGER, "1")
    assert "root" in python_admin.describe_configs([loggers], config_filter="all")["broker_logger"]["1"]
    metrics = PythonResource(PythonType.CLIENT_METRICS, "of-a-test", {"interval.ms": "60000"})
    python_admin.alter_configs([metrics])
    listed = python_admin.list_config_resources()
    assert topic in listed["topic"]
    assert "of-a-test" in listed["client_metrics"]
    removed = {"interval.ms": (AlterConfigOp.DELETE, None)}
    python_admin.alter_configs([PythonResource(PythonType.CLIENT_METRICS, "of-a-test", removed)])
    assert "of-a-test" not in python_admin.list_config_resources(["client_metrics"]).get("client_metrics", [])


# --- aiokafka ---------------------------------------------------------------------------------------------------------


def test_aiokafka_changes_and_describes_a_topic_and_a_broker(cluster: str, topic: str) -> None:
    async def scenario() -> None:
        client = AIOKafkaAdminClient(bootstrap_servers=cluster)
        await client.start()
        try:
            (altered,) = await client.alter_configs(
                [AioResource(AioType.TOPIC, topic, configs={"retention.ms": "1000"})]
            )
            assert altered.resources[0][0] == 0
            (found,) = await client.describe_configs([AioResource(AioType.TOPIC, topic, configs={"retention.ms": ""})])
            error, _, _, name, ((key, value, *_),) = found.resources[0]
            assert (error, name, key, value) == (0, topic, "retention.ms", "1000")
            (broker,) = await client.describe_configs([AioResource(AioType.BROKER, "1")])
            assert len(broker.resources[0][4]) > 250
        finally:
            await client.close()

    asyncio.run(scenario())
