"""What administrators see of transactions (ListTransactions, DescribeTransactions). PURE."""

from __future__ import annotations

from collections.abc import Container

from headrace.coordinator.transactions.states import State
from headrace.coordinator.transactions.transaction import NO_TIME, Transaction, by_topic
from headrace.plain import plain
from headrace.protocol import messages as m


@plain
class Filter:
    """Which transactional ids are listed. What is None does not matter."""

    states: Container[State] | None = None
    producer_ids: Container[int] | None = None
    open_for_ms: int | None = None
    """Open for longer than this."""

    def matches(self, transaction: Transaction, now_ms: int) -> bool:
        if self.producer_ids is not None and transaction.producer_id not in self.producer_ids:
            return False
        if self.states is not None and transaction.state not in self.states:
            return False
        return self.open_for_ms is None or (
            transaction.start_ms != NO_TIME and now_ms - transaction.start_ms > self.open_for_ms
        )


def listed(transaction: Transaction) -> m.ListTransactionsResponse.TransactionState:
    return m.ListTransactionsResponse.TransactionState(
        transactional_id=transaction.transactional_id,
        producer_id=transaction.producer_id,
        transaction_state=transaction.state.text,
    )


def described(transaction: Transaction) -> m.DescribeTransactionsResponse.TransactionState:
    return m.DescribeTransactionsResponse.TransactionState(
        transactional_id=transaction.transactional_id,
        transaction_state=transaction.state.text,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_start_time_ms=transaction.start_ms,
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        topics=[
            m.DescribeTransactionsResponse.TopicData(topic=topic.topic, partitions=topic.partition_ids)
            for topic in by_topic(transaction.partitions)
        ],
    )
