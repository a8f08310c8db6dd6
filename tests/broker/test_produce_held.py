"""A produce that leaves the loop, to be opened or recompressed, and what comes behind it."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.errors import Error
from headrace.protocol import messages as m
from headrace.protocol.batch import COMPRESSION_MASK, scan
from headrace.protocol.compression import Compression
from tests.broker.test_produce import Client, Slot, answer_in, client, request_of, requests_of
from tests.replica.hosts import START_MS, TOPIC_ID, change, setting
from tests.storage.batches import batch
from tests.storage.logs import values_in


def stored(producer: Client) -> list[int]:
    """The codec of each batch in the log."""
    log = producer.host.partition().log
    content = log.read(0, 1 << 20, log.log_end_offset).take()
    return [one.attributes & COMPRESSION_MASK for one in scan(memoryview(content))]


def answered(slot: Slot | None, version: int = 12) -> Any:
    assert slot is not None
    return answer_in(slot, version).responses[0].partition_responses[0]


def waits(slot: Slot | None) -> bool:
    assert slot is not None
    return slot.content is None


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd", "uncompressed"])
def test_batches_are_stored_in_the_topics_codec_and_made_so_off_the_loop(codec: str) -> None:
    host, producer = client(compression_type=codec)
    wanted = Compression.NONE if codec == "uncompressed" else Compression[codec.upper()]
    slots = [
        producer.send(request_of(batch(b"%d" % number * 100, compression=sent)))
        for number, sent in enumerate(Compression)
        if sent is not wanted
    ]
    assert all(map(waits, slots))
    assert host.partition().log_end_offset == 0
    host.drain()
    assert [answered(slot).base_offset for slot in slots] == [0, 1, 2, 3]
    assert stored(producer) == [wanted] * 4
    assert producer.one(batch(b"as it is", compression=wanted)).base_offset == 4


def test_a_level_is_honoured() -> None:
    sizes = {}
    value = b"".join(b"%d," % (number * number) for number in range(5000))
    for level in ("1", "9"):
        host, producer = client(compression_type="gzip", compression_gzip_level=level)
        slot = producer.send(request_of(batch(value)))
        host.drain()
        assert not answered(slot).error_code
        sizes[level] = host.partition().log.size_bytes
    assert sizes["9"] != sizes["1"]


def test_what_comes_behind_waits_and_other_partitions_do_not() -> None:
    host, producer = client(compression_type="zstd")
    host.create("other", topic_id=b"o" * 16)
    first = producer.send(request_of(batch(b"first", producer_id=5, producer_epoch=0, base_sequence=0)))
    ready = batch(b"second", producer_id=5, producer_epoch=0, base_sequence=1, compression=Compression.ZSTD)
    second = producer.send(request_of(ready))
    aside = producer.one(batch(b"aside"), topic="other")
    assert (waits(first), waits(second), aside.error_code) == (True, True, Error.NONE)
    assert producer.listener.budget.held_bytes > 2 * len(ready)
    host.drain()
    assert producer.listener.budget.held_bytes == 0
    assert (answered(first).base_offset, answered(second).base_offset) == (0, 1)
    assert not host.partition().held
    assert not waits(producer.send(request_of(batch(b"third", compression=Compression.ZSTD))))


def test_two_batches_for_one_partition_in_one_request_keep_their_order() -> None:
    host, producer = client(compression_type="zstd")
    parts: list[Any] = [
        ("t", TOPIC_ID, 0, batch(b"a")),
        ("t", TOPIC_ID, 0, batch(b"b", compression=Compression.ZSTD)),
    ]
    slot = producer.send(requests_of(parts))
    host.drain()
    assert slot is not None
    assert [topic.partition_responses[0].base_offset for topic in answer_in(slot).responses] == [0, 1]
    assert values_in(host.partition().log) == [(0, b"a"), (1, b"b")]


def test_what_is_found_wrong_inside_is_told_and_does_not_stop_the_next() -> None:
    host, producer = client(compression_type="zstd", cleanup_policy="compact")
    without_key = producer.send(request_of(batch(b"a", key=None, compression=Compression.GZIP)))
    good = producer.send(request_of(batch(b"b"), -1))
    host.drain()
    assert answered(without_key).error_code == Error.INVALID_RECORD
    assert answered(without_key).error_message
    assert (answered(good).error_code, answered(good).base_offset) == (Error.NONE, 0)


def test_what_is_larger_than_the_topic_takes_after_recompression_is_refused() -> None:
    host, producer = client(compression_type="uncompressed", max_message_bytes="1000")
    slot = producer.send(request_of(batch(b"x" * 100_000, compression=Compression.ZSTD)))
    host.drain()
    assert answered(slot).error_code == Error.MESSAGE_TOO_LARGE


def test_a_compressed_batch_on_a_compacted_topic_is_opened_off_the_loop_and_stored_as_it_came() -> None:
    host, producer = client(cleanup_policy="compact")
    slot = producer.send(request_of(batch(b"a", compression=Compression.LZ4)))
    assert waits(slot)
    host.drain()
    assert answered(slot).base_offset == 0
    assert stored(producer) == [Compression.LZ4]
    assert not waits(producer.send(request_of(batch(b"b"))))


def test_settings_that_change_meanwhile_count() -> None:
    host, producer = client(compression_type="zstd", message_timestamp_type="LogAppendTime")
    slot = producer.send(request_of(batch(b"a")))
    host.apply(setting("compression.type", "gzip"), setting("max.message.bytes", "500"))
    late = producer.send(request_of(batch(bytes(range(256)) * 4)))
    host.drain()
    assert answered(slot).log_append_time_ms >= START_MS
    assert answered(late).error_code == Error.MESSAGE_TOO_LARGE
    assert stored(producer) == [Compression.GZIP]


def test_hazard_4_a_leader_that_is_deposed_meanwhile_appends_nothing() -> None:
    host, producer = client(compression_type="zstd")
    slot = producer.send(request_of(batch(b"a")))
    host.apply(change(replicas=[1, 2], isr=[2], leader=2))
    host.drain()
    assert answered(slot).error_code == Error.NOT_LEADER_OR_FOLLOWER
    assert host.partition().log_end_offset == 0


def test_a_topic_that_is_deleted_meanwhile_is_told() -> None:
    host, producer = client(compression_type="zstd")
    slot = producer.send(request_of(batch(b"a")))
    host.apply(m.RemoveTopicRecord(topic_id=TOPIC_ID))
    host.drain()
    assert answered(slot).error_code == Error.NOT_LEADER_OR_FOLLOWER


def test_one_that_takes_too_long_is_told_and_is_appended_all_the_same() -> None:
    host, producer = client(compression_type="zstd")
    slot = producer.send(request_of(batch(b"a"), 1, timeout_ms=1100))
    host.loop.pass_ms(1100)
    assert answered(slot).error_code == Error.REQUEST_TIMED_OUT
    host.drain()
    assert host.partition().log_end_offset == 1


def test_acks_0_gets_no_reply_and_closes_on_an_error() -> None:
    host, producer = client(compression_type="zstd", cleanup_policy="compact")
    slot = producer.send(request_of(batch(b"a"), 0))
    host.drain()
    assert slot is not None
    assert slot.content == b""
    assert (host.partition().log_end_offset, producer.is_closed) == (1, False)
    producer.send(request_of(batch(b"a", key=None), 0))
    host.drain()
    assert producer.is_closed


@pytest.mark.parametrize("version", range(3, 14))
def test_every_version_waits_for_its_recompression(version: int) -> None:
    host, producer = client(compression_type="gzip")
    slot = producer.send(request_of(batch(b"a"), -1), version)
    host.drain()
    assert (answered(slot, version).error_code, answered(slot, version).base_offset) == (Error.NONE, 0)
