"""The responses of the transaction coordinator. PURE."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.coordinator.transactions.transaction import NO_EPOCH, NO_PRODUCER, Identity, TopicPartition
from headrace.errors import Error
from headrace.protocol import messages as m


def init_error(error: Error) -> m.InitProducerIdResponse:
    return m.InitProducerIdResponse(error_code=error, producer_id=NO_PRODUCER, producer_epoch=NO_EPOCH)


def end_error(error: Error) -> m.EndTxnResponse:
    return m.EndTxnResponse(error_code=error)


def ended_response(client: Identity) -> m.EndTxnResponse:
    return m.EndTxnResponse(producer_id=client.producer_id, producer_epoch=client.producer_epoch)


def described_error(transactional_id: str, error: Error) -> m.DescribeTransactionsResponse.TransactionState:
    return m.DescribeTransactionsResponse.TransactionState(transactional_id=transactional_id, error_code=error)


def added_result(
    transactional_id: str, errors: Mapping[TopicPartition, Error]
) -> m.AddPartitionsToTxnResponse.AddPartitionsToTxnResult:
    topics: dict[str, list[m.AddPartitionsToTxnResponse.AddPartitionsToTxnPartitionResult]] = {}
    for (topic, index), error in errors.items():
        topics.setdefault(topic, []).append(
            m.AddPartitionsToTxnResponse.AddPartitionsToTxnPartitionResult(
                partition_index=index, partition_error_code=error
            )
        )
    return m.AddPartitionsToTxnResponse.AddPartitionsToTxnResult(
        transactional_id=transactional_id,
        topic_results=[
            m.AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult(name=topic, results_by_partition=results)
            for topic, results in topics.items()
        ],
    )
