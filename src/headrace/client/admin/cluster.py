"""The cluster: its brokers, its quorum, its features, who leads what and where replicas go."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Literal, NamedTuple

from headrace.client.admin.calls import Calls, TopicPartition, by_topic, check
from headrace.client.arguments import INT16_MAX, flag, instance, mapping, one_of, text, whole, wholes
from headrace.client.arguments import partitions as checked_partitions
from headrace.client.metadata import Node
from headrace.errors import Error
from headrace.protocol.messages import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ApiVersionsRequest,
    ApiVersionsResponse,
    DescribeClusterRequest,
    DescribeClusterResponse,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    ElectLeadersRequest,
    ElectLeadersResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    UnregisterBrokerRequest,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)

__all__ = [
    "ClusterCalls",
    "ClusterInfo",
    "FeaturesInfo",
    "QuorumInfo",
    "QuorumReplica",
    "Reassignment",
    "UpgradeType",
]

_METADATA_TOPIC = "__cluster_metadata"


@dataclass(slots=True)
class ClusterInfo:
    cluster_id: str
    controller_id: int
    nodes: list[Node]
    fenced_ids: list[int] = field(default_factory=list)
    """Of `nodes`, those that are registered and not in service; only when they were asked for."""
    operations: int | None = None
    """What the client may do with the cluster, as the bits of Kafka's protocol; only when that was asked for."""


class QuorumReplica(NamedTuple):
    """A voter or an observer, and how far it has come."""

    replica_id: int
    directory_id: bytes
    log_end_offset: int
    last_fetch_ms: int
    last_caught_up_ms: int
    """Milliseconds since 1970; -1 where it is not known."""


@dataclass(slots=True)
class QuorumInfo:
    leader_id: int
    leader_epoch: int
    high_watermark: int
    voters: list[QuorumReplica]
    observers: list[QuorumReplica]
    endpoints: dict[int, list[tuple[str, str, int]]]
    """Listener, host and port of each voter."""


@dataclass(slots=True)
class FeaturesInfo:
    """Least and greatest level of each feature."""

    supported: dict[str, tuple[int, int]]
    finalized: dict[str, tuple[int, int]]
    epoch: int


