"""Membership of a group by the protocol of KIP-848: the coordinator assigns, the member says what it owns.

One task heartbeats. What is taken away is given up before the next heartbeat says so, and what is given is read after
the coordinator has said so: nobody else owns it meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Final, Protocol

from headrace.client.cluster import Cluster
from headrace.client.coordinators import CoordinatorKind, Coordinators
from headrace.client.errors import Fenced
from headrace.client.transaction import GroupMember
from headrace.errors import Error, HeadraceError, Refused
from headrace.protocol import messages as m

__all__ = ["ConsumerMembership", "Owner"]

_log = logging.getLogger(__name__)

TopicPartition = tuple[str, int]
JOINING: Final = 0
LEAVING: Final = -1
LEAVING_FOR_A_WHILE: Final = -2
_BEGIN_AGAIN: Final = frozenset({Error.FENCED_MEMBER_EPOCH, Error.UNKNOWN_MEMBER_ID})


class Owner(Protocol):
    """The consumer that is a member."""

    async def give(self, partitions: Sequence[TopicPartition]) -> None:
        """These are its own from now on, besides those that it has."""

    def stop(self, partitions: Sequence[TopicPartition]) -> None:
        """These will be taken: give out nothing more of them. What was given out is committed, if at all, by who this
        is now in the group, and not by who it is later."""

    async def take(self, partitions: Sequence[TopicPartition]) -> None:
        """Give these up; returns when it has, with what it had read of them committed."""

    def lose(self, partitions: Sequence[TopicPartition]) -> None:
        """Somebody else may have these already."""

    def fail(self, error: HeadraceError) -> None:
        """It can't be a member any more."""


class ConsumerMembership:
    __slots__ = (
        "_assignor",
        "_cluster",
        "_coordinators",
        "_epoch",
        "_group_id",
        "_instance_id",
        "_is_news",
        "_is_said",
        "_member_id",
        "_owned",
        "_owner",
        "_pattern",
        "_rack",
        "_rebalance_timeout_ms",
        "_reconciling",
        "_stopped",
        "_target",
        "_task",
        "_topics",
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
        self._cluster = cluster
        self._coordinators = coordinators
        self._owner = owner
        self._group_id = group_id
        self._member_id = member_id
        self._instance_id = instance_id
        self._rack = rack
        self._rebalance_timeout_ms = rebalance_timeout_ms
        self._assignor = assignor
        self._topics: list[str] = []
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
        self._is_news = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def member(self) -> GroupMember:
        if self._epoch <= JOINING:
            return GroupMember(self._group_id)
        return GroupMember(self._group_id, self._epoch, self._member_id, self._instance_id)

    def subscribe(self, topics: Sequence[str], pattern: str | None) -> None:
        self._topics, self._pattern = list(topics), pattern
        self._is_said = False
        self._is_news.set()
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def leave(self, timeout_s: float) -> None:
        """Leave the group, so that others get what this member had at once."""
        task, self._task = self._task, None
        if task is None:
            return
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        if self._reconciling is not None:
            self._reconciling.cancel()
            await asyncio.gather(self._reconciling, return_exceptions=True)
        if self._epoch > JOINING:
            owned = list(self._owned)
            self._owned.clear()
            await self._owner.take(owned)
            epoch = LEAVING if self._instance_id is None else LEAVING_FOR_A_WHILE
            try:
                await self._heartbeat(self._request(epoch), patience_s=timeout_s)
            except HeadraceError as error:
                _log.info("the group %s was not told that a member leaves: %s", self._group_id, error)

    # --- the task -----------------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        backoff = self._cluster.backoff()
        while True:
            self._is_news.clear()
            try:
                pause_s = await self._beat()
                backoff.succeeded()
            except Refused as error:
                if not error.error.retriable:
                    self._lose()
                    self._owner.fail(error)
                    return
                pause_s = backoff.failed()
            except HeadraceError as error:
                _log.info("the coordinator of %s does not answer: %s", self._group_id, error)
                pause_s = backoff.failed()
            try:
                async with asyncio.timeout(pause_s):
                    await self._is_news.wait()
            except TimeoutError:
                pass

    async def _beat(self) -> float:
        request = self._request(self._epoch, is_whole=self._epoch == JOINING or not self._is_said)
        # Unless it fails, or there is more to say meanwhile.
        self._is_said = self._is_said or request.topic_partitions is not None
        try:
            # One try. An answer that is lost may have been an assignment, which is told again to whoever tells all.
            response = await self._heartbeat(request, patience_s=0)
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
        if error is Error.FENCED_INSTANCE_ID:
            raise Fenced(error, f"Another member of {self._group_id} has the instance id {self._instance_id}.")
        if error is Error.UNRELEASED_INSTANCE_ID:
            return self._cluster.settings.retry_backoff_max_s  # until its last life has timed out
        if error is not Error.NONE:
            text = response.error_message or error.text
            raise Refused(error, f"The group {self._group_id} refuses this member ({error.name}): {text}")
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

    async def _heartbeat(
        self, request: m.ConsumerGroupHeartbeatRequest, patience_s: float | None = None
    ) -> m.ConsumerGroupHeartbeatResponse:
        response: m.ConsumerGroupHeartbeatResponse = await self._coordinators.call(
            CoordinatorKind.GROUP,
            self._group_id,
            request,
            lambda answer: answer.error_code,
            patience_s=patience_s,
        )
        return response

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
