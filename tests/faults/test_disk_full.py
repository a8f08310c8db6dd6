"""A disk that fills up and gets room again, and one whose fsync fails, under a whole node (hazards 8 and 15)."""

from __future__ import annotations

import asyncio

from headrace.errors import Error, HeadraceError
from headrace.protocol import messages as m
from headrace.protocol.batch_builder import build
from headrace.testing.disk import FaultyDisk
from tests.broker.nodes import ask, connected, create, run, running
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
                assert (await put(bytes(1000), acks)).error_code == Error.KAFKA_STORAGE_ERROR
                read = fetched(await ask(peer, fetch_request("orders", topic_id, [fetch_partition(0)]), 12))
                assert (read.error_code, read.high_watermark) == (Error.NONE, 1)
                assert b"first" in bytes(read.records)
            disk.faults.capacity_bytes = None
            for offset, acks in ((1, -1), (2, 1)):
                answer = await put(b"again", acks)
                assert (answer.error_code, answer.base_offset) == (Error.NONE, offset)
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
