"""A disk that fills up and gets room again, and one whose fsync fails, under a whole node (hazards 8 and 15)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from headrace.broker.node import Node
from headrace.config import NodeConfig
from headrace.errors import Error, HeadraceError
from headrace.net.peer import Peer
from headrace.protocol import messages as m
from headrace.protocol.batch_builder import build
from headrace.testing.disk import Faults, FaultyDisk
from tests.broker.nodes import ask, connected, create, memory_ports, run, running
from tests.broker.test_metrics import values
from tests.compat.requests import fetch_partition, fetch_request, fetched, produce_request, produced

NOW_MS = 1_700_000_000_000


def records(value: bytes) -> bytes:
    return bytes(build([(None, value, (), NOW_MS)]))


def test_hazard_15_a_full_disk_refuses_and_serves_reads_and_recovers_without_a_restart() -> None:
    async def check() -> None:
        disk = FaultyDisk()
        async with running(disk) as node, connected(node) as peer:
            topic_id = await create(peer, "orders")

            async def put(value: bytes, acks: int) -> m.ProduceResponse.PartitionProduceResponse:
                request = produce_request("orders", topic_id, records(value), acks=acks)
                answer: m.ProduceResponse.PartitionProduceResponse = produced(await ask(peer, request, 9))
                return answer

            assert (await put(b"first", -1)).error_code == Error.NONE
            disk.faults.capacity_bytes = 0
            for acks in (1, -1, 1, -1):
                assert (await put(bytes(5000), acks)).error_code == Error.KAFKA_STORAGE_ERROR
                read = fetched(await ask(peer, fetch_request("orders", topic_id, [fetch_partition(0)]), 12))
                assert (read.error_code, read.high_watermark) == (Error.NONE, 1)
                assert b"first" in bytes(read.records)
            disk.faults.capacity_bytes = None
            for offset, acks in ((1, -1), (2, 1)):
                answer = await put(b"again", acks)
                assert (answer.error_code, answer.base_offset) == (Error.NONE, offset)
            assert not node.failed.done()

    run(check())


async def delete(peer: Peer, name: str) -> Error:
    wanted = m.DeleteTopicsRequest(topics=[m.DeleteTopicsRequest.DeleteTopicState(name=name)], timeout_ms=10_000)
    return Error.of((await ask(peer, wanted, 6)).responses[0].error_code)


def test_hazard_15_a_disk_that_is_full_to_the_last_byte_has_a_way_out() -> None:
    """What was kept back takes the records of metadata: topics are changed and deleted, and a start is served."""

    async def check() -> None:
        disk = FaultyDisk()
        async with running(disk) as node, connected(node) as peer:
            topic_ids = {name: await create(peer, name) for name in ("orders", "payments", "old")}

            async def put(name: str, size_bytes: int) -> Error:
                request = produce_request(name, topic_ids[name], records(bytes(size_bytes)))
                return Error.of(produced(await ask(peer, request, 9)).error_code)

            for name in topic_ids:
                assert await put(name, 10_000) is Error.NONE
            disk.faults.capacity_bytes = disk.platter.used_bytes()
            assert await put("orders", 20_000) is Error.KAFKA_STORAGE_ERROR
            disk.faults.copies_on_write = True  # so that there is no room in what files are padded with, either
            disk.faults.capacity_bytes = disk.platter.used_bytes()
            assert await delete(peer, "old") is Error.NONE
            # There was no room for that, so no record takes what was made by it before enough is free.
            assert disk.is_tight
            while disk.free() < 10_000:
                await asyncio.sleep(0.01)
            assert await put("orders", 1) is Error.NONE
            disk.faults.capacity_bytes = disk.platter.used_bytes()
        disk = disk.restart(faults=Faults(capacity_bytes=disk.platter.used_bytes()))
        async with running(disk) as node, connected(node) as peer:
            assert await put("orders", 1) is Error.KAFKA_STORAGE_ERROR
            read = fetched(await ask(peer, fetch_request("orders", topic_ids["orders"], [fetch_partition(0)]), 12))
            assert (read.error_code, read.high_watermark) == (Error.NONE, 2)
            assert await delete(peer, "payments") is Error.NONE
            while await put("orders", 1) is Error.KAFKA_STORAGE_ERROR:
                await asyncio.sleep(0.01)
            assert not node.failed.done()

    run(check())


def test_hazard_8_a_failed_fsync_of_the_metadata_stops_the_node_with_a_sentence() -> None:
    async def check() -> None:
        disk = FaultyDisk()
        async with running(disk) as node, connected(node) as peer:
            await create(peer, "orders")
            disk.faults.fail_sync_at = disk.syncs + 1
            asked = m.CreateTopicsRequest(
                topics=[m.CreateTopicsRequest.CreatableTopic(name="more", num_partitions=1, replication_factor=1)],
                timeout_ms=10_000,
            )
            asking = asyncio.ensure_future(ask(peer, asked, 7))
            failure = await asyncio.wait_for(node.failed, 30)
            asking.cancel()
            assert isinstance(failure, HeadraceError)
            assert "\n" not in str(failure)

    run(check())


@asynccontextmanager
async def running_on(metadata: FaultyDisk, logs: FaultyDisk) -> AsyncIterator[Node]:
    ports = memory_ports(metadata)
    ports.disk_of = {"metadata": metadata, "logs": logs}.__getitem__
    texts = {
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "http.listen": "127.0.0.1:0",
        "log.dirs": "metadata,logs",
        "metadata.log.dir": "metadata",
    }
    node = Node(NodeConfig.parse(texts), ports)
    try:
        await node.start()
        yield node
    finally:
        await node.stop()


def test_hazard_15_a_start_on_a_full_disk_after_a_failed_sync_ends_with_all_logs_without_a_restart() -> None:
    async def check() -> None:
        metadata, logs = FaultyDisk(root="/metadata"), FaultyDisk(root="/logs")
        async with running_on(metadata, logs) as node, connected(node) as peer:
            topic_id = await create(peer, "orders", 2)

            async def put(value: bytes, partition: int) -> Error:
                request = produce_request("orders", topic_id, records(value), partition=partition)
                return Error.of(produced(await ask(peer, request, 9)).error_code)

            for partition in (0, 1):
                assert await put(b"first", partition) is Error.NONE
            there = next(partition for partition in (0, 1) if f"orders-{partition}" in logs.names())
            logs.faults.fail_sync_at = logs.syncs + 1
            assert await put(b"lost", there) is Error.KAFKA_STORAGE_ERROR
        metadata, logs = metadata.restart(), logs.restart(faults=Faults(capacity_bytes=0))
        async with running_on(metadata, logs) as node, connected(node) as peer:
            assert await put(b"second", 1 - there) is Error.NONE
            assert await put(b"second", there) is Error.KAFKA_STORAGE_ERROR
            assert (await values(node))["headrace_offline_partitions",] == 1
            logs.faults.capacity_bytes = None
            while await put(b"second", there) is Error.KAFKA_STORAGE_ERROR:
                await asyncio.sleep(0.1)
            read = fetched(await ask(peer, fetch_request("orders", topic_id, [fetch_partition(0, there)]), 12))
            content = bytes(read.records)
            assert (read.error_code, read.high_watermark) == (Error.NONE, 2)
            assert (b"first" in content, b"lost" in content, b"second" in content) == (True, False, True)
            assert (await values(node))["headrace_offline_partitions",] == 0

    run(check())
