"""Topics and the cluster: create, delete, look."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from headrace.client.cluster import Cluster
from headrace.client.errors import Unreachable
from headrace.client.metadata import Metadata, Node, TopicInfo
from headrace.client.offsets import EARLIEST, LATEST, MAX_TIMESTAMP, OffsetAt, list_offsets
from headrace.errors import Error, HeadraceError, Refused
from headrace.net.peer import Disconnected
from headrace.protocol.message import Message
from headrace.protocol.messages import (
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DescribeClusterRequest,
    DescribeClusterResponse,
    MetadataRequest,
    MetadataResponse,
)

__all__ = ["Admin", "ClusterInfo", "NewTopic"]

Moment = Literal["earliest", "latest", "max_timestamp"]
_MOMENTS: Final[dict[Moment, int]] = {"earliest": EARLIEST, "latest": LATEST, "max_timestamp": MAX_TIMESTAMP}


@dataclass(slots=True)
class NewTopic:
    """A topic to be made. -1 leaves a number to the cluster's defaults."""

    name: str
    partitions: int = -1
    replication_factor: int = -1
    configs: Mapping[str, str] = field(default_factory=dict)
    assignments: Mapping[int, Sequence[int]] = field(default_factory=dict)
    """The brokers of each partition, where the cluster is not to choose; the numbers above are then not used."""


@dataclass(slots=True)
class ClusterInfo:
    cluster_id: str
    controller_id: int
    nodes: list[Node]


