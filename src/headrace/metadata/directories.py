"""Which directory of a broker holds which replica (KIP-858): the broker tells, and the controller keeps. PURE.

What a directory takes along when it fails is known by this alone.
"""

from __future__ import annotations

from headrace.errors import Error
from headrace.metadata.brokers import applied
from headrace.metadata.delta import changed_partition
from headrace.metadata.image import NO_LEADER, Broker, Image, Partition
from headrace.metadata.leadership import CHANGE_VERSION, elected, leave
from headrace.metadata.snapshot import Versioned
from headrace.protocol import messages as m


def assign_replicas(
    image: Image, broker: Broker, request: m.AssignReplicasToDirsRequest
) -> tuple[list[Versioned], m.AssignReplicasToDirsResponse]:
    """`broker` is the one that asks, in the epoch that it has."""
    records: list[Versioned] = []
    response = m.AssignReplicasToDirsResponse()
    lost: list[bytes] = []
    for directory in request.directories:
        answer = m.AssignReplicasToDirsResponse.DirectoryData(id=directory.id)
        for wanted in directory.topics:
            told = m.AssignReplicasToDirsResponse.TopicData(topic_id=wanted.topic_id)
            for part in wanted.partitions:
                error = _error(image, broker.id, wanted.topic_id, part.partition_index)
                if error is Error.NONE:
                    partition = image.topics[wanted.topic_id].partitions[part.partition_index]
                    records += _assigned(image, broker, wanted.topic_id, part.partition_index, partition, directory.id)
                told.partitions.append(
                    m.AssignReplicasToDirsResponse.PartitionData(partition_index=part.partition_index, error_code=error)
                )
            answer.topics.append(told)
        if broker.directories and directory.id not in broker.directories:
            lost.append(directory.id)
        response.directories.append(answer)
    if lost:  # it failed meanwhile
        records += leave(applied(image, records), broker.id, lost)
    return records, response


def _error(image: Image, broker_id: int, topic_id: bytes, index: int) -> Error:
    if topic_id not in image.topics:
        return Error.UNKNOWN_TOPIC_ID
    partition = image.partition(topic_id, index)
    if partition is None:
        return Error.UNKNOWN_TOPIC_OR_PARTITION
    return Error.NONE if broker_id in partition.replicas else Error.NOT_LEADER_OR_FOLLOWER


def _assigned(
    image: Image, broker: Broker, topic_id: bytes, index: int, partition: Partition, directory_id: bytes
) -> list[Versioned]:
    if partition.directory(broker.id) == directory_id:
        return []
    directories = [partition.directory(replica) for replica in partition.replicas]
    directories[partition.replicas.index(broker.id)] = directory_id
    record = m.PartitionChangeRecord(partition_id=index, topic_id=topic_id, directories=directories)
    if not partition.has_leader:
        leader = elected(image, changed_partition(partition, record), partition.isr)
        if leader != NO_LEADER:
            record.leader = leader
    return [(record, CHANGE_VERSION)]
