"""The memory of replies: counted while somebody has it, and used again when nobody has."""

from __future__ import annotations

import asyncio
import socket

import pytest
import uvloop

from headrace.broker.fetch_memory import REUSED_MAX_BYTES, SPARE_MAX_BYTES, ReplyMemory
from headrace.protocol import messages as m
from headrace.protocol.batch_builder import build
from headrace.protocol.frame import write_request
from tests.broker.nodes import ask, connected, create, running


def address_of(view: bytearray | memoryview) -> int:
    """Of the buffer behind a view."""
    assert isinstance(view, memoryview)
    return id(view.obj)


def memory() -> ReplyMemory:
    return ReplyMemory(64 << 20, lambda callback: callback())


def test_a_buffer_is_counted_until_the_last_one_lets_go() -> None:
    counted = memory()
    first, second = counted.buffer(100_000), counted.buffer(200_000)
    assert (len(first), len(second), counted.held_bytes) == (100_000, 200_000, 300_000)
    del first
    assert counted.held_bytes == 200_000
    buffers = [second]
    del second
    assert counted.held_bytes == 200_000
    buffers.clear()
    assert counted.held_bytes == 0


def test_what_was_let_go_of_is_used_again() -> None:
    counted = memory()
    first = counted.buffer(100_000)
    address = address_of(first)
    del first
    assert address_of(counted.buffer(120_000)) == address


def test_what_somebody_still_has_a_view_of_is_not_used_again() -> None:
    counted = memory()
    first = counted.buffer(100_000)
    first[:4] = b"kept"
    another = memoryview(first)[:4]
    del first
    second = counted.buffer(100_000)
    second[:4] = b"new!"
    assert bytes(another) == b"kept"


def test_no_more_is_kept_than_is_of_use() -> None:
    counted = memory()
    many = [counted.buffer(1 << 20) for _ in range(60)]
    many.clear()
    assert counted._spare_bytes == SPARE_MAX_BYTES
    large = counted.buffer(REUSED_MAX_BYTES + 1)
    del large
    assert counted._spare_bytes == SPARE_MAX_BYTES
    assert counted.held_bytes == 0


@pytest.mark.parametrize("size_bytes", [100_000, 20 << 20])
def test_hazard_15_what_a_transport_has_not_sent_is_counted_though_it_keeps_a_view_of_its_own(size_bytes: int) -> None:
    """uvloop does so: 300 clients that never read had 5.7 GB of a node that allows 256 MB."""
    memory = ReplyMemory(1 << 30, lambda call: None)
    unsent = memoryview(memory.buffer(size_bytes)).cast("b")
    assert memory.held_bytes == size_bytes
    del unsent
    assert memory.held_bytes == 0


def test_hazard_15_clients_that_never_read_do_not_keep_others_waiting() -> None:
    async def check() -> None:
        async with running(fetch_replies_max_bytes=str(1 << 20)) as node, connected(node) as peer:
            topic_id = await create(peer, "orders")
            for _ in range(6):
                await ask(peer, produce_request(build([(None, bytes(900_000), (), -1)])), 9)
            part = m.FetchRequest.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
            fetch = m.FetchRequest(
                max_wait_ms=100,
                min_bytes=1,
                topics=[m.FetchRequest.FetchTopic(topic_id=topic_id, partitions=[part])],
            )
            deaf = [socket.socket() for _ in range(4)]
            for client in deaf:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                client.connect(("127.0.0.1", node.endpoints[0].port))
                client.setblocking(False)
                client.send(b"".join(b"".join(write_request(fetch, 13, number, "deaf")) for number in range(20)))
            async with asyncio.timeout(30):
                while not node._listeners or not node._listeners.all[0].counters.slow_closed:
                    await ask(peer, fetch, 13)
                found = (await ask(peer, fetch, 13)).responses[0].partitions[0].records
            assert found is not None
            assert len(found) > 900_000
            for client in deaf:
                client.close()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:  # asyncio's own transports copy what they send
        runner.run(check())


def produce_request(records: bytes | bytearray) -> m.ProduceRequest:
    data = m.ProduceRequest.PartitionProduceData(index=0, records=records)
    topic = m.ProduceRequest.TopicProduceData(name="orders", partition_data=[data])
    return m.ProduceRequest(transactional_id=None, acks=1, timeout_ms=10_000, topic_data=[topic])