class Admin:
    """Made by `Client.admin`. Each call tries again while the answer may change, up to the operation time-out."""

    __slots__ = ("_cluster",)

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def create_topics(self, topics: Iterable[NewTopic | str], *, validate_only: bool = False) -> dict[str, bytes]:
        """Make topics; their ids by name. Refused when one could not be made: the others may have been.

        When an answer was lost and the topic is there at the next try, with the partitions that were asked for, it
        counts as made.
        """
        wanted = [topic if isinstance(topic, NewTopic) else NewTopic(topic) for topic in topics]
        by_name = {topic.name: topic for topic in wanted}
        ids: dict[str, bytes] = {}

        def ask(names: Sequence[str]) -> CreateTopicsRequest:
            return CreateTopicsRequest(
                topics=[_creatable(by_name[name]) for name in names],
                timeout_ms=int(self._cluster.settings.request_timeout_s * 1000),
                validate_only=validate_only,
            )

        async for result, may_be_ours in self._change(list(by_name), ask, lambda answer: answer.topics):
            if result.error_code == Error.TOPIC_ALREADY_EXISTS and may_be_ours:
                there = (await self._topics([result.name])).get(result.name)
                if there is not None and _fits(by_name[result.name], there):
                    ids[result.name] = there.topic_id
                    continue
            _check(result.error_code, result.error_message, f"Topic {result.name} can't be created")
            ids[result.name] = result.topic_id
        if not validate_only:
            await self._wait_for(list(by_name))
        return {name: ids[name] for name in by_name}

    async def delete_topics(self, names: Iterable[str]) -> None:
        """Delete topics by name. Refused when one could not be deleted: the others may have been."""

        def ask(names: Sequence[str]) -> DeleteTopicsRequest:
            return DeleteTopicsRequest(
                topics=[DeleteTopicsRequest.DeleteTopicState(name=name) for name in names],
                topic_names=list(names),
                timeout_ms=int(self._cluster.settings.request_timeout_s * 1000),
            )

        async for result, may_be_ours in self._change(list(names), ask, lambda answer: answer.responses):
            if result.error_code == Error.UNKNOWN_TOPIC_OR_PARTITION and may_be_ours:
                continue  # gone already, by the try whose answer was lost
            _check(result.error_code, result.error_message, f"Topic {result.name} can't be deleted")

    async def list_topics(self, *, internal: bool = False) -> list[str]:
        """The names of all topics, sorted."""
        topics = await self._topics(None)
        return sorted(topic.name for topic in topics.values() if internal or not topic.is_internal)

    async def describe_topics(self, names: Iterable[str]) -> dict[str, TopicInfo]:
        """Ids, partitions, leaders and replicas. Refused when one is not there."""
        names = list(names)
        topics = await self._topics(names)
        for name in names:
            error = topics[name].error if name in topics else Error.UNKNOWN_TOPIC_OR_PARTITION
            _check(error, None, f"Topic {name} can't be described")
        return topics

    async def describe_cluster(self) -> ClusterInfo:
        response: DescribeClusterResponse = await self._cluster.call(DescribeClusterRequest())
        _check(response.error_code, response.error_message, "The cluster can't be described")
        nodes = [Node(node.broker_id, node.host, node.port, node.rack) for node in response.brokers]
        return ClusterInfo(response.cluster_id, response.controller_id, nodes)

    async def list_offsets(
        self,
        times: Mapping[tuple[str, int], int | Moment],
        *,
        isolation_level: Literal["read_uncommitted", "read_committed"] = "read_uncommitted",
    ) -> dict[tuple[str, int], OffsetAt]:
        """The first offset that is not older than a time, by (topic, partition); -1 when there is none.

        A time is in milliseconds, or "earliest", "latest" (the offset that the next record gets), or "max_timestamp".
        """
        times_ms = {key: _MOMENTS[time] if isinstance(time, str) else time for key, time in times.items()}
        return await list_offsets(self._cluster, times_ms, 1 if isolation_level == "read_committed" else 0)

    async def request(self, message: Message, broker: int | None = None, timeout_s: float | None = None) -> Any:
        """Send any request, to a broker by its id or to whichever answers; the response as it came, errors and all."""
        return await self._cluster.call(message, broker, timeout_s)

    async def _topics(self, names: Sequence[str] | None) -> dict[str, TopicInfo]:
        wanted = None if names is None else [MetadataRequest.MetadataRequestTopic(name=name) for name in names]
        request = MetadataRequest(topics=wanted, allow_auto_topic_creation=False)
        response: MetadataResponse = await self._cluster.call(request)
        seen = Metadata()
        seen.update(response)
        return seen.topics

    async def _wait_for(self, names: Sequence[str]) -> None:
        """Brokers hear of a new topic a moment after the controller has made it."""
        backoff = self._cluster.backoff()
        deadline = asyncio.get_running_loop().time() + self._cluster.settings.operation_timeout_s
        while True:
            topics = await self._topics(names)
            missing = [name for name in names if name not in topics or topics[name].error is not Error.NONE]
            if not missing:
                return
            refused = Refused(Error.LEADER_NOT_AVAILABLE, f"Topic {missing[0]} was made, and no broker has it yet.")
            await self._cluster.wait_to_retry(backoff, deadline, refused)

    async def _change(
        self, names: list[str], ask: Callable[[Sequence[str]], Message], results: Callable[[Any], Any]
    ) -> AsyncIterator[tuple[Any, bool]]:
        """Ask the controller for changes of topics, until each has a final answer: that, and whether an earlier try,
        of which nobody knows the end, may have made the change. Brokers that don't forward say whom to ask.
        """
        cluster = self._cluster
        backoff = cluster.backoff()
        deadline = asyncio.get_running_loop().time() + cluster.settings.operation_timeout_s
        uncertain: dict[str, None] = {}
        while names:
            failure: HeadraceError
            again: list[str] = []
            try:
                if not cluster.metadata.nodes:
                    await cluster.refresh()
                link = cluster.link(cluster.metadata.controller_id)
                answer = await (cluster.call_any(ask(names)) if link is None else link.call(ask(names)))
            except (Disconnected, Unreachable) as error:
                failure, again = error, names
                uncertain |= dict.fromkeys(names)
            else:
                for result in results(answer):
                    error_code = Error.of(result.error_code)
                    if error_code not in _AGAIN:
                        yield result, result.name in uncertain
                        continue
                    again.append(result.name)
                    text = f"Topic {result.name} can't be changed now ({error_code.name}): {error_code.text}"
                    failure = Refused(error_code, text)
                    if error_code is Error.REQUEST_TIMED_OUT:
                        uncertain[result.name] = None
            names = again
            if names:
                await cluster.wait_to_retry(backoff, deadline, failure)
                with suppress(Disconnected, Unreachable):
                    await cluster.refresh()


# Answers that may be others at the next try; a topic that is unknown to a controller stays unknown.
_AGAIN: Final = frozenset(
    {Error.NOT_CONTROLLER, Error.REQUEST_TIMED_OUT, Error.THROTTLING_QUOTA_EXCEEDED, Error.COORDINATOR_NOT_AVAILABLE}
)


def _fits(wanted: NewTopic, there: TopicInfo) -> bool:
    count = len(wanted.assignments) or wanted.partitions
    return there.error is Error.NONE and count in (-1, len(there.partitions))


def _creatable(topic: NewTopic) -> CreateTopicsRequest.CreatableTopic:
    return CreateTopicsRequest.CreatableTopic(
        name=topic.name,
        num_partitions=-1 if topic.assignments else topic.partitions,
        replication_factor=-1 if topic.assignments else topic.replication_factor,
        assignments=[
            CreateTopicsRequest.CreatableReplicaAssignment(partition_index=index, broker_ids=list(brokers))
            for index, brokers in topic.assignments.items()
        ],
        configs=[
            CreateTopicsRequest.CreatableTopicConfig(name=name, value=value) for name, value in topic.configs.items()
        ],
    )


def _check(code: int, message: str | None, what: str) -> None:
    if code:
        error = Error.of(code)
        raise Refused(error, f"{what} ({error.name}): {message or error.text}")
