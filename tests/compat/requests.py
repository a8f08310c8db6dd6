"""Requests of single topics, and the ids that later versions want in place of names."""

from __future__ import annotations

import time
from typing import Any, Final

from headrace.errors import Error
from headrace.protocol import messages as m
from tests.compat.wire import Wire

METADATA_VERSION: Final = 12
TIMEOUT_MS: Final = 60_000
BASE_MS: Final = (time.time_ns() // 10**9 - 3600) * 1000
"""When the tests' messages are from: an hour ago, for retention takes what is older than a week."""


def metadata(wire: Wire, topic: str, version: int = METADATA_VERSION, create: bool = False) -> Any:
    """What Metadata says of one topic."""
    asked = m.MetadataRequest(topics=[m.MetadataRequest.MetadataRequestTopic(name=topic)])
    asked.allow_auto_topic_creation = create or version < 4  # which always create
    (found,) = wire.ask(asked, version).topics
    return found


def settle(wire: Wire, topic: str, partitions: int) -> None:
    """Kafka says that a topic is made before its partitions are: clients ask again until they are, and so do we."""
    asked = [
        m.ListOffsetsRequest.ListOffsetsPartition(partition_index=index, current_leader_epoch=-1, timestamp=-1)
        for index in range(partitions)
    ]
    named = m.ListOffsetsRequest.ListOffsetsTopic(name=topic, partitions=asked)
    request = m.ListOffsetsRequest(replica_id=-1, topics=[named])
    while errors := {answer.error_code for answer in wire.ask(request, 7).topics[0].partitions} - {Error.NONE}:
        assert all(Error(error).retriable for error in errors), errors


def produce_request(topic: str, topic_id: bytes, records: Any, *, partition: int = 0, acks: int = -1) -> Any:
    data = m.ProduceRequest.PartitionProduceData(index=partition, records=records)
    named = m.ProduceRequest.TopicProduceData(name=topic, topic_id=topic_id, partition_data=[data])
    return m.ProduceRequest(acks=acks, timeout_ms=TIMEOUT_MS, topic_data=[named])


def produced(answer: Any) -> Any:
    """The answer for the one partition that was produced to."""
    return answer.responses[0].partition_responses[0]


def fetch_partition(offset: int, partition: int = 0, epoch: int = -1, max_bytes: int = 1 << 20) -> Any:
    return m.FetchRequest.FetchPartition(
        partition=partition,
        current_leader_epoch=epoch,
        fetch_offset=offset,
        last_fetched_epoch=-1,
        log_start_offset=-1,
        partition_max_bytes=max_bytes,
    )


def fetch_request(topic: str, topic_id: bytes, partitions: list[Any], **fields: Any) -> Any:
    topics = [m.FetchRequest.FetchTopic(topic=topic, topic_id=topic_id, partitions=partitions)] if partitions else []
    defaults = {"replica_id": -1, "max_wait_ms": 0, "min_bytes": 1, "max_bytes": 50 << 20, "session_epoch": -1}
    return m.FetchRequest(topics=topics, **{**defaults, **fields})


def fetched(answer: Any) -> Any:
    """The answer for the one partition that was fetched from."""
    return answer.responses[0].partitions[0]
