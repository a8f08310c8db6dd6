"""A broker with a real log of one topic, which checks sequences as Kafka does, and does wrong what a test tells it."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from headrace.client import Client
from headrace.errors import Error
from headrace.net.connection import Connection
from headrace.net.listener import Listener
from headrace.protocol.batch import Batch
from headrace.protocol.frame import Request, read_request, write_response
from headrace.protocol.messages import (
    ApiVersionsResponse,
    CreateTopicsResponse,
    DeleteTopicsResponse,
    FetchResponse,
    InitProducerIdResponse,
    ListOffsetsResponse,
    MetadataResponse,
    OffsetForLeaderEpochResponse,
    ProduceResponse,
)
from headrace.protocol.records import records_of

TOPIC = "topic"
TOPIC_ID = b"0123456789abcdef"
SERVED = {
    0: (3, 13),
    1: (4, 17),
    2: (1, 10),
    3: (0, 13),
    18: (0, 4),
    19: (2, 7),
    20: (1, 6),
    22: (0, 5),
    23: (2, 4),
}

Fault = Callable[[Batch], Error | str | None]
"""For a produced batch: an error to answer, "lost" (append, never answer), "dropped" (neither), or None."""


class ScriptedBroker:
    def __init__(self, served: dict[int, tuple[int, int]] = SERVED) -> None:
        self.log: list[bytearray] = []
        self.end = 0
        self.leader_epoch = 1
        self.producer_id = 4711
        self.faults: list[Fault] = []
        self.seen: list[tuple[int, int, int]] = []
        """Producer epoch, base sequence and record count of every batch that came."""
        self.requests: list[int] = []
        self.sequences: dict[tuple[int, int], int] = {}
        self.kept: dict[tuple[int, int, int], int] = {}
        self.truncated_at: int | None = None
        self.served = served
        self.port = 0
        self.node_id = 7
        self.leader: ScriptedBroker = self
        """Who leads by this broker's word; it says so to whom it refuses (KIP-951)."""
        self.others: list[ScriptedBroker] = []
        self.mute: dict[int, int] = {}
        """How many more requests of an API get no answer."""
        self.metadata_errors: list[Error] = []
        self.leaderless = 0
        """How many more answers about metadata know of no leader."""
        self.created: dict[str, int] = {}
        """Other topics, and how many partitions they were asked for with."""
        self.is_fetch_broken: Callable[[], bool] = lambda: False
        self.batches_fetched: list[bytes] | None = None
        """What a fetch gets in place of the log."""

    @property
    def values(self) -> list[bytes | None]:
        views = [Batch(memoryview(batch)) for batch in self.log]
        return [record.value for batch in views for record in records_of(batch, 1 << 20).decode()]

    def __call__(self, connection: Connection, frame: memoryview) -> None:
        request = read_request(frame)
        assert isinstance(request, Request)
        self.requests.append(request.api.key)
        if self.mute.get(request.api.key):
            self.mute[request.api.key] -= 1
            connection.reserve()  # and never filled
            return
        least, most = self.served[request.api.key]
        if not least <= request.version <= most:
            assert request.api.key == 18
            response: Any = self._api_versions()
            response.error_code = Error.UNSUPPORTED_VERSION
            connection.reply(write_response(response, 0, request.correlation_id))
            return
        answers = {
            0: self._produce,
            1: self._fetch,
            2: self._offsets,
            3: self._metadata,
            19: self._create,
            20: self._delete,
            22: self._identity,
            23: self._epoch_end,
        }
        response = self._api_versions() if request.api.key == 18 else answers[request.api.key](request)
        if response is None:
            connection.abort()
        else:
            connection.reply(write_response(response, request.version, request.correlation_id))

    def _api_versions(self) -> ApiVersionsResponse:
        keys = [
            ApiVersionsResponse.ApiVersion(api_key=key, min_version=least, max_version=most)
            for key, (least, most) in self.served.items()
        ]
        return ApiVersionsResponse(api_keys=keys)

    def _metadata(self, request: Request) -> MetadataResponse:
        if self.metadata_errors:
            return MetadataResponse(error_code=self.metadata_errors.pop(0))
        is_leaderless, self.leaderless = self.leaderless > 0, max(0, self.leaderless - 1)
        return MetadataResponse(
            brokers=[
                MetadataResponse.MetadataResponseBroker(node_id=broker.node_id, host="127.0.0.1", port=broker.port)
                for broker in (self, *self.others)
            ],
            controller_id=self.node_id,
            topics=[self._topic(topic.name, is_leaderless) for topic in request.body.topics],
        )

    def _topic(self, name: str, is_leaderless: bool) -> MetadataResponse.MetadataResponseTopic:
        count = 1 if name == TOPIC else self.created.get(name)
        if count is None:
            return MetadataResponse.MetadataResponseTopic(name=name, error_code=3)
        leader, epoch = -1 if is_leaderless else self.leader.node_id, self.leader_epoch
        partitions = [
            MetadataResponse.MetadataResponsePartition(partition_index=index, leader_id=leader, leader_epoch=epoch)
            for index in range(count)
        ]
        topic_id = TOPIC_ID if name == TOPIC else name.encode().ljust(16)
        return MetadataResponse.MetadataResponseTopic(name=name, topic_id=topic_id, partitions=partitions)

    def _create(self, request: Request) -> CreateTopicsResponse | None:
        """The first answer about a topic is lost."""
        results, is_lost = [], False
        for topic in request.body.topics:
            error = Error.TOPIC_ALREADY_EXISTS if topic.name in self.created else Error.NONE
            is_lost = is_lost or error is Error.NONE
            self.created.setdefault(topic.name, topic.num_partitions)
            results.append(CreateTopicsResponse.CreatableTopicResult(name=topic.name, error_code=error))
        return None if is_lost else CreateTopicsResponse(topics=results)

    def _delete(self, request: Request) -> DeleteTopicsResponse | None:
        results, is_lost = [], False
        names = [topic.name for topic in request.body.topics] or request.body.topic_names
        for name in names:
            is_lost = is_lost or name in self.created
            error = Error.NONE if self.created.pop(name, None) else Error.UNKNOWN_TOPIC_OR_PARTITION
            results.append(DeleteTopicsResponse.DeletableTopicResult(name=name, error_code=error))
        return None if is_lost else DeleteTopicsResponse(responses=results)

    def _identity(self, _: Request) -> InitProducerIdResponse:
        self.producer_id += 1
        return InitProducerIdResponse(producer_id=self.producer_id, producer_epoch=0)

    def _produce(self, request: Request) -> ProduceResponse | None:
        (topic,) = request.body.topic_data
        (data,) = topic.partition_data
        batch = Batch(memoryview(bytearray(data.records)))
        batch.verify()
        self.seen.append((batch.producer_epoch, batch.base_sequence, batch.record_count))
        if self.leader is not self:
            return self._not_leader()
        fault = self.faults.pop(0)(batch) if self.faults else None
        if fault == "dropped":
            return None
        error, offset = (fault, -1) if isinstance(fault, Error) else self._append(batch)
        if fault == "lost":
            return None
        answer = ProduceResponse.PartitionProduceResponse(error_code=error, base_offset=offset)
        return ProduceResponse(
            responses=[
                ProduceResponse.TopicProduceResponse(name=TOPIC, topic_id=TOPIC_ID, partition_responses=[answer])
            ]
        )

    def _not_leader(self) -> ProduceResponse:
        answer = ProduceResponse.PartitionProduceResponse(
            error_code=Error.NOT_LEADER_OR_FOLLOWER,
            current_leader=ProduceResponse.LeaderIdAndEpoch(
                leader_id=self.leader.node_id, leader_epoch=self.leader.leader_epoch
            ),
        )
        endpoint = ProduceResponse.NodeEndpoint(
            node_id=self.leader.node_id, host="127.0.0.1", port=self.leader.port, rack=None
        )
        topic = ProduceResponse.TopicProduceResponse(name=TOPIC, topic_id=TOPIC_ID, partition_responses=[answer])
        return ProduceResponse(responses=[topic], node_endpoints=[endpoint])

    def _append(self, batch: Batch) -> tuple[Error, int]:
        who = (batch.producer_id, batch.producer_epoch)
        if batch.has_producer:
            known = self.kept.get((*who, batch.base_sequence))
            if known is not None:
                return Error.NONE, known
            if batch.base_sequence != self.sequences.get(who, 0):
                return Error.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
            self.sequences[who] = batch.last_sequence + 1
            self.kept[(*who, batch.base_sequence)] = self.end
        batch.assign(self.end, self.leader_epoch)
        self.log.append(bytearray(batch.view))
        offset, self.end = self.end, batch.next_offset
        return Error.NONE, offset

    def _fetch(self, request: Request) -> FetchResponse | None:
        body = request.body
        if self.is_fetch_broken():
            return None
        response = FetchResponse(session_id=0)
        for topic in body.topics:
            for asked in topic.partitions:
                answer = FetchResponse.PartitionData(high_watermark=self.end, last_stable_offset=self.end)
                if self.leader is not self:
                    answer.error_code = Error.NOT_LEADER_OR_FOLLOWER
                    answer.current_leader = FetchResponse.LeaderIdAndEpoch(
                        leader_id=self.leader.node_id, leader_epoch=self.leader.leader_epoch
                    )
                    response.node_endpoints = [
                        FetchResponse.NodeEndpoint(node_id=self.leader.node_id, host="127.0.0.1", port=self.leader.port)
                    ]
                elif asked.current_leader_epoch not in (-1, self.leader_epoch):
                    answer.error_code = Error.FENCED_LEADER_EPOCH
                elif asked.fetch_offset > self.end:
                    answer.error_code = Error.OFFSET_OUT_OF_RANGE
                elif self.batches_fetched is not None:
                    answer.records = b"".join(self.batches_fetched)
                else:
                    answer.records = b"".join(
                        bytes(batch) for batch in self.log if Batch(memoryview(batch)).last_offset >= asked.fetch_offset
                    )
                response.responses.append(
                    FetchResponse.FetchableTopicResponse(topic=TOPIC, topic_id=TOPIC_ID, partitions=[answer])
                )
        return response

    def _offsets(self, request: Request) -> ListOffsetsResponse:
        (topic,) = request.body.topics
        offset = 0 if topic.partitions[0].timestamp == -2 else self.end
        part = ListOffsetsResponse.ListOffsetsPartitionResponse(offset=offset)
        return ListOffsetsResponse(topics=[ListOffsetsResponse.ListOffsetsTopicResponse(name=TOPIC, partitions=[part])])

    def _epoch_end(self, _: Request) -> OffsetForLeaderEpochResponse:
        end = self.end if self.truncated_at is None else self.truncated_at
        part = OffsetForLeaderEpochResponse.EpochEndOffset(leader_epoch=1, end_offset=end)
        result = OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult(topic=TOPIC, partitions=[part])
        return OffsetForLeaderEpochResponse(topics=[result])


@asynccontextmanager
async def running(broker: ScriptedBroker, **settings: Any) -> AsyncIterator[Client]:
    """A client of a broker, and of the others that it knows."""
    listeners = [Listener("broker", one) for one in (broker, *broker.others)]
    for listener, one in zip(listeners, (broker, *broker.others), strict=True):
        host, one.port = await listener.start("127.0.0.1", 0)
    options: dict[str, Any] = {"retry_backoff_s": 0.01, "reconnect_backoff_s": 0.01, **settings}
    client = Client(f"{host}:{broker.port}", chance=random.Random(1), now_ms=lambda: 1_000, **options)
    try:
        yield client
    finally:
        await client.close()
        for listener in listeners:
            await listener.stop()
