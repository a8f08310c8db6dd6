"""What confluent-kafka (librdkafka) sends is acknowledged and can be read back as it was."""

from __future__ import annotations

import os
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from tests.compat.confluent import MESSAGE_BYTES_MAX, consume, new_producer, produce
from tests.compat.conftest import MakeTopic, new_name

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("acks", ["1", "all"])
def test_every_codec_and_acknowledgement_level_comes_back(cluster: str, topic: str, codec: str, acks: str) -> None:
    values = [b"value %d " % number * 20 for number in range(500)]
    delivered = produce(new_producer(cluster, acks=acks, compression_type=codec), topic, values)
    assert [message.offset() for message in delivered] == list(range(500))
    assert [message.value() for message in consume(cluster, topic, 500)] == values


@pytest.mark.parametrize("codec", CODECS)
def test_what_nobody_acknowledges_comes_all_the_same(cluster: str, topic: str, codec: str) -> None:
    values = [b"unacknowledged %d" % number for number in range(100)]
    produce(new_producer(cluster, acks=0, compression_type=codec), topic, values)
    assert [message.value() for message in consume(cluster, topic, 100)] == values


@pytest.mark.parametrize("codec", CODECS)
def test_an_idempotent_producer_writes_in_order(cluster: str, make_topic: MakeTopic, codec: str) -> None:
    topic = make_topic(3)
    producer = new_producer(cluster, enable_idempotence=True, compression_type=codec, batch_num_messages=10)
    values = [b"%d" % number for number in range(900)]
    for partition in range(3):
        produce(producer, topic, values[partition::3], partition=partition)
    for partition in range(3):
        found = consume(cluster, topic, 300, partition)
        assert [message.value() for message in found] == values[partition::3]
        assert [message.offset() for message in found] == list(range(300))


def test_keys_values_and_headers_may_be_null_or_empty(cluster: str, topic: str) -> None:
    producer = new_producer(cluster)
    headers = [("a", b"1"), ("a", b"2"), ("none", None), ("empty", b""), ("ключ", "значение".encode())]
    sent: list[tuple[Any, Any, Any]] = [
        (None, None, None),
        (None, b"", None),
        (b"", None, None),
        (b"", b"", [("only", b"header")]),
        ("schlüssel".encode(), "wert ☃".encode(), headers),
        (os.urandom(1000), os.urandom(1000), [(f"h{number}", os.urandom(10)) for number in range(100)]),
    ]
    for key, value, some in sent:
        produce(producer, topic, [value], key=key, headers=some)
    found = consume(cluster, topic, len(sent))
    assert [(message.key(), message.value(), message.headers()) for message in found] == sent


def test_timestamps_are_kept(cluster: str, topic: str) -> None:
    produce(new_producer(cluster), topic, [b"then"], timestamp=1_600_000_000_123)
    (message,) = consume(cluster, topic, 1)
    assert message.timestamp() == (1, 1_600_000_000_123)


def test_a_topic_of_append_time_has_the_time_of_the_node(cluster: str, make_topic: MakeTopic) -> None:
    topic = make_topic(message_timestamp_type="LogAppendTime")
    for codec in ("none", "lz4"):
        produce(new_producer(cluster, compression_type=codec), topic, [b"now"], timestamp=1_600_000_000_123)
    for message in consume(cluster, topic, 2):
        kind, timestamp_ms = message.timestamp()
        assert kind == 2
        assert timestamp_ms > 1_600_000_000_123


# A batch of one record without key: 61 bytes of header, and 11 of lengths, deltas and attributes around the value.
VALUE_BYTES_MAX = MESSAGE_BYTES_MAX - 61 - 11


@pytest.mark.parametrize("acks", ["1", "all"])
def test_a_message_of_the_limit_is_taken(cluster: str, topic: str, acks: str) -> None:
    producer = new_producer(cluster, acks=acks, message_max_bytes=4 << 20)
    value = os.urandom(VALUE_BYTES_MAX)
    (message,) = produce(producer, topic, [value])
    assert message.offset() == 0
    (found,) = consume(cluster, topic, 1)
    assert found.value() == value


