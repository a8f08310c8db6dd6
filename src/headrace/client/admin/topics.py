"""Topics and their partitions: create, delete, grow, look."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from headrace.client.admin.calls import Calls, check
from headrace.client.arguments import (
    INT16_MAX,
    INT32_MAX,
    flag,
    items,
    mapping,
    refuse,
    text,
    texts,
    whole,
    wholes,
)
from headrace.client.metadata import Metadata, TopicInfo
from headrace.errors import Error, Refused
from headrace.protocol.messages import (
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    MetadataRequest,
    MetadataResponse,
)

__all__ = ["NewPartitions", "NewTopic", "PartitionDetail", "TopicCalls", "TopicDetail"]

TOPIC_ID_BYTES: Final = 16


@dataclass(slots=True)
class NewTopic:
    """A topic to be made. -1 leaves a number to the cluster's defaults."""

    name: str
    partitions: int = -1
    replication_factor: int = -1
    configs: Mapping[str, str] = field(default_factory=dict)
    assignments: Mapping[int, Sequence[int]] = field(default_factory=dict)
    """The brokers of each partition, where the cluster is not to choose; the numbers above are then not used."""

    def __post_init__(self) -> None:
        text("the name of a topic", self.name)
        whole("partitions", self.partitions, -1)
        whole("replication_factor", self.replication_factor, -1, INT16_MAX)
        for name, value in mapping("configs", self.configs, "names and values").items():
            text("each name in configs", name)
            text(f"{name} in configs", value, empty=True, most_bytes=INT32_MAX)
        for index, brokers in mapping("assignments", self.assignments, "the brokers of each partition").items():
            whole("each partition in assignments", index)
            wholes("each of assignments", brokers)


@dataclass(slots=True)
class NewPartitions:
    """How many partitions a topic is to have, the old ones included."""

    count: int
    assignments: Sequence[Sequence[int]] | None = None
    """The brokers of each new partition, where the cluster is not to choose."""

    def __post_init__(self) -> None:
        whole("count", self.count, 1)
        if self.assignments is not None:
            for brokers in items("assignments", self.assignments, "a list of the brokers of each new partition"):
                wholes("each of assignments", brokers)


class PartitionDetail(NamedTuple):
    """All that the cluster says of a partition."""

    partition: int
    leader_id: int
    leader_epoch: int
    replicas: list[int]
    in_sync: list[int]
    offline: list[int]
    eligible_leaders: list[int] | None
    """Not in sync, but they have all that was committed (KIP-966); None where the cluster does not say."""
    last_known_leaders: list[int] | None
    error: Error


@dataclass(slots=True)
class TopicDetail:
    name: str
    topic_id: bytes
    is_internal: bool
    partitions: list[PartitionDetail]
    operations: int
    """What the client may do with it, as the bits of Kafka's protocol."""


