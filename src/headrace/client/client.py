"""The facade: one client for a cluster, and what it makes."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Sequence
from typing import Any, Self

from headrace.client.admin import Admin
from headrace.client.arguments import function, instance
from headrace.client.cluster import Cluster
from headrace.client.consumer import Consumer
from headrace.client.errors import Closed, WrongArgument
from headrace.client.group_consumer import GroupConsumer
from headrace.client.producer import Producer
from headrace.client.settings import Settings
from headrace.client.transactional_producer import TransactionalProducer

__all__ = ["Client"]


def _wall_clock_ms() -> int:
    return int(time.time() * 1000)


class Client:
    """A client of any cluster that speaks the Kafka protocol.

        async with Client("127.0.0.1:9092") as client:
            await client.admin.create_topics(["greetings"])
            print(await client.producer().send("greetings", b"hello"))

    `settings` are the fields of `Settings`, such as client_id and request_timeout_s. A simulation hands in its own
    source of randomness and its own clock. Producers and consumers are closed with the client.
    """

    __slots__ = ("_chance", "_cluster", "_is_closing", "_made", "_now_ms", "admin")

    def __init__(
        self,
        bootstrap: str | Sequence[str],
        *,
        chance: random.Random | None = None,
        now_ms: Callable[[], int] = _wall_clock_ms,
        **settings: Any,
    ) -> None:
        function("now_ms", now_ms, "a function that tells the time in milliseconds")
        if chance is not None:
            instance("chance", chance, random.Random)
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            raise WrongArgument("A client is made in a running event loop: make it in a coroutine.") from None
        self._chance = random.Random() if chance is None else chance
        self._now_ms = now_ms
        self._cluster = Cluster(bootstrap, Settings(**settings), self._chance)
        self._made: dict[Producer | Consumer, None] = {}
        self._is_closing = False
        self.admin = Admin(self._cluster)

    async def connect(self) -> None:
        """Ask whether a broker is there, once: Unreachable when none answers. Calls connect by themselves, and wait."""
        await self._cluster.refresh()

    def producer(self, **settings: Any) -> Producer:
        """A producer; its settings are the keywords of `Producer`, such as acks, linger_ms and compression."""
        self._check_usable()
        if "transactional_id" in settings:
            raise WrongArgument("transactional_id is for a transactional_producer: make one of those.")
        producer = Producer(self._cluster, self._chance, self._now_ms, self._forget, **settings)
        self._made[producer] = None
        return producer

    def transactional_producer(self, transactional_id: str, **settings: Any) -> TransactionalProducer:
        """A producer whose records become visible together, or not at all; its settings are those of a producer."""
        self._check_usable()
        producer = TransactionalProducer(
            self._cluster, self._chance, self._now_ms, self._forget, transactional_id=transactional_id, **settings
        )
        self._made[producer] = None
        return producer

    def consumer(self, **settings: Any) -> Consumer:
        """A consumer by assignment; its settings are the keywords of `Consumer`, such as auto_offset_reset."""
        self._check_usable()
        consumer = Consumer(self._cluster, self._forget, **settings)
        self._made[consumer] = None
        return consumer

    def group_consumer(self, group_id: str, **settings: Any) -> GroupConsumer:
        """A consumer that shares topics with the members of its group; its settings are those of `GroupConsumer`."""
        self._check_usable()
        consumer = GroupConsumer(self._cluster, self._chance, self._forget, group_id=group_id, **settings)
        self._made[consumer] = None
        return consumer

    async def close(self) -> None:
        """Close all that was made, producers after what they hold is acknowledged or given up; then the links."""
        self._is_closing = True
        try:
            ends = await asyncio.gather(*(one.close() for one in list(self._made)), return_exceptions=True)
        except asyncio.CancelledError:
            await self._cluster.close()
            raise
        await self._cluster.close()
        for end in ends:
            if isinstance(end, BaseException):
                raise end

    def _check_usable(self) -> None:
        if self._is_closing:
            raise Closed("The client is closed: make another one.")
        self._cluster.check_usable()

    def _forget(self, one: Producer | Consumer) -> None:
        self._made.pop(one, None)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
