"""What a produce costs from frame to reply, without a socket: `python -m bench.replica.produce`.

Frames are encoded before; each is read, handled and its reply encoded, by the router's calls. The bare loop checks the
CRC32C of the same batch and writes it to the end of a file, no more. With acks=all all requests of a round of the loop
share a flush, which the flusher's own thread does; its CPU counts too. Ways alternate in random order, the first round
does not count, and the memory is touched before: pages that the machine never used make writes several times slower.
Garbage is collected as in a node, with what lives long frozen.

The bar: one record with acks=1 takes at most 20 µs of CPU, and acks=all little more.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import random
import shutil
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final, cast

import uvloop

from bench.storage.append import touch_memory
from headrace.broker.produce import Produce
from headrace.config import LogConfig
from headrace.metadata.loader import Loader
from headrace.net.connection import Connection
from headrace.protocol import messages as m
from headrace.protocol.batch_builder import build
from headrace.protocol.batch_crc import crc32c
from headrace.protocol.frame import Request, read_request, write_request, write_response
from headrace.replica.manager import Replicas
from headrace.replica.topic_settings import TopicSettings
from headrace.replica.waits import Waits
from headrace.storage.directories import Directories
from headrace.storage.disk import Disk, SyncFailed
from headrace.storage.flusher import Flusher
from headrace.storage.handles import Handles
from headrace.storage.index import IndexCache
from headrace.storage.local_disk import LocalDisk
from headrace.storage.log_options import LogOptions
from headrace.storage.ports import Ports
from headrace.storage.shared import Shared
from headrace.storage.workers import WorkerThread

NOW_MS: Final = 1_700_000_000_000
TOPIC_ID: Final = bytes(range(16))
VERSION: Final = 12
ROUNDS: Final = 7
REQUESTS: Final = {100: 20_000, 1_000_000: 300}
"""In a round, by the size of a record."""
TOGETHER: Final = {100: 5, 1_000_000: 1}
"""Requests that come in one round of the loop."""


class Sink:
    """A connection whose client takes every reply at once."""

    def __init__(self) -> None:
        self.replies = 0

    def reserve(self) -> Sink:
        return self

    def fill(self, buffers: list[Any]) -> None:
        self.replies += 1


class NoTransactions:
    """Is never asked: the batches are of no transaction."""

    is_enabled = True

    def verify(self, *asked: Any, **more: Any) -> None:
        raise AssertionError("a batch of a transaction")


class Node:
    def __init__(self, folder: Path) -> None:
        loop = asyncio.get_running_loop()
        self.thread = WorkerThread(loop.call_soon_threadsafe, "flusher")

        def flusher_of(disk: Disk, on_offline: Callable[[SyncFailed], None]) -> Flusher:
            return Flusher(disk, self.thread, call_soon=loop.call_soon, clock=time.monotonic, on_offline=on_offline)

        settings = TopicSettings(LogConfig(max_message_bytes=2_000_000))
        ports = Ports(
            now_ms=lambda: NOW_MS, random_bytes=os.urandom, flusher_of=flusher_of, workers_of=lambda disk: self.thread
        )
        shared = Shared(Handles(100), IndexCache(1 << 20), LogOptions(), settings.of)
        folder.mkdir()
        directories = Directories.open([LocalDisk(str(folder))], ports, shared, cluster_id="bench", node_id=1)
        loader = Loader()
        partition = m.PartitionRecord(topic_id=TOPIC_ID, partition_id=0, replicas=[1], isr=[1], leader=1)
        loader.apply([m.TopicRecord(name="bench", topic_id=TOPIC_ID), partition], 1, 1)
        self.replicas = Replicas(
            1,
            directories,
            settings,
            Waits(loop.call_at, loop.time),
            now_ms=lambda: time.time_ns() // 1_000_000,
            call_soon=loop.call_soon,
        )
        loader.subscribe(self.replicas.apply)
        self.replicas.find("bench", 0)
        self.produce = Produce(self.replicas, self.thread, NoTransactions())


def frame_of(content: bytearray, acks: int) -> memoryview:
    data = m.ProduceRequest.PartitionProduceData(index=0, records=memoryview(content))
    topic = m.ProduceRequest.TopicProduceData(name="bench", partition_data=[data])
    message = m.ProduceRequest(acks=acks, timeout_ms=30_000, topic_data=[topic])
    return memoryview(bytearray(b"".join(write_request(message, VERSION, 7, "bench"))))[4:]


async def produced(folder: Path, content: bytearray, acks: int, count: int, together: int) -> float:
    node, sink = Node(folder), Sink()
    connection = cast("Connection", sink)
    frame, handle = frame_of(content, acks), node.produce.handle
    batch_at = bytes(frame).index(content)
    base_offset, unplaced = frame[batch_at : batch_at + 8], bytes(8)
    for _ in range(100):  # compiles the codec, and the loop is warm
        base_offset[:] = unplaced  # the append before has set it
        node.produce.handle(connection, cast("Request", read_request(frame)))
    await asyncio.sleep(0.05)
    sink.replies = 0
    start = time.process_time()
    for _ in range(count // together):
        for _ in range(together):
            base_offset[:] = unplaced
            request = read_request(frame)
            reply = handle(connection, request)  # type: ignore[arg-type]
            if reply is not None:
                sink.fill(write_response(reply, request.version, request.correlation_id))
        await asyncio.sleep(0)
    while sink.replies < count // together * together:
        await asyncio.sleep(0)
    spent = time.process_time() - start
    node.thread.stop()
    return spent / count * 1e6


async def bare(folder: Path, content: bytearray, count: int) -> float:
    folder.mkdir()
    descriptor = os.open(folder / "bare", os.O_RDWR | os.O_CREAT)
    view, position = memoryview(content), 0
    start = time.process_time()
    for _ in range(count):
        crc32c(view[21:])
        position += os.pwrite(descriptor, view, position)
    spent = time.process_time() - start
    os.close(descriptor)
    return spent / count * 1e6


async def measure(scratch: Path, size: int, rounds: int) -> None:
    content = build([(None, os.urandom(size), (), NOW_MS)])
    count, together = REQUESTS[size], TOGETHER[size]
    ways: dict[str, Callable[[Path], Awaitable[float]]] = {
        "bare": lambda folder: bare(folder, content, count),
        "acks=1": lambda folder: produced(folder, content, 1, count, together),
        "acks=all": lambda folder: produced(folder, content, -1, count, together),
    }
    spent: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(rounds + 1):
        for name, way in random.sample(list(ways.items()), len(ways)):
            folder = scratch / f"{size}-{number}-{name}"
            spent[name].append(await way(folder))
            shutil.rmtree(folder)
    base = statistics.median(spent["bare"][1:])
    for name, found in spent.items():
        median = statistics.median(found[1:])
        print(f"{len(content):>10,} {name:>9} {median:15.1f} {median - base:11.1f} {base / median:8.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--folder", type=Path, default=None, help="where to write (default: a temporary folder)")
    arguments = parser.parse_args()
    touch_memory(2 << 30)
    gc.freeze()
    scratch = Path(tempfile.mkdtemp(prefix="headrace-bench-", dir=arguments.folder))
    print(f"{'batch':>10} {'way':>9} {'CPU µs a batch':>15} {'above bare':>11} {'of bare':>8}")
    try:
        for size in REQUESTS:
            uvloop.run(measure(scratch, size, arguments.rounds))
    finally:
        shutil.rmtree(scratch)


if __name__ == "__main__":
    main()
