"""confluent-kafka commits offsets without being in a group: by assignment, by hand, and by an administrator."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import OFFSET_INVALID, ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.compat.confluent import TIMEOUT_S, new_consumer, new_producer, produce, take
from tests.compat.conftest import MakeTopic, new_name
from tests.compat.process import Process


def committed(consumer: Any, topic: str, partition: int = 0) -> tuple[int, str | None]:
    (found,) = consumer.committed([TopicPartition(topic, partition)], TIMEOUT_S)
    assert found.error is None
    return found.offset, found.metadata


def test_a_consumer_that_assigned_itself_goes_on_where_it_committed(cluster: str, topic: str) -> None:
    produce(new_producer(cluster), topic, [b"%d" % number for number in range(10)])
    group = new_name()
    consumer = new_consumer(cluster, group_id=group, auto_offset_reset="earliest")
    try:
        assert committed(consumer, topic)[0] == OFFSET_INVALID
        consumer.assign([TopicPartition(topic, 0)])
        last = take(consumer, 4)[-1]
        consumer.commit(last, asynchronous=False)
        assert committed(consumer, topic)[0] == 4
    finally:
        consumer.close()
    again = new_consumer(cluster, group_id=group, auto_offset_reset="earliest")
    try:
        again.assign([TopicPartition(topic, 0)])
        assert [int(message.value()) for message in take(again, 6)] == [4, 5, 6, 7, 8, 9]
    finally:
        again.close()


def test_what_is_told_with_an_offset_comes_back(cluster: str, make_topic: MakeTopic) -> None:
    topic = make_topic(partitions=3)
    consumer = new_consumer(cluster, group_id=new_name())
    try:
        offsets = [TopicPartition(topic, index, 100 + index, metadata=f"é {index}") for index in range(3)]
        consumer.commit(offsets=offsets, asynchronous=False)
        for index in range(3):
            assert committed(consumer, topic, index) == (100 + index, f"é {index}")
        with pytest.raises(KafkaException, match="OFFSET_METADATA_TOO_LARGE"):
            consumer.commit(offsets=[TopicPartition(topic, 0, 1, metadata="x" * 4097)], asynchronous=False)
        assert committed(consumer, topic)[0] == 100
    finally:
        consumer.close()


def test_offsets_outlive_the_node(node: Process) -> None:
    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    producer = new_producer(node.bootstrap)
    produce(producer, "orders", [b"a", b"b"])
    group = new_name()
    consumer = new_consumer(node.bootstrap, group_id=group)
    try:
        consumer.commit(offsets=[TopicPartition("orders", 0, 2, metadata="kept")], asynchronous=False)
        node.kill()
        node.start()
        assert committed(consumer, "orders") == (2, "kept")
    finally:
        consumer.close()
    request = [ConsumerGroupTopicPartitions(group)]
    (listed,) = [future.result(TIMEOUT_S) for future in admin.list_consumer_group_offsets(request).values()]
    assert [(one.topic, one.partition, one.offset) for one in listed.topic_partitions] == [("orders", 0, 2)]


def test_an_administrator_reads_changes_and_deletes_offsets(cluster: str, admin: Any, make_topic: MakeTopic) -> None:
    topic, group = make_topic(partitions=2), new_name()
    wanted = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0, 7), TopicPartition(topic, 1, 8)])
    for future in admin.alter_consumer_group_offsets([wanted]).values():
        future.result(TIMEOUT_S)
    (found,) = [
        future.result(TIMEOUT_S)
        for future in admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]).values()
    ]
    assert sorted((one.partition, one.offset) for one in found.topic_partitions) == [(0, 7), (1, 8)]
