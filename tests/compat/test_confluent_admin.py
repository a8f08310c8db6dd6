"""Topics and the cluster through confluent-kafka's admin client."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import NewTopic

from tests.compat.confluent import TIMEOUT_S
from tests.compat.conftest import create_topic, new_name


def refused(admin: Any, topic: NewTopic, **options: Any) -> int:
    with pytest.raises(KafkaException) as caught:
        admin.create_topics([topic], **options)[topic.topic].result(TIMEOUT_S)
    code: int = caught.value.args[0].code()
    return code


def test_a_created_topic_is_in_the_metadata(admin: Any) -> None:
    topic = create_topic(admin, 7)
    found = admin.list_topics(topic, TIMEOUT_S).topics[topic]
    assert found.error is None
    assert sorted(found.partitions) == list(range(7))
    for partition in found.partitions.values():
        assert partition.replicas == partition.isrs == [partition.leader]
    assert topic in admin.list_topics(timeout=TIMEOUT_S).topics


def test_the_cluster_describes_itself(cluster: str, admin: Any) -> None:
    found = admin.describe_cluster().result(TIMEOUT_S)
    assert found.cluster_id
    (broker,) = found.nodes
    assert f"{broker.host}:{broker.port}" == cluster
    metadata = admin.list_topics(timeout=TIMEOUT_S)
    assert metadata.cluster_id == found.cluster_id
    assert [f"{member.host}:{member.port}" for member in metadata.brokers.values()] == [cluster]


def test_a_name_is_given_once(admin: Any, topic: str) -> None:
    assert refused(admin, NewTopic(topic, 1, 1)) == KafkaError.TOPIC_ALREADY_EXISTS


@pytest.mark.parametrize("name", [".", "..", "a b", "snow☃", "x" * 250])
def test_a_name_must_be_one(admin: Any, name: str) -> None:
    assert refused(admin, NewTopic(name, 1, 1)) == KafkaError.TOPIC_EXCEPTION


def test_what_can_not_be_made_is_refused(admin: Any) -> None:
    assert refused(admin, NewTopic(new_name(), 1, 3)) == KafkaError.INVALID_REPLICATION_FACTOR
    assert refused(admin, NewTopic(new_name(), 1, 1, config={"no.such": "1"})) == KafkaError.INVALID_CONFIG
    assert refused(admin, NewTopic(new_name(), 1, 1, config={"retention.ms": "x"})) == KafkaError.INVALID_CONFIG
    unknown_broker = NewTopic(new_name(), 1, replica_assignment=[[4711]])
    assert refused(admin, unknown_broker) == KafkaError.INVALID_REPLICA_ASSIGNMENT


def test_only_validated_is_not_created(admin: Any) -> None:
    topic = new_name()
    admin.create_topics([NewTopic(topic, 1, 1)], validate_only=True)[topic].result(TIMEOUT_S)
    assert topic not in admin.list_topics(timeout=TIMEOUT_S).topics


def test_names_that_collide_in_metrics_are_refused(admin: Any) -> None:
    topic = new_name()
    create_topic(admin, 1, name=f"{topic}.a_b")
    assert refused(admin, NewTopic(f"{topic}_a.b", 1, 1)) == KafkaError.TOPIC_EXCEPTION


def test_the_node_chooses_what_is_left_open(admin: Any) -> None:
    topic = new_name()
    admin.create_topics([NewTopic(topic, -1, -1)])[topic].result(TIMEOUT_S)
    assert len(admin.list_topics(topic, TIMEOUT_S).topics[topic].partitions) == 1


def test_a_deleted_topic_is_gone(admin: Any) -> None:
    topic = create_topic(admin, 3)
    admin.delete_topics([topic], operation_timeout=60)[topic].result(TIMEOUT_S)
    assert topic not in admin.list_topics(timeout=TIMEOUT_S).topics
    with pytest.raises(KafkaException) as caught:
        admin.delete_topics([topic])[topic].result(TIMEOUT_S)
    assert caught.value.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_many_topics_at_once(admin: Any) -> None:
    topics = [new_name() for _ in range(40)]
    for future in admin.create_topics([NewTopic(topic, 5, 1) for topic in topics], operation_timeout=60).values():
        future.result(TIMEOUT_S)
    known = admin.list_topics(timeout=TIMEOUT_S).topics
    assert all(len(known[topic].partitions) == 5 for topic in topics)
    for future in admin.delete_topics(topics, operation_timeout=60).values():
        future.result(TIMEOUT_S)
