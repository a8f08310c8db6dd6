"""What a whole node does to its logs while it serves them, on a real disk: it deletes and compacts; readers go on."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from headrace.broker.local import local_ports
from headrace.broker.node import Node
from headrace.config import NodeConfig
from headrace.net.peer import Peer
from headrace.protocol import messages as m
from headrace.protocol.batch import scan
from headrace.protocol.batch_builder import build
from headrace.protocol.kernel_types import Record
from headrace.protocol.records import records_of
from headrace.storage.cleaning_work import CleaningProcess
from headrace.storage.inventory import take_inventory
from headrace.storage.local_disk import LocalDisk
from headrace.storage.verify import verify
from tests.broker.nodes import ask, connected, create, run

DEADLINE_SECONDS = 40
SEGMENT_BYTES = 1 << 20
FILLER = b"." * 60_000
"""In each record, as segments are not smaller than a megabyte."""
BRISK = {
    "log.retention.check.interval.ms": "50",
    "log.cleaner.backoff.ms": "50",
    "replica.high.watermark.checkpoint.interval.ms": "50",
}


@asynccontextmanager
async def node_in(folder: Path) -> AsyncIterator[tuple[Node, Peer]]:
    texts = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(folder)} | BRISK
    node = Node(NodeConfig.parse(texts), local_ports(asyncio.get_running_loop()))
    try:
        await node.start()
        async with connected(node) as peer:
            yield node, peer
    finally:
        await node.stop()


async def produce(peer: Peer, topic: str, key: bytes, value: bytes) -> None:
    records = memoryview(build([(key, value, (), time.time_ns() // 1_000_000)]))
    data = m.ProduceRequest.TopicProduceData
    part = m.ProduceRequest.PartitionProduceData(index=0, records=records)
    request = m.ProduceRequest(acks=1, timeout_ms=10_000, topic_data=[data(name=topic, partition_data=[part])])
    reply = await ask(peer, request, 12)
    assert not reply.responses[0].partition_responses[0].error_code


async def fetch(peer: Peer, topic: str, offset: int, bytes_max: int = 1 << 20) -> m.FetchResponse.PartitionData:
    part = m.FetchRequest.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=bytes_max)
    request = m.FetchRequest(max_bytes=1 << 20, topics=[m.FetchRequest.FetchTopic(topic=topic, partitions=[part])])
    reply: m.FetchResponse = await ask(peer, request, 12)
    return reply.responses[0].partitions[0]


async def start_of(peer: Peer, topic: str) -> int:
    part = m.ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=-2)
    asked = m.ListOffsetsRequest.ListOffsetsTopic(name=topic, partitions=[part])
    reply: m.ListOffsetsResponse = await ask(peer, m.ListOffsetsRequest(topics=[asked]), 6)
    return reply.topics[0].partitions[0].offset


async def read_all(peer: Peer, topic: str, bytes_max: int = 1 << 20) -> list[Record]:
    """As a consumer does that begins where the log does."""
    found: list[Record] = []
    offset = await start_of(peer, topic)
    while True:
        data = await fetch(peer, topic, offset, bytes_max)
        assert not data.error_code
        batches = list(scan(memoryview(bytes(data.records or b"")), partial=True))
        if not batches:
            assert offset == data.high_watermark
            return found
        for batch in batches:
            batch.verify()
            found += [record for record in records_of(batch, 1 << 20).decode() if record.offset >= offset]
        offset = batches[-1].next_offset


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(DEADLINE_SECONDS):
        while not holds():
            await asyncio.sleep(0.02)


def files(folder: Path, end: str) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.name.endswith(end))


def size_of(folder: Path) -> int:
    found = 0
    for path in folder.iterdir():
        with suppress(FileNotFoundError):  # a worker removes what was deleted
            found += path.stat().st_size
    return found


def test_retention_gives_the_disk_back_and_readers_go_on(tmp_path: Path) -> None:
    async def check() -> None:
        async with node_in(tmp_path) as (_, peer):
            settings: dict[str, Any] = {
                "segment_bytes": str(SEGMENT_BYTES),
                "retention_bytes": "2000000",
                "file_delete_delay_ms": "100",
            }
            await create(peer, "t", **settings)
            folder = tmp_path / "t-0"
            for number in range(100):
                await produce(peer, "t", b"k", b"%03d" % number + FILLER)
            await until(lambda: size_of(folder) < 4 * SEGMENT_BYTES and not files(folder, ".deleted"))
            assert len(files(folder, ".log")) <= 4
            found = await read_all(peer, "t", 100_000)
            assert [int((record.value or b"")[:3]) for record in found] == [record.offset for record in found]
            assert found[-1].offset == 99
            assert found[0].offset > 50
            late = await fetch(peer, "t", 0)
            assert late.error_code == 1, "what is gone is out of range"

    run(check())


def test_a_deleted_topic_gives_the_disk_back(tmp_path: Path) -> None:
    async def check() -> None:
        async with node_in(tmp_path) as (_, peer):
            await create(peer, "t", 3, file_delete_delay_ms="100")
            await produce(peer, "t", b"k", b"v" * 1000)
            await ask(peer, m.DeleteTopicsRequest(topic_names=["t"], timeout_ms=10_000), 5)
            await until(lambda: not [path for path in tmp_path.iterdir() if path.name.startswith("t-")])

    run(check())


def test_a_node_compacts_in_a_process_of_its_own_and_lets_it_go(tmp_path: Path) -> None:
    async def check() -> None:
        made: list[CleaningProcess] = []
        take = CleaningProcess.__init__

        def noted(process: CleaningProcess) -> None:
            take(process)
            made.append(process)

        CleaningProcess.__init__ = noted  # type: ignore[assignment, method-assign]
        try:
            async with node_in(tmp_path) as (node, peer):
                await asyncio.sleep(0.2)
                assert not made, "there is nothing to compact"
                settings: dict[str, Any] = {
                    "segment_bytes": str(SEGMENT_BYTES),
                    "file_delete_delay_ms": "100",
                    "min_cleanable_dirty_ratio": "0.1",
                }
                await create(peer, "t", cleanup_policy="compact", **settings)
                folder = tmp_path / "t-0"
                expected: dict[bytes | None, bytes | None] = {}
                for number in range(150):
                    key, value = b"key-%d" % (number % 7), b"%03d" % number + FILLER
                    await produce(peer, "t", key, value)
                    expected[key] = value
                    if number % 50 == 10:  # a reader in the middle of what is being replaced
                        found = {record.key: record.value for record in await read_all(peer, "t", 100_000)}
                        assert found == expected
                await until(lambda: size_of(folder) < 60 * len(FILLER) and not files(folder, ".deleted"))
                records = await read_all(peer, "t", 100_000)
                assert {record.key: record.value for record in records} == expected
                assert len(records) < 60
                assert records[-1].offset == 149
                await until(lambda: all(process._process.poll() is not None for process in made))
                assert made
                assert node._replicas is not None
                assert node._replicas.cleaner is not None
                assert not node._replicas.cleaner.set_aside
            async with node_in(tmp_path) as (_, peer):
                again = await read_all(peer, "t")
                assert {record.key: record.value for record in again} == expected
        finally:
            CleaningProcess.__init__ = take  # type: ignore[method-assign]

    run(check())


def test_the_folder_of_a_node_that_stopped_is_sound_to_log_verify(tmp_path: Path) -> None:
    async def check() -> None:
        async with node_in(tmp_path) as (_, peer):
            await create(peer, "t", 3)
            await create(peer, "u")
            await produce(peer, "t", b"k", b"v")
            await until(lambda: all((tmp_path / name).is_dir() for name in ("t-0", "t-1", "t-2", "u-0")))

    run(check())
    reports = list(verify(take_inventory(LocalDisk(str(tmp_path)))))
    assert len(reports) == 6
    assert not [problem for report in reports for problem in report.problems]
