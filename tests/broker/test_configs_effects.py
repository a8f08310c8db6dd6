"""What settings do on a running node: each is changed by a client, and its effect is seen by one, or on the disk."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from headrace.errors import Error
from headrace.net.peer import Disconnected, Peer
from headrace.protocol import messages as m
from headrace.protocol.batch import COMPRESSION_MASK, Batch, scan
from headrace.protocol.batch_builder import build
from headrace.protocol.compression import Compression
from headrace.testing.disk import FaultyDisk
from tests.broker.config_requests import BROKER, DELETE, SET, TOPIC
from tests.broker.nodes import connected, create, run, running
from tests.broker.test_configs import change
from tests.broker.test_upkeep import fetch, files, node_in, read_all, start_of, until

HOUR_MS = 3_600_000


def now_ms() -> int:
    return time.time_ns() // 1_000_000


async def set_on(peer: Peer, topic: str, **settings: str) -> None:
    changes = [(name.replace("_", "."), SET, text) for name, text in settings.items()]
    assert await change(peer, TOPIC, topic, *changes) is Error.NONE


async def send(
    peer: Peer, *values: bytes, acks: int = 1, at_ms: int | None = None, topic: str = "t", **header: Any
) -> m.ProduceResponse.PartitionProduceResponse:
    """One batch; returns the answer, an error included."""
    at_ms = now_ms() if at_ms is None else at_ms
    records = memoryview(build([(b"k", value, (), at_ms) for value in values], **header))
    part = m.ProduceRequest.PartitionProduceData(index=0, records=records)
    data = m.ProduceRequest.TopicProduceData(name=topic, partition_data=[part])
    reply = await peer.call(m.ProduceRequest(acks=acks, timeout_ms=10_000, topic_data=[data]), 12, 30)
    answer: m.ProduceResponse.PartitionProduceResponse = reply.responses[0].partition_responses[0]
    return answer


async def batches(peer: Peer, offset: int = 0) -> list[Batch]:
    data = await fetch(peer, "t", offset)
    return list(scan(memoryview(bytes(data.records or b"")), partial=True))


def test_message_timestamp_type_says_whose_clock_counts(tmp_path: Path) -> None:
    async def check() -> None:
        async with node_in(tmp_path) as (_, peer):
            await create(peer, "t", retention_ms="-1")
            assert (await send(peer, b"a", at_ms=5000)).log_append_time_ms == -1
            await set_on(peer, "t", message_timestamp_type="LogAppendTime")
            before = now_ms()
            told = (await send(peer, b"b", at_ms=5000)).log_append_time_ms
            created, appended = await batches(peer)
            assert (created.max_timestamp, appended.max_timestamp) == (5000, told)
            assert before <= told <= now_ms()
            assert [record.timestamp for record in await read_all(peer, "t")] == [5000, told]

    run(check())


def test_timestamps_too_far_behind_or_ahead_are_refused(tmp_path: Path) -> None:
    async def check() -> None:
        async with node_in(tmp_path) as (_, peer):
            await create(peer, "t")
            assert not (await send(peer, b"a", at_ms=5000)).error_code
            ahead = await send(peer, b"a", at_ms=now_ms() + 2 * HOUR_MS)
            assert ahead.error_code == Error.INVALID_TIMESTAMP
            limits = {
                "message_timestamp_before_max_ms": str(HOUR_MS),
                "message_timestamp_after_max_ms": str(3 * HOUR_MS),
            }
            await set_on(peer, "t", **limits)
            for codec in (Compression.NONE, Compression.LZ4):
                behind = await send(peer, b"a", at_ms=now_ms() - 2 * HOUR_MS, compression=codec)
                assert behind.error_code == Error.INVALID_TIMESTAMP
            assert not (await send(peer, b"a", at_ms=now_ms() + 2 * HOUR_MS)).error_code

    run(check())


def test_max_message_bytes_is_the_topics_or_the_brokers(tmp_path: Path) -> None:
    async def check() -> None:
        async with node_in(tmp_path) as (_, peer):
            await create(peer, "t")
            value = b"x" * 5000
            assert not (await send(peer, value)).error_code
            assert await change(peer, BROKER, "", ("message.max.bytes", SET, "1000")) is Error.NONE
            assert (await send(peer, value)).error_code == Error.MESSAGE_TOO_LARGE
            await set_on(peer, "t", max_message_bytes="6000")
            assert not (await send(peer, value)).error_code
            assert await change(peer, TOPIC, "t", ("max.message.bytes", DELETE, None)) is Error.NONE
            assert (await send(peer, value)).error_code == Error.MESSAGE_TOO_LARGE

    run(check())


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_compression_type_is_how_batches_are_stored(tmp_path: Path, codec: str) -> None:
    async def check() -> None:
        async with node_in(tmp_path) as (_, peer):
            await create(peer, "t")
            value = b"".join(b"%d," % (number * number) for number in range(10_000))
            await send(peer, value)
            await set_on(peer, "t", compression_type=codec)
            await send(peer, value)
            await send(peer, value, compression=Compression.LZ4 if codec != "lz4" else Compression.GZIP)
            await set_on(peer, "t", compression_type="producer")
            await send(peer, value, compression=Compression.SNAPPY)
            found = await batches(peer)
            wanted = Compression[codec.upper()]
            codecs = [Compression.NONE, wanted, wanted, Compression.SNAPPY]
            assert [batch.attributes & COMPRESSION_MASK for batch in found] == codecs
            assert [record.value for record in await read_all(peer, "t")] == [value] * 4
            levels = {"gzip": ("1", "9"), "lz4": ("1", "12"), "zstd": ("1", "19")}.get(codec)
            if levels is not None:
                sizes = []
                for level in levels:
                    await set_on(peer, "t", compression_type=codec, **{f"compression_{codec}_level": level})
                    offset = (await send(peer, value)).base_offset
                    sizes.append((await batches(peer, offset))[0].size_bytes)
                assert sizes[0] != sizes[1]

    run(check())


def test_retention_ms_and_bytes_delete_closed_segments(tmp_path: Path) -> None:
    async def check() -> None:
        async with node_in(tmp_path) as (_, peer):
            for topic in ("by-age", "by-size", "kept"):
                await create(peer, topic, segment_ms="1", file_delete_delay_ms="1")
                for number in range(3):
                    await send(peer, b"v" * 1000, topic=topic, at_ms=now_ms() - HOUR_MS + number * 1000)
            await until(
                lambda: all(len(files(tmp_path / f"{t}-0", ".log")) == 3 for t in ("by-age", "by-size", "kept"))
            )
            await set_on(peer, "by-age", retention_ms="1")
            await set_on(peer, "by-size", retention_bytes="500")
            await until(lambda: not files(tmp_path / "by-age-0", ".deleted"))

            async def starts() -> list[int]:
                return [await start_of(peer, topic) for topic in ("by-age", "by-size", "kept")]

            while True:
                by_age, by_size, kept = await starts()
                assert kept == 0
                if by_age == 3 and by_size >= 1:
                    break
            await until(lambda: len(files(tmp_path / "by-age-0", ".log")) == 1)
            assert len(files(tmp_path / "kept-0", ".log")) == 3

    run(check())


def test_segments_close_by_size_and_by_time_and_indexes_are_as_dense_as_asked(tmp_path: Path) -> None:
    async def check() -> None:
        async with node_in(tmp_path) as (_, peer):
            await create(peer, "t")
            folder = tmp_path / "t-0"
            for _ in range(3):
                await send(peer, b"v" * 500_000)
            assert len(files(folder, ".log")) == 1
            await set_on(peer, "t", segment_bytes=str(1 << 20))
            for _ in range(3):
                await send(peer, b"v" * 500_000)
            assert len(files(folder, ".log")) == 3
            await set_on(peer, "t", segment_bytes=str(1 << 30), index_interval_bytes="100")
            for _ in range(20):
                await send(peer, b"v" * 200)
            await set_on(peer, "t", segment_ms="1000")
            await send(peer, b"last", at_ms=now_ms() + 10_000)
            segments = files(folder, ".log")
            assert len(segments) == 4
            dense = folder / segments[2].replace(".log", ".index")
            sparse = folder / segments[0].replace(".log", ".index")
            assert dense.stat().st_size >= 20 * 8
            assert sparse.stat().st_size <= 3 * 8

    run(check())


def test_preallocate_takes_the_disk_when_a_segment_begins(tmp_path: Path) -> None:
    async def check() -> None:
        async with node_in(tmp_path) as (_, peer):
            await create(peer, "t", segment_bytes=str(1 << 20), segment_ms="1000")
            begin_ms = now_ms() - 10_000
            await send(peer, b"a", at_ms=begin_ms)
            await set_on(peer, "t", preallocate="true")
            await send(peer, b"b", at_ms=begin_ms + 2000)
            await send(peer, b"c", at_ms=begin_ms + 2000)
            assert len(files(tmp_path / "t-0", ".log")) == 2
            last = files(tmp_path / "t-0", ".log")[-1]
            assert (tmp_path / "t-0" / last).stat().st_size == 1 << 20
            assert [record.value for record in await read_all(peer, "t")] == [b"a", b"b", b"c"]
            await create(peer, "from-the-first", segment_bytes=str(1 << 20), preallocate="true")
            (first,) = files(tmp_path / "from-the-first-0", ".log")
            assert (tmp_path / "from-the-first-0" / first).stat().st_size == 1 << 20
        assert (tmp_path / "from-the-first-0" / first).stat().st_size == 0, "a clean stop gives back what is not used"
        async with node_in(tmp_path) as (_, peer):
            await send(peer, b"d", topic="from-the-first")
            assert [record.value for record in await read_all(peer, "from-the-first")] == [b"d"]

    run(check())


def test_flush_messages_and_flush_ms_bring_records_to_the_disk() -> None:
    async def check() -> None:
        disk = FaultyDisk()
        async with running(disk) as node, connected(node) as peer:
            await create(peer, "t")
            assert node._replicas is not None
            log = node._replicas.find("t", 0).log
            at_ms = 1_700_000_000_000
            await send(peer, b"a", at_ms=at_ms)
            assert log.flushed_offset == 0
            await set_on(peer, "t", flush_messages="1")
            await send(peer, b"b", at_ms=at_ms)
            assert log.flushed_offset == 2
            await set_on(peer, "t", flush_messages="3")
            await send(peer, b"c", b"d", at_ms=at_ms)
            await send(peer, b"e", b"f", at_ms=at_ms)
            await until(lambda: log.flushed_offset == 6)
            assert (
                await change(peer, TOPIC, "t", ("flush.messages", DELETE, None), ("flush.ms", SET, "20")) is Error.NONE
            )
            await send(peer, b"g", at_ms=at_ms)
            await until(lambda: log.flushed_offset == 7)

    run(check())


def test_limits_on_connections_count_on_all_listeners_for_those_who_come_later() -> None:
    async def check() -> None:
        two, protocols = "ONE://127.0.0.1:0,TWO://127.0.0.1:0", "ONE:PLAINTEXT,TWO:PLAINTEXT"
        async with (
            running(listeners=two, listener_security_protocol_map=protocols) as node,
            connected(node) as peer,
        ):

            async def is_let_in() -> bool:
                try:
                    async with connected(node, 1) as other:
                        await other.call(m.MetadataRequest(topics=[]), 12, 10)
                except Disconnected:
                    return False
                return True

            for name, limit in (
                ("max.connections", "1"),
                ("max.connections.per.ip", "1"),
                ("max.connections.per.ip.overrides", "127.0.0.1:1"),
            ):
                assert await is_let_in()
                assert await change(peer, BROKER, "", (name, SET, limit)) is Error.NONE
                assert not await is_let_in(), name
                assert await change(peer, BROKER, "", (name, DELETE, None)) is Error.NONE
            bad = ("max.connections.per.ip.overrides", SET, "here")
            assert await change(peer, BROKER, "", bad) is Error.INVALID_REQUEST

    run(check())


def test_queued_max_request_bytes_leaves_room_for_ordinary_requests_beside_large_ones() -> None:
    async def check() -> None:
        async with running(queued_max_request_bytes=str(8 << 20)) as node:
            listeners = node._listeners
            assert listeners is not None
            clients = [await asyncio.open_connection("127.0.0.1", node.endpoints[0].port) for _ in range(3)]
            for (_, writer), size_bytes in zip(clients, (3 << 20, 3 << 20, 1000), strict=True):
                writer.write(size_bytes.to_bytes(4) + b"the beginning")
            await until(lambda: listeners.budget.held_bytes == 1004)
            await until(lambda: listeners.large_budget.waiting == 1)
            assert listeners.request_bytes_held == 1004 + (3 << 20) + 4
            for _, writer in clients:
                writer.close()

    run(check())


def test_min_insync_replicas_refuses_what_too_few_would_have(tmp_path: Path) -> None:
    async def check() -> None:
        async with node_in(tmp_path) as (_, peer):
            await create(peer, "t")
            assert not (await send(peer, b"a", acks=-1)).error_code
            # As many as a partition has replicas is all that can be asked for: more is as many.
            await set_on(peer, "t", min_insync_replicas="2")
            assert not (await send(peer, b"a", acks=-1)).error_code

    run(check())


def test_a_topic_becomes_compacted_as_its_lags_allow_and_forgets_tombstones(tmp_path: Path) -> None:
    async def check() -> None:
        async with node_in(tmp_path) as (_, peer):
            brisk: dict[str, Any] = {"segment_ms": "1", "min_cleanable_dirty_ratio": "0", "file_delete_delay_ms": "1"}
            for topic in ("now", "later"):
                await create(peer, topic, **brisk)
                for number, value in enumerate((b"1", b"2", b"3")):
                    await put(peer, topic, b"key", value, number)
                await put(peer, topic, b"gone", b"x", 4)
            await put(peer, "now", b"gone", None, 5)
            await put(peer, "now", b"last", b"v", 6)
            await put(peer, "later", b"last", b"v", 6)
            await set_on(peer, "later", cleanup_policy="compact", min_compaction_lag_ms=str(HOUR_MS))
            await set_on(peer, "now", cleanup_policy="compact", delete_retention_ms="0")
            number = 7
            while True:
                found = {record.key: record.value for record in await read_all(peer, "now")}
                if b"gone" not in found:
                    break
                number += 1
                await put(peer, "now", b"last", b"v", number)  # so that what was cleaned is looked at again
                await asyncio.sleep(0.05)
            assert found == {b"key": b"3", b"last": b"v"}
            assert len(await read_all(peer, "later")) == 5
            await set_on(peer, "later", min_compaction_lag_ms="0")
            while len(await read_all(peer, "later")) > 3:
                await asyncio.sleep(0.02)

    async def put(peer: Peer, topic: str, key: bytes, value: bytes | None, second: int) -> None:
        """Of a second some minutes ago, so that each is in a segment of its own."""
        records = memoryview(build([(key, value, (), now_ms() - HOUR_MS // 2 + second * 1000)]))
        part = m.ProduceRequest.PartitionProduceData(index=0, records=records)
        data = m.ProduceRequest.TopicProduceData(name=topic, partition_data=[part])
        await peer.call(m.ProduceRequest(acks=1, timeout_ms=10_000, topic_data=[data]), 12, 30)

    run(check())
