"""What a node counts while it works, as a scrape tells it."""

from __future__ import annotations

import asyncio
from typing import Any

from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_metrics
from prometheus_client.parser import text_string_to_metric_families as prometheus

from headrace.broker.metrics import PARTITIONS_A_STEP, SAMPLES_A_STEP
from headrace.broker.node import Node
from headrace.broker.pages import form_of
from headrace.errors import Error, HeadraceError
from headrace.metrics.exposition import Form
from headrace.metrics.table import METRICS, SERIES
from headrace.net.peer import Peer
from headrace.protocol import messages as m
from headrace.protocol.batch_builder import build
from headrace.testing.disk import FaultyDisk
from tests.broker.nodes import ask, connected, create, run, running
from tests.broker.test_http import asking, get

ACCEPT = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3"


async def text_of(node: Node, path: str = "/metrics", **headers: str) -> str:
    assert node.http_address is not None
    async with asking(node.http_address[1]) as asker:
        status, _, text = await asker.ask(get(path, **headers))
        assert status == 200
        return text


async def values(node: Node, path: str = "/metrics") -> dict[tuple[str, ...], float]:
    """By name and labels; of histograms the sums and counts."""
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in prometheus(await text_of(node, path))
        for sample in family.samples
        if "le" not in sample.labels
    }


def watched(**settings: Any) -> Any:
    return running(http_listen="127.0.0.1:0", **settings)


async def produce(peer: Peer, topic: str, index: int = 0, records: int = 1, acks: int = 1) -> Error:
    batch = memoryview(build([(b"k", b"v" * 10, (), 1_700_000_000_000)] * records))
    data = m.ProduceRequest.PartitionProduceData(index=index, records=batch)
    named = m.ProduceRequest.TopicProduceData(name=topic, partition_data=[data])
    response = await ask(peer, m.ProduceRequest(acks=acks, timeout_ms=10_000, topic_data=[named]), 9)
    return Error.of(response.responses[0].partition_responses[0].error_code)


def fetch(topic: str, index: int = 0, offset: int = 0, max_wait_ms: int = 0) -> m.FetchRequest:
    part = m.FetchRequest.FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=1 << 20)
    return m.FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=1 << 20,
        session_epoch=-1,
        topics=[m.FetchRequest.FetchTopic(topic=topic, partitions=[part])],
    )


def test_what_goes_in_and_out_is_counted_by_topic() -> None:
    async def check() -> None:
        async with watched() as node, connected(node) as peer:
            await create(peer, "orders", 2)
            for index in (0, 1):
                assert await produce(peer, "orders", index, records=5) is Error.NONE
            assert await produce(peer, "orders", 7) is Error.UNKNOWN_TOPIC_OR_PARTITION
            assert await produce(peer, "none") is Error.UNKNOWN_TOPIC_OR_PARTITION
            await ask(peer, fetch("orders", 1), 11)
            await ask(peer, fetch("orders", 1, offset=99), 11)
            found = await values(node)
            assert found["headrace_topic_messages_in_total", "orders"] == 10
            assert found["headrace_topic_messages_out_total", "orders"] == 5
            assert (
                found["headrace_topic_bytes_in_total", "orders"]
                == 2 * found["headrace_topic_bytes_out_total", "orders"]
            )
            assert found["headrace_topic_size_bytes", "orders"] == found["headrace_topic_bytes_in_total", "orders"]
            assert found["headrace_topic_produce_errors_total", "orders"] == 1
            assert found["headrace_topic_fetch_errors_total", "orders"] == 1
            assert found["headrace_topic_end_offsets", "orders"] == 10
            assert found["headrace_topic_segments", "orders"] == found["headrace_topic_partitions", "orders"] == 2
            assert found["headrace_request_errors_total", "Produce", "UNKNOWN_TOPIC_OR_PARTITION"] == 2
            assert found["headrace_request_errors_total", "Fetch", "OFFSET_OUT_OF_RANGE"] == 1
            assert found["headrace_requests_total", "Produce"] == 4
            assert found["headrace_partitions",] == found["headrace_leader_partitions",] == 2

    run(check())


def test_a_topic_that_is_deleted_and_made_again_counts_from_nothing() -> None:
    async def check() -> None:
        async with watched() as node, connected(node) as peer:
            for _ in range(2):
                await create(peer, "orders")
                assert await produce(peer, "orders", records=3) is Error.NONE
                assert (await values(node))["headrace_topic_messages_in_total", "orders"] == 3
                await ask(peer, m.DeleteTopicsRequest(topic_names=["orders"], timeout_ms=10_000), 5)
                assert ("headrace_topic_messages_in_total", "orders") not in await values(node)

    run(check())


