"""aiokafka: a third client in Python, which keeps fetch sessions off and asks with old versions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import MessageSizeTooLargeError

from tests.compat.confluent import MESSAGE_BYTES_MAX, TIMEOUT_S
from tests.compat.conftest import new_name
from tests.compat.requests import BASE_MS


@asynccontextmanager
async def running(client: Any) -> AsyncIterator[Any]:
    await client.start()
    try:
        yield client
    finally:
        await client.stop()


async def take(consumer: Any, count: int) -> list[Any]:
    return [await asyncio.wait_for(consumer.getone(), TIMEOUT_S) for _ in range(count)]


@pytest.mark.parametrize("codec", [None, "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("acks", [0, 1, "all"])
def test_what_was_sent_comes_back(cluster: str, topic: str, codec: str | None, acks: int | str) -> None:
    async def scenario() -> None:
        options = {"acks": acks, "compression_type": codec, "enable_idempotence": acks == "all"}
        values = [b"value %d " % number * 10 for number in range(100)]
        async with running(AIOKafkaProducer(bootstrap_servers=cluster, linger_ms=5, **options)) as producer:
            futures = [await producer.send(topic, value, partition=0) for value in values]
            await asyncio.wait_for(asyncio.gather(*futures), TIMEOUT_S)
        async with running(AIOKafkaConsumer(bootstrap_servers=cluster)) as consumer:
            consumer.assign([TopicPartition(topic, 0)])
            await consumer.seek_to_beginning()
            assert [record.value for record in await take(consumer, 100)] == values

    asyncio.run(scenario())


def test_from_everywhere(cluster: str, topic: str) -> None:
    async def scenario() -> None:
        partition = TopicPartition(topic, 0)
        headers = [("a", b"1"), ("ключ", b"")]
        async with running(AIOKafkaProducer(bootstrap_servers=cluster)) as producer:
            for number in range(20):
                await producer.send_and_wait(
                    topic, b"%d" % number, partition=0, timestamp_ms=BASE_MS + number, headers=headers
                )
            async with running(AIOKafkaConsumer(bootstrap_servers=cluster, auto_offset_reset="earliest")) as consumer:
                consumer.assign([partition])
                assert await consumer.beginning_offsets([partition]) == {partition: 0}
                assert await consumer.end_offsets([partition]) == {partition: 20}
                found = await consumer.offsets_for_times({partition: BASE_MS + 7})
                assert found[partition].offset == 7
                consumer.seek(partition, 12)
                records = await take(consumer, 8)
                assert [int(record.value) for record in records] == list(range(12, 20))
                assert list(records[0].headers) == headers
                waiting = asyncio.create_task(take(consumer, 1))
                await asyncio.sleep(0.3)
                await producer.send_and_wait(topic, None, key=b"tombstone", partition=0)
                ((last,),) = await asyncio.gather(waiting)
                assert (last.key, last.value, last.offset) == (b"tombstone", None, 20)
                consumer.seek(partition, 4711)
                assert (await take(consumer, 1))[0].offset == 0

    asyncio.run(scenario())


def test_a_message_over_the_limit_is_refused(cluster: str, topic: str) -> None:
    async def scenario() -> None:
        options = {"max_request_size": 8 << 20, "max_batch_size": 4 << 20}
        async with running(AIOKafkaProducer(bootstrap_servers=cluster, **options)) as producer:
            taken = await producer.send_and_wait(topic, bytes(MESSAGE_BYTES_MAX - 100), partition=0)
            assert taken.offset == 0
            with pytest.raises(MessageSizeTooLargeError):
                await producer.send_and_wait(topic, bytes(MESSAGE_BYTES_MAX), partition=0)

    asyncio.run(scenario())


def test_topics_are_made_and_deleted(cluster: str) -> None:
    async def scenario() -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=cluster)
        await admin.start()
        try:
            topic = new_name()
            made = await admin.create_topics([NewTopic(topic, 3, 1)])
            assert made.topic_errors[0][:2] == (topic, 0)
            again = await admin.create_topics([NewTopic(topic, 3, 1)])
            assert again.topic_errors[0][:2] == (topic, 36)
            assert topic in await admin.list_topics()
            await admin.delete_topics([topic])
            assert topic not in await admin.list_topics()
        finally:
            await admin.close()

    asyncio.run(scenario())
