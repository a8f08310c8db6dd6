"""What librdkafka pushes of itself (KIP-714) is told at /metrics, by a node in a process of its own."""

from __future__ import annotations

import re
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_metrics
from prometheus_client.parser import text_string_to_metric_families as prometheus

from headrace.metrics.table import SERIES
from headrace.protocol import messages as m
from tests.compat.confluent import TIMEOUT_S, consume, new_producer, produce
from tests.compat.conftest import create_topic
from tests.compat.process import Process
from tests.compat.wire import Wire

OPEN_METRICS = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Process]:
    process = Process(tmp_path / "data", "--set", "http.listen=127.0.0.1:0")
    process.start()
    yield process
    assert process.stop() == 0, process.said


def scraped(process: Process, accept: str = "", path: str = "metrics") -> str:
    while (address := re.search(r"metrics and health: (http://\S+)", process.said)) is None:
        time.sleep(0.01)
    request = urllib.request.Request(f"{address[1]}{path}", headers={"Accept": accept})
    with urllib.request.urlopen(request, timeout=TIMEOUT_S) as response:
        return str(response.read().decode())


def subscribe(process: Process, settings: dict[str, str]) -> None:
    """By hand: confluent-kafka's admin knows no resources of this type."""
    kind = m.IncrementalAlterConfigsRequest
    configs = [kind.AlterableConfig(name=name, config_operation=0, value=value) for name, value in settings.items()]
    resource = kind.AlterConfigsResource(resource_type=16, resource_name="everything", configs=configs)
    with Wire(process.bootstrap) as wire:
        assert wire.ask(kind(resources=[resource]), 1).responses[0].error_code == 0


def test_librdkafka_pushes_its_metrics_and_they_are_told(watched: Process) -> None:
    admin = AdminClient({"bootstrap.servers": watched.bootstrap, "enable.metrics.push": False})
    subscribe(watched, {"metrics": "*", "interval.ms": "100", "match": "client_id=shop-.*"})
    topic = create_topic(admin, 1)
    producer = new_producer(watched.bootstrap, client_id="shop-orders")
    other = new_producer(watched.bootstrap, client_id="elsewhere")
    deadline = time.monotonic() + TIMEOUT_S
    text = ""
    while time.monotonic() < deadline and "headrace_client_producer" not in text:
        produce(producer, topic, [b"a", b"b"])
        produce(other, topic, [b"c"])
        time.sleep(0.1)
        text = scraped(watched, OPEN_METRICS)
    families = {family.name: family for family in open_metrics(text)}
    pushed = {name: family for name, family in families.items() if name.startswith("headrace_client_")}
    assert pushed, text
    owners = {sample.labels["client_id"] for family in pushed.values() for sample in family.samples}
    assert owners == {"shop-orders"}
    assert families["headrace_telemetry_pushes"].samples[0].value > 0
    # The last push says that there is no other, and takes what happened since the one before.
    del producer
    consume(watched.bootstrap, topic, 1, client_id="shop-reader")


def test_a_scrape_after_real_work_can_be_read_and_is_what_the_table_says(watched: Process) -> None:
    admin = AdminClient({"bootstrap.servers": watched.bootstrap})
    topic = create_topic(admin, 3)
    producer = new_producer(watched.bootstrap)
    produce(producer, topic, [b"x" * 100] * 50, partition=1)
    assert len(consume(watched.bootstrap, topic, 50, partition=1)) == 50
    for accept, parser in (("", prometheus), (OPEN_METRICS, open_metrics)):
        for path in ("metrics", "metrics/partitions"):
            samples = [sample for family in parser(scraped(watched, accept, path)) for sample in family.samples]
            for sample in samples:
                labels = [name for name in sample.labels if name != "le"]
                assert sorted(labels) == sorted(SERIES[sample.name].labels), sample
    values = {
        (sample.name, *(sample.labels[name] for name in SERIES[sample.name].labels)): sample.value
        for family in prometheus(scraped(watched))
        for sample in family.samples
        if not sample.name.endswith("_bucket")
    }
    assert values["headrace_topic_messages_in_total", topic] == 50
    assert values["headrace_topic_messages_out_total", topic] >= 50
    assert values["headrace_topic_bytes_in_total", topic] > 5000
    assert values["headrace_topic_bytes_out_total", topic] >= values["headrace_topic_bytes_in_total", topic]
    assert values["headrace_topic_end_offsets", topic] == 50
    assert values["headrace_topic_partitions", topic] == 3
    assert values["headrace_topic_size_bytes", topic] > 5000
    assert values["headrace_requests_total", "Produce"] > 0
    assert values["headrace_request_remote_wait_seconds_sum", "Produce"] > 0, "acks=all waits for the disk"
    assert values["headrace_request_seconds_count", "Fetch"] == values["headrace_requests_total", "Fetch"]
    assert values["headrace_flush_seconds_count", str(watched.data)] > 0
    assert values["process_cpu_seconds_total",] > 0
    assert values["headrace_connections", "PLAINTEXT"] > 0
