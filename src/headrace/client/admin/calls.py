"""How the calls of administration reach whoever decides: the controller, the leaders of partitions, or one broker."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Iterable, Sequence
from contextlib import suppress
from typing import Any, Final, TypeVar

from headrace.client.cluster import Cluster
from headrace.client.errors import Unreachable
from headrace.client.offsets import learn_topics, may_pass
from headrace.errors import Error, HeadraceError, Refused
from headrace.net.peer import Disconnected
from headrace.protocol.message import Message

__all__ = ["Calls", "TopicPartition", "by_topic", "check", "refused"]

TopicPartition = tuple[str, int]
Key = TypeVar("Key", bound=Hashable)
Found = TypeVar("Found")

# Answers that may be others at the next try; a topic that is unknown to a controller stays unknown.
_AGAIN: Final = frozenset(
    {Error.NOT_CONTROLLER, Error.REQUEST_TIMED_OUT, Error.THROTTLING_QUOTA_EXCEEDED, Error.COORDINATOR_NOT_AVAILABLE}
)


class Calls:
    """Each call tries again while the answer may change, up to the operation time-out."""

    __slots__ = ("_cluster",)

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    @property
    def _timeout_ms(self) -> int:
        return int(self._cluster.settings.request_timeout_s * 1000)

    async def _change(
        self,
        keys: Sequence[Key],
        ask: Callable[[Sequence[Key]], Message],
        results: Callable[[Any], Iterable[tuple[Key, int, Any]]],
        named: Callable[[Key], str],
    ) -> AsyncIterator[tuple[Key, Any, bool]]:
        """Ask the controller for changes, until each has a final answer: that, and whether an earlier try, of which
        nobody knows the end, may have made the change. `results` takes a response apart: key, error code, result.
        Brokers that don't forward say whom to ask.
        """
        cluster = self._cluster
        backoff = cluster.backoff()
        deadline = asyncio.get_running_loop().time() + cluster.settings.operation_timeout_s
        uncertain: dict[Key, None] = {}
        while keys:
            failure: HeadraceError
            again: list[Key] = []
            try:
                answer = await self._ask_controller(ask(keys))
            except (Disconnected, Unreachable) as error:
                failure, again = error, list(keys)
                uncertain |= dict.fromkeys(keys)
            else:
                for key, code, result in results(answer):
                    error_code = Error.of(code)
                    if error_code not in _AGAIN:
                        yield key, result, key in uncertain
                        continue
                    again.append(key)
                    text = f"{named(key)} can't be changed now ({error_code.name}): {error_code.text}"
                    failure = Refused(error_code, text)
                    if error_code is Error.REQUEST_TIMED_OUT:
                        uncertain[key] = None
            keys = again
            if keys:
                await cluster.wait_to_retry(backoff, deadline, failure)
                with suppress(Disconnected, Unreachable):
                    await cluster.refresh()

    async def _change_one(self, what: str, message: Message) -> Any:
        """Ask the controller for one change, whose error is the response's own."""
        async for _, response, _ in self._change(
            [what], lambda _: message, lambda response: [(what, response.error_code, response)], str
        ):
            return response
        raise AssertionError("a change has an answer")

    async def _ask_controller(self, message: Message) -> Any:
        cluster = self._cluster
        if not cluster.metadata.nodes:
            await cluster.refresh()
        link = cluster.link(cluster.metadata.controller_id)
        return await (cluster.call_any(message) if link is None else link.call(message))

    async def _at_leaders(
        self,
        partitions: Sequence[TopicPartition],
        ask: Callable[[dict[str, list[int]]], Message],
        results: Callable[[Any], Iterable[tuple[TopicPartition, int, str | None, Found]]],
        what: str,
    ) -> dict[TopicPartition, Found]:
        """Ask the leaders of partitions, again where leadership has moved on. Refused where one says no for good."""
        cluster = self._cluster
        found: dict[TopicPartition, Found] = {}
        backoff = cluster.backoff()
        deadline = asyncio.get_running_loop().time() + cluster.settings.operation_timeout_s
        while True:
            missing = [key for key in partitions if key not in found]
            failures: dict[TopicPartition, HeadraceError] = {}
            await learn_topics(cluster, {topic for topic, _ in missing})
            by_leader: dict[int, list[TopicPartition]] = {}
            for topic, index in missing:
                partition = cluster.metadata.leader(topic, index)
                if partition is None:
                    failures[topic, index] = cluster.why_no_leader(topic, index)
                else:
                    by_leader.setdefault(partition.leader_id, []).append((topic, index))

            async def ask_leader(leader_id: int, keys: list[TopicPartition], failures: dict[Any, Any]) -> None:
                try:
                    link = cluster.link(leader_id)
                    if link is None:
                        raise Unreachable(f"Broker {leader_id} is gone.")
                    response = await link.call(ask(by_topic(keys)))
                except HeadraceError as error:
                    failures |= dict.fromkeys(keys, error)
                    return
                for key, code, text, result in results(response):
                    error_code = Error.of(code)
                    if error_code is Error.NONE:
                        found[key] = result
                    else:
                        failures[key] = refused(error_code, text, f"{key[0]}-{key[1]} {what}")

            await asyncio.gather(*(ask_leader(leader_id, keys, failures) for leader_id, keys in by_leader.items()))
            for failure in failures.values():
                if not may_pass(failure):
                    raise failure
            if not failures:
                return {key: found[key] for key in partitions}
            cluster.refresh_soon()
            await cluster.wait_to_retry(backoff, deadline, next(iter(failures.values())))

    async def _at_brokers(
        self, broker_ids: Iterable[int] | None, ask: Callable[[int], Awaitable[Found]]
    ) -> dict[int, Found]:
        """Ask brokers, or all that there are, at once."""
        if broker_ids is None:
            await self._cluster.refresh()
            broker_ids = sorted(self._cluster.metadata.nodes)
        wanted = list(broker_ids)
        return dict(zip(wanted, await asyncio.gather(*(ask(broker_id) for broker_id in wanted)), strict=True))


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for topic, index in partitions:
        topics.setdefault(topic, []).append(index)
    return topics


def refused(error: Error, message: str | None, what: str) -> Refused:
    return Refused(error, f"{what} ({error.name}): {message or error.text}")


def check(code: int, message: str | None, what: str) -> None:
    if code:
        raise refused(Error.of(code), message, what)
