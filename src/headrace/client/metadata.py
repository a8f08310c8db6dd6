"""What the client knows of the cluster: brokers, topics, and who leads each partition. No I/O."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, NamedTuple

from headrace.errors import Error
from headrace.protocol.messages import FetchResponse, MetadataResponse, ProduceResponse

__all__ = ["NO_TOPIC_ID", "Metadata", "Node", "PartitionInfo", "TopicInfo"]

NO_TOPIC_ID: Final = bytes(16)
NO_LEADER: Final = -1


class Node(NamedTuple):
    """A broker and where it listens."""

    node_id: int
    host: str
    port: int
    rack: str | None = None


class PartitionInfo(NamedTuple):
    """One partition: who leads it, since which epoch, and who has copies."""

    partition: int
    leader_id: int
    leader_epoch: int
    replicas: list[int]
    in_sync: list[int]
    offline: list[int]


@dataclass(slots=True)
class TopicInfo:
    name: str
    topic_id: bytes = NO_TOPIC_ID
    is_internal: bool = False
    partitions: dict[int, PartitionInfo] = field(default_factory=dict)
    error: Error = Error.NONE


class Metadata:
    """The last word of the brokers on each topic. Word that is older than what is known is not taken (KIP-320)."""

    __slots__ = ("cluster_id", "controller_id", "nodes", "topics")

    def __init__(self) -> None:
        self.nodes: dict[int, Node] = {}
        self.topics: dict[str, TopicInfo] = {}
        """Also topics that were asked for and are not there: their `error` says so."""
        self.cluster_id: str | None = None
        self.controller_id = -1

    def leader(self, topic: str, index: int) -> PartitionInfo | None:
        """The partition, when its leader is known and listens somewhere."""
        info = self.topics.get(topic)
        partition = None if info is None else info.partitions.get(index)
        return partition if partition is not None and partition.leader_id in self.nodes else None

    def topic_id(self, topic: str) -> bytes:
        info = self.topics.get(topic)
        return NO_TOPIC_ID if info is None else info.topic_id

    def update(self, response: MetadataResponse) -> None:
        self.cluster_id = response.cluster_id
        self.controller_id = response.controller_id
        self.nodes = {node.node_id: Node(node.node_id, node.host, node.port, node.rack) for node in response.brokers}
        for topic in response.topics:
            if topic.name is not None:
                self._update_topic(topic.name, topic)

    def learn(
        self,
        topic: str,
        index: int,
        leader: ProduceResponse.LeaderIdAndEpoch | FetchResponse.LeaderIdAndEpoch | None,
        endpoints: list[ProduceResponse.NodeEndpoint] | list[FetchResponse.NodeEndpoint],
    ) -> bool:
        """A broker that refused said who leads now (KIP-951). Whether that was news."""
        for endpoint in endpoints:
            self.nodes[endpoint.node_id] = Node(endpoint.node_id, endpoint.host, endpoint.port, endpoint.rack)
        info = self.topics.get(topic)
        known = None if info is None else info.partitions.get(index)
        if leader is None or info is None or known is None or leader.leader_id not in self.nodes:
            return False
        if leader.leader_epoch <= known.leader_epoch:
            return False
        info.partitions[index] = known._replace(leader_id=leader.leader_id, leader_epoch=leader.leader_epoch)
        return True

    def _update_topic(self, name: str, topic: MetadataResponse.MetadataResponseTopic) -> None:
        error = Error.of(topic.error_code)
        known = self.topics.get(name)
        if error is not Error.NONE:
            # While a topic only has no leader, what is known of it stays of use; one that is gone is forgotten.
            is_gone = error in (Error.UNKNOWN_TOPIC_OR_PARTITION, Error.UNKNOWN_TOPIC_ID)
            if known is None or not known.partitions or is_gone:
                self.topics[name] = TopicInfo(name, error=error)
            return
        info = TopicInfo(name, topic.topic_id, topic.is_internal)
        is_same = known is not None and known.topic_id == info.topic_id
        for partition in topic.partitions:
            made = PartitionInfo(
                partition.partition_index,
                partition.leader_id if partition.error_code != Error.LEADER_NOT_AVAILABLE else NO_LEADER,
                partition.leader_epoch,
                partition.replica_nodes,
                partition.isr_nodes,
                partition.offline_replicas,
            )
            before = known.partitions.get(made.partition) if is_same and known is not None else None
            is_older = before is not None and made.leader_epoch < before.leader_epoch and made.leader_epoch >= 0
            info.partitions[made.partition] = before if is_older and before is not None else made
        self.topics[name] = info
