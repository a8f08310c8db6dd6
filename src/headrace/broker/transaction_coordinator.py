"""The transaction coordinator of a node: its shards, its markers and its handlers, put together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from headrace.broker.broker_calls import BrokerCalls
from headrace.broker.later import later
from headrace.broker.producer_ids import ProducerIds
from headrace.broker.router import Route
from headrace.broker.state_topics import StateTopics
from headrace.config.transactions import TransactionConfig
from headrace.coordinator.runtime import Runtime
from headrace.coordinator.shard import Timers
from headrace.coordinator.state_topic import CONSUMER_OFFSETS, TRANSACTION_STATE
from headrace.errors import Error
from headrace.metadata.image import Image
from headrace.metadata.loader import Loader
from headrace.metrics.requests import ErrorCounts
from headrace.protocol.message import Message
from headrace.replica.manager import Replicas
from headrace.storage.workers import Workers

if TYPE_CHECKING:
    from headrace.broker.transaction_markers import MarkerWriter
    from headrace.broker.transaction_views import TransactionViews
    from headrace.broker.transactional_offsets import TransactionalOffsets
    from headrace.broker.transactions import Transactions
    from headrace.coordinator.groups.shard import GroupShard
    from headrace.coordinator.markers import Markers
    from headrace.coordinator.transactions.shard import TransactionShard, WriteMarkers


class TransactionCoordinator:
    """Made after the replicas and the groups have subscribed to the loader. `verifier` is for those who produce."""

    __slots__ = (
        "_config",
        "_creating",
        "_errors",
        "_markers",
        "_offsets",
        "_producer_ids",
        "_topics",
        "_transactions",
        "_views",
        "_writer",
        "runtime",
        "verifier",
    )

    def __init__(
        self,
        config: TransactionConfig,
        loader: Loader,
        replicas: Replicas,
        groups: Runtime[GroupShard],
        topics: StateTopics,
        producer_ids: ProducerIds,
        *,
        is_registered: Callable[[Image], bool],
        workers: Workers,
        matchers: Workers,
        call_soon: Callable[[Callable[[], None]], object],
    ) -> None:
        self._config = config
        self._producer_ids = producer_ids
        self._topics = topics
        self._creating: dict[asyncio.Task[None], None] = {}
        self.runtime: Runtime[TransactionShard] = Runtime(
            TRANSACTION_STATE,
            self._shard,
            replicas,
            workers,
            call_soon,
            is_registered=is_registered,
            load_bytes=config.transaction_state_log_load_buffer_size,
        )
        calls, errors = BrokerCalls(replicas.node_id), ErrorCounts()
        markers: Markers = later(
            "headrace.coordinator.markers:Markers",
            lambda: loader.image,
            calls.send,
            replicas.waits,
            call_soon,
            written=self._written,
            is_led=self._is_led,
        )
        transactions: Transactions = later(
            "headrace.broker.transactions:Transactions",
            self.runtime,
            lambda: loader.image,
            producer_ids,
            calls,
            self._create,
            lambda: self._config,
            errors,
        )
        writer: MarkerWriter = later(
            "headrace.broker.transaction_markers:MarkerWriter",
            replicas,
            {CONSUMER_OFFSETS: groups, TRANSACTION_STATE: self.runtime},
            errors,
        )
        self.verifier = LateVerifier(transactions)
        offsets: TransactionalOffsets = later(
            "headrace.broker.transactional_offsets:TransactionalOffsets", groups, replicas, self.verifier, errors
        )
        views: TransactionViews = later(
            "headrace.broker.transaction_views:TransactionViews", self.runtime, matchers, errors
        )
        self._markers, self._transactions, self._writer = markers, transactions, writer
        self._offsets, self._views, self._errors = offsets, views, errors
        self.configure(config)
        calls.serves["AddPartitionsToTxnRequest"] = transactions.add
        calls.serves["WriteTxnMarkersRequest"] = writer.write
        producer_ids.transactional = transactions.init
        loader.subscribe(self.runtime.apply)

    def _shard(self, timers: Timers, leader_epoch: int) -> TransactionShard:
        # When the first one is made: a node without transactions starts sooner without them.
        from headrace.coordinator.transactions.shard import TransactionShard, WriteMarkers

        self.runtime.effects[WriteMarkers] = self._markers.write
        return TransactionShard(leader_epoch, timers, self._config, self._producer_ids.take)

    def configure(self, config: TransactionConfig) -> None:
        """Other settings, from the next request on; those of shards from their next load on."""
        self._config = config
        self.verifier.is_enabled = config.transaction_partition_verification_enable

    def _written(self, effect: WriteMarkers) -> None:
        self.runtime.ask(
            effect.transactional_id, lambda shard, now_ms: shard.markers_written(effect, now_ms), _Nobody()
        )

    def _is_led(self, transactional_id: str) -> bool:
        return self.runtime.refusal(self.runtime.index_of(transactional_id)) is Error.NONE

    def _create(self, topic: str, created: Callable[[], None]) -> None:
        task = asyncio.get_running_loop().create_task(self._topics.create(topic))
        self._creating[task] = None

        def done(task: asyncio.Task[None]) -> None:
            del self._creating[task]
            if not task.cancelled():
                task.exception()
                created()

        task.add_done_callback(done)

    def routes(self) -> list[Route]:
        transactions, offsets, views, errors = self._transactions, self._offsets, self._views, self._errors
        return [
            Route(
                "InitProducerId",
                self._producer_ids.init,
                errors=errors["InitProducerId"],
                is_unstable_served=self._config.transaction_two_phase_commit_enable,
            ),
            Route("AddPartitionsToTxn", transactions.add_partitions, errors=errors["AddPartitionsToTxn"]),
            Route("AddOffsetsToTxn", transactions.add_offsets, errors=errors["AddOffsetsToTxn"]),
            Route("EndTxn", transactions.end, errors=errors["EndTxn"]),
            Route("WriteTxnMarkers", self._writer.handle, errors=errors["WriteTxnMarkers"]),
            Route("TxnOffsetCommit", offsets.commit, errors=errors["TxnOffsetCommit"]),
            Route("DescribeTransactions", views.describe, errors=errors["DescribeTransactions"]),
            Route("ListTransactions", views.list, errors=errors["ListTransactions"]),
        ]

    def stop(self) -> None:
        self.runtime.stop()


class LateVerifier:
    """What producers ask of transactions."""

    __slots__ = ("is_enabled", "verify")

    def __init__(self, transactions: Transactions) -> None:
        self.verify = transactions.verify
        self.is_enabled = True
        """transaction.partition.verification.enable"""


class _Nobody:
    """Waits for no reply: what was lost with a coordinator is done again by the next one."""

    __slots__ = ()

    def __call__(self, message: Message, /) -> None:
        pass

    def refuse(self, error: Error, text: str | None = None, /) -> None:
        pass
