"""The client's admin against a node: what each call gives, and how it is refused."""

from __future__ import annotations

from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest

from headrace.client import (
    HIGH_WATERMARK,
    Admin,
    Client,
    ConfigChange,
    ConfigOperation,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    ResourceType,
    UpgradeType,
)
from headrace.errors import Error, Refused
from tests.broker.nodes import run, running


@asynccontextmanager
async def connected() -> AsyncIterator[Client]:
    async with running() as node:
        endpoint = node.endpoints[0]
        async with Client(f"127.0.0.1:{endpoint.port}", operation_timeout_s=2.0) as client:
            yield client


async def refused(call: Coroutine[Any, Any, Any]) -> Error:
    with pytest.raises(Refused) as caught:
        await call
    return caught.value.error


async def send(client: Client, topic: str, count: int) -> None:
    producer = client.producer()
    for number in range(count):
        await producer.send(topic, b"%d" % number, partition=0, timestamp_ms=1_700_000_000_000)


def test_partitions_are_added_and_described_in_full() -> None:
    async def check() -> None:
        async with connected() as client:
            admin = client.admin
            await admin.create_topics([NewTopic("t", 1), NewTopic("u", assignments={0: [1], 1: [1]})])
            await admin.create_partitions({"t": 2, "u": NewPartitions(3, [[1]])})
            await admin.create_partitions({"t": 5}, validate_only=True)
            found = await admin.describe_topic_partitions(page_size=2)
            assert {name: [one.partition for one in topic.partitions] for name, topic in found.items()} == {
                "t": [0, 1],
                "u": [0, 1, 2],
            }
            assert found["t"].partitions[0].in_sync == [1]
            assert await refused(admin.create_partitions({"t": 2})) is Error.INVALID_PARTITIONS
            assert await refused(admin.create_partitions({"none": 2})) is Error.UNKNOWN_TOPIC_OR_PARTITION
            assert await refused(admin.describe_topic_partitions(["none"])) is Error.UNKNOWN_TOPIC_OR_PARTITION

    run(check())


def test_topics_are_deleted_by_name_and_by_id() -> None:
    async def check() -> None:
        async with connected() as client:
            admin = client.admin
            ids = await admin.create_topics(["a", "b"])
            await admin.delete_topics(["a", ids["b"]])
            assert await admin.list_topics() == []
            assert await refused(admin.delete_topics([ids["a"]])) is Error.UNKNOWN_TOPIC_ID
            assert await refused(admin.delete_topics(["a"])) is Error.UNKNOWN_TOPIC_OR_PARTITION

    run(check())


def test_records_are_deleted_and_producers_described() -> None:
    async def check() -> None:
        async with connected() as client:
            admin = client.admin
            await admin.create_topics([NewTopic("t", 2)])
            await send(client, "t", 5)
            assert await admin.delete_records({("t", 0): 2, ("t", 1): 0}) == {("t", 0): 2, ("t", 1): 0}
            assert await admin.delete_records({("t", 0): HIGH_WATERMARK}) == {("t", 0): 5}
            assert await refused(admin.delete_records({("t", 0): 6})) is Error.OFFSET_OUT_OF_RANGE
            found = await admin.describe_producers([("t", 0), ("t", 1)])
            assert [one.last_sequence for one in found["t", 0]] == [4]
            assert found["t", 1] == []

    run(check())


def test_log_directories_leaders_and_reassignments() -> None:
    async def check() -> None:
        async with connected() as client:
            admin = client.admin
            await admin.create_topics(["t"])
            await send(client, "t", 1)
            ((broker, (directory,)),) = (await admin.describe_log_dirs()).items()
            (replica,) = directory.replicas
            assert (replica.topic, replica.partition, replica.is_future) == ("t", 0, False)
            assert directory.size_bytes == replica.size_bytes > 0
            await admin.alter_replica_log_dirs({("t", 0, broker): directory.path})
            nowhere = admin.alter_replica_log_dirs({("t", 0, broker): "/nowhere"})
            assert await refused(nowhere) is Error.LOG_DIR_NOT_FOUND
            assert await admin.elect_leaders() == {}
            assert await admin.elect_leaders("unclean", [("t", 0)]) == {("t", 0): Error.ELECTION_NOT_NEEDED}
            await admin.alter_partition_reassignments({("t", 0): [broker]})
            assert await admin.list_partition_reassignments() == {}
            cancelled = admin.alter_partition_reassignments({("t", 0): None})
            assert await refused(cancelled) is Error.NO_REASSIGNMENT_IN_PROGRESS
            assert await refused(admin.unregister_broker(99)) is Error.BROKER_ID_NOT_REGISTERED

    run(check())


def test_the_cluster_its_quorum_and_its_features() -> None:
    async def check() -> None:
        async with connected() as client:
            admin = client.admin
            cluster = await admin.describe_cluster(fenced=True, operations=True)
            assert ([node.node_id for node in cluster.nodes], cluster.fenced_ids) == ([1], [])
            assert cluster.operations
            quorum = await admin.describe_quorum()
            assert [voter.replica_id for voter in quorum.voters] == [quorum.leader_id] == [1]
            features = await admin.describe_features()
            level = features.finalized["metadata.version"][1]
            await admin.update_features({"metadata.version": level})
            down = admin.update_features({"metadata.version": 7}, UpgradeType.SAFE_DOWNGRADE, validate_only=True)
            assert await refused(down) is Error.INVALID_UPDATE_VERSION
            assert await refused(admin.update_features({"none": 1})) is Error.INVALID_UPDATE_VERSION

    run(check())


def test_settings_are_described_and_changed() -> None:
    async def check() -> None:
        async with connected() as client:
            admin, topic, broker = client.admin, ConfigResource.topic("t"), ConfigResource.broker(1)
            await admin.create_topics(["t"])
            await admin.alter_configs({topic: {"retention.ms": "5000", "cleanup.policy": "compact"}})
            await admin.alter_configs({topic: [ConfigChange("cleanup.policy", "delete", ConfigOperation.APPEND)]})
            names = ["retention.ms", "cleanup.policy"]
            found = (await admin.describe_configs([topic], names, synonyms=True, documentation=True))[topic]
            assert (found["retention.ms"].value, found["retention.ms"].source) == ("5000", ConfigSource.DYNAMIC_TOPIC)
            assert found["cleanup.policy"].value == "compact,delete"
            assert found["retention.ms"].synonyms
            assert found["retention.ms"].documentation
            await admin.alter_configs({topic: {"retention.ms": None}})
            await admin.replace_configs({topic: {"segment.ms": "7000"}}, validate_only=True)
            assert (await admin.describe_configs([topic]))[topic]["retention.ms"].is_default
            both = await admin.describe_configs([broker, topic], ["num.partitions", "segment.ms"])
            assert list(both[broker]) == ["num.partitions"]
            assert await refused(admin.alter_configs({topic: {"retention.ms": "x"}})) is Error.INVALID_CONFIG
            assert topic in await admin.list_config_resources([ResourceType.TOPIC])

    run(check())


def test_there_is_no_security() -> None:
    async def check() -> None:
        async with connected() as client:
            admin: Admin = client.admin
            assert await refused(admin.describe_acls()) is Error.SECURITY_DISABLED
            assert await admin.describe_user_scram_credentials(["ann"]) == {}
            assert await admin.describe_client_quotas({"user": "ann"}) == []

    run(check())
