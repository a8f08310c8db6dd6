"""The quorum as its leader sees it (DescribeQuorum; KIP-595, KIP-836, KIP-853). PURE."""

from __future__ import annotations

from headrace.errors import Error
from headrace.metadata.names import METADATA
from headrace.protocol import messages as m
from headrace.raft.node import Node
from headrace.raft.node.roles import Leader, Progress
from headrace.raft.quorum import ReplicaKey


def describe_quorum(node: Node, request: m.DescribeQuorumRequest, now_ms: int) -> m.DescribeQuorumResponse:
    response = m.DescribeQuorumResponse(error_message=None)
    is_asked = False
    for topic in request.topics:
        told = m.DescribeQuorumResponse.TopicData(topic_name=topic.topic_name)
        for part in topic.partitions:
            is_ours = topic.topic_name == METADATA and part.partition_index == 0
            is_asked = is_asked or is_ours
            told.partitions.append(
                _partition(node, now_ms)
                if is_ours
                else _refused(part.partition_index, Error.UNKNOWN_TOPIC_OR_PARTITION)
            )
        response.topics.append(told)
    if is_asked:
        response.nodes = [
            m.DescribeQuorumResponse.Node(
                node_id=voter.key.id,
                listeners=[
                    m.DescribeQuorumResponse.Listener(name=endpoint.listener, host=endpoint.host, port=endpoint.port)
                    for endpoint in voter.endpoints
                ],
            )
            for voter in node.voters
        ]
    return response


def _partition(node: Node, now_ms: int) -> m.DescribeQuorumResponse.PartitionData:
    role = node.role
    if not isinstance(role, Leader):
        refused = _refused(0, Error.NOT_LEADER_OR_FOLLOWER)
        refused.leader_id, refused.leader_epoch = node.leader_id, node.epoch
        return refused
    own = m.DescribeQuorumResponse.ReplicaState(
        replica_id=node.local.id,
        replica_directory_id=node.local.directory_id,
        log_end_offset=node.history.end_offset,
        last_fetch_timestamp=now_ms,
        last_caught_up_timestamp=now_ms,
    )
    voters = [
        own if voter.key.id == node.local.id else _replica(voter.key, role.progress.get(voter.key))
        for voter in node.voters
    ]
    observers = [
        _replica(key, progress)
        for key, progress in role.progress.items()
        if key not in node.voters and key.id != node.local.id
    ]
    return m.DescribeQuorumResponse.PartitionData(
        error_message=None,
        leader_id=node.local.id,
        leader_epoch=node.epoch,
        high_watermark=node.high_watermark,
        current_voters=voters,
        observers=observers,
    )


def _replica(key: ReplicaKey, progress: Progress | None) -> m.DescribeQuorumResponse.ReplicaState:
    found = progress or Progress()
    return m.DescribeQuorumResponse.ReplicaState(
        replica_id=key.id,
        replica_directory_id=key.directory_id,
        log_end_offset=-1 if found.end_offset is None else found.end_offset,
        last_fetch_timestamp=found.last_fetch_ms,
        last_caught_up_timestamp=found.last_caught_up_ms,
    )


def _refused(index: int, error: Error) -> m.DescribeQuorumResponse.PartitionData:
    return m.DescribeQuorumResponse.PartitionData(
        partition_index=index, error_code=error, error_message=error.text, leader_id=-1, leader_epoch=-1
    )
