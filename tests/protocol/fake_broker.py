"""A broker as small as it can be: real clients produce to it and consume from it, over a socket, on our own codec.

It keeps the bytes of every produced batch as they came, and serves a log of batches that a test has built. One topic
with one partition is all there is, whatever the name.
"""

from __future__ import annotations

import socketserver
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from struct import Struct
from typing import Any, Self

from headrace.errors import Error
from headrace.protocol.batch import scan
from headrace.protocol.frame import Request, Unsupported, read_request, write_response
from headrace.protocol.message import Message
from headrace.protocol.messages import (
    AddPartitionsToTxnResponse,
    ApiVersionsResponse,
    EndTxnResponse,
    FetchResponse,
    FindCoordinatorResponse,
    InitProducerIdResponse,
    ListOffsetsResponse,
    MetadataResponse,
    ProduceResponse,
)

PRODUCE, FETCH, LIST_OFFSETS, METADATA, FIND_COORDINATOR = 0, 1, 2, 3, 10
API_VERSIONS, INIT_PRODUCER_ID, ADD_PARTITIONS_TO_TXN, END_TXN = 18, 22, 24, 26

# Below the versions that know topics by id only.
SERVED = {
    PRODUCE: (3, 12),
    FETCH: (4, 12),
    LIST_OFFSETS: (1, 7),
    METADATA: (1, 9),
    FIND_COORDINATOR: (0, 3),
    API_VERSIONS: (0, 3),
    INIT_PRODUCER_ID: (0, 4),
    ADD_PARTITIONS_TO_TXN: (0, 3),
    END_TXN: (0, 3),
}
PRODUCER_ID, PRODUCER_EPOCH = 4711, 3
_SIZE = Struct(">i")


@dataclass
class Produced:
    """What came for the partition in one request."""

    version: int
    records: bytes


@dataclass
class FakeBroker:
    log: bytes = b""
    produced: list[Produced] = field(default_factory=list)

    def __enter__(self) -> Self:
        self._server = _Server(("127.0.0.1", 0), _Connection)
        self._server.broker = self
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    @property
    def end_offset(self) -> int:
        return max((batch.next_offset for batch in scan(self.log)), default=0)

    def answer(self, request: Request) -> Message:
        handlers: dict[int, Callable[[Request], Message]] = {
            PRODUCE: self._produce,
            FETCH: self._fetch,
            LIST_OFFSETS: self._list_offsets,
            METADATA: self._metadata,
            FIND_COORDINATOR: self._find_coordinator,
            API_VERSIONS: lambda _: api_versions(Error.NONE),
            INIT_PRODUCER_ID: lambda _: InitProducerIdResponse(producer_id=PRODUCER_ID, producer_epoch=PRODUCER_EPOCH),
            ADD_PARTITIONS_TO_TXN: _add_partitions,
            END_TXN: lambda _: EndTxnResponse(),
        }
        return handlers[request.api.key](request)

    def _produce(self, request: Request) -> Message:
        response = ProduceResponse()
        for topic in request.body.topic_data:
            answered = ProduceResponse.TopicProduceResponse(name=topic.name)
            for partition in topic.partition_data:
                self.produced.append(Produced(request.version, bytes(partition.records)))
                answered.partition_responses.append(
                    ProduceResponse.PartitionProduceResponse(
                        index=partition.index, base_offset=len(self.produced), log_append_time_ms=-1
                    )
                )
            response.responses.append(answered)
        return response

    def _fetch(self, request: Request) -> Message:
        response = FetchResponse()
        for topic in request.body.topics:
            answered = FetchResponse.FetchableTopicResponse(topic=topic.topic)
            for partition in topic.partitions:
                start = next((b.position for b in scan(self.log) if b.last_offset >= partition.fetch_offset), None)
                answered.partitions.append(
                    FetchResponse.PartitionData(
                        partition_index=partition.partition,
                        high_watermark=self.end_offset,
                        last_stable_offset=self.end_offset,
                        log_start_offset=0,
                        aborted_transactions=[],
                        records=b"" if start is None else self.log[start:],
                    )
                )
                if start is None:
                    time.sleep(0.05)
            response.responses.append(answered)
        return response

    def _list_offsets(self, request: Request) -> Message:
        response = ListOffsetsResponse()
        for topic in request.body.topics:
            answered = ListOffsetsResponse.ListOffsetsTopicResponse(name=topic.name)
            answered.partitions = [
                ListOffsetsResponse.ListOffsetsPartitionResponse(
                    partition_index=partition.partition_index,
                    timestamp=-1,
                    offset=0 if partition.timestamp == -2 else self.end_offset,
                )
                for partition in topic.partitions
            ]
            response.topics.append(answered)
        return response

    def _metadata(self, request: Request) -> Message:
        names = [topic.name for topic in request.body.topics or ()] or ["topic"]
        return MetadataResponse(
            brokers=[MetadataResponse.MetadataResponseBroker(node_id=0, host="127.0.0.1", port=self.port)],
            cluster_id="fake",
            controller_id=0,
            topics=[
                MetadataResponse.MetadataResponseTopic(
                    name=name,
                    partitions=[
                        MetadataResponse.MetadataResponsePartition(
                            partition_index=0, leader_id=0, leader_epoch=0, replica_nodes=[0], isr_nodes=[0]
                        )
                    ],
                )
                for name in names
            ],
        )

    def _find_coordinator(self, _: Request) -> Message:
        return FindCoordinatorResponse(node_id=0, host="127.0.0.1", port=self.port)


def api_versions(error: Error) -> Message:
    return ApiVersionsResponse(
        error_code=error,
        api_keys=[
            ApiVersionsResponse.ApiVersion(api_key=key, min_version=least, max_version=greatest)
            for key, (least, greatest) in SERVED.items()
        ],
    )


def _add_partitions(request: Request) -> Message:
    response = AddPartitionsToTxnResponse()
    for topic in request.body.v3_and_below_topics:
        response.results_by_topic_v3_and_below.append(
            AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult(
                name=topic.name,
                results_by_partition=[
                    AddPartitionsToTxnResponse.AddPartitionsToTxnPartitionResult(partition_index=index)
                    for index in topic.partitions
                ],
            )
        )
    return response


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True
    broker: FakeBroker


class _Connection(socketserver.StreamRequestHandler):
    server: _Server

    def handle(self) -> None:
        try:
            while len(head := self.rfile.read(4)) == 4:
                request = read_request(self.rfile.read(_SIZE.unpack(head)[0]))
                self.wfile.writelines(self._reply(request))
        except OSError:
            return  # the client went away

    def _reply(self, request: Request | Unsupported) -> list[Any]:
        key = request.api_key if isinstance(request, Unsupported) else request.api.key
        least, greatest = SERVED[key]
        if isinstance(request, Unsupported) or not least <= request.version <= greatest:
            # A client that asks for a later ApiVersions than there is gets version 0, and asks again (KIP-511).
            assert key == API_VERSIONS, f"a client asked for version {request.version} of API {key}"
            return write_response(api_versions(Error.UNSUPPORTED_VERSION), 0, request.correlation_id)
        return write_response(self.server.broker.answer(request), request.version, request.correlation_id)
