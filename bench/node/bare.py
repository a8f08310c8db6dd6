"""The least that a broker in Python must do: uvloop, frames cut, CRC32C checked, offsets patched, bytes written.

No fsync, no metadata log, no limits, no other APIs: the yardstick for what ours adds. It answers ApiVersions, Metadata,
Produce, Fetch, ListOffsets and InitProducerId well enough for librdkafka. Started by the harness:
`python -m bench.node.bare DIR`, which prints its port. With `--written` behind it, it starts the write-back of every
megabyte as ours does: else what a bench writes may never reach the disk, as its topics are deleted before.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue
from struct import Struct
from typing import Any, Final, cast

import uvloop

from headrace.errors import Error
from headrace.protocol import messages as m
from headrace.protocol.apis import find_api
from headrace.protocol.batch_crc import crc32c
from headrace.protocol.frame import Request, Unsupported, read_request, write_response

PARTITIONS: Final = 2
BUFFER_BYTES: Final = 8 << 20
WRITE_BEHIND_BYTES: Final = 1 << 20
WRITTEN: Final[SimpleQueue[tuple[int, int, int]] | None] = SimpleQueue() if "--written" in sys.argv else None
"""What a thread starts the write-back of: descriptors, positions and sizes."""
SERVED: Final = {0: (0, 9), 1: (4, 11), 2: (1, 5), 3: (0, 8), 10: (0, 2), 18: (0, 3), 22: (0, 1)}
_SIZE: Final = Struct(">i")
_HEADER: Final = Struct(">qiibIhi")


class Partition:
    """A file, and for every batch its first offset and position."""

    __slots__ = ("file", "next_offset", "offsets", "positions", "size_bytes", "written_bytes")

    def __init__(self, path: Path) -> None:
        self.file = os.open(path, os.O_RDWR | os.O_CREAT)
        self.next_offset = 0
        self.size_bytes = 0
        self.written_bytes = 0
        self.offsets: list[int] = []
        self.positions: list[int] = []

    def append(self, records: memoryview) -> int:
        base = self.next_offset
        _, length, _, _, crc, _, last_delta = _HEADER.unpack_from(records)
        if crc32c(records[21 : length + 12]) != crc:
            raise ValueError("a damaged batch")
        _HEADER.pack_into(records, 0, base, length, 0, 2, crc, *_HEADER.unpack_from(records)[5:])
        os.pwrite(self.file, records, self.size_bytes)
        if WRITTEN is not None and self.size_bytes + len(records) >= self.written_bytes + WRITE_BEHIND_BYTES:
            WRITTEN.put((self.file, self.written_bytes, self.size_bytes + len(records) - self.written_bytes))
            self.written_bytes = self.size_bytes + len(records)
        self.offsets.append(base)
        self.positions.append(self.size_bytes)
        self.size_bytes += len(records)
        self.next_offset += last_delta + 1
        return base

    def read(self, offset: int, size_bytes: int) -> bytes:
        from bisect import bisect_right

        if offset >= self.next_offset:
            return b""
        start = self.positions[bisect_right(self.offsets, offset) - 1]
        return os.pread(self.file, size_bytes, start)


class Broker:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = 0
        self.partitions: dict[tuple[str, int], Partition] = {}
        self.producer_id = 0
        self.handlers: dict[int, Callable[[Request], Any]] = {
            0: self.produce,
            1: self.fetch,
            2: self.list_offsets,
            3: self.metadata,
            10: self.find_coordinator,
            18: self.api_versions,
            22: self.init_producer_id,
        }

    def partition(self, topic: str, index: int) -> Partition:
        found = self.partitions.get((topic, index))
        if found is None:
            found = self.partitions[topic, index] = Partition(self.folder / f"{topic}-{index}.log")
        return found

    def produce(self, request: Request) -> Any:
        topics = []
        for topic in request.body.topic_data:
            answers = []
            for data in topic.partition_data:
                base = self.partition(topic.name, data.index).append(data.records)
                answers.append(m.ProduceResponse.PartitionProduceResponse(index=data.index, base_offset=base))
            topics.append(m.ProduceResponse.TopicProduceResponse(name=topic.name, partition_responses=answers))
        return m.ProduceResponse(responses=topics) if request.body.acks else None

    def fetch(self, request: Request) -> Any:
        topics = []
        for topic in request.body.topics:
            answers = []
            for asked in topic.partitions:
                partition = self.partition(topic.topic, asked.partition)
                answers.append(
                    m.FetchResponse.PartitionData(
                        partition_index=asked.partition,
                        high_watermark=partition.next_offset,
                        last_stable_offset=partition.next_offset,
                        log_start_offset=0,
                        aborted_transactions=None,
                        records=partition.read(asked.fetch_offset, asked.partition_max_bytes),
                    )
                )
            topics.append(m.FetchResponse.FetchableTopicResponse(topic=topic.topic, partitions=answers))
        return m.FetchResponse(responses=topics)

    def list_offsets(self, request: Request) -> Any:
        topics = []
        for topic in request.body.topics:
            answers = [
                m.ListOffsetsResponse.ListOffsetsPartitionResponse(
                    partition_index=asked.partition_index,
                    timestamp=-1,
                    offset=self.partition(topic.name, asked.partition_index).next_offset
                    if asked.timestamp == -1
                    else 0,
                )
                for asked in topic.partitions
            ]
            topics.append(m.ListOffsetsResponse.ListOffsetsTopicResponse(name=topic.name, partitions=answers))
        return m.ListOffsetsResponse(topics=topics)

    def metadata(self, request: Request) -> Any:
        names = [topic.name for topic in request.body.topics or ()]
        partitions = [
            m.MetadataResponse.MetadataResponsePartition(
                partition_index=index, leader_id=1, leader_epoch=0, replica_nodes=[1], isr_nodes=[1]
            )
            for index in range(PARTITIONS)
        ]
        return m.MetadataResponse(
            brokers=[m.MetadataResponse.MetadataResponseBroker(node_id=1, host="127.0.0.1", port=self.port)],
            cluster_id="bare",
            controller_id=1,
            topics=[m.MetadataResponse.MetadataResponseTopic(name=name, partitions=partitions) for name in names],
        )

    def find_coordinator(self, request: Request) -> Any:
        return m.FindCoordinatorResponse(error_code=Error.COORDINATOR_NOT_AVAILABLE, node_id=-1, host="", port=-1)

    def api_versions(self, request: Request) -> Any:
        keys = [
            m.ApiVersionsResponse.ApiVersion(api_key=key, min_version=first, max_version=last)
            for key, (first, last) in SERVED.items()
        ]
        return m.ApiVersionsResponse(api_keys=keys)

    def init_producer_id(self, request: Request) -> Any:
        self.producer_id += 1
        return m.InitProducerIdResponse(producer_id=self.producer_id, producer_epoch=0)


class Protocol(asyncio.BufferedProtocol):
    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.buffer = bytearray(BUFFER_BYTES)
        self.view = memoryview(self.buffer)
        self.filled = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self.view[self.filled :]

    def buffer_updated(self, nbytes: int) -> None:
        self.filled += nbytes
        position = 0
        while self.filled - position >= 4:
            end = position + 4 + _SIZE.unpack_from(self.buffer, position)[0]
            if end > self.filled:
                break
            self.answer(self.view[position + 4 : end])
            position = end
        if position:
            rest = self.filled - position
            self.view[:rest] = self.view[position : self.filled]
            self.filled = rest

    def answer(self, frame: memoryview) -> None:
        request = read_request(frame)
        if isinstance(request, Unsupported):
            # A newer ApiVersions than this one knows: version 0 says which it does (KIP-511).
            api_versions = find_api(18)
            assert api_versions is not None
            asked = Request(api_versions, 0, request.correlation_id, None, None)
            self.transport.writelines(write_response(self.broker.api_versions(asked), 0, request.correlation_id))
            return
        message = self.broker.handlers[request.api.key](request)
        if message is not None:
            self.transport.writelines(write_response(message, request.version, request.correlation_id))


def write_back(written: SimpleQueue[tuple[int, int, int]]) -> None:
    call = ctypes.CDLL(None).sync_file_range
    call.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)
    while True:
        call(*written.get(), 2)


async def serve(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    broker = Broker(folder)
    server = await asyncio.get_running_loop().create_server(lambda: Protocol(broker), "127.0.0.1", 0)
    broker.port = server.sockets[0].getsockname()[1]
    print(f"ready on 127.0.0.1:{broker.port}", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    if WRITTEN is not None:
        threading.Thread(target=write_back, args=(WRITTEN,), daemon=True).start()
    uvloop.run(serve(Path(sys.argv[1])))
