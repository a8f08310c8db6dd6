"""confluent-kafka as the tests use it: produce and see the acknowledgements, consume by assignment."""

from __future__ import annotations

from typing import Any, Final

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Producer, TopicPartition

TIMEOUT_S: Final = 60
MESSAGE_BYTES_MAX: Final = 1_048_588  # the default of message.max.bytes: a batch and what is around it in the log


def new_producer(bootstrap: str, **settings: Any) -> Any:
    return Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, **dotted(settings)})


def new_consumer(bootstrap: str, **settings: Any) -> Any:
    """A consumer by assignment: librdkafka wants a group's name all the same."""
    defaults = {"group.id": "compat", "enable.auto.commit": False, "auto.offset.reset": "error"}
    return Consumer({"bootstrap.servers": bootstrap, **defaults, **dotted(settings)})


def dotted(settings: dict[str, Any]) -> dict[str, Any]:
    return {name.replace("_", "."): value for name, value in settings.items()}


def produce(producer: Any, topic: str, values: list[Any], **fields: Any) -> list[Any]:
    """Sends all and waits for all; returns what was acknowledged, or the error of each."""
    delivered: list[Any] = []

    def report(error: Any, message: Any) -> None:
        delivered.append(error or message)

    for value in values:
        while True:
            try:
                producer.produce(topic, value, on_delivery=report, **fields)
                break
            except BufferError:
                producer.poll(0.1)
            except KafkaException as refused:  # the client may know already what the node would say
                delivered.append(refused.args[0])
                break
    assert producer.flush(TIMEOUT_S) == 0
    assert len(delivered) == len(values)
    return delivered


def consume(
    bootstrap: str, topic: str, count: int, partition: int = 0, offset: int = OFFSET_BEGINNING, **settings: Any
) -> list[Any]:
    """The next `count` messages of a partition from an offset on."""
    consumer = new_consumer(bootstrap, **settings)
    try:
        consumer.assign([TopicPartition(topic, partition, offset)])
        return take(consumer, count)
    finally:
        consumer.close()


def take(consumer: Any, count: int) -> list[Any]:
    found: list[Any] = []
    while len(found) < count:
        messages = consumer.consume(count - len(found), TIMEOUT_S)
        assert messages, f"{len(found)} of {count} messages came"
        for message in messages:
            assert message.error() is None, message.error()
            found.append(message)
    return found
