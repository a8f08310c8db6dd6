"""Membership of a group, by either protocol: one task joins, heartbeats and begins again, until the member leaves."""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Protocol

from headrace.client.cluster import Cluster
from headrace.client.coordinators import CoordinatorKind, Coordinators
from headrace.client.errors import Fenced
from headrace.client.transaction import GroupMember
from headrace.errors import Error, HeadraceError, Refused
from headrace.protocol.message import Message

__all__ = ["Membership", "Owner", "TopicPartition"]

_log = logging.getLogger(__name__)

TopicPartition = tuple[str, int]


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


class Membership(ABC):
    __slots__ = (
        "_cluster",
        "_coordinators",
        "_group_id",
        "_instance_id",
        "_is_news",
        "_member_id",
        "_owner",
        "_rebalance_timeout_ms",
        "_task",
        "_topics",
    )

    def __init__(
        self,
        cluster: Cluster,
        coordinators: Coordinators,
        owner: Owner,
        group_id: str,
        member_id: str,
        instance_id: str | None,
        rebalance_timeout_ms: int,
    ) -> None:
        self._cluster = cluster
        self._coordinators = coordinators
        self._owner = owner
        self._group_id = group_id
        self._member_id = member_id
        self._instance_id = instance_id
        self._rebalance_timeout_ms = rebalance_timeout_ms
        self._topics: list[str] = []
        self._is_news = asyncio.Event()
        """The coordinator is to be asked at once."""
        self._task: asyncio.Task[None] | None = None

    @property
    @abstractmethod
    def member(self) -> GroupMember:
        """Who commits on its behalf."""

    def subscribe(self, topics: Sequence[str], pattern: str | None) -> None:
        self._topics = list(topics)
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
        farewell = await self._part()
        if farewell is None:
            return
        try:
            await self._call(farewell, patience_s=timeout_s)
        except HeadraceError as error:
            _log.info("the group %s was not told that a member leaves: %s", self._group_id, error)

    @abstractmethod
    async def _part(self) -> Message | None:
        """Give up what it has; returns what the coordinator is to be told, if anything."""

    @abstractmethod
    async def _turn(self) -> float:
        """Say to the coordinator what is to be said now; returns how long to wait until the next turn."""

    @abstractmethod
    def _lose(self) -> None:
        """What it has may be somebody else's already."""

    async def _run(self) -> None:
        backoff = self._cluster.backoff()
        while True:
            try:
                pause_s = await self._turn()
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
            except Exception as error:
                self._lose()
                self._broke(error)
                return
            await self._pause(pause_s)

    async def _pause(self, pause_s: float) -> None:
        try:
            async with asyncio.timeout(pause_s):
                await self._is_news.wait()
        except TimeoutError:
            pass

    async def _call(self, request: Message, *, timeout_s: float | None = None, patience_s: float | None = None) -> Any:
        return await self._coordinators.call(
            CoordinatorKind.GROUP,
            self._group_id,
            request,
            lambda answer: answer.error_code,
            timeout_s=timeout_s,
            patience_s=patience_s,
        )

    def _broke(self, error: Exception) -> None:
        """A defect: whoever polls is told, instead of waiting for records that never come."""
        _log.error("the member of %s failed", self._group_id, exc_info=error)
        failure = HeadraceError(f"The member of {self._group_id} failed ({error!r}): close the consumer, make another.")
        failure.__cause__ = error
        self._owner.fail(failure)

    def _refusal(self, error: Error, text: str | None = None) -> Refused:
        if error is Error.FENCED_INSTANCE_ID:
            return Fenced(error, f"Another member of {self._group_id} has the instance id {self._instance_id}.")
        return Refused(error, f"The group {self._group_id} refuses this member ({error.name}): {text or error.text}")