class TopicCalls(Calls):
    __slots__ = ()

    async def create_topics(self, topics: Iterable[NewTopic | str], *, validate_only: bool = False) -> dict[str, bytes]:
        """Make topics; their ids by name. Refused when one could not be made: the others may have been.

        When an answer was lost and the topic is there at the next try, with the partitions that were asked for, it
        counts as made.
        """
        flag("validate_only", validate_only)
        given = items("topics", topics, "a list of names or of NewTopic")
        wanted = [topic if isinstance(topic, NewTopic) else NewTopic(topic) for topic in given]
        by_name = {topic.name: topic for topic in wanted}
        ids: dict[str, bytes] = {}

        def ask(names: Sequence[str]) -> CreateTopicsRequest:
            return CreateTopicsRequest(
                topics=[_creatable(by_name[name]) for name in names],
                timeout_ms=self._timeout_ms,
                validate_only=validate_only,
            )

        changes = self._change(
            list(by_name), ask, lambda answer: [(one.name, one.error_code, one) for one in answer.topics], _topic
        )
        async for name, result, may_be_ours in changes:
            if result.error_code == Error.TOPIC_ALREADY_EXISTS and may_be_ours:
                there = (await self._topics([name])).get(name)
                if there is not None and _fits(by_name[name], there):
                    ids[name] = there.topic_id
                    continue
            check(result.error_code, result.error_message, f"Topic {name} can't be created")
            ids[name] = result.topic_id
        if not validate_only:
            await self._wait_for(dict.fromkeys(by_name, 1))
        return {name: ids[name] for name in by_name}

    async def delete_topics(self, topics: Iterable[str | bytes]) -> None:
        """Delete topics, by name or by id. Refused when one could not be deleted: the others may have been."""
        state = DeleteTopicsRequest.DeleteTopicState

        def ask(topics: Sequence[str | bytes]) -> DeleteTopicsRequest:
            return DeleteTopicsRequest(
                topics=[state(name=one) if isinstance(one, str) else state(topic_id=one) for one in topics],
                topic_names=[one for one in topics if isinstance(one, str)],
                timeout_ms=self._timeout_ms,
            )

        wanted = items("topics", topics, "a list of names, or of ids of 16 bytes")
        for topic in wanted:
            if isinstance(topic, bytes):
                if len(topic) != TOPIC_ID_BYTES:
                    refuse("each of topics", "a name (str), or an id of 16 bytes", topic)
            else:
                text("each of topics", topic)
        ids = {topic for topic in wanted if isinstance(topic, bytes)}
        changes = self._change(
            wanted,
            ask,
            lambda answer: [
                (one.topic_id if one.topic_id in ids else one.name, one.error_code, one) for one in answer.responses
            ],
            lambda key: _topic(key if isinstance(key, str) else key.hex()),
        )
        async for key, result, may_be_ours in changes:
            if may_be_ours and result.error_code in (Error.UNKNOWN_TOPIC_OR_PARTITION, Error.UNKNOWN_TOPIC_ID):
                continue  # gone already, by the try whose answer was lost
            name = result.name or (key.hex() if isinstance(key, bytes) else key)
            check(result.error_code, result.error_message, f"Topic {name} can't be deleted")

    async def create_partitions(
        self, topics: Mapping[str, int | NewPartitions], *, validate_only: bool = False
    ) -> None:
        """Give topics more partitions: how many each is to have. Refused when one could not: the others may have."""
        flag("validate_only", validate_only)
        given = mapping("topics", topics, "the number of partitions by topic, such as {'letters': 3}")
        wanted = {name: to if isinstance(to, NewPartitions) else NewPartitions(to) for name, to in given.items()}
        texts("topics", wanted)

        def ask(names: Sequence[str]) -> CreatePartitionsRequest:
            return CreatePartitionsRequest(
                topics=[_grown(name, wanted[name]) for name in names],
                timeout_ms=self._timeout_ms,
                validate_only=validate_only,
            )

        changes = self._change(
            list(wanted), ask, lambda answer: [(one.name, one.error_code, one) for one in answer.results], _topic
        )
        async for name, result, may_be_ours in changes:
            if result.error_code == Error.INVALID_PARTITIONS and may_be_ours:
                there = (await self._topics([name])).get(name)
                if there is not None and len(there.partitions) == wanted[name].count:
                    continue  # it has them already, by the try whose answer was lost
            check(result.error_code, result.error_message, f"Topic {name} can't get {wanted[name].count} partitions")
        if not validate_only:
            await self._wait_for({name: to.count for name, to in wanted.items()})

    async def list_topics(self, *, internal: bool = False) -> list[str]:
        """The names of all topics, sorted."""
        flag("internal", internal)
        topics = await self._topics(None)
        return sorted(topic.name for topic in topics.values() if internal or not topic.is_internal)

    async def describe_topics(self, names: Iterable[str]) -> dict[str, TopicInfo]:
        """Ids, partitions, leaders and replicas. Refused when one is not there."""
        names = texts("names", names)
        topics = await self._topics(names)
        for name in names:
            error = topics[name].error if name in topics else Error.UNKNOWN_TOPIC_OR_PARTITION
            check(error, None, f"Topic {name} can't be described")
        return topics

    async def describe_topic_partitions(
        self, names: Iterable[str] = (), *, page_size: int = 2000
    ) -> dict[str, TopicDetail]:
        """Topics, or all of them, in full and page by page (KIP-966): for clusters with very many partitions.

        Refused when one is not there; UNSUPPORTED_VERSION from clusters before Kafka 3.8.
        """
        whole("page_size", page_size, 1)
        request = DescribeTopicPartitionsRequest(
            topics=[DescribeTopicPartitionsRequest.TopicRequest(name=name) for name in texts("names", names)],
            response_partition_limit=page_size,
        )
        found: dict[str, TopicDetail] = {}
        while True:
            response: DescribeTopicPartitionsResponse = await self._cluster.call(request)
            for topic in response.topics:
                check(topic.error_code, None, f"Topic {topic.name} can't be described")
                name = topic.name or ""
                operations = topic.topic_authorized_operations
                detail = TopicDetail(name, topic.topic_id, topic.is_internal, [], operations)
                found.setdefault(name, detail).partitions += map(_detail, topic.partitions)
            after = response.next_cursor
            if after is None:
                return found
            request.cursor = DescribeTopicPartitionsRequest.Cursor(
                topic_name=after.topic_name, partition_index=after.partition_index
            )

    async def _topics(self, names: Sequence[str] | None) -> dict[str, TopicInfo]:
        wanted = None if names is None else [MetadataRequest.MetadataRequestTopic(name=name) for name in names]
        request = MetadataRequest(topics=wanted, allow_auto_topic_creation=False)
        response: MetadataResponse = await self._cluster.call(request)
        seen = Metadata()
        seen.update(response)
        return seen.topics

    async def _wait_for(self, partitions: Mapping[str, int]) -> None:
        """Brokers hear of a new topic, or of more partitions, a moment after the controller has made them."""
        backoff = self._cluster.backoff()
        deadline = asyncio.get_running_loop().time() + self._cluster.settings.operation_timeout_s
        while True:
            topics = await self._topics(list(partitions))
            missing = [name for name, count in partitions.items() if not _is_there(topics.get(name), count)]
            if not missing:
                return
            refused = Refused(Error.LEADER_NOT_AVAILABLE, f"Topic {missing[0]} was made, and no broker has it yet.")
            await self._cluster.wait_to_retry(backoff, deadline, refused)


def _topic(name: str) -> str:
    return f"Topic {name}"


def _is_there(topic: TopicInfo | None, count: int) -> bool:
    return topic is not None and topic.error is Error.NONE and len(topic.partitions) >= count


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


def _grown(name: str, to: NewPartitions) -> CreatePartitionsRequest.CreatePartitionsTopic:
    assignment = CreatePartitionsRequest.CreatePartitionsAssignment
    return CreatePartitionsRequest.CreatePartitionsTopic(
        name=name,
        count=to.count,
        assignments=None
        if to.assignments is None
        else [assignment(broker_ids=list(brokers)) for brokers in to.assignments],
    )


def _detail(
    partition: DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponsePartition,
) -> PartitionDetail:
    return PartitionDetail(
        partition=partition.partition_index,
        leader_id=partition.leader_id,
        leader_epoch=partition.leader_epoch,
        replicas=partition.replica_nodes,
        in_sync=partition.isr_nodes,
        offline=partition.offline_replicas,
        eligible_leaders=partition.eligible_leader_replicas,
        last_known_leaders=partition.last_known_elr,
        error=Error.of(partition.error_code),
    )
