"""kafka-python and aiokafka commit offsets without being in a group, each with versions of its own."""

from __future__ import annotations

import asyncio
from typing import Any

from aiokafka import AIOKafkaConsumer
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, OffsetAndMetadata, TopicPartition

from tests.compat.confluent import TIMEOUT_S
from tests.compat.conftest import MakeTopic, new_name


def test_kafka_python_goes_on_where_it_committed(cluster: str, topic: str) -> None:
    producer = KafkaProducer(bootstrap_servers=cluster)
    for number in range(10):
        producer.send(topic, b"%d" % number, partition=0)
    producer.flush(TIMEOUT_S)
    producer.close()
    group, place = new_name(), TopicPartition(topic, 0)
    options = {"bootstrap_servers": cluster, "group_id": group, "enable_auto_commit": False}
    first: Any = KafkaConsumer(auto_offset_reset="earliest", max_poll_records=4, **options)
    first.assign([place])
    assert first.committed(place) is None
    assert sum(map(len, first.poll(TIMEOUT_S * 1000).values())) == 4
    first.commit()
    assert first.committed(place) == 4
    first.commit({place: OffsetAndMetadata(6, "skipped two", -1)})
    first.close()
    second: Any = KafkaConsumer(auto_offset_reset="earliest", **options)
    second.assign([place])
    found = [record.value for records in second.poll(TIMEOUT_S * 1000).values() for record in records]
    assert found[0] == b"6"
    assert second.committed(place, metadata=True).metadata == "skipped two"
    second.close()


def test_kafka_python_reads_the_offsets_of_a_group(cluster: str, make_topic: MakeTopic) -> None:
    topic, group = make_topic(partitions=2), new_name()
    consumer: Any = KafkaConsumer(bootstrap_servers=cluster, group_id=group, enable_auto_commit=False)
    places = [TopicPartition(topic, index) for index in range(2)]
    consumer.assign(places)
    consumer.commit({place: OffsetAndMetadata(5 + place.partition, "", -1) for place in places})
    consumer.close()
    admin: Any = KafkaAdminClient(bootstrap_servers=cluster)
    found = admin.list_group_offsets(group)
    offsets = found.get(group, found)
    assert {place: offsets[place].offset for place in places} == {places[0]: 5, places[1]: 6}
    admin.close()


def test_aiokafka_goes_on_where_it_committed(cluster: str, topic: str) -> None:
    from aiokafka import TopicPartition as Place

    async def scenario() -> None:
        place, group = Place(topic, 0), new_name()
        for offset in (3, 8):
            consumer = AIOKafkaConsumer(bootstrap_servers=cluster, group_id=group, enable_auto_commit=False)
            await consumer.start()
            try:
                consumer.assign([place])
                await consumer.commit({place: (offset, f"at {offset}")})
                assert await consumer.committed(place) == offset
            finally:
                await consumer.stop()

    asyncio.run(asyncio.wait_for(scenario(), 60))
