"""Administration through the clients that people have: partitions, records, directories, leaders, features."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka import TopicPartition as AioPartition
from aiokafka.admin import AIOKafkaAdminClient, RecordsToDelete
from aiokafka.admin import NewPartitions as AioNewPartitions
from aiokafka.errors import OffsetOutOfRangeError as AioOutOfRange
from confluent_kafka import ElectionType, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    NewPartitions,
    OffsetSpec,
    ResourcePatternType,
    ResourceType,
)
from kafka import KafkaAdminClient, KafkaProducer
from kafka import TopicPartition as PythonPartition
from kafka.admin import (
    ACLFilter,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    ResourcePatternFilter,
    UpdateFeatureType,
)
from kafka.admin import OffsetSpec as PythonSpec
from kafka.admin import ResourceType as PythonResourceType
from kafka.errors import (
    InvalidReplicationAssignmentError,
    LogDirNotFoundError,
    NoError,
    NoReassignmentInProgressError,
    OffsetOutOfRangeError,
    SecurityDisabledError,
)

from tests.compat.confluent import TIMEOUT_S
from tests.compat.conftest import MakeTopic, is_ours, new_name
from tests.compat.process import Process
from tests.compat.test_kafkajs import MODULES, NODE, run

Produce = Callable[[str, int], None]


@pytest.fixture
def produce(cluster: str) -> Produce:
    def send(topic: str, count: int) -> None:
        producer = KafkaProducer(bootstrap_servers=cluster)
        for number in range(count):
            producer.send(topic, b"%d" % number, partition=0)
        producer.flush(TIMEOUT_S)
        producer.close()

    return send


@pytest.fixture
def python(cluster: str) -> Iterator[Any]:
    client = KafkaAdminClient(bootstrap_servers=cluster)
    yield client
    client.close()


def code_of(future: Any) -> int:
    with pytest.raises(KafkaException) as caught:
        future.result(TIMEOUT_S)
    code: int = caught.value.args[0].code()
    return code


# --- confluent-kafka --------------------------------------------------------------------------------------------------


def test_confluent_partitions_are_added(admin: Any, topic: str) -> None:
    admin.create_partitions([NewPartitions(topic, 2)], validate_only=True)[topic].result(TIMEOUT_S)
    admin.create_partitions([NewPartitions(topic, 3)])[topic].result(TIMEOUT_S)
    found = admin.describe_topics(TopicCollection([topic]), include_authorized_operations=True)[topic].result(TIMEOUT_S)
    assert [partition.id for partition in found.partitions] == [0, 1, 2]
    assert AclOperation.ALTER in found.authorized_operations
    assert code_of(admin.create_partitions([NewPartitions(topic, 3)])[topic]) == KafkaError.INVALID_PARTITIONS
    assert code_of(admin.create_partitions([NewPartitions(topic, 2)])[topic]) == KafkaError.INVALID_PARTITIONS


def test_confluent_records_are_deleted(admin: Any, topic: str, produce: Produce) -> None:
    produce(topic, 10)
    for asked, low in ((4, 4), (2, 4), (-1, 10)):
        wanted = TopicPartition(topic, 0, asked)
        assert admin.delete_records([wanted])[wanted].result(TIMEOUT_S).low_watermark == low
    beyond = TopicPartition(topic, 0, 11)
    assert code_of(admin.delete_records([beyond])[beyond]) == KafkaError.OFFSET_OUT_OF_RANGE
    place = TopicPartition(topic, 0)
    found = admin.list_offsets({place: OffsetSpec.earliest()})[place].result(TIMEOUT_S)
    assert found.offset == 10


def test_confluent_records_of_a_compacted_topic_are_not_deleted(admin: Any, make_topic: MakeTopic) -> None:
    wanted = TopicPartition(make_topic(cleanup_policy="compact"), 0, 0)
    assert code_of(admin.delete_records([wanted])[wanted]) == KafkaError.POLICY_VIOLATION


def test_confluent_leaders_need_no_election(admin: Any, topic: str) -> None:
    place = TopicPartition(topic, 0)
    for kind in (ElectionType.PREFERRED, ElectionType.UNCLEAN):
        found = admin.elect_leaders(kind, [place]).result(TIMEOUT_S)
        assert [error.code() for error in found.values()] == [KafkaError.ELECTION_NOT_NEEDED]
    gone = admin.elect_leaders(ElectionType.PREFERRED, [TopicPartition(new_name(), 0)]).result(TIMEOUT_S)
    assert [error.code() for error in gone.values()] == [KafkaError.UNKNOWN_TOPIC_OR_PART]


def test_confluent_the_cluster_says_what_may_be_done(admin: Any) -> None:
    found = admin.describe_cluster(include_authorized_operations=True).result(TIMEOUT_S)
    assert {AclOperation.CREATE, AclOperation.ALTER, AclOperation.DESCRIBE} < set(found.authorized_operations)


def test_confluent_there_is_no_security(admin: Any, topic: str) -> None:
    binding = AclBinding(
        ResourceType.TOPIC,
        topic,
        ResourcePatternType.LITERAL,
        "User:ann",
        "*",
        AclOperation.READ,
        AclPermissionType.ALLOW,
    )
    anything = AclBindingFilter(
        ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY
    )
    assert code_of(admin.create_acls([binding])[binding]) == KafkaError.SECURITY_DISABLED
    assert code_of(admin.delete_acls([anything])[anything]) == KafkaError.SECURITY_DISABLED
    assert admin.describe_user_scram_credentials().result(TIMEOUT_S) == {}
    assert code_of(admin.describe_user_scram_credentials(["ann"])["ann"]) == KafkaError.RESOURCE_NOT_FOUND


# --- kafka-python -----------------------------------------------------------------------------------------------------


def test_kafka_python_partitions_records_and_producers(python: Any, topic: str, produce: Produce) -> None:
    produce(topic, 5)
    place = PythonPartition(topic, 0)
    assert python.delete_records({place: 3})[place]["low_watermark"] == 3
    with pytest.raises(OffsetOutOfRangeError):
        python.delete_records({place: 30})
    python.create_partitions({topic: 3})
    page = python.describe_topic_partitions([topic], 2)
    (found,) = page["topics"]
    assert [one["partition_index"] for one in found["partitions"]] == [0, 1]
    assert page["next_cursor"]["partition_index"] == 2
    (writer,) = python.describe_producers([place])[place].active_producers
    assert writer.last_sequence == 4
    described = python.describe_topics([topic])[0]
    assert "WRITE" in described["authorized_operations"]


def test_kafka_python_reassignments(python: Any, topic: str) -> None:
    place = PythonPartition(topic, 0)
    (broker,) = python.describe_cluster()["brokers"]
    assert python.alter_partition_reassignments({place: [broker["broker_id"]]}) == {place: None}
    assert python.alter_partition_reassignments({place: None}) == {place: NoReassignmentInProgressError}
    assert python.alter_partition_reassignments({place: [4711]}) == {place: InvalidReplicationAssignmentError}
    assert python.list_partition_reassignments() == {}


def test_kafka_python_the_quorum_and_features(python: Any) -> None:
    quorum = python.describe_metadata_quorum()
    (found,) = quorum["topics"][0]["partitions"]
    assert [voter["replica_id"] for voter in found["current_voters"]] == [found["leader_id"]]
    levels = python.describe_features()["metadata.version"]
    least, most = levels["supported"]
    assert least <= levels["finalized"][0] <= most
    now = levels["finalized"][0]
    python.update_features({"metadata.version": (UpdateFeatureType.UPGRADE, now)}, validate_only=True)


def test_kafka_python_there_is_no_security(python: Any) -> None:
    anything = ACLFilter(
        None,
        None,
        ACLOperation.ANY,
        ACLPermissionType.ANY,
        ResourcePatternFilter(PythonResourceType.ANY, None, ACLResourcePatternType.ANY),
    )
    with pytest.raises(SecurityDisabledError):
        python.describe_acls(anything)
    assert python.describe_user_scram_credentials() == {}


@pytest.mark.skipif(not is_ours(), reason="the node that HEADRACE_COMPAT_BOOTSTRAP names has its own directories")
def test_kafka_python_a_partition_moves_between_directories_while_it_is_written_to(tmp_path: Path) -> None:
    roots = [str(tmp_path / "one"), str(tmp_path / "two")]
    node = Process(Path(",".join(roots)))
    node.start()
    try:
        client = KafkaAdminClient(bootstrap_servers=node.bootstrap)
        producer = KafkaProducer(bootstrap_servers=node.bootstrap, acks="all")
        topic = new_name()
        client.create_topics({topic: {"num_partitions": 1, "replication_factor": 1}})

        def homes() -> dict[str, bool]:
            """The directories that hold the partition, and whether what they hold is a copy on its way."""
            (told,) = client.describe_log_dirs()
            return {
                one["log_dir"]: part["is_future_key"]
                for one in told["log_dirs"]
                for found in one["topics"]
                for part in found["partitions"]
            }

        futures = [producer.send(topic, b"x" * 10_000) for _ in range(600)]
        producer.flush(TIMEOUT_S)
        (home,) = homes()
        away = roots[1 - roots.index(home)]
        moved = client.alter_replica_log_dirs({(topic, 0, 1): away})
        assert list(moved.values()) == [NoError]
        while homes() != {away: False}:
            futures += [producer.send(topic, b"y" * 1000) for _ in range(5)]
            time.sleep(0.005)
        producer.flush(TIMEOUT_S)
        assert [future.get(TIMEOUT_S).offset for future in futures] == list(range(len(futures)))
        nowhere = client.alter_replica_log_dirs({(topic, 0, 1): str(tmp_path)})
        assert list(nowhere.values()) == [LogDirNotFoundError]
        ends = client.list_partition_offsets({PythonPartition(topic, 0): PythonSpec.LATEST})
        assert ends[PythonPartition(topic, 0)].offset == len(futures)
        producer.close()
        client.close()
    finally:
        assert node.stop() == 0, node.said
    assert node.defects == []


# --- aiokafka and kafkajs ---------------------------------------------------------------------------------------------


def test_aiokafka_partitions_and_records(cluster: str, topic: str, produce: Produce) -> None:
    produce(topic, 5)

    async def scenario() -> None:
        client = AIOKafkaAdminClient(bootstrap_servers=cluster)
        await client.start()
        try:
            await client.create_partitions({topic: AioNewPartitions(3)})
            (described,) = await client.describe_topics([topic])
            assert [one["partition"] for one in described["partitions"]] == [0, 1, 2]
            place = AioPartition(topic, 0)
            assert await client.delete_records({place: RecordsToDelete(3)}) == {place: 3}
            await expect(AioOutOfRange, client.delete_records({place: RecordsToDelete(30)}))
            assert topic in await client.list_topics()
            assert len((await client.describe_cluster())["brokers"]) == 1
        finally:
            await client.close()

    asyncio.run(scenario())


async def expect(kind: type[Exception], call: Awaitable[Any]) -> None:
    with pytest.raises(kind):
        await call


@pytest.mark.skipif(NODE is None or not (MODULES / "kafkajs").exists(), reason="there is no Node, or no kafkajs")
def test_kafkajs_partitions_records_and_reassignments(cluster: str) -> None:
    found = run("partitions", cluster, new_name())
    assert (found["count"], found["again"]) == (3, "INVALID_PARTITIONS")
    assert (found["afterThree"], found["afterAll"]) == (3, 5)
    assert "deleting records" in found["beyond"]
    assert found["moving"] == []
    assert "reassignments" in found["elsewhere"]
    assert found["acls"] == found["newAcl"] == found["noAcl"] == "SECURITY_DISABLED"
