"""A node that stops, or is killed, and comes back on its port and folder: clients go on, and nothing is lost."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from headrace.errors import Error
from tests.compat.confluent import consume, new_consumer, new_producer, produce, take
from tests.compat.conftest import create_topic
from tests.compat.process import Process
from tests.compat.requests import fetch_partition, fetch_request, fetched, metadata
from tests.compat.test_wire_reads import LATEST, epoch_end, list_offset
from tests.compat.wire import Wire

End = Callable[[Process], object]
ENDS = [pytest.param(Process.stop, id="SIGTERM"), pytest.param(Process.kill, id="kill -9")]


def new_topic(node: Process, partitions: int = 1) -> str:
    return create_topic(AdminClient({"bootstrap.servers": node.bootstrap}), partitions)


@pytest.mark.parametrize("end", ENDS)
def test_what_was_acknowledged_is_there_after_a_restart(node: Process, end: End) -> None:
    topic = new_topic(node, 4)
    values = {acks: [b"%s %d" % (acks.encode(), number) for number in range(100)] for acks in ("1", "all")}
    for partition, (acks, some) in enumerate(values.items()):
        produce(new_producer(node.bootstrap, acks=acks), topic, some, partition=partition)
    with Wire(node.bootstrap) as wire:
        before = metadata(wire, topic)
    end(node)
    node.start()
    with Wire(node.bootstrap) as wire:
        after = metadata(wire, topic)
    assert after.topic_id == before.topic_id
    assert len(after.partitions) == 4
    for partition, some in enumerate(values.values()):
        found = consume(node.bootstrap, topic, 100, partition)
        assert [message.value() for message in found] == some


@pytest.mark.parametrize("end", ENDS)
def test_an_idempotent_producer_goes_on_over_a_restart(node: Process, end: End) -> None:
    """What was sent while the node was away is there once, in order."""
    topic = new_topic(node)
    producer = new_producer(node.bootstrap, enable_idempotence=True, reconnect_backoff_max_ms=200)
    sent = [b"%d" % number for number in range(300)]
    produce(producer, topic, sent[:100])
    for value in sent[100:200]:
        producer.produce(topic, value)
    producer.poll(0)
    end(node)
    restart = threading.Timer(0.5, node.start)
    restart.start()
    produce(producer, topic, sent[200:])
    restart.join()
    found = consume(node.bootstrap, topic, 300)
    assert [message.value() for message in found] == sent


@pytest.mark.parametrize("end", ENDS)
def test_a_consumer_goes_on_over_a_restart(node: Process, end: End) -> None:
    topic = new_topic(node)
    producer = new_producer(node.bootstrap, enable_idempotence=True, reconnect_backoff_max_ms=200)
    produce(producer, topic, [b"%d" % number for number in range(100)])
    consumer = new_consumer(node.bootstrap, reconnect_backoff_max_ms=200)
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        found = take(consumer, 50)
        end(node)
        node.start()
        produce(producer, topic, [b"%d" % number for number in range(100, 200)])
        found += take(consumer, 150)
        assert [int(message.value()) for message in found] == list(range(200))
    finally:
        consumer.close()


@pytest.mark.parametrize("end", ENDS)
def test_a_restart_fences_who_knows_the_leader_epoch_of_before(node: Process, end: End) -> None:
    """KIP-320: what a crash took must not be read on from, as if nothing had happened."""
    topic = new_topic(node)
    produce(new_producer(node.bootstrap), topic, [b"value"])
    with Wire(node.bootstrap) as wire:
        before = metadata(wire, topic).partitions[0].leader_epoch
    end(node)
    node.start()
    with Wire(node.bootstrap) as wire:
        found = metadata(wire, topic)
        now = found.partitions[0].leader_epoch
        assert now > before
        for epoch, error in (
            (before, Error.FENCED_LEADER_EPOCH),
            (now, Error.NONE),
            (-1, Error.NONE),
            (now + 1, Error.UNKNOWN_LEADER_EPOCH),
        ):
            fetch = fetch_request(topic, found.topic_id, [fetch_partition(0, epoch=epoch)])
            for version in (9, 12, 17):
                assert fetched(wire.ask(fetch, version)).error_code == error
            assert list_offset(wire, topic, LATEST, epoch=epoch).error_code == error
            assert epoch_end(wire, topic, before, current=epoch, version=4).error_code == error
        ended = epoch_end(wire, topic, before, current=now, version=4)
        assert (ended.leader_epoch, ended.end_offset) == (before, 1)


def test_a_second_clean_stop_needs_no_port_of_its_own(node: Process) -> None:
    port = node.port
    for _ in range(2):
        assert node.stop() == 0, node.said
        node.start()
        assert node.port == port
