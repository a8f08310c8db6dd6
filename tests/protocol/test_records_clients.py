"""Batches of real clients, taken from a socket: built again to the same bytes. And ours, read by the same clients."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AioTopicPartition
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AioBuilder
from aiokafka.record.memory_records import MemoryRecords as AioMemoryRecords
from confluent_kafka import Consumer, Producer, TopicPartition
from hypothesis import given
from hypothesis import strategies as st
from kafka import KafkaConsumer, KafkaProducer
from kafka import TopicPartition as KafkaTopicPartition
from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaBuilder
from kafka.record.memory_records import MemoryRecords as KafkaMemoryRecords

from headrace.protocol.batch import Batch
from headrace.protocol.batch_admission import admit
from headrace.protocol.batch_builder import build
from headrace.protocol.compression import Compression, decompress
from headrace.protocol.control import build_marker
from headrace.protocol.kernel_types import Fields, Record
from headrace.protocol.records import records_of
from tests.protocol.fake_broker import PRODUCER_EPOCH, PRODUCER_ID, FakeBroker
from tests.protocol.record_strategies import batches_of_fields

NOW_MS = 1_700_000_000_000
LIMIT = 1 << 24

# Everything that a record can be: null and empty in every place, headers that repeat, timestamps that go back.
RECORDS: list[Fields] = [
    (b"key", b"value", [("h", b"1"), ("h", b"2"), ("é", b"")], NOW_MS),
    (None, b"no key", (), NOW_MS + 5),
    (b"tombstone", None, (), NOW_MS - 7),
    (b"", b"", [("empty", b"")], NOW_MS),
    (b"k" * 100, b"some text " * 1_000, (), NOW_MS + 100_000),
    (b"binary", bytes(range(256)) * 10, [("bytes", bytes(range(256)))], NOW_MS + 1),
]
NULL_HEADER: Fields = (b"null header", b"x", [("n", None)], NOW_MS)

MODES = ("plain", "idempotent", "transactional")


def produce_with_confluent_kafka(address: str, codec: str, mode: str, records: Sequence[Fields]) -> None:
    producer = Producer(
        {
            "bootstrap.servers": address,
            "compression.type": codec,
            "enable.idempotence": mode != "plain",
            "linger.ms": 200,
            **({"transactional.id": "t"} if mode == "transactional" else {}),
        }
    )
    if mode == "transactional":
        producer.init_transactions(10)
        producer.begin_transaction()
    for key, value, headers, timestamp in records:
        producer.produce("topic", value, key, 0, timestamp=timestamp, headers=list(headers))
    if mode == "transactional":
        producer.commit_transaction(10)
    assert producer.flush(10) == 0


def produce_with_kafka_python(address: str, codec: str, mode: str, records: Sequence[Fields]) -> None:
    producer = KafkaProducer(
        bootstrap_servers=address,
        compression_type=None if codec == "none" else codec,
        enable_idempotence=mode != "plain",
        linger_ms=200,
        acks="all",
        transactional_id="t" if mode == "transactional" else None,
    )
    if mode == "transactional":
        producer.init_transactions()
        producer.begin_transaction()
    for key, value, headers, timestamp in records:
        producer.send("topic", value, key, list(headers), 0, timestamp)
    if mode == "transactional":
        producer.commit_transaction()
    producer.flush(10)
    producer.close(10)


def produce_with_aiokafka(address: str, codec: str, mode: str, records: Sequence[Fields]) -> None:
    async def produce() -> None:
        producer = AIOKafkaProducer(
            bootstrap_servers=address,
            compression_type=None if codec == "none" else codec,
            enable_idempotence=mode != "plain",
            linger_ms=200,
            acks="all",
            transactional_id="t" if mode == "transactional" else None,
        )
        await producer.start()
        try:
            if mode == "transactional":
                await producer.begin_transaction()
            waiting = [
                await producer.send("topic", value, key, 0, timestamp, headers)
                for key, value, headers, timestamp in records
            ]
            await asyncio.wait_for(asyncio.gather(*waiting), 10)
            if mode == "transactional":
                await producer.commit_transaction()
        finally:
            await producer.stop()

    asyncio.run(produce())


PRODUCERS: dict[str, Callable[[str, str, str, Sequence[Fields]], None]] = {
    "confluent-kafka": produce_with_confluent_kafka,
    "kafka-python": produce_with_kafka_python,
    "aiokafka": produce_with_aiokafka,
}


@pytest.mark.parametrize(
    ("client", "codec", "mode"),
    [
        *itertools.product(PRODUCERS, [codec.text for codec in Compression], ["plain"]),
        *itertools.product(PRODUCERS, ["none"], MODES[1:]),
    ],
)
def test_what_a_client_sends_is_built_to_the_same_bytes(client: str, codec: str, mode: str) -> None:
    records = [*RECORDS, NULL_HEADER] if client == "confluent-kafka" else RECORDS
    with FakeBroker() as broker:
        PRODUCERS[client](broker.address, codec, mode, records)
    batches = []
    for produced in broker.produced:
        batch = admit(memoryview(produced.records), produced.version)
        found = records_of(batch, LIMIT).decode()
        again = Batch(memoryview(rebuilt(batch, found)))
        assert (batch.compression.text, batch.is_transactional) == (codec, mode == "transactional")
        if mode != "plain":
            assert (batch.producer_id, batch.producer_epoch) == (PRODUCER_ID, PRODUCER_EPOCH)
        if batch.is_compressed:
            # A codec's output is its own; the header but length and checksum, and the records, are not.
            assert again.view[21:61] == batch.view[21:61]
            assert unpacked(again) == unpacked(batch)
        else:
            assert again.view == batch.view
        batches.append(found)
    assert [as_fields(record) for record in itertools.chain(*batches)] == [normal(fields) for fields in records]
    # One batch for all, or most of what a batch can do was not seen.
    assert any(len(batch) > 1 for batch in batches)


def rebuilt(batch: Batch, records: list[Record]) -> bytearray:
    return build(
        [(record.key, record.value, record.headers, record.timestamp) for record in records],
        compression=batch.compression,
        base_offset=batch.base_offset,
        partition_leader_epoch=batch.partition_leader_epoch,
        producer_id=batch.producer_id,
        producer_epoch=batch.producer_epoch,
        base_sequence=batch.base_sequence,
        transactional=batch.is_transactional,
    )


def unpacked(batch: Batch) -> bytes:
    return bytes(decompress(batch.compression, batch.payload, LIMIT))


def as_fields(record: Record) -> Fields:
    return record.key, record.value, tuple(record.headers), record.timestamp


def normal(fields: Fields) -> Fields:
    key, value, headers, timestamp = fields
    return key, value, tuple(headers), timestamp


def consume_with_confluent_kafka(address: str, count: int) -> list[Record]:
    consumer = Consumer(
        {"bootstrap.servers": address, "group.id": "g", "enable.auto.commit": False, "check.crcs": True}
    )
    consumer.assign([TopicPartition("topic", 0, 0)])
    found: list[Record] = []
    try:
        while len(found) < count and (message := consumer.poll(10)) is not None:
            assert message.error() is None
            found.append(
                Record(
                    message.offset() or 0,
                    message.timestamp()[1],
                    message.key(),
                    message.value(),
                    message.headers() or (),
                )
            )
    finally:
        consumer.close()
    return found


def consume_with_kafka_python(address: str, count: int) -> list[Record]:
    consumer = KafkaConsumer(bootstrap_servers=address, group_id=None, auto_offset_reset="earliest", check_crcs=True)
    try:
        consumer.assign([KafkaTopicPartition("topic", 0)])
        return [as_record(message) for message in itertools.islice(consumer, count)]
    finally:
        consumer.close()


def consume_with_aiokafka(address: str, count: int) -> list[Record]:
    async def consume() -> list[Record]:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=address, group_id=None, auto_offset_reset="earliest", check_crcs=True
        )
        consumer.assign([AioTopicPartition("topic", 0)])
        await consumer.start()
        try:
            return [as_record(await asyncio.wait_for(consumer.getone(), 10)) for _ in range(count)]
        finally:
            await consumer.stop()

    return asyncio.run(consume())


def as_record(message: Any) -> Record:
    return Record(message.offset, message.timestamp, message.key, message.value, tuple(message.headers))


CONSUMERS: dict[str, Callable[[str, int], list[Record]]] = {
    "confluent-kafka": consume_with_confluent_kafka,
    "kafka-python": consume_with_kafka_python,
    "aiokafka": consume_with_aiokafka,
}


def a_log() -> tuple[bytes, list[Record]]:
    """Batches of every codec, of a transaction with its marker, with gaps, with LogAppendTime; and what is in them."""
    log = bytearray()
    expected: list[Record] = []
    offset = 0
    for codec in Compression:
        log += build(RECORDS, compression=codec, base_offset=offset, partition_leader_epoch=0)
        expected += [Record(offset + i, *reordered(fields)) for i, fields in enumerate(RECORDS)]
        offset += len(RECORDS)
    log += build(RECORDS[:2], base_offset=offset, producer_id=1, producer_epoch=0, base_sequence=0, transactional=True)
    expected += [Record(offset + i, *reordered(fields)) for i, fields in enumerate(RECORDS[:2])]
    log += build_marker(
        committed=True,
        producer_id=1,
        producer_epoch=0,
        coordinator_epoch=0,
        timestamp_ms=NOW_MS,
        base_offset=offset + 2,
    )
    offset += 3
    log += build(RECORDS[:2], base_offset=offset, offset_deltas=[4, 9], compression=Compression.LZ4)
    expected += [Record(offset + 4, *reordered(RECORDS[0])), Record(offset + 9, *reordered(RECORDS[1]))]
    offset += 10
    log += build(RECORDS[:2], base_offset=offset, log_append_time=NOW_MS + 999)
    expected += [
        Record(offset + i, *reordered(fields))._replace(timestamp=NOW_MS + 999) for i, fields in enumerate(RECORDS[:2])
    ]
    return bytes(log), expected


def reordered(fields: Fields) -> Any:
    key, value, headers, timestamp = fields
    return timestamp, key, value, tuple(headers)


@pytest.mark.parametrize("client", CONSUMERS)
def test_a_client_reads_our_batches(client: str) -> None:
    log, expected = a_log()
    with FakeBroker(log=log) as broker:
        found = CONSUMERS[client](broker.address, len(expected))
    assert [record._replace(headers=tuple(record.headers)) for record in found] == expected


# The clients' own code without a socket, where it can be had: many more batches than clients could be started for.


@given(batches_of_fields, st.sampled_from(Compression))
@pytest.mark.parametrize("memory_records", [KafkaMemoryRecords, AioMemoryRecords])
def test_parsers_of_clients_read_our_batches(
    memory_records: Any, fields: list[Fields], compression: Compression
) -> None:
    data = bytes(
        build(fields, compression=compression, base_offset=7, producer_id=1, producer_epoch=0, base_sequence=0)
    )
    batch = memory_records(data).next_batch()
    assert batch.validate_crc()
    assert [(record.offset, record.timestamp, record.key, record.value, tuple(record.headers)) for record in batch] == [
        (7 + i, *reordered(of_one)) for i, of_one in enumerate(fields)
    ]


@given(batches_of_fields, st.booleans())
@pytest.mark.parametrize("builder", [KafkaBuilder, AioBuilder])
def test_builders_of_clients_make_the_same_bytes(builder: Any, fields: list[Fields], transactional: bool) -> None:
    # aiokafka takes a first timestamp of -1 for none, and the second one as the base.
    fields = [(key, value, headers, max(0, timestamp)) for key, value, headers, timestamp in fields]
    theirs = builder(
        magic=2,
        compression_type=0,
        is_transactional=transactional,
        producer_id=11,
        producer_epoch=2,
        base_sequence=99,
        batch_size=1 << 24,
    )
    for i, (key, value, headers, timestamp) in enumerate(fields):
        assert theirs.append(i, timestamp=timestamp, key=key, value=value, headers=headers) is not None
    ours = build(fields, producer_id=11, producer_epoch=2, base_sequence=99, transactional=transactional)
    made = bytearray(theirs.build())
    # They leave the leader epoch to the broker, each in its way; it lies outside of the checksum.
    made[12:16] = ours[12:16]
    assert made == ours
