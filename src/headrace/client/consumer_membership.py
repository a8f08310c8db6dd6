"""Membership of a group by the protocol of KIP-848: the coordinator assigns, the member says what it owns.

One task heartbeats. What is taken away is given up before the next heartbeat says so, and what is given is read after
the coordinator has said so: nobody else owns it meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Final

from headrace.client.cluster import Cluster
from headrace.client.coordinators import Coordinators
from headrace.client.membership import Membership, Owner, TopicPartition
from headrace.client.transaction import GroupMember
from headrace.errors import Error, HeadraceError
from headrace.protocol import messages as m

__all__ = ["ConsumerMembership"]

_log = logging.getLogger(__name__)

JOINING: Final = 0
LEAVING: Final = -1
LEAVING_FOR_A_WHILE: Final = -2
_BEGIN_AGAIN: Final = frozenset({Error.FENCED_MEMBER_EPOCH, Error.UNKNOWN_MEMBER_ID})


class ConsumerMembership(Membership):
    __slots__ = (
        "_assignor",
        "_epoch",
        "_is_said",
        "_owned",
        "_pattern",
        "_rack",
        "_reconciling",
        "_stopped",
        "_target",
    )

    def __init__(
        self,
        cluster: Cluster,
        coordinators: Coordinators,
        owner: Owner,
        *,
        group_id: str,
        member_id: str,
        instance_id: str | None,
        rack: str | None,
        rebalance_timeout_ms: int,
        assignor: str | None,
    ) -> None:
        super().__init__(cluster, coordinators, owner, group_id, member_id, instance_id, rebalance_timeout_ms)
        self._rack = rack
        self._assignor = assignor
        self._pattern: str | None = None
        self._epoch = JOINING
        self._owned: dict[TopicPartition, bytes] = {}
        """With the id of the topic."""
        self._stopped: dict[TopicPartition, None] = {}
        """Those of them that it must give up, even if they are assigned to it again before it has."""
        self._reconciling: asyncio.Task[None] | None = None
        """What was assigned is being taken up, or given up; heartbeats go on meanwhile."""
        self._target: m.ConsumerGroupHeartbeatResponse.Assignment | None = None
        """The newest assignment, when it has not been looked at yet."""
        self._is_said = False
        """The coordinator knows what is owned and subscribed to."""

    @property
    def member(self) -> GroupMember:
        if self._epoch <= JOINING:
            return GroupMember(self._group_id)
        return GroupMember(self._group_id, self._epoch, self._member_id, self._instance_id)

    def subscribe(self, topics: Sequence[str], pattern: str | None) -> None:
        self._pattern = pattern
        self._is_said = False
        super().subscribe(topics, pattern)

    async def _part(self) -> m.ConsumerGroupHeartbeatRequest | None:
        if self._reconciling is not None:
            self._reconciling.cancel()
            await asyncio.gather(self._reconciling, return_exceptions=True)
        if self._epoch <= JOINING:
            return None
        owned = list(self._owned)
        self._owned.clear()
        await self._owner.take(owned)
        return self._request(LEAVING if self._instance_id is None else LEAVING_FOR_A_WHILE)

    # --- heartbeats ---------------------------------------------------------------------------------------------------

    async def _turn(self) -> float:
        self._is_news.clear()
        request = self._request(self._epoch, is_whole=self._epoch == JOINING or not self._is_said)
        # Unless it fails, or there is more to say meanwhile.
        self._is_said = self._is_said or request.topic_partitions is not None
        try:
            # One try. An answer that is lost may have been an assignment, which is told again to whoever tells all.
            response: m.ConsumerGroupHeartbeatResponse = await self._call(request, patience_s=0)
        except HeadraceError:
            self._is_said = False
            raise
        error = Error.of(response.error_code)
        if error is not Error.NONE:
            self._is_said = False
        if error in _BEGIN_AGAIN:
            _log.info("%s is not a member of %s any more (%s), and joins again", self._member_id, self._group_id, error)
            self._lose()
            self._epoch = JOINING
            self._is_news.set()
            return 0.0
        if error is Error.UNRELEASED_INSTANCE_ID:
            return self._cluster.settings.retry_backoff_max_s  # until its last life has timed out
        if error is not Error.NONE:
            raise self._refusal(error, response.error_message)
        if response.assignment is not None:
            self._target = response.assignment
            kept = {topic.topic_id: topic.partitions for topic in self._target.topic_partitions}
            # Before the epoch changes: with it, these may be somebody else's.
            gone = [key for key, topic_id in self._owned.items() if key[1] not in kept.get(topic_id, ())]
            self._stopped |= dict.fromkeys(gone)
            self._owner.stop(gone)
        self._epoch = response.member_epoch
        if self._target is not None and not self._is_reconciling:
            self._reconciling = asyncio.get_running_loop().create_task(self._reconcile_all())
        return response.heartbeat_interval_ms / 1000

    def _request(self, epoch: int, *, is_whole: bool = False) -> m.ConsumerGroupHeartbeatRequest:
        request = m.ConsumerGroupHeartbeatRequest(
            group_id=self._group_id,
            member_id=self._member_id,
            member_epoch=epoch,
            instance_id=self._instance_id,
            rebalance_timeout_ms=-1,
            subscribed_topic_names=None,
            topic_partitions=None,
        )
        if is_whole:
            request.rack_id = self._rack
            request.rebalance_timeout_ms = self._rebalance_timeout_ms
            request.subscribed_topic_names = list(self._topics)
            request.subscribed_topic_regex = self._pattern
            request.server_assignor = self._assignor
            if self._is_reconciling and epoch != JOINING:
                return request  # what it says that it does not own, others get at once: it must have given it up
            by_id: dict[bytes, list[int]] = {}
            for (_, index), topic_id in self._owned.items():
                by_id.setdefault(topic_id, []).append(index)
            kind = m.ConsumerGroupHeartbeatRequest.TopicPartitions
            request.topic_partitions = [kind(topic_id=topic_id, partitions=by_id[topic_id]) for topic_id in by_id]
        return request

    # --- what is owned ------------------------------------------------------------------------------------------------

    @property
    def _is_reconciling(self) -> bool:
        return self._reconciling is not None and not self._reconciling.done()

    async def _reconcile_all(self) -> None:
        while self._target is not None:
            target, self._target = self._target, None
            try:
                await self._reconcile(target)
            except HeadraceError as error:
                _log.info("an assignment of %s could not be taken up: %s", self._group_id, error)
                # Told what is owned, the coordinator says again what is to be owned.
                self._is_said = False
                self._is_news.set()
            except Exception as error:
                self._broke(error)
                return

    async def _reconcile(self, assignment: m.ConsumerGroupHeartbeatResponse.Assignment) -> None:
        names = await self._names([topic.topic_id for topic in assignment.topic_partitions])
        wanted = {
            (names[topic.topic_id], index): topic.topic_id
            for topic in assignment.topic_partitions
            if topic.topic_id in names
            for index in topic.partitions
        }
        taken = [
            partition
            for partition, topic_id in self._owned.items()
            if partition in self._stopped or wanted.get(partition) != topic_id
        ]
        if taken:
            await self._owner.take(taken)
            for partition in taken:
                self._owned.pop(partition, None)
                self._stopped.pop(partition, None)
        given = [partition for partition, topic_id in wanted.items() if self._owned.get(partition) != topic_id]
        if given:
            self._owned |= {partition: wanted[partition] for partition in given}
            try:
                await self._owner.give(given)
            except HeadraceError:
                for partition in given:
                    self._owned.pop(partition, None)
                    self._stopped.pop(partition, None)
                raise
        if taken or given:
            self._is_said = False
            self._is_news.set()

    def _lose(self) -> None:
        if self._reconciling is not None:
            self._reconciling.cancel()
        self._target = None
        self._stopped.clear()
        owned = list(self._owned)
        self._owned.clear()
        self._owner.lose(owned)

    async def _names(self, topic_ids: Sequence[bytes]) -> dict[bytes, str]:
        known = {info.topic_id: name for name, info in self._cluster.metadata.topics.items()}
        if missing := [topic_id for topic_id in topic_ids if topic_id not in known]:
            kind = m.MetadataRequest.MetadataRequestTopic
            asked = [kind(topic_id=topic_id, name=None) for topic_id in missing]
            request = m.MetadataRequest(topics=asked, allow_auto_topic_creation=False)
            response: m.MetadataResponse = await self._cluster.call(request)
            known |= {topic.topic_id: topic.name for topic in response.topics if not topic.error_code and topic.name}
        return {topic_id: known[topic_id] for topic_id in topic_ids if topic_id in known}
