"""Transactions with the other two clients in Python, aiokafka and kafka-python."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AioPartition
from aiokafka.errors import ProducerFenced
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.structs import OffsetAndMetadata

from tests.compat.conftest import MakeTopic, new_name
from tests.compat.test_aiokafka import running
from tests.compat.test_aiokafka import take as aio_take
from tests.compat.test_kafka_python import take


def test_aiokafka_commits_and_aborts(cluster: str, topic: str) -> None:
    async def scenario() -> None:
        async with running(AIOKafkaProducer(bootstrap_servers=cluster, transactional_id=new_name())) as producer:
            for number in range(6):
                await producer.begin_transaction()
                await producer.send_and_wait(topic, b"%d" % number, partition=0)
                await (producer.abort_transaction() if number % 2 else producer.commit_transaction())
        async with running(reader(cluster)) as consumer:
            consumer.assign([AioPartition(topic, 0)])
            await consumer.seek_to_beginning()
            assert [message.value for message in await aio_take(consumer, 3)] == [b"0", b"2", b"4"]

    asyncio.run(scenario())


def test_aiokafka_moves_offsets_with_the_records(cluster: str, make_topic: MakeTopic) -> None:
    source, target, group = make_topic(), make_topic(), new_name()
    partition = AioPartition(source, 0)

    async def scenario() -> None:
        async with running(AIOKafkaProducer(bootstrap_servers=cluster)) as feeder:
            for number in range(10):
                await feeder.send_and_wait(source, b"%d" % number, partition=0)
        async with (
            running(AIOKafkaProducer(bootstrap_servers=cluster, transactional_id=new_name())) as producer,
            running(reader(cluster, group)) as consumer,
        ):
            consumer.assign([partition])
            for end, commits in ((4, True), (8, False), (6, True)):
                await producer.begin_transaction()
                await producer.send_and_wait(target, b"up to %d" % end, partition=0)
                await producer.send_offsets_to_transaction({partition: end}, group)
                await (producer.commit_transaction() if commits else producer.abort_transaction())
            while await consumer.committed(partition) != 6:
                await asyncio.sleep(0.02)
            assert await consumer.committed(partition) == 6
        async with running(reader(cluster)) as consumer:
            consumer.assign([AioPartition(target, 0)])
            await consumer.seek_to_beginning()
            assert [message.value for message in await aio_take(consumer, 2)] == [b"up to 4", b"up to 6"]

    asyncio.run(scenario())


def test_aiokafka_is_fenced_by_its_successor(cluster: str, topic: str) -> None:
    transactional_id = new_name()

    async def scenario() -> None:
        async with running(AIOKafkaProducer(bootstrap_servers=cluster, transactional_id=transactional_id)) as first:
            await first.begin_transaction()
            await first.send_and_wait(topic, b"zombie", partition=0)
            async with running(
                AIOKafkaProducer(bootstrap_servers=cluster, transactional_id=transactional_id)
            ) as second:
                await second.begin_transaction()
                await second.send_and_wait(topic, b"second", partition=0)
                await second.commit_transaction()
            with pytest.raises(ProducerFenced):
                await first.commit_transaction()
        async with running(reader(cluster)) as consumer:
            consumer.assign([AioPartition(topic, 0)])
            await consumer.seek_to_beginning()
            assert [message.value for message in await aio_take(consumer, 1)] == [b"second"]

    asyncio.run(scenario())


def reader(cluster: str, group: str | None = None) -> Any:
    return AIOKafkaConsumer(
        bootstrap_servers=cluster,
        group_id=group,
        isolation_level="read_committed",
        enable_auto_commit=False,
        auto_offset_reset="earliest",
    )


def test_kafka_python_commits_and_aborts_with_offsets(cluster: str, make_topic: MakeTopic) -> None:
    source, target, group = make_topic(), make_topic(), new_name()
    partition = TopicPartition(source, 0)
    producer = KafkaProducer(bootstrap_servers=cluster, transactional_id=new_name())
    producer.init_transactions()
    for end, commits in ((4, True), (8, False), (6, True)):
        producer.begin_transaction()
        producer.send(target, b"up to %d" % end, partition=0)
        producer.send_offsets_to_transaction({partition: OffsetAndMetadata(end, "", -1)}, group)
        if commits:
            producer.commit_transaction()
        else:
            producer.abort_transaction()
    producer.close()
    consumer = KafkaConsumer(
        bootstrap_servers=cluster,
        group_id=group,
        isolation_level="read_committed",
        enable_auto_commit=False,
        auto_offset_reset="earliest",
    )
    consumer.assign([TopicPartition(target, 0)])
    consumer.seek_to_beginning()
    assert [record.value for record in take(consumer, 2)] == [b"up to 4", b"up to 6"]
    while consumer.committed(partition) != 6:
        pass
    consumer.close()
