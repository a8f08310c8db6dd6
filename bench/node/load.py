"""The clients: pre-encoded requests over raw sockets, which cost next to nothing, and librdkafka, as users have it.

Each runs in a process of its own: `python -m bench.node.load KIND BOOTSTRAP TOPIC RECORD_BYTES BATCH RECORDS ACKS`
makes one measurement and prints its wall time in seconds.
"""

from __future__ import annotations

import os
import selectors
import socket
import sys
import time
from typing import Any, Final

from headrace.protocol import messages as m
from headrace.protocol.apis import find_api
from headrace.protocol.batch_builder import build
from headrace.protocol.frame import read_response, write_request

PARTITIONS: Final = 2
PRODUCE_VERSION: Final = 9
IN_FLIGHT: Final = 5
RECV_BYTES: Final = 1 << 18


def produce_frame(topic: str, partition: int, record_bytes: int, batch: int, acks: int) -> bytes:
    now_ms = int(time.time() * 1000)
    records = build([(None, os.urandom(record_bytes), (), now_ms) for _ in range(batch)])
    data = m.ProduceRequest.PartitionProduceData(index=partition, records=records)
    named = m.ProduceRequest.TopicProduceData(name=topic, partition_data=[data])
    request = m.ProduceRequest(transactional_id=None, acks=acks, timeout_ms=30_000, topic_data=[named])
    return b"".join(write_request(request, PRODUCE_VERSION, 1, "bench"))


def check_reply(frame: bytes) -> None:
    produce = find_api(0)
    assert produce is not None
    _, message = read_response(produce, PRODUCE_VERSION, frame)
    answer = message.responses[0].partition_responses[0]
    if answer.error_code:
        raise RuntimeError(f"produce was refused: {answer}")


def raw(bootstrap: str, topic: str, record_bytes: int, batch: int, records: int, acks: int) -> float:
    """One connection a partition, a few requests in flight on each. Replies of one kind are of one size."""
    host, _, port = bootstrap.rpartition(":")
    selector = selectors.DefaultSelector()
    requests = max(1, records // batch // PARTITIONS)
    lanes: list[list[Any]] = []
    for partition in range(PARTITIONS):
        link = socket.create_connection((host, int(port)))
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        frame = produce_frame(topic, partition, record_bytes, batch, acks)
        link.sendall(frame)
        size_bytes = int.from_bytes(receive(link, 4))
        check_reply(receive(link, size_bytes))
        lane: list[Any] = [
            link,
            frame,
            size_bytes + 4,
            0,
            0,
            bytearray(),
        ]  # socket, frame, reply size, sent, answered, partial
        selector.register(link, selectors.EVENT_READ, lane)
        lanes.append(lane)
    began = time.perf_counter()
    for lane in lanes:
        count = min(IN_FLIGHT, requests)
        for _ in range(count):
            lane[0].sendall(lane[1])
        lane[3] = count
    left = PARTITIONS
    while left:
        for key, _ in selector.select():
            lane = key.data
            lane[5] += lane[0].recv(RECV_BYTES)
            whole = len(lane[5]) // lane[2]
            last = bytes(lane[5][(whole - 1) * lane[2] + 4 : whole * lane[2]]) if whole else b""
            del lane[5][: whole * lane[2]]
            lane[4] += whole
            more = min(whole, requests - lane[3])
            if more > 0:
                lane[0].sendall(lane[1] if more == 1 else lane[1] * more)
                lane[3] += more
            if lane[4] >= requests:
                check_reply(last)
                selector.unregister(lane[0])
                left -= 1
    return time.perf_counter() - began


def receive(link: socket.socket, size_bytes: int) -> bytes:
    found = bytearray()
    while len(found) < size_bytes:
        part = link.recv(size_bytes - len(found))
        if not part:
            raise ConnectionError("the broker closed the connection")
        found += part
    return bytes(found)


def librdkafka(bootstrap: str, topic: str, record_bytes: int, batch: int, records: int, acks: int) -> float:
    """confluent-kafka without delivery reports by message: the flush says that all was taken."""
    from confluent_kafka import Producer

    failed: list[Any] = []
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "acks": acks,
            "linger.ms": 50 if batch > 10 else 5,
            "batch.num.messages": batch,
            "batch.size": 1_000_000,
            "queue.buffering.max.messages": 1_000_000,
            "queue.buffering.max.kbytes": 1 << 20,
            "delivery.report.only.error": True,
            "on_delivery": lambda error, _: failed.append(error),
        }
    )
    value = os.urandom(record_bytes)
    for partition in range(PARTITIONS):
        producer.produce(topic, value, partition=partition)
    assert producer.flush(60) == 0
    began = time.perf_counter()
    for number in range(records):
        try:
            producer.produce(topic, value, partition=number % PARTITIONS)
        except BufferError:
            producer.flush()
            producer.produce(topic, value, partition=number % PARTITIONS)
    assert producer.flush(120) == 0
    taken_s = time.perf_counter() - began
    if failed:
        raise RuntimeError(f"{len(failed)} records failed, the first with {failed[0]}")
    return taken_s


def main() -> None:
    kind, bootstrap, topic, *numbers = sys.argv[1:]
    run = {"raw": raw, "librdkafka": librdkafka}[kind]
    print(run(bootstrap, topic, *(int(number) for number in numbers)))


if __name__ == "__main__":
    main()
