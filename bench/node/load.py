"""The clients: pre-encoded requests over raw sockets, which cost next to nothing, and librdkafka, as users have it.

The raw client is `wire_load.c`, compiled at first use. librdkafka runs in a process of its own:
`python -m bench.node.load produce|consume BOOTSTRAP TOPIC ...` makes one measurement and prints one JSON object.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from headrace.protocol import messages as m
from headrace.protocol.batch_builder import build
from headrace.protocol.frame import write_request

PARTITIONS: Final = 2
PRODUCE_VERSION: Final = 9
FETCH_VERSION: Final = 11  # the last one whose fields are at fixed places
IN_FLIGHT: Final = 5
FETCH_BYTES: Final = 1 << 20
SOURCE: Final = Path(__file__).with_name("wire_load.c")
BINARY: Final = Path(__file__).parents[2] / "build" / "bench" / "wire_load"


class Work(NamedTuple):
    """What a client sends: so many records of this size, so many in a batch, one batch in a request."""

    record_bytes: int
    batch: int
    records: int
    acks: int = 1

    @property
    def requests(self) -> int:
        return max(1, self.records // self.batch)


class Result(NamedTuple):
    wall_s: float
    cpu_s: float
    """The client's own."""
    p50_ms: float = 0.0
    p99_ms: float = 0.0
    p999_ms: float = 0.0
    max_ms: float = 0.0
    bytes: int = 0
    replies: int = 0


class Running:
    """A client at work; `result` waits for its end."""

    def __init__(self, command: Sequence[str], folder: tempfile.TemporaryDirectory[str] | None = None) -> None:
        self._folder = folder
        self._child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    @property
    def is_done(self) -> bool:
        return self._child.poll() is not None

    def result(self) -> Result:
        printed, _ = self._child.communicate()
        if self._folder is not None:
            self._folder.cleanup()
        if self._child.returncode:
            raise RuntimeError("the load client failed")
        return Result(**json.loads(printed))

    def stop(self) -> None:
        self._child.kill()
        self._child.communicate()
        if self._folder is not None:
            self._folder.cleanup()


# --------------------------------------------------------------------------------------------------------- the raw one


def produce(bootstrap: str, topic: str, work: Work, *, rate: float = 0, partitions: int = PARTITIONS) -> Running:
    """One connection a partition. Without a rate, IN_FLIGHT requests are under way on each."""
    frames = [_produce_frame(topic, partition, work) for partition in range(partitions)]
    error_at = 4 + 4 + 1 + 1 + 1 + len(topic) + 1 + 4  # size, correlation id, tags, topics, name, partitions, index
    return _wire("produce", bootstrap, (work.requests, rate, IN_FLIGHT, error_at), frames)


def fetch(bootstrap: str, topic: str, end_offset: int, *, partitions: int = PARTITIONS) -> Running:
    """Reads every partition from its start, one fetch of up to a megabyte at a time on a connection each."""
    frames = [_fetch_frame(topic, partition, 0) for partition in range(partitions)]
    marked = _fetch_frame(topic, 0, 0x0102030405060708)
    offset_at = marked.index(bytes(range(1, 9)))
    error_at = 4 + 4 + 4 + 2 + 4 + 4 + 2 + len(topic) + 4 + 4
    records_at = error_at + 2 + 8 + 8 + 8 + 4 + 4 + 4  # offsets, no aborted transactions, preferred replica, size
    return _wire("fetch", bootstrap, (end_offset, offset_at, error_at, records_at), frames)


def _wire(kind: str, bootstrap: str, numbers: Sequence[float], frames: Sequence[bytes]) -> Running:
    folder = tempfile.TemporaryDirectory(prefix="headrace-load-")
    paths = []
    for number, frame in enumerate(frames):
        paths.append(f"{folder.name}/{number}")
        Path(paths[-1]).write_bytes(frame)
    return Running([str(compiled()), kind, bootstrap.rpartition(":")[2], *map(str, numbers), *paths], folder)


def compiled() -> Path:
    if not BINARY.exists() or BINARY.stat().st_mtime < SOURCE.stat().st_mtime:
        BINARY.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run([os.environ.get("CC", "cc"), "-O2", "-o", str(BINARY), str(SOURCE)], check=True)
    return BINARY


def _produce_frame(topic: str, partition: int, work: Work) -> bytes:
    now_ms = int(time.time() * 1000)
    records = build([(None, os.urandom(work.record_bytes), (), now_ms) for _ in range(work.batch)])
    data = m.ProduceRequest.PartitionProduceData(index=partition, records=records)
    named = m.ProduceRequest.TopicProduceData(name=topic, partition_data=[data])
    request = m.ProduceRequest(transactional_id=None, acks=work.acks, timeout_ms=30_000, topic_data=[named])
    return b"".join(write_request(request, PRODUCE_VERSION, 1, "bench"))


def _fetch_frame(topic: str, partition: int, offset: int) -> bytes:
    asked = m.FetchRequest.FetchPartition(
        partition=partition, current_leader_epoch=-1, fetch_offset=offset, partition_max_bytes=FETCH_BYTES
    )
    named = m.FetchRequest.FetchTopic(topic=topic, partitions=[asked])
    request = m.FetchRequest(
        replica_id=-1, max_wait_ms=500, min_bytes=1, max_bytes=50 << 20, session_epoch=-1, topics=[named]
    )
    return b"".join(write_request(request, FETCH_VERSION, 1, "bench"))


# ---------------------------------------------------------------------------------------------------------- librdkafka


def librdkafka(kind: str, bootstrap: str, topic: str, work: Work) -> Running:
    return Running([sys.executable, "-m", "bench.node.load", kind, bootstrap, topic, *map(str, work)])


def _produce(bootstrap: str, topic: str, work: Work) -> float:
    """Without delivery reports by message: the flush says that all was taken."""
    from confluent_kafka import Producer

    failed: list[Any] = []
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "acks": work.acks,
            "linger.ms": 50 if work.batch > 10 else 5,
            "batch.num.messages": work.batch,
            "batch.size": 1_000_000,
            "queue.buffering.max.messages": 1_000_000,
            "queue.buffering.max.kbytes": 1 << 20,
            "delivery.report.only.error": True,
            "on_delivery": lambda error, _: failed.append(error),
        }
    )
    value = os.urandom(work.record_bytes)
    for partition in range(PARTITIONS):
        producer.produce(topic, value, partition=partition)
    assert producer.flush(60) == 0
    began = time.perf_counter()
    for number in range(work.records):
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


def _consume(bootstrap: str, topic: str, work: Work) -> float:
    """From the first record, which must have come, to the last."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "bench", "enable.auto.commit": False})
    began = time.perf_counter()
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
    found = 0
    while found < work.records:
        messages = consumer.consume(10_000, 30)
        if not messages:
            raise RuntimeError(f"only {found:,} of {work.records:,} records came")
        for message in messages:
            if message.error():
                raise RuntimeError(message.error())
        if not found:
            began = time.perf_counter()
            work = work._replace(records=work.records - len(messages))
            found = 1
            continue
        found += len(messages)
    taken_s = time.perf_counter() - began
    consumer.close()
    return taken_s


def main() -> None:
    kind, bootstrap, topic, *numbers = sys.argv[1:]
    run = {"produce": _produce, "consume": _consume}[kind]
    wall_s = run(bootstrap, topic, Work(*(int(number) for number in numbers)))
    print(json.dumps({"wall_s": wall_s, "cpu_s": time.process_time()}))


if __name__ == "__main__":
    main()
