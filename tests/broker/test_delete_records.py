"""DeleteRecords: where a log starts afterwards, what can't be deleted, and that it stays deleted."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.errors import Error
from headrace.net.peer import Peer
from headrace.protocol import messages as m
from headrace.protocol.batch_builder import build
from headrace.storage.checkpoints import Checkpoints
from headrace.storage.disk import RESERVE_FILE
from headrace.testing.disk import Crash, FaultyDisk
from tests.broker.nodes import ask, connected, create, run, running


async def produce(peer: Peer, topic: str, count: int, version: int = 12) -> None:
    for number in range(count):
        kind = m.ProduceRequest
        data = kind.PartitionProduceData(records=memoryview(build([(b"k", b"%d" % number, (), 1_700_000_000_000)])))
        request = kind(acks=-1, timeout_ms=5000, topic_data=[kind.TopicProduceData(name=topic, partition_data=[data])])
        response = await ask(peer, request, version)
        assert response.responses[0].partition_responses[0].error_code == Error.NONE


async def delete(peer: Peer, topic: str, *wanted: tuple[int, int]) -> list[tuple[int, Error]]:
    kind = m.DeleteRecordsRequest
    parts = [kind.DeleteRecordsPartition(partition_index=index, offset=offset) for index, offset in wanted]
    request = kind(topics=[kind.DeleteRecordsTopic(name=topic, partitions=parts)], timeout_ms=10_000)
    response = await ask(peer, request, 2)
    (answer,) = response.topics
    return [(part.low_watermark, Error.of(part.error_code)) for part in answer.partitions]


async def start_of(peer: Peer, topic: str) -> int:
    kind = m.ListOffsetsRequest
    part = kind.ListOffsetsPartition(partition_index=0, timestamp=-2)
    response = await ask(peer, kind(topics=[kind.ListOffsetsTopic(name=topic, partitions=[part])], replica_id=-1), 7)
    offset: int = response.topics[0].partitions[0].offset
    return offset


def test_what_is_before_an_offset_is_gone_and_the_rest_is_there() -> None:
    async def check() -> None:
        async with running() as node, connected(node) as peer:
            await create(peer, "t")
            await produce(peer, "t", 10)
            assert await delete(peer, "t", (0, 4)) == [(4, Error.NONE)]
            assert await start_of(peer, "t") == 4
            assert await delete(peer, "t", (0, 2)) == [(4, Error.NONE)]  # nothing comes back
            assert await delete(peer, "t", (0, -1)) == [(10, Error.NONE)]  # all there is
            assert await start_of(peer, "t") == 10

    run(check())


def test_what_can_not_be_deleted() -> None:
    async def check() -> None:
        async with running() as node, connected(node) as peer:
            await create(peer, "t", 2)
            await create(peer, "compacted", cleanup_policy="compact")
            await create(peer, "both", cleanup_policy="compact,delete")
            await produce(peer, "t", 3)
            out_of_range = (-1, Error.OFFSET_OUT_OF_RANGE)
            assert await delete(peer, "t", (0, 4), (1, 1)) == [out_of_range, out_of_range]
            assert await delete(peer, "t", (0, -2)) == [out_of_range]
            assert await delete(peer, "t", (9, 0)) == [(-1, Error.UNKNOWN_TOPIC_OR_PARTITION)]
            assert await delete(peer, "none", (0, 0)) == [(-1, Error.UNKNOWN_TOPIC_OR_PARTITION)]
            assert await delete(peer, "compacted", (0, 0)) == [(-1, Error.POLICY_VIOLATION)]
            assert await delete(peer, "both", (0, 0)) == [(0, Error.NONE)]
            assert await start_of(peer, "t") == 0

    run(check())


@pytest.mark.parametrize("power_lost", [False, True])
def test_hazard_8_what_was_deleted_stays_so_after_a_crash(power_lost: bool) -> None:
    disk = FaultyDisk()

    async def before() -> None:
        async with running(disk) as node, connected(node) as peer:
            await create(peer, "t")
            await produce(peer, "t", 10)
            assert await delete(peer, "t", (0, 7)) == [(7, Error.NONE)]
            crashed.append(disk.restart(power_lost=power_lost))

    async def after() -> None:
        async with running(crashed[0]) as node, connected(node) as peer:
            assert await start_of(peer, "t") == 7

    crashed: list[Any] = []
    with pytest.raises(Crash):
        run(before())
    run(after())


@pytest.mark.parametrize("timeout_ms", [0, -1, 1])
def test_who_gives_it_no_time_is_told_when_it_is_durable_all_the_same(timeout_ms: int) -> None:
    """Kafka has nothing to wait for with one replica, and its clients ask with a time-out of 0."""

    async def check() -> None:
        async with running() as node, connected(node) as peer:
            await create(peer, "t")
            await produce(peer, "t", 3)
            kind = m.DeleteRecordsRequest
            topic = kind.DeleteRecordsTopic(name="t", partitions=[kind.DeleteRecordsPartition(offset=2)])
            response = await ask(peer, kind(topics=[topic], timeout_ms=timeout_ms), 2)
            (answer,) = response.topics[0].partitions
            assert (answer.error_code, answer.low_watermark) == (Error.NONE, 2)
            assert await start_of(peer, "t") == 2

    run(check())


def test_who_waited_for_long_enough_is_told_that_it_may_not_be_durable_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    async def check() -> None:
        async with running() as node, connected(node) as peer:
            await create(peer, "t")
            await produce(peer, "t", 3)
            monkeypatch.setattr(Checkpoints, "write", lambda checkpoints, done=None: None)
            kind = m.DeleteRecordsRequest
            topic = kind.DeleteRecordsTopic(name="t", partitions=[kind.DeleteRecordsPartition(offset=2)])
            response = await ask(peer, kind(topics=[topic], timeout_ms=0), 2)
            (answer,) = response.topics[0].partitions
            assert (answer.error_code, answer.low_watermark) == (Error.REQUEST_TIMED_OUT, 2)
            monkeypatch.undo()

    run(check())


def test_on_a_full_disk_records_make_room_for_the_word_that_they_are_gone() -> None:
    """They may be deleted because it is full; nothing is removed before its time where there is room."""

    async def check() -> None:
        disk = FaultyDisk()
        async with running(disk) as node, connected(node) as peer:
            await create(peer, "t", segment_bytes=str(1 << 20))
            await create(peer, "u")
            kind = m.ProduceRequest
            for _ in range(4):
                data = kind.PartitionProduceData(
                    records=memoryview(build([(None, bytes(600_000), (), 1_700_000_000_000)]))
                )
                named = kind.TopicProduceData(name="t", partition_data=[data])
                await ask(peer, kind(acks=-1, timeout_ms=5000, topic_data=[named]), 12)
            await produce(peer, "u", 2)
            disk.remove(RESERVE_FILE)
            used_bytes = disk.faults.capacity_bytes = disk.platter.used_bytes()
            assert await delete(peer, "u", (0, 1)) == [(1, Error.KAFKA_STORAGE_ERROR)], "which makes no room"
            assert await delete(peer, "t", (0, 2)) == [(2, Error.NONE)]
            assert disk.platter.used_bytes() < used_bytes - 1_000_000
            assert await start_of(peer, "t") == 2
            await produce(peer, "u", 1)
        async with running(disk.restart()) as node, connected(node) as peer:
            assert await start_of(peer, "t") == 2

    run(check())


def test_on_a_full_disk_a_topic_that_is_emptied_makes_room_at_once() -> None:
    """Also where all of it is in the segment that is being written."""

    async def check() -> None:
        disk = FaultyDisk()
        async with running(disk) as node, connected(node) as peer:
            await create(peer, "t")
            await produce(peer, "t", 200)
            used_bytes = disk.faults.capacity_bytes = disk.platter.used_bytes()
            assert await delete(peer, "t", (0, -1)) == [(200, Error.NONE)]
            assert disk.platter.used_bytes() < used_bytes - 10_000
            await produce(peer, "t", 1)
        async with running(disk.restart()) as node, connected(node) as peer:
            assert await start_of(peer, "t") == 200

    run(check())
