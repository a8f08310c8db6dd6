"""kafka-python 3: a client in Python of its own, which asks with other versions than librdkafka."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import NewTopic
from kafka.errors import MessageSizeTooLargeError, TopicAlreadyExistsError

from tests.compat.confluent import MESSAGE_BYTES_MAX, TIMEOUT_S
from tests.compat.conftest import MakeTopic, new_name
from tests.compat.requests import BASE_MS

CODECS = (None, "gzip", "snappy", "lz4", "zstd")


@pytest.fixture
def consumer(cluster: str) -> Iterator[Any]:
    client = KafkaConsumer(bootstrap_servers=cluster, enable_auto_commit=False, auto_offset_reset="earliest")
    yield client
    client.close()


def take(consumer: Any, count: int) -> list[Any]:
    found: list[Any] = []
    while len(found) < count:
        polled = consumer.poll(TIMEOUT_S * 1000, max_records=count - len(found))
        assert polled, f"{len(found)} of {count} messages came"
        for records in polled.values():
            found.extend(records)
    return found


def send(producer: Any, topic: str, values: list[bytes | None], **fields: Any) -> list[Any]:
    futures = [producer.send(topic, value, **fields) for value in values]
    producer.flush(TIMEOUT_S)
    return [future.get(TIMEOUT_S) for future in futures]


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("acks", [1, "all"])
def test_what_was_sent_comes_back(cluster: str, topic: str, consumer: Any, codec: str | None, acks: int | str) -> None:
    producer = KafkaProducer(
        bootstrap_servers=cluster, acks=acks, compression_type=codec, enable_idempotence=acks == "all", linger_ms=5
    )
    values: list[bytes | None] = [b"value %d " % number * 10 for number in range(200)]
    try:
        sent = send(producer, topic, values)
    finally:
        producer.close()
    assert [metadata.offset for metadata in sent] == list(range(200))
    consumer.assign([TopicPartition(topic, 0)])
    consumer.seek_to_beginning()
    assert [record.value for record in take(consumer, 200)] == values


def test_what_nobody_acknowledges_comes_all_the_same(cluster: str, topic: str, consumer: Any) -> None:
    producer = KafkaProducer(bootstrap_servers=cluster, acks=0, enable_idempotence=False)
    for number in range(50):
        producer.send(topic, b"%d" % number)
    producer.flush(TIMEOUT_S)
    consumer.assign([TopicPartition(topic, 0)])
    consumer.seek_to_beginning()
    assert [record.value for record in take(consumer, 50)] == [b"%d" % number for number in range(50)]
    producer.close()


def test_keys_values_and_headers_come_back(cluster: str, topic: str, consumer: Any) -> None:
    producer = KafkaProducer(bootstrap_servers=cluster)
    headers = [("a", b"1"), ("a", b""), ("ключ", b"\x00\xff")]
    sent: list[tuple[Any, Any, Any]] = [(None, b"", []), (b"key", None, []), (b"", b"value", headers)]
    for key, value, some in sent:
        producer.send(topic, value, key=key, headers=some, timestamp_ms=BASE_MS).get(TIMEOUT_S)
    producer.close()
    consumer.assign([TopicPartition(topic, 0)])
    consumer.seek_to_beginning()
    found = take(consumer, 3)
    assert [(record.key, record.value, list(record.headers)) for record in found] == sent
    assert {record.timestamp for record in found} == {BASE_MS}


def test_a_message_over_the_limit_is_refused(cluster: str, topic: str) -> None:
    producer = KafkaProducer(bootstrap_servers=cluster, max_request_size=8 << 20)
    try:
        assert producer.send(topic, bytes(MESSAGE_BYTES_MAX - 100)).get(TIMEOUT_S).offset == 0
        with pytest.raises(MessageSizeTooLargeError):
            producer.send(topic, bytes(MESSAGE_BYTES_MAX)).get(TIMEOUT_S)
    finally:
        producer.close()


def test_from_everywhere(cluster: str, topic: str, consumer: Any) -> None:
    producer = KafkaProducer(bootstrap_servers=cluster)
    for number in range(30):
        producer.send(topic, b"%d" % number, timestamp_ms=BASE_MS + number * 1000)
    producer.flush(TIMEOUT_S)
    partition = TopicPartition(topic, 0)
    consumer.assign([partition])
    assert consumer.beginning_offsets([partition]) == {partition: 0}
    assert consumer.end_offsets([partition]) == {partition: 30}
    found = consumer.offsets_for_times({partition: BASE_MS + 10_500})[partition]
    assert (found.offset, found.timestamp) == (11, BASE_MS + 11_000)
    assert consumer.offsets_for_times({partition: BASE_MS + 100_000})[partition] is None
    consumer.seek(partition, 17)
    assert [int(record.value) for record in take(consumer, 13)] == list(range(17, 30))
    consumer.seek_to_end()
    assert consumer.position(partition) == 30
    producer.send(topic, b"30").get(TIMEOUT_S)
    producer.close()
    assert [int(record.value) for record in take(consumer, 1)] == [30]
    consumer.seek(partition, 4711)
    assert int(take(consumer, 1)[0].value) == 0


def test_many_partitions(cluster: str, make_topic: MakeTopic, consumer: Any) -> None:
    topic = make_topic(20)
    assert consumer.partitions_for_topic(topic) == set(range(20))
    producer = KafkaProducer(bootstrap_servers=cluster)
    for number in range(200):
        producer.send(topic, b"%d" % number, partition=number % 20)
    producer.flush(TIMEOUT_S)
    producer.close()
    consumer.assign([TopicPartition(topic, partition) for partition in range(20)])
    consumer.seek_to_beginning()
    assert sorted(int(record.value) for record in take(consumer, 200)) == list(range(200))


def test_topics_are_made_and_deleted(cluster: str) -> None:
    admin = KafkaAdminClient(bootstrap_servers=cluster)
    topic = new_name()
    try:
        admin.create_topics([NewTopic(topic, 4, 1)])
        with pytest.raises(TopicAlreadyExistsError):
            admin.create_topics([NewTopic(topic, 4, 1)])
        assert topic in admin.list_topics()
        (described,) = admin.describe_topics([topic])
        assert len(described["partitions"]) == 4
        admin.delete_topics([topic])
        assert topic not in admin.list_topics()
    finally:
        admin.close()
