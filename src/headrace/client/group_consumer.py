"""A consumer that shares the partitions of its topics with the other members of a group."""

from __future__ import annotations

import asyncio
import base64
import logging
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, Literal

from headrace.client.arguments import function, one_of, seconds, text, texts, whole
from headrace.client.arguments import partitions as checked_partitions
from headrace.client.classic_membership import ClassicMembership
from headrace.client.cluster import Cluster
from headrace.client.consumer import Consumer
from headrace.client.consumer_membership import ConsumerMembership
from headrace.client.coordinators import Coordinators
from headrace.client.errors import WrongArgument
from headrace.client.fetched import ConsumedRecord
from headrace.client.group_offsets import GroupOffsets
from headrace.client.membership import Membership
from headrace.client.transaction import GroupMember, OffsetToCommit, checked_offsets
from headrace.errors import HeadraceError

__all__ = ["GroupConsumer"]

_log = logging.getLogger(__name__)

TopicPartition = tuple[str, int]
Protocol = Literal["consumer", "classic"]
Changed = Callable[[list[TopicPartition]], Awaitable[None]]
LEAVE_SECONDS: Final = 5.0


async def _nothing(partitions: list[TopicPartition]) -> None:
    pass


class GroupConsumer(Consumer):
    """Made by `Client.group_consumer`.

        consumer.subscribe(["greetings"])
        async for record in consumer:
            ...

    What was given out counts as done when the next record is asked for. It is committed every `auto_commit_s` seconds,
    before a partition goes to another member, and at the end: each record is seen at least once. With
    `auto_commit_s=None` nothing is committed but by `commit`, or by a transaction (`member` tells it on whose behalf).
    """

    __slots__ = (
        "_auto_commit",
        "_auto_commit_s",
        "_coordinators",
        "_done",
        "_failure",
        "_given",
        "_given_as",
        "_held",
        "_membership",
        "_offsets",
        "_released",
        "_stopped",
        "_telling",
        "_turn_to_commit",
        "_under_way",
        "assigned",
        "lost",
        "revoked",
    )

    def __init__(
        self,
        cluster: Cluster,
        chance: random.Random,
        closed: Callable[[Consumer], None] = lambda _: None,
        *,
        group_id: str,
        protocol: Protocol = "consumer",
        instance_id: str | None = None,
        rack: str | None = None,
        assignor: str | None = None,
        auto_commit_s: float | None = 5.0,
        session_timeout_ms: int = 45_000,
        rebalance_timeout_ms: int = 300_000,
        heartbeat_s: float = 3.0,
        assigned: Changed = _nothing,
        revoked: Changed = _nothing,
        lost: Changed = _nothing,
        **settings: Any,
    ) -> None:
        """`session_timeout_ms` and `heartbeat_s` are for the classic protocol; in the new one the group has them."""
        text("group_id", group_id)
        one_of("protocol", protocol, "consumer", "classic")
        for name, given in (("instance_id", instance_id), ("rack", rack), ("assignor", assignor)):
            if given is not None:
                text(name, given)
        if auto_commit_s is not None:
            seconds("auto_commit_s", auto_commit_s)
        whole("session_timeout_ms", session_timeout_ms, 1)
        whole("rebalance_timeout_ms", rebalance_timeout_ms, 1)
        seconds("heartbeat_s", heartbeat_s)
        for name, callback in (("assigned", assigned), ("revoked", revoked), ("lost", lost)):
            function(name, callback, "a coroutine function that takes a list of partitions")
        super().__init__(cluster, closed, **settings)
        self._coordinators = Coordinators(cluster)
        self._offsets = GroupOffsets(Coordinators(cluster))
        self._membership: Membership
        if protocol == "consumer":
            self._membership = ConsumerMembership(
                cluster,
                self._coordinators,
                self,
                group_id=group_id,
                member_id=base64.urlsafe_b64encode(chance.randbytes(16)).rstrip(b"=").decode(),
                instance_id=instance_id,
                rack=rack,
                rebalance_timeout_ms=rebalance_timeout_ms,
                assignor=assignor,
            )
        else:
            self._membership = ClassicMembership(
                cluster,
                self._coordinators,
                self,
                group_id=group_id,
                instance_id=instance_id,
                session_timeout_ms=session_timeout_ms,
                rebalance_timeout_ms=rebalance_timeout_ms,
                heartbeat_s=heartbeat_s,
            )
        self.assigned = assigned
        self.revoked = revoked
        self.lost = lost
        self._given: dict[TopicPartition, OffsetToCommit] = {}
        """What the last call gave out: where to go on behind it."""
        self._given_as: GroupMember | None = None
        """Who this was when a part of that went to somebody else."""
        self._held: dict[TopicPartition, None] = {}
        """Of which something was given out that somebody may still be at work on, although they are gone."""
        self._released = asyncio.Event()
        self._done: dict[TopicPartition, OffsetToCommit] = {}
        """What is done with and not committed."""
        self._under_way: dict[TopicPartition, OffsetToCommit] = {}
        """What is being committed: if it is not, it is done with and not committed."""
        self._turn_to_commit = asyncio.Lock()
        self._telling: dict[asyncio.Task[None], None] = {}
        self._stopped: dict[TopicPartition, None] = {}
        """What is not to be read, although it may be on its way to be."""
        self._failure: HeadraceError | None = None
        self._auto_commit_s = auto_commit_s
        self._auto_commit: asyncio.Task[None] | None = None

    # --- the group ----------------------------------------------------------------------------------------------------

    def subscribe(self, topics: Sequence[str] = (), *, pattern: str | None = None) -> None:
        """Share these topics, or all whose names match a pattern (RE2), with the members of the group."""
        self._check_open()
        topics = texts("topics", topics)
        if pattern is not None:
            text("pattern", pattern)
        elif not topics:
            raise WrongArgument("There is nothing to subscribe to: name topics, or give a pattern.")
        for topic in topics:
            self._cluster.want(topic)
        self._membership.subscribe(topics, pattern)
        if self._auto_commit_s is not None and self._auto_commit is None:
            self._auto_commit = asyncio.get_running_loop().create_task(self._commit_now_and_then(self._auto_commit_s))

    @property
    def member(self) -> GroupMember:
        """Who commits what was given out last, for `send_offsets` of a transaction.

        That is who this is in the group now, unless a part of it may be somebody else's by now: then who this was, for
        whom the coordinator commits nothing any more (hazard 13). Call it before the next `poll`.
        """
        return self._given_as or self._membership.member

    async def commit(self, offsets: Mapping[TopicPartition, OffsetToCommit | int] | None = None) -> None:
        """Commit these offsets, or everything that was given out so far."""
        self._check_open()
        if offsets is None:
            self._settle()
            await self._commit(list(self._done))
        else:
            await self._offsets.commit(checked_offsets(offsets), self.member)

    async def committed(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, OffsetToCommit]:
        """What the group has committed for these partitions, as far as it has."""
        self._check_open()
        return await self._offsets.committed(checked_partitions("partitions", partitions), self._membership.member)

    async def close(self) -> None:
        """Commit what is done, leave the group, stop reading."""
        try:
            if self._auto_commit is not None:
                self._auto_commit.cancel()
                await asyncio.gather(self._auto_commit, return_exceptions=True)
                self._auto_commit = None
            await self._membership.leave(LEAVE_SECONDS)
        except (Exception, asyncio.CancelledError):
            await self._stop_reading()
            raise
        await self._stop_reading()

    async def _stop_reading(self) -> None:
        await super().close()
        self._coordinators.close()
        self._offsets.close()

    async def _commit_now_and_then(self, pause_s: float) -> None:
        while True:
            await asyncio.sleep(pause_s)
            await self._commit_done(list(self._done))

    async def _commit_done(self, partitions: Sequence[TopicPartition]) -> None:
        try:
            await self._commit(partitions)
        except HeadraceError as error:
            _log.warning("offsets of %s were not committed: %s", self._membership.member.group_id, error)

    async def _commit(self, partitions: Sequence[TopicPartition]) -> None:
        """One at a time, so that a partition is not given up while an older commit of it is still on its way."""
        async with self._turn_to_commit:
            done, under_way = self._done, self._under_way
            under_way |= {partition: done.pop(partition) for partition in partitions if partition in done}
            try:
                await self._offsets.commit(dict(under_way), self._membership.member)
            except BaseException:  # also when nobody waits for it any more
                for partition, offset in under_way.items():  # unless there is more to commit by now
                    done.setdefault(partition, offset)
                raise
            finally:
                under_way.clear()

    # --- what the membership asks for ---------------------------------------------------------------------------------

    async def give(self, partitions: Sequence[TopicPartition]) -> None:
        for partition in partitions:
            self._stopped.pop(partition, None)
        # The same partition in the same generation again, when a coordinator lost its last one: what is done with it
        # is to be committed before it is asked for.
        while any(partition in self._held and partition not in self._stopped for partition in partitions):
            self._released.clear()
            await self._released.wait()
        committed = await self._offsets.committed(partitions, self._membership.member)
        partitions = [partition for partition in partitions if partition not in self._stopped]
        self.assign([*self.assignment, *partitions])
        for (topic, index), at in committed.items():
            if (topic, index) not in self._stopped:
                self.seek(topic, index, at.offset, at.leader_epoch)
        try:
            await self._tell("assigned", self.assigned, partitions)
        except HeadraceError:
            self.stop(partitions)
            raise

    def stop(self, partitions: Sequence[TopicPartition]) -> None:
        gone = dict.fromkeys(partitions)
        self._stopped |= gone
        self.assign([partition for partition in self.assignment if partition not in gone])
        # Whoever is at work on what was given out of these must not commit it in the name of another generation.
        held = [partition for partition in gone if partition in self._given]
        self._held |= dict.fromkeys(held)
        if self._given_as is None and held:
            self._given_as = self._membership.member
        self._released.set()

    async def take(self, partitions: Sequence[TopicPartition]) -> None:
        if not partitions:
            return
        self.stop(partitions)
        await self._tell("revoked", self.revoked, partitions)
        if self._auto_commit_s is not None:
            await self._commit_done(partitions)
        self._forget(partitions)

    def lose(self, partitions: Sequence[TopicPartition]) -> None:
        if partitions:
            self.stop(partitions)
            self._forget(partitions)
            task = asyncio.get_running_loop().create_task(self._tell("lost", self.lost, partitions))
            self._telling[task] = None
            task.add_done_callback(self._told)

    async def _tell(self, name: str, callback: Changed, partitions: Sequence[TopicPartition]) -> None:
        try:
            await callback(list(partitions))
        except HeadraceError:
            raise
        except Exception as error:
            # The group goes on without waiting for it; whoever polls is told.
            _log.exception("the callback `%s` of %s failed", name, self._membership.member.group_id)
            failure = HeadraceError(f"The callback `{name}` failed ({error!r}): close the consumer, make another.")
            failure.__cause__ = error
            self.fail(failure)

    def _told(self, task: asyncio.Task[None]) -> None:
        del self._telling[task]
        if not task.cancelled() and isinstance(error := task.exception(), HeadraceError):
            self.fail(error)

    def fail(self, error: HeadraceError) -> None:
        self._failure = error
        self._arrived.set()

    def _forget(self, partitions: Sequence[TopicPartition]) -> None:
        for partition in partitions:
            self._done.pop(partition, None)
            self._given.pop(partition, None)
            self._under_way.pop(partition, None)

    # --- records ------------------------------------------------------------------------------------------------------

    async def poll(self, max_records: int = 500, timeout_s: float | None = None) -> list[ConsumedRecord]:
        self._settle()
        self._release()
        records = await super().poll(max_records, timeout_s)
        for record in records:
            self._given[record.topic, record.partition] = OffsetToCommit(record.offset + 1, record.leader_epoch)
        return records

    async def __anext__(self) -> ConsumedRecord:
        self._settle()
        self._release()
        record = await super().__anext__()
        self._given[record.topic, record.partition] = OffsetToCommit(record.offset + 1, record.leader_epoch)
        return record

    def _release(self) -> None:
        """Whoever asks for more is done with what was given out, or has given it up."""
        self._given_as = None
        self._held.clear()
        self._released.set()

    def _settle(self) -> None:
        if self._given:
            self._done |= self._given
            self._given = {}

    def _take(self, max_records: int) -> list[ConsumedRecord]:
        if self._failure is not None:
            raise self._failure
        return super()._take(max_records)
