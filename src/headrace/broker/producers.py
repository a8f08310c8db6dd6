"""DescribeProducers: which producers a partition remembers (KIP-664)."""

from __future__ import annotations

from collections.abc import Coroutine
from itertools import islice
from typing import Any, cast

from headrace.broker.steps import in_steps
from headrace.broker.topic_metadata import name_error
from headrace.errors import Error, Refused
from headrace.net.connection import Connection
from headrace.protocol import messages as m
from headrace.protocol.frame import Request
from headrace.replica.manager import Replicas

Response = m.DescribeProducersResponse
NO_SEQUENCE = -1


class Producers:
    __slots__ = ("_replicas",)

    def __init__(self, replicas: Replicas) -> None:
        self._replicas = replicas

    def describe(
        self, connection: Connection, request: Request
    ) -> m.DescribeProducersResponse | Coroutine[Any, Any, m.DescribeProducersResponse]:
        topics = cast("m.DescribeProducersRequest", request.body).topics

        def respond(found: list[m.DescribeProducersResponse.PartitionResponse]) -> m.DescribeProducersResponse:
            answers = iter(found)
            return Response(
                topics=[
                    Response.TopicResponse(name=topic.name, partitions=[*islice(answers, len(topic.partition_indexes))])
                    for topic in topics
                ]
            )

        found = (self._partition(topic.name, index) for topic in topics for index in topic.partition_indexes)
        return in_steps(found, sum(len(topic.partition_indexes) for topic in topics), respond)

    def _partition(self, topic: str, index: int) -> m.DescribeProducersResponse.PartitionResponse:
        try:
            error = name_error(topic)
            if error is not Error.NONE:
                raise Refused(error)
            partition = self._replicas.find(topic, index)
            if partition.offline is not None:
                raise Refused(Error.KAFKA_STORAGE_ERROR, str(partition.offline))
        except Refused as refused:
            return Response.PartitionResponse(
                partition_index=index, error_code=refused.error, error_message=refused.text
            )
        found = []
        for producer_id, producer in partition.log.producers:
            recent = producer.recent()
            found.append(
                Response.ProducerState(
                    producer_id=producer_id,
                    producer_epoch=producer.epoch,
                    last_sequence=recent[-1].last_sequence if recent else NO_SEQUENCE,
                    last_timestamp=producer.last_timestamp_ms,
                    coordinator_epoch=producer.coordinator_epoch,
                    current_txn_start_offset=producer.transaction_offset,
                )
            )
        return Response.PartitionResponse(partition_index=index, active_producers=found)
