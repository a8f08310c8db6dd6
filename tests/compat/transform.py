"""Consume, transform, produce, in transactions: python -m tests.compat.transform BOOTSTRAP GROUP ID SOURCE TARGET COUNT

Whatever goes wrong it starts again, as a supervisor would have it do; it ends when the group has read everything. Who
kills it, or the node, at any moment, must find each record of the source in the target once.
"""

from __future__ import annotations

import faulthandler
import sys
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

BATCH = 20
SHORT_S, LONG_S = 0.2, 15
STUCK_S = 8
"""It ends when nothing happens for so long: librdkafka may never come back from a call in which its broker dies."""


def main(bootstrap: str, group: str, transactional_id: str, source: str, target: str, count: int) -> None:
    while True:
        try:
            if transform(bootstrap, group, transactional_id, source, target, count):
                return
        except KafkaException as error:
            print(f"starts again after {error}", flush=True)


def transform(bootstrap: str, group: str, transactional_id: str, source: str, target: str, count: int) -> bool:
    settings = {"bootstrap.servers": bootstrap, "socket.timeout.ms": 5000}
    producer = Producer({**settings, "transactional.id": transactional_id, "linger.ms": 1})
    producer.init_transactions(LONG_S)
    consumer = Consumer(
        {
            **settings,
            "group.id": group,
            "group.instance.id": "the only one",  # who comes back has its partitions at once
            "session.timeout.ms": 6000,
            "heartbeat.interval.ms": 500,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
        }
    )
    try:
        consumer.subscribe([source])
        while True:
            faulthandler.dump_traceback_later(STUCK_S, exit=True)
            messages = [message for message in consumer.consume(BATCH, SHORT_S) if message.error() is None]
            if not messages:
                if is_done(consumer, source, count):
                    return True
                continue
            move(producer, consumer, messages, target)
            print("moved", len(messages), flush=True)
    finally:
        consumer.close()


def move(producer: Any, consumer: Any, messages: list[Any], target: str) -> None:
    producer.begin_transaction()
    for message in messages:
        producer.produce(target, b"<%s>" % message.value(), partition=message.partition())
        producer.poll(0)
    producer.send_offsets_to_transaction(
        consumer.position(consumer.assignment()), consumer.consumer_group_metadata(), LONG_S
    )
    producer.commit_transaction(LONG_S)


def is_done(consumer: Any, source: str, count: int) -> bool:
    partitions = [TopicPartition(source, index) for index in range(2)]
    read = sum(max(found.offset, 0) for found in consumer.committed(partitions, LONG_S))
    return int(read) >= count


if __name__ == "__main__":
    bootstrap, group, transactional_id, source, target, count = sys.argv[1:]
    main(bootstrap, group, transactional_id, source, target, int(count))
