"""Several log directories: what is in them, and a partition that moves from one to another while it is written to."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from headrace.broker.node import Node
from headrace.config import NodeConfig
from headrace.errors import Error
from headrace.net.peer import Peer
from headrace.protocol import messages as m
from headrace.protocol.batch import scan
from headrace.protocol.batch_builder import build
from headrace.protocol.records import records_of
from headrace.storage.disk import SyncFailed
from headrace.testing.disk import Crash, FaultyDisk
from tests.broker.nodes import ask, connected, create, memory_ports, run

ROOTS = ("/one", "/two")
Disks = dict[str, FaultyDisk]


def new_disks() -> Disks:
    return {root: FaultyDisk(root=root) for root in ROOTS}


@asynccontextmanager
async def running(disks: Disks, **settings: str) -> AsyncIterator[Node]:
    """A node with two log directories."""
    texts = {key.replace("_", "."): text for key, text in settings.items()}
    config = NodeConfig.parse({"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": ",".join(ROOTS)} | texts)
    node = Node(config, replace(memory_ports(disks[ROOTS[0]]), disk_of=disks.__getitem__))
    try:
        await node.start()
        yield node
    finally:
        await node.stop()


async def produce(peer: Peer, number: int, size_bytes: int = 2000) -> int:
    kind = m.ProduceRequest
    value = b"%d " % number + b"x" * size_bytes
    producer: dict[str, Any] = {"producer_id": 9, "producer_epoch": 0, "base_sequence": number}
    data = kind.PartitionProduceData(records=memoryview(build([(b"k", value, (), 1_700_000_000_000)], **producer)))
    topic = kind.TopicProduceData(name="t", partition_data=[data])
    response = await ask(peer, kind(acks=-1, timeout_ms=5000, topic_data=[topic]), 12)
    answer = response.responses[0].partition_responses[0]
    assert answer.error_code == Error.NONE, answer
    offset: int = answer.base_offset
    return offset


async def describe(peer: Peer, **more: Any) -> dict[str, dict[tuple[str, int], tuple[int, int, bool]]]:
    response = await ask(peer, m.DescribeLogDirsRequest(topics=None, **more), 4)
    return {
        found.log_dir: {
            (topic.name, part.partition_index): (part.partition_size, part.offset_lag, part.is_future_key)
            for topic in found.topics
            for part in topic.partitions
        }
        for found in response.results
    }


async def move(peer: Peer, path: str, topic: str = "t", index: int = 0) -> Error:
    kind = m.AlterReplicaLogDirsRequest
    wanted = kind.AlterReplicaLogDirTopic(name=topic, partitions=[index])
    response = await ask(peer, kind(dirs=[kind.AlterReplicaLogDir(path=path, topics=[wanted])]), 2)
    return Error.of(response.results[0].partitions[0].error_code)


async def home_of(peer: Peer, topic: str = "t", index: int = 0) -> str:
    """The directory of a partition, when it moves no more."""
    while True:
        held = {root: found[topic, index] for root, found in (await describe(peer)).items() if (topic, index) in found}
        if len(held) == 1:
            return next(iter(held))
        await asyncio.sleep(0.01)


async def values(peer: Peer) -> list[int]:
    kind = m.FetchRequest
    found: list[int] = []
    while True:
        part = kind.FetchPartition(partition=0, fetch_offset=len(found), partition_max_bytes=1 << 20)
        topic = kind.FetchTopic(topic="t", partitions=[part])
        response = await ask(peer, kind(topics=[topic], max_bytes=1 << 20, max_wait_ms=0), 12)
        (answer,) = response.responses[0].partitions
        assert answer.error_code == Error.NONE
        if not answer.records:
            return found
        for batch in scan(answer.records, partial=True):
            batch.verify()
            found += [int(bytes(record.value or b"").split()[0]) for record in records_of(batch, 1 << 20).decode()]


def other(root: str) -> str:
    return ROOTS[1 - ROOTS.index(root)]


def test_directories_tell_what_is_in_them() -> None:
    async def check() -> None:
        async with running(new_disks()) as node, connected(node) as peer:
            await create(peer, "t", 4)
            await produce(peer, 0)
            found = await describe(peer)
            assert [len(partitions) for partitions in found.values()] == [2, 2]
            size, lag, is_future = found[await home_of(peer)]["t", 0]
            assert size > 2000
            assert (lag, is_future) == (0, False)
            response = await ask(peer, m.DescribeLogDirsRequest(topics=None), 4)
            assert all(one.total_bytes >= one.usable_bytes > 0 for one in response.results)
            none = await ask(peer, m.DescribeLogDirsRequest(topics=[]), 4)
            assert [(one.log_dir, one.topics) for one in none.results] == [(root, []) for root in ROOTS]

    run(check())


def test_a_partition_moves_while_it_is_written_to_and_nothing_is_lost_or_doubled() -> None:
    async def check() -> None:
        disks = new_disks()
        async with running(disks) as node, connected(node) as peer, connected(node) as writer:
            await create(peer, "t")
            for number in range(200):
                await produce(peer, number)
            source = await home_of(peer)
            numbers = iter(range(200, 5_000))  # it ends while they are written, and does not wait for a pause
            written: list[int] = []

            async def write() -> None:
                for number in numbers:
                    assert await produce(writer, number) == number
                    written.append(number)

            writing = asyncio.create_task(write())
            assert await move(peer, other(source)) is Error.NONE
            during = await describe(peer)
            assert during[other(source)]["t", 0][2]
            assert await home_of(peer) == other(source)
            moved_at = len(written)
            while len(written) < moved_at + 20:
                assert not writing.done()
                await asyncio.sleep(0.001)
            writing.cancel()
            await asyncio.wait([writing])
            # It may have been cancelled between an append and its reply.
            found = await values(peer)
            assert found in (list(range(200 + len(written))), list(range(201 + len(written))))
            # The controller knows where it is now.
            assert node._metadata is not None
            assert node._directories is not None
            directory = node._directories.directory_of("t", 0)
            assert directory is not None
            image = node._metadata.loader.image
            while image.topics[image.topic_ids["t"]].partitions[0].directories != (directory.id,):
                await asyncio.sleep(0.01)
                image = node._metadata.loader.image
            assert await move(peer, source) is Error.NONE
            assert await home_of(peer) == source
        async with running(disks) as node, connected(node) as peer:
            assert await home_of(peer) == source
            assert await values(peer) == found

    run(check())


@pytest.mark.parametrize("power_lost", [False, True])
def test_hazard_8_what_was_acknowledged_during_a_move_is_there_after_a_crash(power_lost: bool) -> None:
    disks, acknowledged = new_disks(), [0]
    crashed: Disks = {}

    async def before() -> None:
        async with running(disks) as node, connected(node) as peer:
            await create(peer, "t")
            source = await home_of(peer)
            for number in range(50):
                await produce(peer, number)
                acknowledged[0] = number
                if number == 20:
                    await move(peer, other(source))
            crashed.update({root: disk.restart(power_lost=power_lost) for root, disk in disks.items()})

    async def after() -> None:
        async with running(crashed) as node, connected(node) as peer:
            assert await values(peer) == list(range(acknowledged[0] + 1))
            assert len([1 for found in (await describe(peer)).values() if ("t", 0) in found]) == 1

    with pytest.raises(Crash):
        run(before())
    run(after())


def test_moves_that_can_not_be() -> None:
    async def check() -> None:
        async with running(new_disks()) as node, connected(node) as peer:
            await create(peer, "t")
            home = await home_of(peer)
            assert await move(peer, "/nowhere") is Error.LOG_DIR_NOT_FOUND
            assert await move(peer, other(home).lstrip("/")) is Error.LOG_DIR_NOT_FOUND
            assert await move(peer, other(home), index=9) is Error.UNKNOWN_TOPIC_OR_PARTITION
            assert await move(peer, other(home), "none") is Error.UNKNOWN_TOPIC_OR_PARTITION
            assert await move(peer, home) is Error.NONE  # it is there
            assert await home_of(peer) == home

    run(check())


def test_a_topic_that_is_deleted_while_it_moves_leaves_nothing() -> None:
    async def check() -> None:
        async with running(new_disks()) as node, connected(node) as peer:
            await create(peer, "t")
            for number in range(100):
                await produce(peer, number, 20_000)
            assert await move(peer, other(await home_of(peer))) is Error.NONE
            await ask(peer, m.DeleteTopicsRequest(topic_names=["t"], timeout_ms=5000), 5)
            while any((await describe(peer)).values()):
                await asyncio.sleep(0.01)
            await create(peer, "t")
            assert await values(peer) == []

    run(check())


def test_a_move_is_given_up_for_another_one() -> None:
    async def check() -> None:
        async with running(new_disks()) as node, connected(node) as peer:
            await create(peer, "t")
            for number in range(100):
                await produce(peer, number, 20_000)
            home = await home_of(peer)
            assert await move(peer, other(home)) is Error.NONE
            assert await move(peer, home) is Error.NONE
            assert await home_of(peer) == home
            assert await values(peer) == list(range(100))

    run(check())


def test_a_directory_that_fails_is_told_with_its_error_and_takes_only_its_own_partitions_along() -> None:
    async def check() -> None:
        disks = new_disks()
        async with running(disks) as node, connected(node) as peer:
            await create(peer, "t", 2)
            assert node._directories is not None
            assert node._metadata is not None
            second = node._directories.all[1]
            lost = next(iter(second.logs))[1]
            loader = node._metadata.loader
            topic = loader.image.topic_ids["t"]
            while loader.image.topics[topic].partitions[lost].directories != (second.id,):
                await asyncio.sleep(0.01)
            second.go_offline(SyncFailed("t-0", "a test"))
            response = await ask(peer, m.DescribeLogDirsRequest(topics=None), 4)
            assert [Error.of(one.error_code) for one in response.results] == [Error.NONE, Error.KAFKA_STORAGE_ERROR]
            assert await move(peer, ROOTS[1], index=1 - lost) is Error.KAFKA_STORAGE_ERROR
            while loader.image.topics[topic].partitions[lost].has_leader:
                await asyncio.sleep(0.01)
            assert loader.image.topics[topic].partitions[1 - lost].has_leader

    run(check())


def test_a_move_takes_no_more_than_it_may_and_that_changes_while_it_is_under_way() -> None:
    async def check() -> None:
        throttle = {"replica_alter_log_dirs_io_max_bytes_per_second": "0"}
        async with running(new_disks(), **throttle) as node, connected(node) as peer:
            await create(peer, "t")
            for number in range(20):
                await produce(peer, number)
            home = await home_of(peer)
            assert await move(peer, other(home)) is Error.NONE
            await asyncio.sleep(0.1)
            assert (await describe(peer))[other(home)]["t", 0] == (0, 20, True)
            kind = m.IncrementalAlterConfigsRequest
            change = kind.AlterableConfig(name="replica.alter.log.dirs.io.max.bytes.per.second", value="1000000000")
            brokers = kind.AlterConfigsResource(resource_type=4, resource_name="", configs=[change])
            response = await ask(peer, kind(resources=[brokers]), 1)
            assert response.responses[0].error_code == Error.NONE
            assert await home_of(peer) == other(home)
            assert await values(peer) == list(range(20))

    run(check())
