"""confluent-kafka reads by assignment: from everywhere, past every end, while waiting and after a deletion."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from confluent_kafka import OFFSET_END, IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import OffsetSpec

from tests.compat.confluent import TIMEOUT_S, consume, new_consumer, new_producer, produce, take
from tests.compat.conftest import MakeTopic, create_topic, new_name
from tests.compat.requests import BASE_MS


@pytest.fixture
def filled(cluster: str, topic: str) -> str:
    """100 messages, one a second from BASE_MS on, in batches of ten."""
    producer = new_producer(cluster, linger_ms=1000, batch_num_messages=10)
    for number in range(100):
        producer.produce(topic, b"%d" % number, timestamp=BASE_MS + number * 1000)
    assert producer.flush(TIMEOUT_S) == 0
    return topic


def values(messages: list[Any]) -> list[int]:
    return [int(message.value()) for message in messages]


def test_from_the_beginning(cluster: str, filled: str) -> None:
    assert values(consume(cluster, filled, 100)) == list(range(100))


@pytest.mark.parametrize("offset", [1, 9, 10, 55, 99])
def test_from_an_offset_in_the_middle_of_a_batch(cluster: str, filled: str, offset: int) -> None:
    assert values(consume(cluster, filled, 100 - offset, offset=offset)) == list(range(offset, 100))


def test_from_the_end_only_what_comes_later(cluster: str, filled: str) -> None:
    consumer = new_consumer(cluster)
    try:
        consumer.assign([TopicPartition(filled, 0, OFFSET_END)])
        assert consumer.poll(1.5) is None
        produce(new_producer(cluster), filled, [b"100"])
        assert values(take(consumer, 1)) == [100]
    finally:
        consumer.close()


def test_offsets_for_times(cluster: str, filled: str) -> None:
    consumer = new_consumer(cluster)
    try:
        for timestamp_ms, offset in (
            (0, 0),
            (BASE_MS, 0),
            (BASE_MS + 1, 1),
            (BASE_MS + 54_500, 55),
            (BASE_MS + 99_000, 99),
            (BASE_MS + 99_001, OFFSET_END),
        ):
            (found,) = consumer.offsets_for_times([TopicPartition(filled, 0, timestamp_ms)], TIMEOUT_S)
            assert found.offset == offset
        assert consumer.get_watermark_offsets(TopicPartition(filled, 0), TIMEOUT_S) == (0, 100)
    finally:
        consumer.close()


def test_list_offsets_by_every_special_time(admin: Any, filled: str) -> None:
    partition = TopicPartition(filled, 0)
    for spec, offset, timestamp_ms in (
        (OffsetSpec.earliest(), 0, -1),
        (OffsetSpec.latest(), 100, -1),
        (OffsetSpec.max_timestamp(), 99, BASE_MS + 99_000),
        (OffsetSpec.for_timestamp(BASE_MS + 30_000), 30, BASE_MS + 30_000),
        (OffsetSpec.for_timestamp(BASE_MS + 500_000), -1, -1),
    ):
        for isolation in (IsolationLevel.READ_UNCOMMITTED, IsolationLevel.READ_COMMITTED):
            found = admin.list_offsets({partition: spec}, isolation_level=isolation)[partition].result(TIMEOUT_S)
            assert (found.offset, found.timestamp) == (offset, timestamp_ms)


def test_an_offset_out_of_range_is_an_error_or_a_reset(cluster: str, filled: str) -> None:
    consumer = new_consumer(cluster)
    try:
        consumer.assign([TopicPartition(filled, 0, 1000)])
        message = consumer.poll(TIMEOUT_S)
        assert message.error().code() == KafkaError._AUTO_OFFSET_RESET
    finally:
        consumer.close()
    assert values(consume(cluster, filled, 100, offset=1000, auto_offset_reset="earliest")) == list(range(100))


def test_seek_and_pause(cluster: str, filled: str) -> None:
    consumer = new_consumer(cluster)
    try:
        partition = TopicPartition(filled, 0, 0)
        consumer.assign([partition])
        assert values(take(consumer, 10)) == list(range(10))
        consumer.seek(TopicPartition(filled, 0, 90))
        assert values(take(consumer, 10)) == list(range(90, 100))
        consumer.pause([partition])
        produce(new_producer(cluster), filled, [b"100"])
        assert consumer.poll(0.5) is None
        consumer.resume([partition])
        assert values(take(consumer, 1)) == [100]
    finally:
        consumer.close()


def test_a_waiting_fetch_is_woken_by_a_message(cluster: str, topic: str) -> None:
    """The fetch waits for a minute: what comes before was woken."""
    consumer = new_consumer(cluster, fetch_wait_max_ms=60_000, socket_timeout_ms=120_000, fetch_min_bytes=1)
    producer = new_producer(cluster)
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        for number in range(5):
            waker = threading.Timer(0.3, produce, (producer, topic, [b"%d" % number]))
            waker.start()
            assert values(take(consumer, 1)) == [number]
            waker.join()
    finally:
        consumer.close()


def test_small_fetches_come_to_the_end_as_well(cluster: str, topic: str) -> None:
    sent = [b"%d" % number * 50_000 for number in range(10)]
    produce(new_producer(cluster, linger_ms=0), topic, sent)
    limits = {"fetch_message_max_bytes": 1000, "fetch_max_bytes": 1_000_000, "max_partition_fetch_bytes": 1000}
    found = consume(cluster, topic, 10, **limits)
    assert [message.value() for message in found] == sent


def test_many_partitions_in_one_consumer(cluster: str, make_topic: MakeTopic) -> None:
    topic = make_topic(100)
    producer = new_producer(cluster)
    for number in range(1000):
        producer.produce(topic, b"%d" % number, partition=number % 100)
    assert producer.flush(TIMEOUT_S) == 0
    consumer = new_consumer(cluster)
    try:
        consumer.assign([TopicPartition(topic, partition, 0) for partition in range(100)])
        found = take(consumer, 1000)
        assert sorted(values(found)) == list(range(1000))
        for partition in range(100):
            mine = [int(message.value()) for message in found if message.partition() == partition]
            assert mine == list(range(partition, 1000, 100))
    finally:
        consumer.close()


def test_read_committed_reads_what_has_no_transaction(cluster: str, filled: str) -> None:
    assert values(consume(cluster, filled, 100, isolation_level="read_committed")) == list(range(100))


def test_the_end_of_a_partition_is_reported(cluster: str, filled: str) -> None:
    consumer = new_consumer(cluster, enable_partition_eof=True)
    try:
        consumer.assign([TopicPartition(filled, 0, 95)])
        assert values(take(consumer, 5)) == list(range(95, 100))
        message = consumer.poll(TIMEOUT_S)
        assert message.error().code() == KafkaError._PARTITION_EOF
        assert message.offset() == 100
    finally:
        consumer.close()


def test_hazard_9_a_topic_made_again_starts_at_zero(cluster: str, admin: Any) -> None:
    """Old records never show up in it, with clients that knew the old one and with new ones."""
    topic = new_name()
    create_topic(admin, 1, name=topic)
    producer = new_producer(cluster, topic_metadata_refresh_interval_ms=200)
    for life in range(3):
        if life:
            admin.delete_topics([topic], operation_timeout=60)[topic].result(TIMEOUT_S)
            create_again(admin, topic)
        sent = [b"life %d, message %d" % (life, number) for number in range(20)]
        fresh = new_producer(cluster)
        delivered = produce(fresh, topic, sent)
        assert [message.offset() for message in delivered] == list(range(20))
        assert [message.value() for message in consume(cluster, topic, 20)] == sent
        (late,) = produce(producer, topic, [b"of the old client"])
        assert late.offset() == 20


def create_again(admin: Any, topic: str) -> None:
    """Deletion may take a moment after it was acknowledged."""
    while True:
        try:
            create_topic(admin, 1, name=topic)
            return
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise
