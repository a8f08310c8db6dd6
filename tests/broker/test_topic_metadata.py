"""Metadata, and the topics that it creates, and those that clients create and delete."""

from __future__ import annotations

import asyncio
import struct

import pytest

from headrace.errors import Error
from headrace.protocol import messages as m
from headrace.protocol.apis import find_api
from headrace.protocol.frame import read_response
from headrace.testing.disk import FaultyDisk
from tests.broker.nodes import ask, connected, create, run, running

Asked = m.MetadataRequest.MetadataRequestTopic


def asking(*names: str, creating: bool = False, **more: bool) -> m.MetadataRequest:
    return m.MetadataRequest(topics=[Asked(name=name) for name in names], allow_auto_topic_creation=creating, **more)


@pytest.mark.parametrize("version", range(14))
def test_every_version_tells_topics_and_leaders(version: int) -> None:
    async def check() -> None:
        async with running() as node, connected(node) as peer:
            topic_id = await create(peer, "orders", 3)
            everything = m.MetadataRequest(topics=[] if version == 0 else None)
            for request in (asking("orders", creating=version < 4), everything):
                response = await ask(peer, request, version)
                (topic,) = response.topics
                assert (topic.name, topic.error_code) == ("orders", 0)
                assert [partition.partition_index for partition in topic.partitions] == [0, 1, 2]
                for partition in topic.partitions:
                    assert (partition.leader_id, partition.replica_nodes, partition.isr_nodes) == (1, [1], [1])
                    assert not partition.error_code
                if version >= 10:
                    assert topic.topic_id == topic_id
                if version >= 2:
                    assert response.cluster_id == node.cluster_id

    run(check())


def test_no_topics_are_not_all_topics() -> None:
    async def check() -> None:
        async with running() as node, connected(node) as peer:
            await create(peer, "orders")
            assert (await ask(peer, m.MetadataRequest(topics=[]), 1)).topics == []

    run(check())


def test_a_topic_is_asked_for_by_id() -> None:
    async def check() -> None:
        async with running() as node, connected(node) as peer:
            topic_id = await create(peer, "orders")
            request = m.MetadataRequest(
                topics=[Asked(topic_id=topic_id, name=None), Asked(topic_id=b"x" * 16, name=None)]
            )
            unknown, known = (await ask(peer, request, 13)).topics[::-1]
            assert (known.name, known.error_code) == ("orders", 0)
            assert (unknown.name, unknown.error_code, unknown.topic_id) == (None, Error.UNKNOWN_TOPIC_ID, b"x" * 16)

    run(check())


def test_what_is_asked_for_is_created_and_there_at_once() -> None:
    async def check() -> None:
        async with running(num_partitions="2") as node, connected(node) as peer:
            response = await ask(peer, asking("new", "no/name", creating=True), 12)
            found = {topic.name: topic for topic in response.topics}
            assert not found["new"].error_code
            assert [partition.leader_id for partition in found["new"].partitions] == [1, 1]
            assert found["no/name"].error_code == Error.INVALID_TOPIC_EXCEPTION
            response = await ask(peer, asking("other"), 12)
            assert response.topics[0].error_code == Error.UNKNOWN_TOPIC_OR_PARTITION

    run(check())


def test_nothing_is_created_where_that_is_not_wanted() -> None:
    async def check() -> None:
        async with running(auto_create_topics_enable="false") as node, connected(node) as peer:
            response = await ask(peer, asking("new", creating=True), 12)
            assert response.topics[0].error_code == Error.UNKNOWN_TOPIC_OR_PARTITION

    run(check())


def test_operations_are_told_when_asked() -> None:
    async def check() -> None:
        async with running() as node, connected(node) as peer:
            await create(peer, "orders")
            request = asking("orders", include_topic_authorized_operations=True)
            assert (await ask(peer, request, 12)).topics[0].topic_authorized_operations == 0b110111111000
            assert (await ask(peer, asking("orders"), 12)).topics[0].topic_authorized_operations == -(2**31)
            request = asking("no-such", include_topic_authorized_operations=True)
            missing = (await ask(peer, request, 12)).topics[0]
            assert missing.error_code == Error.UNKNOWN_TOPIC_OR_PARTITION
            assert missing.topic_authorized_operations == 0b110111111000

    run(check())


def test_hazard_9_a_topic_made_again_is_another_one() -> None:
    async def check() -> None:
        async with running() as node, connected(node) as peer:
            first = await create(peer, "orders", 4)
            states = [m.DeleteTopicsRequest.DeleteTopicState(name="orders")]
            response = await ask(peer, m.DeleteTopicsRequest(topics=states, timeout_ms=1000), 6)
            assert (response.responses[0].error_code, response.responses[0].topic_id) == (0, first)
            missing = (await ask(peer, asking("orders"), 12)).topics[0]
            assert missing.error_code == Error.UNKNOWN_TOPIC_OR_PARTITION
            second = await create(peer, "orders", 1)
            assert second != first
            topic = (await ask(peer, asking("orders"), 12)).topics[0]
            assert (topic.topic_id, len(topic.partitions)) == (second, 1)

    run(check())


def test_deletion_can_be_forbidden() -> None:
    async def check() -> None:
        async with running(delete_topic_enable="false") as node, connected(node) as peer:
            await create(peer, "orders")
            response = await ask(peer, m.DeleteTopicsRequest(topic_names=["orders"], timeout_ms=1000), 5)
            assert response.responses[0].error_code == Error.TOPIC_DELETION_DISABLED

    run(check())


def test_every_restart_bumps_the_leader_epoch() -> None:
    async def check() -> None:
        disk = FaultyDisk()
        epochs: list[int] = []
        for _ in range(3):
            async with running(disk) as node, connected(node) as peer:
                if not epochs:
                    await create(peer, "orders")
                (partition,) = (await ask(peer, asking("orders"), 12)).topics[0].partitions
                assert partition.leader_id == 1
                epochs.append(partition.leader_epoch)
            disk = disk.restart()
        assert epochs == sorted(set(epochs))

    run(check())


def test_a_topic_and_a_client_named_in_latin_1_are_answered() -> None:
    body = struct.pack(">ih", 1, 4) + b"caf\xe9" + b"\0"
    request = struct.pack(">hhih", 3, 4, 7, 4) + b"n\xe9e!" + body

    async def check() -> None:
        async with running() as node:
            reader, writer = await asyncio.open_connection("127.0.0.1", node.endpoints[0].port)
            writer.write(struct.pack(">i", len(request)) + request)
            frame = await reader.readexactly(int.from_bytes(await reader.readexactly(4)))
            writer.close()
        api = find_api(3)
        assert api is not None
        _, response = read_response(api, 4, frame)
        (topic,) = response.topics
        assert (topic.name, topic.error_code) == ("caf\N{REPLACEMENT CHARACTER}", Error.INVALID_TOPIC_EXCEPTION)

    run(check())
