"""Transactions with confluent-kafka: what is committed is read, what is aborted is not, and offsets go with them."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from tests.compat.confluent import consume, new_consumer, take
from tests.compat.conftest import MakeTopic, new_name
from tests.compat.process import Process

TIMEOUT_S = 30


def transactional(bootstrap: str, transactional_id: str, **settings: Any) -> Any:
    producer = Producer(
        {"bootstrap.servers": bootstrap, "transactional.id": transactional_id, "linger.ms": 2, **settings}
    )
    producer.init_transactions(TIMEOUT_S)
    return producer


def values(messages: list[Any]) -> list[bytes]:
    return [message.value() for message in messages]


def committed(bootstrap: str, topic: str, count: int, partition: int = 0) -> list[bytes]:
    return values(consume(bootstrap, topic, count, partition, isolation_level="read_committed"))


def test_what_is_committed_is_read_and_what_is_aborted_is_not(cluster: str, make_topic: MakeTopic) -> None:
    topic = make_topic(2)
    producer = transactional(cluster, new_name())
    for number in range(6):
        producer.begin_transaction()
        for partition in range(2):
            producer.produce(topic, b"%d" % number, partition=partition)
        if number % 2:
            producer.abort_transaction(TIMEOUT_S)
        else:
            producer.commit_transaction(TIMEOUT_S)
    for partition in range(2):
        assert committed(cluster, topic, 3, partition) == [b"0", b"2", b"4"]
        everything = values(consume(cluster, topic, 3, partition, isolation_level="read_uncommitted"))
        assert everything[0] == b"0"


def test_a_long_transaction_of_many_batches_and_codecs(cluster: str, make_topic: MakeTopic) -> None:
    topic = make_topic()
    for codec in ("none", "lz4", "zstd"):
        producer = transactional(cluster, new_name(), **{"compression.type": codec, "batch.num.messages": 50})
        producer.begin_transaction()
        for number in range(2000):
            producer.produce(topic, b"%s %d" % (codec.encode(), number), partition=0)
        producer.commit_transaction(TIMEOUT_S)
    found = committed(cluster, topic, 6000)
    assert found == [b"%s %d" % (codec, number) for codec in (b"none", b"lz4", b"zstd") for number in range(2000)]


def test_a_reader_of_committed_records_waits_before_an_open_transaction(cluster: str, topic: str) -> None:
    producer, other = transactional(cluster, new_name()), Producer({"bootstrap.servers": cluster})
    producer.begin_transaction()
    producer.produce(topic, b"open", partition=0)
    assert producer.flush(TIMEOUT_S) == 0
    other.produce(topic, b"beside", partition=0)
    assert other.flush(TIMEOUT_S) == 0
    reader = new_consumer(cluster, isolation_level="read_committed", enable_partition_eof=True)
    reader.assign([TopicPartition(topic, 0, 0)])
    first = reader.poll(TIMEOUT_S)
    assert first.error().code() == KafkaError._PARTITION_EOF
    assert first.offset() == 0, "the last stable offset"
    producer.commit_transaction(TIMEOUT_S)
    found: list[bytes] = []
    while len(found) < 2:
        message = reader.poll(TIMEOUT_S)
        if not message.error():
            found.append(message.value())
    assert found == [b"open", b"beside"]
    assert reader.get_watermark_offsets(TopicPartition(topic, 0), TIMEOUT_S)[1] == 3, "two records and a marker"
    reader.close()


def test_a_second_producer_of_the_same_id_fences_the_first(cluster: str, topic: str) -> None:
    transactional_id = new_name()
    first = transactional(cluster, transactional_id)
    first.begin_transaction()
    first.produce(topic, b"of the zombie", partition=0)
    assert first.flush(TIMEOUT_S) == 0
    second = transactional(cluster, transactional_id)
    with pytest.raises(KafkaException) as raised:
        first.commit_transaction(TIMEOUT_S)
    assert raised.value.args[0].fatal() or raised.value.args[0].txn_requires_abort()
    second.begin_transaction()
    second.produce(topic, b"of the second", partition=0)
    second.commit_transaction(TIMEOUT_S)
    assert committed(cluster, topic, 1) == [b"of the second"]


def test_consume_transform_produce_moves_offsets_with_the_records(cluster: str, make_topic: MakeTopic) -> None:
    source, target, group = make_topic(), make_topic(), new_name()
    feeder = Producer({"bootstrap.servers": cluster})
    for number in range(30):
        feeder.produce(source, b"%d" % number, partition=0)
    assert feeder.flush(TIMEOUT_S) == 0
    producer = transactional(cluster, new_name())
    consumer = Consumer(
        {
            "bootstrap.servers": cluster,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
        }
    )
    consumer.subscribe([source])
    for round_number in range(3):
        messages = take(consumer, 10)
        producer.begin_transaction()
        for message in messages:
            producer.produce(target, b"<%s>" % message.value(), partition=0)
        producer.send_offsets_to_transaction(
            consumer.position(consumer.assignment()), consumer.consumer_group_metadata(), TIMEOUT_S
        )
        if round_number == 1:
            producer.abort_transaction(TIMEOUT_S)
            for partition in consumer.committed(consumer.assignment(), TIMEOUT_S):
                assert partition.offset == 10
                consumer.seek(TopicPartition(source, 0, 10))
        else:
            producer.commit_transaction(TIMEOUT_S)
    (position,) = consumer.committed([TopicPartition(source, 0)], TIMEOUT_S)
    assert position.offset == 20
    consumer.close()
    assert committed(cluster, target, 20) == [b"<%d>" % number for number in range(20)]


def test_a_transaction_is_committed_over_a_restart_and_its_state_is_found_again(node: Process) -> None:
    producer = transactional(node.bootstrap, "over-a-restart", **{"message.timeout.ms": 30_000})
    producer.begin_transaction()
    producer.produce("restarted", b"before", partition=0)
    assert producer.flush(TIMEOUT_S) == 0
    node.kill()
    node.start()
    while True:
        try:
            producer.commit_transaction(TIMEOUT_S)
            break
        except KafkaException as refused:
            assert refused.args[0].retriable(), refused
    producer.begin_transaction()
    producer.produce("restarted", b"after", partition=0)
    producer.commit_transaction(TIMEOUT_S)
    assert committed(node.bootstrap, "restarted", 2) == [b"before", b"after"]


def test_the_open_transaction_of_a_producer_that_is_gone_is_aborted_when_its_time_is_over(node: Process) -> None:
    node.stop()
    node.arguments = ("--set", "transaction.abort.timed.out.transaction.cleanup.interval.ms=200")
    node.start()
    producer = transactional(node.bootstrap, "gone", **{"transaction.timeout.ms": 1000})
    producer.begin_transaction()
    producer.produce("timed-out", b"lost", partition=0)
    assert producer.flush(TIMEOUT_S) == 0
    other = Producer({"bootstrap.servers": node.bootstrap})
    other.produce("timed-out", b"behind", partition=0)
    assert other.flush(TIMEOUT_S) == 0
    assert committed(node.bootstrap, "timed-out", 1) == [b"behind"]
    with contextlib.suppress(KafkaException):
        producer.abort_transaction(TIMEOUT_S)
