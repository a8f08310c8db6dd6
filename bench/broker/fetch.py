"""What the handler of Fetch adds to reading a file: `python -m bench.broker.fetch`.

The handler is called directly with a decoded request, and its reply is encoded into buffers. The bare loop reads the
same bytes into a new buffer and encodes a reply around them. Everything is in the page cache. Rounds are interleaved,
CPU is that of the process, system time included; medians.

`at the end` reads what was appended since the last fetch, as a consumer that keeps up does. `behind` looks the offset
of one batch up first. `nothing` is a fetch of 100 partitions in a session, none of which has anything new.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from typing import Any, Final

from headrace.broker.fetch import Fetch
from headrace.broker.fetch_memory import ReplyMemory
from headrace.broker.fetch_session import Sessions
from headrace.config import LogConfig
from headrace.metadata.image import Image
from headrace.metadata.image import Partition as PartitionState
from headrace.protocol.apis import find_api
from headrace.protocol.batch_builder import build
from headrace.protocol.frame import Request, write_response
from headrace.protocol.messages import FetchRequest, FetchResponse
from headrace.replica.partition import Partition
from headrace.storage.flush import DirectFlusher
from headrace.storage.handles import Handles
from headrace.storage.index import IndexCache
from headrace.storage.local_disk import LocalDisk
from headrace.storage.log_options import LogOptions
from headrace.storage.place import Place
from headrace.storage.recovery import Saved, open_log

NOW_MS: Final = 1_700_000_000_000
TOPIC_ID: Final = bytes(range(16))
VERSION: Final = 17


class Hosted:
    """What the handler wants of the node's replicas."""

    def __init__(self, disk: LocalDisk, partitions: int) -> None:
        self.image = Image()
        self.waits: Any = None
        self._partitions = [self._host(disk, index) for index in range(partitions)]

    def _host(self, disk: LocalDisk, index: int) -> Partition:
        disk.make_directory(f"t-{index}")
        place = Place(disk, f"t-{index}", Handles(1000), IndexCache(1 << 20))
        log = open_log(place, "t", index, LogConfig(), LogOptions(), DirectFlusher(disk), saved=Saved(), now_ms=NOW_MS)
        partition = Partition("t", TOPIC_ID, index, log, self)  # type: ignore[arg-type]
        partition.apply(PartitionState(replicas=(1,), isr=(1,), leader=1, leader_epoch=0, partition_epoch=0), 1)
        return partition

    def now_ms(self) -> int:
        return NOW_MS

    def find_by_id(self, topic_id: bytes, index: int) -> Partition:
        return self._partitions[index]

    def append(self, size_bytes: int, index: int = 0) -> None:
        batch = build([(None, bytes(size_bytes), (), NOW_MS)])
        self._partitions[index].append(memoryview(batch), 1, NOW_MS)


def request(*partitions: tuple[int, int], max_bytes: int = 1 << 20, **more: Any) -> Request:
    """(partition, offset) each."""
    wanted = [
        FetchRequest.FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=max_bytes)
        for index, offset in partitions
    ]
    topics = [FetchRequest.FetchTopic(topic_id=TOPIC_ID, partitions=wanted)] if wanted else []
    api = find_api(FetchRequest.api_key)
    assert api is not None
    return Request(api, VERSION, 1, "bench", FetchRequest(min_bytes=1, topics=topics, **more))


def cpu_us(call: Callable[[int], None], count: int) -> float:
    start = time.process_time()
    for number in range(count):
        call(number)
    return (time.process_time() - start) / count * 1e6


def compare(name: str, rounds: int, count: int, ways: dict[str, Callable[[int], None]]) -> None:
    spent: dict[str, list[float]] = {way: [] for way in ways}
    for _ in range(rounds):
        for way, call in ways.items():
            spent[way].append(cpu_us(call, count))
    print(f"{name:28}" + "   ".join(f"{way} {statistics.median(taken):8.1f} µs" for way, taken in spent.items()))


def bench(folder: str, rounds: int, batch_bytes: int, count: int) -> None:
    disk = LocalDisk(folder)
    hosted = Hosted(disk, 1)
    for _ in range(max(2, (64 << 20) // batch_bytes) if batch_bytes > 10_000 else 2_000):
        hosted.append(batch_bytes)
    log = hosted.find_by_id(TOPIC_ID, 0).log
    memory = ReplyMemory(256 << 20, lambda callback: None)
    fetch = Fetch(hosted, Sessions(lambda size: bytes(size)), memory, None, fetch_max_bytes=55 << 20)  # type: ignore[arg-type]
    last_offset = log.log_end_offset - 1
    file = log.segments.active.file
    batches = log.log_end_offset
    position = log.segments.active.size_bytes - log.segments.active.size_bytes // batches

    def bare(number: int) -> None:
        buffer = bytearray(log.segments.active.size_bytes // batches)
        file.read_into(position, buffer)
        data = FetchResponse.PartitionData(high_watermark=batches, records=buffer)
        topic = FetchResponse.FetchableTopicResponse(topic_id=TOPIC_ID, partitions=[data])
        write_response(FetchResponse(responses=[topic]), VERSION, 1)

    def serve(offset: int) -> Callable[[int], None]:
        asked = request((0, offset), max_bytes=batch_bytes + 200, session_epoch=-1)

        def one(number: int) -> None:
            response = fetch.handle(None, asked)  # type: ignore[arg-type]
            assert response is not None
            write_response(response, VERSION, 1)

        return one

    def at_end(number: int) -> None:
        log.read_end = (last_offset, log.segments.active, position)
        serve_last(number)

    serve_last = serve(last_offset)
    compare(
        f"{batch_bytes:>9} B", rounds, count, {"bare": bare, "at the end": at_end, "behind": serve(last_offset // 2)}
    )
    disk.close()


def bench_nothing(folder: str, rounds: int) -> None:
    disk = LocalDisk(folder)
    hosted = Hosted(disk, 100)
    memory = ReplyMemory(256 << 20, lambda callback: None)
    sessions = Sessions(lambda size: bytes(size - 1) + b"\x07")
    fetch = Fetch(hosted, sessions, memory, None, fetch_max_bytes=55 << 20)  # type: ignore[arg-type]
    opened = fetch.handle(None, request(*((index, 0) for index in range(100)), session_epoch=0))  # type: ignore[arg-type]
    assert opened is not None
    epoch = 0

    def one(number: int) -> None:
        nonlocal epoch
        epoch += 1
        response = fetch.handle(None, request(session_id=7, session_epoch=epoch))  # type: ignore[arg-type]
        assert response is not None
        assert not response.responses

    compare("nothing, 100 partitions", rounds, 200, {"handler": one})
    disk.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    rounds = parser.parse_args().rounds
    for batch_bytes, count in ((100, 5000), (10_000, 5000), (1_000_000, 300)):
        with tempfile.TemporaryDirectory() as folder:
            bench(folder, rounds, batch_bytes, count)
    with tempfile.TemporaryDirectory() as folder:
        bench_nothing(folder, rounds)


if __name__ == "__main__":
    main()