@pytest.mark.parametrize("acks", ["1", "all"])
def test_one_byte_over_the_limit_is_refused_and_the_next_message_is_taken(cluster: str, topic: str, acks: str) -> None:
    producer = new_producer(cluster, acks=acks, message_max_bytes=4 << 20)
    (error,) = produce(producer, topic, [os.urandom(VALUE_BYTES_MAX + 1)])
    assert error.code() == KafkaError.MSG_SIZE_TOO_LARGE
    (message,) = produce(producer, topic, [b"small"])
    assert message.offset() == 0


def test_a_topic_may_have_a_limit_of_its_own(cluster: str, make_topic: MakeTopic) -> None:
    topic = make_topic(max_message_bytes="2000")
    producer = new_producer(cluster)
    (error,) = produce(producer, topic, [os.urandom(2000)])
    assert error.code() == KafkaError.MSG_SIZE_TOO_LARGE
    large = make_topic(max_message_bytes="5000000")
    (message,) = produce(new_producer(cluster, message_max_bytes=8 << 20), large, [os.urandom(4_900_000)])
    assert message.error() is None
    (found,) = consume(cluster, large, 1)
    assert len(found.value()) == 4_900_000


def test_what_compresses_well_may_be_larger_than_the_limit(cluster: str, topic: str) -> None:
    producer = new_producer(cluster, compression_type="zstd", message_max_bytes=4 << 20)
    value = b"again and again " * 200_000
    (message,) = produce(producer, topic, [value])
    assert message.error() is None
    (found,) = consume(cluster, topic, 1)
    assert found.value() == value


def test_a_compacted_topic_refuses_a_record_without_key(cluster: str, make_topic: MakeTopic) -> None:
    topic = make_topic(cleanup_policy="compact")
    for codec in ("none", "gzip"):
        producer = new_producer(cluster, compression_type=codec)
        (error,) = produce(producer, topic, [b"no key"])
        assert error.code() == KafkaError.INVALID_RECORD
        (message,) = produce(producer, topic, [b"value"], key=b"key")
        assert message.error() is None


def test_partitions_get_what_was_sent_to_them(cluster: str, make_topic: MakeTopic) -> None:
    topic = make_topic(60)
    producer = new_producer(cluster)
    for partition in range(60):
        producer.produce(topic, b"%d" % partition, partition=partition)
    assert producer.flush(60) == 0
    for partition in (0, 1, 31, 59):
        (message,) = consume(cluster, topic, 1, partition)
        assert message.value() == b"%d" % partition


def test_a_partition_that_is_not_there_is_an_error(cluster: str, topic: str) -> None:
    producer = new_producer(cluster)
    produce(producer, topic, [b"partition 0 is"])
    with pytest.raises(KafkaException, match="_UNKNOWN_PARTITION"):
        producer.produce(topic, b"lost", partition=7)


@pytest.mark.parametrize("name", ["snow☃man", "with space", "slash/", "x" * 250])
def test_a_name_that_no_topic_may_have_is_refused(cluster: str, name: str) -> None:
    (error,) = produce(new_producer(cluster, message_timeout_ms=20_000), name, [b"lost"])
    assert error.code() in (KafkaError.TOPIC_EXCEPTION, KafkaError._UNKNOWN_TOPIC)


def test_a_topic_is_created_by_the_first_message_to_it(cluster: str) -> None:
    topic = new_name()
    (message,) = produce(new_producer(cluster), topic, [b"first"])
    assert (message.offset(), message.partition()) == (0, 0)
    (found,) = consume(cluster, topic, 1)
    assert found.value() == b"first"


def test_two_producers_share_a_partition(cluster: str, topic: str) -> None:
    first, second = new_producer(cluster, enable_idempotence=True), new_producer(cluster, acks=1)
    for number in range(10):
        produce(first, topic, [b"first %d" % number])
        produce(second, topic, [b"second %d" % number])
    values = [message.value() for message in consume(cluster, topic, 20)]
    assert [value for value in values if value.startswith(b"first")] == [b"first %d" % number for number in range(10)]
    assert [value for value in values if value.startswith(b"second")] == [b"second %d" % number for number in range(10)]
