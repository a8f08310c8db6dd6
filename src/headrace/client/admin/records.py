"""What is in partitions: offsets by time, records to be deleted, producers that write."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, Literal, NamedTuple

from headrace.client.admin.calls import Calls, TopicPartition
from headrace.client.arguments import INT64_MAX, mapping, one_of, whole
from headrace.client.arguments import partitions as checked_partitions
from headrace.client.offsets import EARLIEST, LATEST, MAX_TIMESTAMP, TIME_MIN, OffsetAt, list_offsets
from headrace.protocol.messages import (
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DescribeProducersRequest,
    DescribeProducersResponse,
)

__all__ = ["HIGH_WATERMARK", "Moment", "ProducerInfo", "RecordCalls"]

Moment = Literal["earliest", "latest", "max_timestamp"]
_MOMENTS: Final[dict[Moment, int]] = {"earliest": EARLIEST, "latest": LATEST, "max_timestamp": MAX_TIMESTAMP}

HIGH_WATERMARK: Final = -1
"""As the offset of `delete_records`: all that there is now."""


class ProducerInfo(NamedTuple):
    """A producer that a partition remembers."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    coordinator_epoch: int
    transaction_start_offset: int
    """Of its open transaction; -1 without one."""


class RecordCalls(Calls):
    __slots__ = ()

    async def list_offsets(
        self,
        times: Mapping[TopicPartition, int | Moment],
        *,
        isolation_level: Literal["read_uncommitted", "read_committed"] = "read_uncommitted",
    ) -> dict[TopicPartition, OffsetAt]:
        """The first offset that is not older than a time, by (topic, partition); -1 when there is none.

        A time is in milliseconds, or "earliest", "latest" (the offset that the next record gets), or "max_timestamp".
        """
        one_of("isolation_level", isolation_level, "read_uncommitted", "read_committed")
        given = mapping("times", times, "times by topic and partition, such as {('letters', 0): 'latest'}")
        checked_partitions("times", given)
        times_ms: dict[TopicPartition, int] = {}
        for key, time in given.items():
            if isinstance(time, str):
                one_of("each of times", time, *_MOMENTS)
                times_ms[key] = _MOMENTS[time]
            else:
                whole("each of times", time, TIME_MIN, INT64_MAX)
                times_ms[key] = time
        return await list_offsets(self._cluster, times_ms, 1 if isolation_level == "read_committed" else 0)

    async def delete_records(self, before: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Delete what is before an offset, by (topic, partition); the first offset that is left, of each.

        HIGH_WATERMARK as the offset deletes all. Refused when one could not: the others may have been.
        """
        kind = DeleteRecordsRequest
        before = mapping("before", before, "offsets by topic and partition, such as {('letters', 0): 1}")
        checked_partitions("before", before)
        for offset in before.values():
            whole("each of before", offset, HIGH_WATERMARK, INT64_MAX)

        def ask(topics: dict[str, list[int]]) -> DeleteRecordsRequest:
            return kind(
                topics=[
                    kind.DeleteRecordsTopic(
                        name=topic,
                        partitions=[
                            kind.DeleteRecordsPartition(partition_index=index, offset=before[topic, index])
                            for index in indexes
                        ],
                    )
                    for topic, indexes in topics.items()
                ],
                timeout_ms=self._timeout_ms,
            )

        def results(
            response: DeleteRecordsResponse,
        ) -> Iterable[tuple[TopicPartition, int, str | None, int]]:
            for topic in response.topics:
                for part in topic.partitions:
                    yield (topic.name, part.partition_index), part.error_code, None, part.low_watermark

        return await self._at_leaders(list(before), ask, results, "can't lose records")

    async def describe_producers(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, list[ProducerInfo]]:
        """The idempotent and transactional producers that the leaders of partitions remember."""
        request = DescribeProducersRequest.TopicRequest
        wanted = checked_partitions("partitions", partitions)

        def ask(topics: dict[str, list[int]]) -> DescribeProducersRequest:
            return DescribeProducersRequest(
                topics=[request(name=topic, partition_indexes=indexes) for topic, indexes in topics.items()]
            )

        def results(
            response: DescribeProducersResponse,
        ) -> Iterable[tuple[TopicPartition, int, str | None, list[ProducerInfo]]]:
            for topic in response.topics:
                for part in topic.partitions:
                    found = [_producer(producer) for producer in part.active_producers]
                    yield (topic.name, part.partition_index), part.error_code, part.error_message, found

        return await self._at_leaders(wanted, ask, results, "does not tell its producers")


def _producer(producer: DescribeProducersResponse.ProducerState) -> ProducerInfo:
    return ProducerInfo(
        producer.producer_id,
        producer.producer_epoch,
        producer.last_sequence,
        producer.last_timestamp,
        producer.coordinator_epoch,
        producer.current_txn_start_offset,
    )