class UpgradeType(IntEnum):
    """What may be done to reach a level, by Kafka's numbers."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


class Reassignment(NamedTuple):
    replicas: list[int]
    adding: list[int]
    removing: list[int]


class ClusterCalls(Calls):
    __slots__ = ()

    async def describe_cluster(self, *, fenced: bool = False, operations: bool = False) -> ClusterInfo:
        """Brokers and the controller; fenced brokers too where the cluster can tell (Kafka 4.0 and newer)."""
        flag("fenced", fenced)
        flag("operations", operations)
        request = DescribeClusterRequest(
            include_cluster_authorized_operations=operations, include_fenced_brokers=fenced
        )
        response: DescribeClusterResponse = await self._cluster.call(request)
        check(response.error_code, response.error_message, "The cluster can't be described")
        nodes = [Node(node.broker_id, node.host, node.port, node.rack) for node in response.brokers]
        return ClusterInfo(
            response.cluster_id,
            response.controller_id,
            nodes,
            [node.broker_id for node in response.brokers if node.is_fenced],
            response.cluster_authorized_operations if operations else None,
        )

    async def unregister_broker(self, broker_id: int) -> None:
        """Forget a broker that is gone for good. One that is running stops."""
        whole("broker_id", broker_id)
        response = await self._change_one(f"Broker {broker_id}", UnregisterBrokerRequest(broker_id=broker_id))
        check(response.error_code, response.error_message, f"Broker {broker_id} can't be unregistered")

    # --- quorum and features ------------------------------------------------------------------------------------------

    async def describe_quorum(self) -> QuorumInfo:
        """Who votes on the metadata, who follows, and how far each has come."""
        kind = DescribeQuorumRequest
        request = kind(topics=[kind.TopicData(topic_name=_METADATA_TOPIC, partitions=[kind.PartitionData()])])
        response: DescribeQuorumResponse = await self._cluster.call(request)
        check(response.error_code, response.error_message, "The quorum can't be described")
        found = response.topics[0].partitions[0]
        check(found.error_code, found.error_message, "The quorum can't be described")
        return QuorumInfo(
            found.leader_id,
            found.leader_epoch,
            found.high_watermark,
            [_replica(replica) for replica in found.current_voters],
            [_replica(replica) for replica in found.observers],
            {node.node_id: [(one.name, one.host, one.port) for one in node.listeners] for node in response.nodes},
        )

    async def describe_features(self) -> FeaturesInfo:
        """Which levels of features a broker supports, and which the cluster has finalized."""
        response: ApiVersionsResponse = await self._cluster.call(
            ApiVersionsRequest(client_software_name="headrace", client_software_version="1")
        )
        check(response.error_code, None, "The features can't be described")
        return FeaturesInfo(
            {one.name: (one.min_version, one.max_version) for one in response.supported_features},
            {one.name: (one.min_version_level, one.max_version_level) for one in response.finalized_features},
            response.finalized_features_epoch,
        )

    async def update_features(
        self,
        levels: Mapping[str, int],
        upgrade_type: UpgradeType = UpgradeType.UPGRADE,
        *,
        validate_only: bool = False,
    ) -> None:
        """Finalize features at these levels, all or none; 0 takes a feature away."""
        flag("validate_only", validate_only)
        instance("upgrade_type", upgrade_type, UpgradeType)
        levels = mapping("levels", levels, "levels by feature, such as {'metadata.version': 30}")
        for feature, level in levels.items():
            text("each feature of levels", feature)
            whole(f"the level of {feature}", level, 0, INT16_MAX)
        request = UpdateFeaturesRequest(
            timeout_ms=self._timeout_ms,
            feature_updates=[
                UpdateFeaturesRequest.FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=upgrade_type)
                for name, level in levels.items()
            ],
            validate_only=validate_only,
        )
        response: UpdateFeaturesResponse = await self._change_one("The features", request)
        check(response.error_code, response.error_message, "The features can't be updated")
        for result in response.results:
            check(result.error_code, result.error_message, f"Feature {result.feature} can't be updated")

    # --- leaders and replicas -----------------------------------------------------------------------------------------

    async def elect_leaders(
        self,
        election: Literal["preferred", "unclean"] = "preferred",
        partitions: Iterable[TopicPartition] | None = None,
    ) -> dict[TopicPartition, Error]:
        """Elect leaders for partitions, or for all that need one. What became of each: ELECTION_NOT_NEEDED is no harm.

        An unclean election may lose records that were acknowledged: it takes a replica that is not in sync.
        """
        one_of("election", election, "preferred", "unclean")
        topic = ElectLeadersRequest.TopicPartitions
        wanted = None if partitions is None else by_topic(checked_partitions("partitions", partitions))
        request = ElectLeadersRequest(
            election_type=1 if election == "unclean" else 0,
            topic_partitions=None
            if wanted is None
            else [topic(topic=name, partitions=indexes) for name, indexes in wanted.items()],
            timeout_ms=self._timeout_ms,
        )
        response: ElectLeadersResponse = await self._change_one("Leaders", request)
        check(response.error_code, None, "Leaders can't be elected")
        return {
            (result.topic, part.partition_id): Error.of(part.error_code)
            for result in response.replica_election_results
            for part in result.partition_result
        }

    async def list_partition_reassignments(
        self, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, Reassignment]:
        """The partitions, of these or of all, whose replicas are on their way to other brokers."""
        topic = ListPartitionReassignmentsRequest.ListPartitionReassignmentsTopics
        wanted = None if partitions is None else by_topic(checked_partitions("partitions", partitions))
        request = ListPartitionReassignmentsRequest(
            timeout_ms=self._timeout_ms,
            topics=None
            if wanted is None
            else [topic(name=name, partition_indexes=indexes) for name, indexes in wanted.items()],
        )
        response: ListPartitionReassignmentsResponse = await self._change_one("Reassignments", request)
        check(response.error_code, response.error_message, "Reassignments can't be listed")
        return {
            (found.name, part.partition_index): Reassignment(
                part.replicas, part.adding_replicas, part.removing_replicas
            )
            for found in response.topics
            for part in found.partitions
        }

    async def alter_partition_reassignments(
        self, replicas: Mapping[TopicPartition, Sequence[int] | None], *, allow_replication_factor_change: bool = True
    ) -> None:
        """Move partitions to these brokers; None cancels a move. Refused when one could not: the others may have."""
        flag("allow_replication_factor_change", allow_replication_factor_change)
        replicas = mapping("replicas", replicas, "brokers by topic and partition, such as {('letters', 0): [1, 2]}")
        checked_partitions("replicas", replicas)
        for brokers in replicas.values():
            if brokers is not None:
                wholes("each of replicas", brokers)
        kind = AlterPartitionReassignmentsRequest
        request = kind(
            timeout_ms=self._timeout_ms,
            allow_replication_factor_change=allow_replication_factor_change,
            topics=[
                kind.ReassignableTopic(
                    name=name,
                    partitions=[
                        kind.ReassignablePartition(
                            partition_index=index, replicas=None if (to := replicas[name, index]) is None else list(to)
                        )
                        for index in indexes
                    ],
                )
                for name, indexes in by_topic(replicas).items()
            ],
        )
        response: AlterPartitionReassignmentsResponse = await self._change_one("Reassignments", request)
        check(response.error_code, response.error_message, "Partitions can't be reassigned")
        for topic in response.responses:
            for part in topic.partitions:
                what = f"{topic.name}-{part.partition_index} can't be reassigned"
                check(part.error_code, part.error_message, what)


def _replica(replica: DescribeQuorumResponse.ReplicaState) -> QuorumReplica:
    return QuorumReplica(
        replica.replica_id,
        replica.replica_directory_id,
        replica.log_end_offset,
        replica.last_fetch_timestamp,
        replica.last_caught_up_timestamp,
    )
