"""What transactions may do, and the topic that their state lives in."""

from __future__ import annotations

from headrace.config.group import Group, boolean, integer, short
from headrace.config.setting import Change
from headrace.config.topic import DAY_MS, HOUR_MS, MIB, MINUTE_MS


class TransactionConfig(Group):
    """Transactions, their coordinator, and the partitions that they write to."""

    transaction_max_timeout_ms: int = integer(
        default=15 * MINUTE_MS,
        least=1,
        doc="The longest time-out that a producer may ask for its transactions. An open one keeps readers of committed "
        "records from what follows it.",
    )
    transactional_id_expiration_ms: int = integer(
        default=7 * DAY_MS,
        least=1,
        doc="How long a transactional id is remembered after the last that happened to it. One with a transaction open "
        "is not forgotten.",
    )
    transaction_two_phase_commit_enable: bool = boolean(
        default=False,
        kafka="Kafka 4.2 takes transactions without a time-out, and keeps none over a restart of its producer.",
        doc="Whether a producer may leave the decision over its transactions to another coordinator (KIP-939). Such "
        "transactions have no time-out, and a producer that starts again may keep the one that it had prepared.",
    )
    transaction_partition_verification_enable: bool = boolean(
        default=True,
        change=Change.CLUSTER,
        doc="Whether a partition asks the coordinator before it takes the first records of a transaction, so that "
        "records which come too late can't leave a transaction hanging (KIP-890).",
    )
    add_partitions_to_txn_retry_backoff_ms: int = integer(
        default=20,
        least=0,
        why="Here the request waits at the coordinator, and goes on as soon as the transaction before is complete.",
        doc="How long a produce waits before it asks again, when the transaction before is not complete yet.",
    )
    add_partitions_to_txn_retry_backoff_max_ms: int = integer(
        default=100,
        least=0,
        doc="How long a request waits at most for the transaction before to be complete, until its producer is told to "
        "try again.",
    )
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = integer(
        default=10_000, least=1, doc="How often transactions past their time-out are looked for, and aborted."
    )
    transaction_remove_expired_transaction_cleanup_interval_ms: int = integer(
        default=HOUR_MS, least=1, doc="How often transactional ids that have expired are looked for, and forgotten."
    )
    transaction_state_log_num_partitions: int = integer(
        default=50,
        least=1,
        doc="The partitions of __transaction_state, when it is created. They must not change later.",
    )
    transaction_state_log_replication_factor: int = short(
        default=3,
        least=1,
        kafka="Kafka waits until there are as many brokers; here it gets as many replicas as there are brokers.",
        doc="The replicas of __transaction_state, when it is created.",
    )
    transaction_state_log_min_isr: int = integer(
        default=2,
        least=1,
        kafka="Here it is never more than the replicas that the topic is created with.",
        doc="The min.insync.replicas of __transaction_state, when it is created.",
    )
    transaction_state_log_segment_bytes: int = integer(
        default=100 * MIB,
        least=1 * MIB,
        kafka="Kafka takes less, and then can't create the topic.",
        doc="The segments of __transaction_state: small ones are compacted and loaded sooner.",
    )
    transaction_state_log_load_buffer_size: int = integer(
        default=1 * MIB,
        least=1,
        kafka="Kafka's default is 5 MiB.",
        doc="How many bytes of the log are read at once when a coordinator is loaded; a larger batch is read whole.",
    )
