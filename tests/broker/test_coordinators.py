"""Finding coordinators, and the topics that their state is in."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from headrace.coordinator.hosted import HostedShard
from headrace.coordinator.state_topic import java_hash
from headrace.errors import Error
from headrace.protocol import messages as m
from headrace.protocol.batch_builder import build
from headrace.testing.disk import Crash, FaultyDisk
from tests.broker.nodes import ask, connected, run, running

GROUP, TRANSACTION, SHARE = 0, 1, 2


def test_a_group_finds_its_coordinator_and_the_state_topic_is_created_for_it() -> None:
    async def check() -> None:
        async with running() as node, connected(node) as peer:
            found = await ask(peer, m.FindCoordinatorRequest(key="g", key_type=GROUP), 3)
            assert (found.error_code, found.node_id, found.port) == (0, 1, node.endpoints[0].port)
            assert found.error_message == "NONE", "as Kafka says it"
            topics = [m.MetadataRequest.MetadataRequestTopic(name="__consumer_offsets")]
            (topic,) = (await ask(peer, m.MetadataRequest(topics=topics), 9)).topics
            assert topic.is_internal
            assert len(topic.partitions) == 50
            assert [len(partition.replica_nodes) for partition in topic.partitions] == [1] * 50

    run(check())


def test_many_coordinators_are_found_at_once() -> None:
    async def check() -> None:
        async with running(transaction_state_log_num_partitions="3") as node, connected(node) as peer:
            request = m.FindCoordinatorRequest(coordinator_keys=["a", "b", "a"], key_type=TRANSACTION)
            found = await ask(peer, request, 6)
            assert [(one.key, one.error_code, one.error_message, one.node_id) for one in found.coordinators] == [
                ("a", 0, "", 1),
                ("b", 0, "", 1),
                ("a", 0, "", 1),
            ]

    run(check())


def test_there_are_no_coordinators_of_share_groups() -> None:
    async def check() -> None:
        async with running() as node, connected(node) as peer:
            for kind in (SHARE, 9):
                found = await ask(peer, m.FindCoordinatorRequest(coordinator_keys=["a"], key_type=kind), 6)
                assert [one.error_code for one in found.coordinators] == [Error.INVALID_REQUEST]

    run(check())


def test_a_name_that_no_record_can_have_is_refused_and_many_long_ones_are_found() -> None:
    async def check() -> None:
        async with running(offsets_topic_num_partitions="2") as node, connected(node) as peer:
            keys = ["x" * 32_768, *(f"{number}" + "y" * 30_000 for number in range(10))]
            found = await ask(peer, m.FindCoordinatorRequest(coordinator_keys=keys, key_type=GROUP), 6)
            assert [one.error_code for one in found.coordinators] == [Error.INVALID_GROUP_ID] + [0] * 10
            found = await ask(peer, m.FindCoordinatorRequest(coordinator_keys=keys, key_type=GROUP), 6)
            assert [one.key for one in found.coordinators] == keys
            kind = m.OffsetFetchRequest
            request = kind(groups=[kind.OffsetFetchRequestGroup(group_id=keys[0], topics=None)])
            assert (await ask(peer, request, 9)).groups[0].error_code == Error.INVALID_GROUP_ID

    run(check())


def test_clients_do_not_write_to_state_topics() -> None:
    async def check() -> None:
        async with running() as node, connected(node) as peer:
            await ask(peer, m.FindCoordinatorRequest(key="g", key_type=GROUP), 3)
            data = m.ProduceRequest.PartitionProduceData(index=0, records=memoryview(build([(b"k", b"v", (), 1)])))
            topic = m.ProduceRequest.TopicProduceData(name="__consumer_offsets", partition_data=[data])
            (answer,) = (await ask(peer, m.ProduceRequest(acks=1, timeout_ms=1000, topic_data=[topic]), 9)).responses
            assert answer.partition_responses[0].error_code == Error.INVALID_TOPIC_EXCEPTION

    run(check())


def test_names_are_hashed_as_java_does_it() -> None:
    assert java_hash("") == 0
    assert java_hash("group") == 98_629_247
    assert java_hash("console-consumer") == 648_006_740, "whose hash is negative"
    assert java_hash("polygenelubricants") == 0, "whose hash is the least number, which has no absolute value"
    assert java_hash("\U0001f600") == 1_772_899
    assert java_hash("größe") == 98_762_257


def test_no_coordinator_is_loaded_before_the_broker_is_registered(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: list[int] = []
    load = HostedShard.load

    def noted(hosted: HostedShard) -> None:
        loaded.append(hosted._host.image.brokers[1].epoch)
        load(hosted)

    async def check() -> None:
        disk, epochs = FaultyDisk(), []
        with suppress(Crash):
            async with running(disk, offsets_topic_num_partitions="2") as node, connected(node) as peer:
                await ask(peer, m.FindCoordinatorRequest(key="g", key_type=GROUP), 3)
                assert node._metadata is not None
                epochs.append(node._metadata.loader.image.brokers[1].epoch)
                disk = disk.restart()
        monkeypatch.setattr(HostedShard, "load", noted)
        async with running(disk, seed=1) as node, connected(node) as peer:
            request = m.OffsetFetchRequest(group_id="g", topics=None)
            while (await ask(peer, request, 7)).error_code:
                await asyncio.sleep(0.01)
        assert len(loaded) == 2, "each shard once"
        assert min(loaded) > epochs[0]

    run(check())
