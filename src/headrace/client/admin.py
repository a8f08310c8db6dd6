"""Topics and the cluster: create, delete, look."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from headrace.client.cluster import Cluster
from headrace.client.errors import Unreachable
from headrace.client.metadata import Metadata, Node, TopicInfo
from headrace.errors import Error, HeadraceError, Refused
from headrace.net.peer import Disconnected
from headrace.protocol.message import Message
from headrace.protocol.messages import (
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DescribeClusterRequest,
    DescribeClusterResponse,
    MetadataRequest,
    MetadataResponse,
)

__all__ = ["Admin", "ClusterInfo", "NewTopic"]


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
        """Make topics; their ids by name. Refused when one could not be made: the others may have been."""
        made = [topic if isinstance(topic, NewTopic) else NewTopic(topic) for topic in topics]
        request = CreateTopicsRequest(
            topics=[_creatable(topic) for topic in made],
            timeout_ms=int(self._cluster.settings.request_timeout_s * 1000),
            validate_only=validate_only,
        )
        response: CreateTopicsResponse = await self._call_controller(request, lambda answer: answer.topics)
        for result in response.topics:
            _check(result.error_code, result.error_message, f"Topic {result.name} can't be created")
        if not validate_only:
            await self._wait_for([topic.name for topic in made])
        return {result.name: result.topic_id for result in response.topics}

    async def delete_topics(self, names: Iterable[str]) -> None:
        """Delete topics by name. Refused when one could not be deleted: the others may have been."""
        names = list(names)
        request = DeleteTopicsRequest(
            topics=[DeleteTopicsRequest.DeleteTopicState(name=name) for name in names],
            topic_names=names,
            timeout_ms=int(self._cluster.settings.request_timeout_s * 1000),
        )
        response: DeleteTopicsResponse = await self._call_controller(request, lambda answer: answer.responses)
        for result in response.responses:
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

    async def _call_controller(self, request: Message, results: Any) -> Any:
        """Changes go to the controller where brokers don't forward them; the metadata says whom to ask."""
        cluster = self._cluster
        backoff = cluster.backoff()
        deadline = asyncio.get_running_loop().time() + cluster.settings.operation_timeout_s
        is_stale = not cluster.metadata.nodes
        while True:
            try:
                if is_stale:
                    await cluster.refresh()
                is_stale = True
                link = cluster.link(cluster.metadata.controller_id)
                answer = await (cluster.call_any(request) if link is None else link.call(request))
                if not any(result.error_code == Error.NOT_CONTROLLER for result in results(answer)):
                    return answer
                failure: HeadraceError = Refused(Error.NOT_CONTROLLER, "No broker knows the controller.")
            except (Disconnected, Unreachable) as error:
                failure = error
            await cluster.wait_to_retry(backoff, deadline, failure)


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
