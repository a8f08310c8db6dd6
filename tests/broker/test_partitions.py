"""DescribeTopicPartitions in pages, DescribeProducers, DescribeQuorum, CreatePartitions: what a client is told."""

from __future__ import annotations

from typing import Any

from headrace.errors import Error
from headrace.net.peer import Peer
from headrace.protocol import messages as m
from headrace.protocol.batch_builder import build
from tests.broker.nodes import ask, connected, create, run, running

Pages = m.DescribeTopicPartitionsRequest


async def page(
    peer: Peer, *names: str, limit: int = 2000, cursor: tuple[str, int] | None = None
) -> tuple[list[tuple[str, list[int]]], tuple[str, int] | None]:
    request = Pages(
        topics=[Pages.TopicRequest(name=name) for name in names],
        response_partition_limit=limit,
        cursor=None if cursor is None else Pages.Cursor(topic_name=cursor[0], partition_index=cursor[1]),
    )
    response = await ask(peer, request, 0)
    after = response.next_cursor
    return (
        [
            (topic.name, [part.partition_index for part in topic.partitions])
            if not topic.error_code
            else (topic.name, [-topic.error_code])
            for topic in response.topics
        ],
        None if after is None else (after.topic_name, after.partition_index),
    )


def test_partitions_are_told_page_by_page() -> None:
    async def check() -> None:
        async with running() as node, connected(node) as peer:
            for name, count in (("b", 3), ("a", 2), ("c", 1)):
                await create(peer, name, count)
            assert await page(peer) == ([("a", [0, 1]), ("b", [0, 1, 2]), ("c", [0])], None)
            assert await page(peer, limit=3) == ([("a", [0, 1]), ("b", [0])], ("b", 1))
            assert await page(peer, limit=3, cursor=("b", 1)) == ([("b", [1, 2]), ("c", [0])], None)
            assert await page(peer, limit=2) == ([("a", [0, 1])], ("b", 0))
            assert await page(peer, limit=0) == ([("a", [0])], ("a", 1))
            assert await page(peer, "c", "a", "c") == ([("a", [0, 1]), ("c", [0])], None)
            # A topic may be gone before the next page is asked for.
            assert await page(peer, limit=9, cursor=("bb", 1)) == ([("c", [0])], None)
            assert await page(peer, "a", cursor=("a", 9)) == ([("a", [])], None)

    run(check())


def test_pages_of_what_is_not_there() -> None:
    async def check() -> None:
        async with running() as node, connected(node) as peer:
            await create(peer, "a")
            assert await page(peer, "zz") == ([("zz", [-Error.UNKNOWN_TOPIC_OR_PARTITION])], None)
            assert await page(peer, "a b") == ([("a b", [-Error.INVALID_TOPIC_EXCEPTION])], None)
            refused = [("a", [-Error.INVALID_REQUEST])], None
            assert await page(peer, "a", cursor=("b", 0)) == refused
            assert await page(peer, "a", cursor=("a", -1)) == refused

    run(check())


def test_a_partition_tells_who_writes_to_it() -> None:
    async def check() -> None:
        async with running() as node, connected(node) as peer:
            await create(peer, "t")
            kind = m.ProduceRequest
            producer: dict[str, Any] = {"producer_id": 7, "producer_epoch": 3, "base_sequence": 0}
            records = memoryview(build([(b"k", b"v", (), 1_700_000_000_000)] * 5, **producer))
            data = kind.PartitionProduceData(records=records)
            topic = kind.TopicProduceData(name="t", partition_data=[data])
            await ask(peer, kind(acks=-1, timeout_ms=5000, topic_data=[topic]), 12)
            asked = m.DescribeProducersRequest.TopicRequest(name="t", partition_indexes=[0, 9])
            response = await ask(peer, m.DescribeProducersRequest(topics=[asked]), 0)
            here, missing = response.topics[0].partitions
            (found,) = here.active_producers
            assert (found.producer_id, found.producer_epoch, found.last_sequence) == (7, 3, 4)
            assert (found.last_timestamp, found.current_txn_start_offset) == (1_700_000_000_000, -1)
            assert missing.error_code == Error.UNKNOWN_TOPIC_OR_PARTITION

    run(check())


def test_the_quorum_is_this_node() -> None:
    async def check() -> None:
        async with running() as node, connected(node) as peer:
            kind = m.DescribeQuorumRequest
            topic = kind.TopicData(topic_name="__cluster_metadata", partitions=[kind.PartitionData()])
            response = await ask(peer, kind(topics=[topic]), 2)
            (found,) = response.topics[0].partitions
            (voter,) = found.current_voters
            assert (found.leader_id, voter.replica_id, found.observers) == (node.id, node.id, [])
            assert found.high_watermark == voter.log_end_offset > 0
            assert [one.node_id for one in response.nodes] == [node.id]

    run(check())


def test_new_partitions_are_there_with_the_reply_and_take_records() -> None:
    async def check() -> None:
        async with running() as node, connected(node) as peer:
            await create(peer, "t", 1)
            kind = m.CreatePartitionsRequest
            wanted = kind.CreatePartitionsTopic(name="t", count=3, assignments=None)
            only_tried = await ask(peer, kind(topics=[wanted], timeout_ms=5000, validate_only=True), 3)
            assert only_tried.results[0].error_code == Error.NONE
            assert (await page(peer))[0] == [("t", [0])]
            await ask(peer, kind(topics=[wanted], timeout_ms=5000), 3)
            assert (await page(peer))[0] == [("t", [0, 1, 2])]
            again = await ask(peer, kind(topics=[wanted, wanted], timeout_ms=5000), 3)
            assert [(one.name, one.error_code) for one in again.results] == [("t", Error.INVALID_REQUEST)]
            fewer = await ask(peer, kind(topics=[kind.CreatePartitionsTopic(name="t", count=2)], timeout_ms=5000), 3)
            assert fewer.results[0].error_code == Error.INVALID_PARTITIONS
            produce = m.ProduceRequest
            data = produce.PartitionProduceData(index=2, records=memoryview(build([(b"", b"v", (), 1)])))
            topic = produce.TopicProduceData(name="t", partition_data=[data])
            response = await ask(peer, produce(acks=-1, timeout_ms=5000, topic_data=[topic]), 12)
            assert response.responses[0].partition_responses[0].error_code == Error.NONE

    run(check())


def test_a_broker_that_is_unregistered_stops_and_says_why() -> None:
    async def check() -> None:
        async with running(broker_heartbeat_interval_ms="50") as node, connected(node) as peer:
            response = await ask(peer, m.UnregisterBrokerRequest(broker_id=node.id), 0)
            assert response.error_code == Error.NONE
            assert "was unregistered" in str(await node.failed)

    run(check())


def test_a_new_topic_is_told_where_its_settings_come_from() -> None:
    async def check() -> None:
        async with running(log_retention_ms="5000000") as node, connected(node) as peer:
            kind = m.CreateTopicsRequest
            own = kind.CreatableTopicConfig(name="segment.bytes", value="2000000")
            topic = kind.CreatableTopic(name="t", num_partitions=-1, replication_factor=-1, configs=[own])
            response = await ask(peer, kind(topics=[topic], timeout_ms=5000), 7)
            (made,) = response.topics
            told = {one.name: (one.value, one.config_source) for one in made.configs}
            assert told["segment.bytes"] == ("2000000", 1)
            assert told["retention.ms"] == ("5000000", 4)
            assert told["max.message.bytes"][1] == 5
            assert (made.num_partitions, made.replication_factor) == (1, 1)

    run(check())
