"""The messages of the quorum: those of one node to another, all about one partition of one topic. PURE."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from headrace.errors import Error
from headrace.protocol import messages
from headrace.protocol.message import Message
from headrace.raft.quorum import NO_NODE, OffsetAndEpoch, ReplicaKey, Voter

if TYPE_CHECKING:
    from headrace.protocol.messages import (
        BeginQuorumEpochRequest,
        EndQuorumEpochRequest,
        FetchRequest,
        FetchResponse,
        FetchSnapshotRequest,
        FetchSnapshotResponse,
        VoteRequest,
    )
    from headrace.raft.node.machine import Node

METADATA_TOPIC: Final = "__cluster_metadata"
METADATA_PARTITION: Final = 0
METADATA_TOPIC_ID: Final = bytes(15) + b"\x01"


# ------------------------------------------------------------------------------------------------------------- requests


def vote_request(node: Node, voter: Voter, *, pre_vote: bool) -> VoteRequest:
    request = messages.VoteRequest
    end = node.history.end
    return request(
        cluster_id=node.cluster_id,
        voter_id=voter.key.id,
        topics=[
            request.TopicData(
                topic_name=METADATA_TOPIC,
                partitions=[
                    request.PartitionData(
                        partition_index=METADATA_PARTITION,
                        replica_epoch=node.epoch,
                        replica_id=node.local.id,
                        replica_directory_id=node.local.directory_id,
                        voter_directory_id=voter.key.directory_id,
                        last_offset_epoch=end.epoch,
                        last_offset=end.offset,
                        pre_vote=pre_vote,
                    )
                ],
            )
        ],
    )


def begin_quorum_epoch_request(node: Node, voter: Voter) -> BeginQuorumEpochRequest:
    request = messages.BeginQuorumEpochRequest
    return request(
        cluster_id=node.cluster_id,
        voter_id=voter.key.id,
        topics=[
            request.TopicData(
                topic_name=METADATA_TOPIC,
                partitions=[
                    request.PartitionData(
                        partition_index=METADATA_PARTITION,
                        voter_directory_id=voter.key.directory_id,
                        leader_id=node.local.id,
                        leader_epoch=node.epoch,
                    )
                ],
            )
        ],
        leader_endpoints=[
            request.LeaderEndpoint(name=endpoint.listener, host=endpoint.host, port=endpoint.port)
            for endpoint in node.endpoints
        ],
    )


def end_quorum_epoch_request(node: Node, preferred: Sequence[ReplicaKey]) -> EndQuorumEpochRequest:
    request = messages.EndQuorumEpochRequest
    return request(
        cluster_id=node.cluster_id,
        topics=[
            request.TopicData(
                topic_name=METADATA_TOPIC,
                partitions=[
                    request.PartitionData(
                        partition_index=METADATA_PARTITION,
                        leader_id=node.local.id,
                        leader_epoch=node.epoch,
                        preferred_successors=[key.id for key in preferred],
                        preferred_candidates=[
                            request.ReplicaInfo(candidate_id=key.id, candidate_directory_id=key.directory_id)
                            for key in preferred
                        ],
                    )
                ],
            )
        ],
        leader_endpoints=[
            request.LeaderEndpoint(name=endpoint.listener, host=endpoint.host, port=endpoint.port)
            for endpoint in node.endpoints
        ],
    )


def fetch_request(node: Node) -> FetchRequest:
    request = messages.FetchRequest
    end = node.history.end
    return request(
        cluster_id=node.cluster_id,
        replica_state=request.ReplicaState(replica_id=node.local.id, replica_epoch=-1),
        max_wait_ms=node.timing.fetch_wait_ms,
        min_bytes=0,
        max_bytes=node.timing.fetch_bytes_max,
        topics=[
            request.FetchTopic(
                topic=METADATA_TOPIC,
                topic_id=METADATA_TOPIC_ID,
                partitions=[
                    request.FetchPartition(
                        partition=METADATA_PARTITION,
                        current_leader_epoch=node.epoch,
                        fetch_offset=end.offset,
                        last_fetched_epoch=end.epoch,
                        log_start_offset=node.history.start_offset,
                        partition_max_bytes=node.timing.fetch_bytes_max,
                        replica_directory_id=node.local.directory_id,
                        high_watermark=node.high_watermark,
                    )
                ],
            )
        ],
    )


def fetch_snapshot_request(node: Node, id: OffsetAndEpoch, position: int) -> FetchSnapshotRequest:
    request = messages.FetchSnapshotRequest
    return request(
        cluster_id=node.cluster_id,
        replica_id=node.local.id,
        max_bytes=node.timing.fetch_bytes_max,
        topics=[
            request.TopicSnapshot(
                name=METADATA_TOPIC,
                partitions=[
                    request.PartitionSnapshot(
                        partition=METADATA_PARTITION,
                        current_leader_epoch=node.epoch,
                        snapshot_id=request.SnapshotId(end_offset=id.offset, epoch=id.epoch),
                        position=position,
                        replica_directory_id=node.local.directory_id,
                    )
                ],
            )
        ],
    )


# ------------------------------------------------------------------------------------------------------------ responses


def leader_response(node: Node, response: Any, error: Error, **more: object) -> Any:
    """What Vote, BeginQuorumEpoch and EndQuorumEpoch are answered with: who leads, and in which epoch."""
    answer = response(
        topics=[
            response.TopicData(
                topic_name=METADATA_TOPIC,
                partitions=[
                    response.PartitionData(
                        partition_index=METADATA_PARTITION,
                        error_code=error,
                        leader_id=node.leader_id,
                        leader_epoch=node.epoch,
                        **more,
                    )
                ],
            )
        ]
    )
    answer.node_endpoints = _leader_endpoints(node, response)
    return answer


def fetch_response(node: Node, error: Error, **more: Any) -> FetchResponse:
    response = messages.FetchResponse
    return response(
        responses=[
            response.FetchableTopicResponse(
                topic=METADATA_TOPIC,
                topic_id=METADATA_TOPIC_ID,
                partitions=[
                    response.PartitionData(
                        partition_index=METADATA_PARTITION,
                        error_code=error,
                        high_watermark=-1 if error else node.high_watermark,
                        log_start_offset=node.history.start_offset,
                        current_leader=response.LeaderIdAndEpoch(leader_id=node.leader_id, leader_epoch=node.epoch),
                        **more,
                    )
                ],
            )
        ],
        node_endpoints=_leader_endpoints(node, response),
    )


def fetch_snapshot_response(node: Node, error: Error, id: OffsetAndEpoch, position: int) -> FetchSnapshotResponse:
    response = messages.FetchSnapshotResponse
    return response(
        topics=[
            response.TopicSnapshot(
                name=METADATA_TOPIC,
                partitions=[
                    response.PartitionSnapshot(
                        index=METADATA_PARTITION,
                        error_code=error,
                        snapshot_id=response.SnapshotId(end_offset=id.offset, epoch=id.epoch),
                        current_leader=response.LeaderIdAndEpoch(leader_id=node.leader_id, leader_epoch=node.epoch),
                        position=position,
                    )
                ],
            )
        ],
        node_endpoints=_leader_endpoints(node, response),
    )


def _leader_endpoints(node: Node, response: Any) -> list[Any]:
    if node.leader_id == NO_NODE:
        return []
    return [
        response.NodeEndpoint(node_id=node.leader_id, host=endpoint.host, port=endpoint.port)
        for endpoint in node.endpoints_of(node.leader_id)[:1]
    ]


# ------------------------------------------------------------------------------------------------------------- reading


def partition_of(message: Message) -> Any:
    """The one partition that a message of the quorum is about; None when it is about anything else."""
    topics: list[Any] = getattr(message, "responses", None) or getattr(message, "topics", None) or []
    if len(topics) != 1 or len(topics[0].partitions) != 1 or not _is_metadata(topics[0]):
        return None
    partition = topics[0].partitions[0]
    for name in ("partition_index", "partition", "index"):
        if hasattr(partition, name):
            return partition if getattr(partition, name) == METADATA_PARTITION else None
    return None


def _is_metadata(topic: Any) -> bool:
    """By name, or, in fetches of versions that have no name, by id."""
    name = getattr(topic, "topic_name", None) or getattr(topic, "name", None) or getattr(topic, "topic", None)
    return name == METADATA_TOPIC if name else getattr(topic, "topic_id", None) == METADATA_TOPIC_ID
