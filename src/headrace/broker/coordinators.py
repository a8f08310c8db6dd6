"""The coordinators of a node, and how clients reach them: the only wiring of what is in `coordinator`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from headrace.broker.consumer_groups import ConsumerGroupApis
from headrace.broker.forward import Channel
from headrace.broker.groups import GroupApis
from headrace.broker.later import later
from headrace.broker.offset_commits import OffsetCommits
from headrace.broker.producer_ids import ProducerIds
from headrace.broker.router import Route
from headrace.broker.state_topics import StateTopics, state_topics_of
from headrace.broker.topics import Creates
from headrace.broker.transaction_coordinator import TransactionCoordinator
from headrace.config import NodeConfig
from headrace.coordinator.runtime import Runtime
from headrace.coordinator.shard import Timers
from headrace.coordinator.state_topic import CONSUMER_OFFSETS
from headrace.errors import Error
from headrace.metadata.image import Image
from headrace.metadata.loader import Loader
from headrace.protocol.compression import Compression
from headrace.replica.manager import Replicas
from headrace.storage.workers import Workers

if TYPE_CHECKING:
    from headrace.broker.find_coordinator import FindCoordinator
    from headrace.coordinator.groups.shard import GroupShard


class Coordinators:
    """Made after the replicas have subscribed to the loader."""

    __slots__ = (
        "_config",
        "_find_coordinator",
        "_now_ms",
        "_random_bytes",
        "consumer_groups",
        "group_apis",
        "groups",
        "offsets",
        "topics",
        "transactions",
    )

    def __init__(
        self,
        config: NodeConfig,
        loader: Loader,
        replicas: Replicas,
        channel: Channel,
        producer_ids: ProducerIds,
        *,
        is_registered: Callable[[Image], bool],
        workers: Workers,
        matchers: Workers,
        random_bytes: Callable[[int], bytes],
        call_soon: Callable[[Callable[[], None]], object],
    ) -> None:
        """The workers read logs when coordinators are loaded, and the matchers match the patterns of administrators.
        `call_soon` is the loop's.

        No coordinator acts before an image says that this life of the broker `is_registered`.
        """
        self._config = config
        self._random_bytes = random_bytes
        self._now_ms = replicas.now_ms
        self.topics = StateTopics(state_topics_of(config), channel, lambda: loader.image)
        self.groups: Runtime[GroupShard] = Runtime(
            CONSUMER_OFFSETS,
            self._group_shard,
            replicas,
            workers,
            call_soon,
            is_registered=is_registered,
            load_bytes=config.offsets.offsets_load_buffer_size,
            commit_timeout_ms=config.offsets.offsets_commit_timeout_ms,
            compression=Compression(config.offsets.offsets_topic_compression_codec),
        )
        find: FindCoordinator = later("headrace.broker.find_coordinator:FindCoordinator", loader, self.topics)
        self._find_coordinator = find
        self.offsets = OffsetCommits(self.groups)
        self.group_apis = GroupApis(self.groups)
        self.consumer_groups = ConsumerGroupApis(self.groups)
        loader.subscribe(self.groups.apply)
        self.transactions = TransactionCoordinator(
            config.transactions,
            loader,
            replicas,
            self.groups,
            self.topics,
            producer_ids,
            is_registered=is_registered,
            workers=workers,
            matchers=matchers,
            call_soon=call_soon,
        )

    def _group_shard(self, timers: Timers, leader_epoch: int) -> GroupShard:
        # When the first one is made: a node without groups starts sooner without them.
        from headrace.broker.group_notes import GroupNotes
        from headrace.coordinator.groups.context import GroupContext
        from headrace.coordinator.groups.note import Note
        from headrace.coordinator.groups.shard import GroupShard

        if Note not in self.groups.effects:
            self.groups.effects[Note] = GroupNotes(self._now_ms).tell
        config = self._config
        return GroupShard(
            GroupContext(
                timers,
                group_config=config.groups,
                offsets_config=config.offsets,
                random_bytes=self._random_bytes,
            )
        )

    def routes(self) -> list[Route]:
        offsets, groups, consumer_groups = self.offsets, self.group_apis, self.consumer_groups
        commits = Route("OffsetCommit", offsets.commit, errors=offsets.commit_errors)
        offsets.commit_figures = commits.figures
        return [
            Route("FindCoordinator", self._find_coordinator.handle),
            commits,
            Route("OffsetFetch", offsets.fetch, errors=offsets.fetch_errors),
            Route("OffsetDelete", offsets.delete, errors=offsets.delete_errors),
            Route("JoinGroup", groups.join, errors=groups.join_errors),
            Route("Heartbeat", groups.heartbeat, errors=groups.heartbeat_errors, comes_again=True),
            Route("LeaveGroup", groups.leave, errors=groups.leave_errors),
            Route("SyncGroup", groups.sync, errors=groups.sync_errors),
            Route("DescribeGroups", groups.describe, errors=groups.describe_errors),
            Route("ListGroups", groups.list, errors=groups.list_errors),
            Route("DeleteGroups", groups.delete, errors=groups.delete_errors),
            Route(
                "ConsumerGroupHeartbeat",
                consumer_groups.heartbeat,
                errors=consumer_groups.heartbeat_errors,
                comes_again=True,
            ),
            Route("ConsumerGroupDescribe", consumer_groups.describe, errors=consumer_groups.describe_errors),
            *self.transactions.routes(),
        ]

    def creates(self, others: Creates) -> Creates:
        """State topics with their own settings, and others by `others`, for those who ask for topics by name."""
        return _Creates(self.topics, others)

    def stop(self) -> None:
        self.groups.stop()
        self.transactions.stop()


class _Creates:
    __slots__ = ("_others", "_topics")

    def __init__(self, topics: StateTopics, others: Creates) -> None:
        self._topics = topics
        self._others = others

    async def create_missing(self, names: Sequence[str]) -> dict[str, Error]:
        for name in names:
            if name in self._topics:
                await self._topics.create(name)
        others = [name for name in names if name not in self._topics]
        return await self._others.create_missing(others) if others else {}