def test_errors_of_control_apis_are_counted_wherever_they_stand_in_a_reply() -> None:
    async def check() -> None:
        async with watched() as node, connected(node) as peer:
            await create(peer, "orders")
            topic = m.CreateTopicsRequest.CreatableTopic(name="orders", num_partitions=1, replication_factor=1)
            bad = m.CreateTopicsRequest.CreatableTopic(name="a b", num_partitions=1, replication_factor=1)
            await ask(peer, m.CreateTopicsRequest(topics=[topic, bad], timeout_ms=1000), 7)
            await ask(peer, m.MetadataRequest(topics=[m.MetadataRequest.MetadataRequestTopic(name="none")]), 8)
            found = await values(node)
            assert found["headrace_request_errors_total", "CreateTopics", "TOPIC_ALREADY_EXISTS"] == 1
            assert found["headrace_request_errors_total", "CreateTopics", "INVALID_TOPIC_EXCEPTION"] == 1

    run(check())


def test_who_waits_is_counted_while_it_waits() -> None:
    async def check() -> None:
        async with watched() as node, connected(node) as peer, connected(node) as other:
            await create(peer, "orders")
            waiting = asyncio.ensure_future(ask(peer, fetch("orders", max_wait_ms=30_000), 11))
            while (await values(node))["headrace_waiting_fetches",] != 1:
                await asyncio.sleep(0.01)
            found = await values(node)
            assert found["headrace_waiting_requests", "PLAINTEXT"] == 1
            assert found["headrace_connections", "PLAINTEXT"] == 2
            assert await produce(other, "orders", acks=-1) is Error.NONE
            await waiting
            found = await values(node)
            assert found["headrace_waiting_fetches",] == found["headrace_waiting_produces",] == 0
            assert found["headrace_waiting_requests", "PLAINTEXT"] == 0
            assert found["headrace_request_remote_wait_seconds_sum", "Fetch"] > 0
            assert found["headrace_request_seconds_count", "Fetch"] == 1

    run(check())


def test_a_directory_that_failed_is_told() -> None:
    async def check() -> None:
        disk = FaultyDisk()
        async with watched(disk=disk) as node, connected(node) as peer:
            await create(peer, "orders")
            before = await values(node)
            assert before["headrace_offline_partitions",] == before["headrace_offline_directories",] == 0
            assert before["headrace_flush_seconds_count", disk.root] > 0
            assert before["headrace_directory_online", disk.root] == 1
            assert node._directories is not None
            (directory,) = node._directories.all
            directory._offline = HeadraceError("gone")
            after = await values(node)
            assert (after["headrace_offline_directories",], after["headrace_directory_online", disk.root]) == (1, 0)
            directory._offline = None

    run(check())


def test_everything_that_is_told_is_in_the_table_and_almost_all_of_the_table_is_told() -> None:
    async def check() -> None:
        async with watched() as node, connected(node) as peer:
            await create(peer, "orders", 2)
            assert await produce(peer, "orders") is Error.NONE
            assert await produce(peer, "none") is Error.UNKNOWN_TOPIC_OR_PARTITION
            for accept, parser in (("", prometheus), (ACCEPT, open_metrics)):
                told = set()
                for path in ("/metrics", "/metrics/partitions"):
                    for family in parser(await text_of(node, path, Accept=accept)):
                        for sample in family.samples:
                            metric = SERIES[sample.name]
                            told.add(metric.name)
                            assert sorted({*sample.labels} - {"le"}) == sorted(metric.labels)
                        assert family.documentation == metric.text
                missing = METRICS.keys() - told
                # What only a process of its own has.
                assert missing == {name for name in METRICS if name.startswith(("process_", "headrace_gc_"))}

    run(check())


def test_partitions_have_a_page_of_their_own() -> None:
    async def check() -> None:
        async with watched() as node, connected(node) as peer:
            await create(peer, "orders", 3)
            assert await produce(peer, "orders", 2, records=4) is Error.NONE
            found = await values(node, "/metrics/partitions")
            assert found["headrace_partition_end_offset", "orders", "2"] == 4
            assert found["headrace_partition_high_watermark", "orders", "2"] == 4
            assert found["headrace_partition_start_offset", "orders", "0"] == 0
            assert found["headrace_partition_is_leader", "orders", "1"] == 1
            assert found["headrace_partition_in_sync_replicas", "orders", "1"] == 1
            assert len(found) == 7 * 3

    run(check())


def test_a_scrape_of_many_partitions_goes_in_steps() -> None:
    async def check() -> None:
        async with watched() as node, connected(node) as peer:
            count = 2 * PARTITIONS_A_STEP + 1
            await create(peer, "many", count)
            while (await values(node))["headrace_partitions",] != count:
                await asyncio.sleep(0.05)
            metrics = node._observation._metrics
            assert metrics is not None
            steps = list(metrics.partition_pages(Form.PROMETHEUS))
            assert max(step.count("\n") for step in steps) <= SAMPLES_A_STEP + 2
            assert sum(step.count("\nheadrace_partition_") for step in steps) > 0
            assert sum(not step for step in metrics.pages(Form.PROMETHEUS)) >= 3, "the loop has its turn in between"

    run(check())


def test_open_metrics_is_told_to_who_asks_for_it() -> None:
    assert form_of("") is form_of("*/*") is form_of("text/plain") is Form.PROMETHEUS
    assert form_of(ACCEPT) is form_of("application/openmetrics-text") is Form.OPEN_METRICS
    assert form_of("application/openmetrics-text;version=0.0.1,text/plain") is Form.PROMETHEUS
