"""Transactions: which are open, what they wrote to, and an end to those that hang (KIP-664)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from headrace.client.admin.calls import TopicPartition
from headrace.client.admin.coordinated import CoordinatedCalls
from headrace.client.arguments import INT16_MAX, INT64_MAX, text, texts, whole, wholes
from headrace.client.arguments import partition as checked_partition
from headrace.client.coordinators import CoordinatorKind
from headrace.errors import HeadraceError
from headrace.protocol import messages as m

__all__ = ["TransactionCalls", "TransactionDetail", "TransactionListing"]


class TransactionListing(NamedTuple):
    transactional_id: str
    producer_id: int
    state: str
    coordinator_id: int


@dataclass(slots=True)
class TransactionDetail:
    transactional_id: str
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    started_ms: int
    """-1 when none is under way."""
    partitions: list[TopicPartition] = field(default_factory=list)


class TransactionCalls(CoordinatedCalls):
    __slots__ = ()

    async def list_transactions(
        self,
        *,
        states: Sequence[str] = (),
        producer_ids: Sequence[int] = (),
        running_ms: int = -1,
        pattern: str | None = None,
        failures: dict[int, HeadraceError] | None = None,
    ) -> dict[str, TransactionListing]:
        """All transactional ids, or those in these states, of these producers, that run for as long, whose names match
        (RE2). With `failures` a broker that does not answer is noted there; without, it raises.
        """
        whole("running_ms", running_ms, -1, INT64_MAX)
        if pattern is not None:
            text("pattern", pattern, empty=True)
        request = m.ListTransactionsRequest(
            state_filters=texts("states", states),
            producer_id_filters=wholes("producer_ids", producer_ids, -1, INT64_MAX),
            duration_filter=running_ms,
            transactional_id_pattern=pattern,
        )
        listed = {
            one.transactional_id: TransactionListing(
                one.transactional_id, one.producer_id, one.transaction_state, broker_id
            )
            for broker_id, response in await self._lists(request, "transactions", failures)
            for one in response.transaction_states
        }
        return {name: listed[name] for name in sorted(listed)}

    async def describe_transactions(self, transactional_ids: Iterable[str]) -> dict[str, TransactionDetail]:
        """In full. Refused (TRANSACTIONAL_ID_NOT_FOUND) when there is none of a name."""
        return await self._at_coordinators(
            CoordinatorKind.TRANSACTION,
            texts("transactional_ids", transactional_ids),
            lambda names: m.DescribeTransactionsRequest(transactional_ids=names),
            lambda response: [
                (one.transactional_id, one.error_code, None, _detail(one)) for one in response.transaction_states
            ],
            "can't be described",
        )

    async def fence_producer(self, transactional_id: str) -> tuple[int, int]:
        """Take a transactional id: its transaction is aborted, and whoever used it can't any more. The new producer id
        and epoch.
        """
        text("transactional_id", transactional_id)
        request = m.InitProducerIdRequest(
            transactional_id=transactional_id, transaction_timeout_ms=60_000, producer_id=-1, producer_epoch=-1
        )

        def results(response: Any) -> Iterable[tuple[str, int, str | None, tuple[int, int]]]:
            yield transactional_id, response.error_code, None, (response.producer_id, response.producer_epoch)

        found = await self._at_coordinators(
            CoordinatorKind.TRANSACTION, [transactional_id], lambda _: request, results, "can't be taken"
        )
        return found[transactional_id]

    async def abort_transaction(
        self, topic: str, partition: int, producer_id: int, producer_epoch: int, coordinator_epoch: int
    ) -> None:
        """Write into a partition that a producer's transaction was aborted: for one that hangs, of which no coordinator
        knows. What its coordinator still has under way would be broken by this.
        """
        checked_partition("the partition", (topic, partition))
        whole("producer_id", producer_id, 0, INT64_MAX)
        whole("producer_epoch", producer_epoch, 0, INT16_MAX)
        whole("coordinator_epoch", coordinator_epoch, -1)
        marker = m.WriteTxnMarkersRequest

        def ask(topics: dict[str, list[int]]) -> m.WriteTxnMarkersRequest:
            return marker(
                markers=[
                    marker.WritableTxnMarker(
                        producer_id=producer_id,
                        producer_epoch=producer_epoch,
                        transaction_result=False,
                        topics=[
                            marker.WritableTxnMarkerTopic(name=name, partition_indexes=indexes)
                            for name, indexes in topics.items()
                        ],
                        coordinator_epoch=max(coordinator_epoch, 0),
                    )
                ]
            )

        def results(response: m.WriteTxnMarkersResponse) -> Iterable[tuple[TopicPartition, int, str | None, None]]:
            for written in response.markers:
                for answered in written.topics:
                    for part in answered.partitions:
                        yield (answered.name, part.partition_index), part.error_code, None, None

        await self._at_leaders([(topic, partition)], ask, results, "does not take the end of the transaction")


def _detail(one: m.DescribeTransactionsResponse.TransactionState) -> TransactionDetail:
    return TransactionDetail(
        one.transactional_id,
        one.transaction_state,
        one.producer_id,
        one.producer_epoch,
        one.transaction_timeout_ms,
        one.transaction_start_time_ms,
        sorted((topic.topic, index) for topic in one.topics for index in topic.partitions),
    )
