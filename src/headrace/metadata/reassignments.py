"""Moves of replicas to other brokers (KIP-455). PURE.

A move first adds the new replicas to the old, and takes the old away when all new ones are in sync. What needs no new
replica, such as another order, is done at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from headrace.errors import Error, Refused
from headrace.metadata.assignment import check_assignment
from headrace.metadata.image import Image, Partition, Topic
from headrace.metadata.leadership import CHANGE_VERSION, elected
from headrace.metadata.snapshot import Versioned
from headrace.protocol import messages as m


def alter_reassignments(
    image: Image, request: m.AlterPartitionReassignmentsRequest
) -> tuple[list[Versioned], m.AlterPartitionReassignmentsResponse]:
    records: list[Versioned] = []
    kind = m.AlterPartitionReassignmentsResponse
    response = kind(error_message=None, allow_replication_factor_change=request.allow_replication_factor_change)
    for wanted in request.topics:
        topic = image.topic(wanted.name)
        answers = []
        for asked in wanted.partitions:
            answer = kind.ReassignablePartitionResponse(partition_index=asked.partition_index, error_message=None)
            try:
                change = _alter(image, topic, wanted.name, asked, request.allow_replication_factor_change)
                if change is not None:
                    records.append((change, CHANGE_VERSION))
            except Refused as refused:
                answer.error_code, answer.error_message = refused.error, refused.text
            answers.append(answer)
        response.responses.append(kind.ReassignableTopicResponse(name=wanted.name, partitions=answers))
    return records, response


def list_reassignments(
    image: Image, request: m.ListPartitionReassignmentsRequest
) -> m.ListPartitionReassignmentsResponse:
    """Those under way, of the partitions that are asked for or of all. What is not there is left out."""
    kind = m.ListPartitionReassignmentsResponse
    response = kind(error_message=None)
    wanted: Iterable[tuple[Topic | None, Sequence[int]]]
    if request.topics is None:
        wanted = ((topic, list(topic.partitions)) for topic in image.topics.values())
    else:
        wanted = ((image.topic(asked.name), asked.partition_indexes) for asked in request.topics)
    for topic, indexes in wanted:
        if topic is None:
            continue
        found = [(index, topic.partitions[index]) for index in indexes if index in topic.partitions]
        under_way = [
            kind.OngoingPartitionReassignment(
                partition_index=index,
                replicas=list(partition.replicas),
                adding_replicas=list(partition.adding_replicas),
                removing_replicas=list(partition.removing_replicas),
            )
            for index, partition in found
            if _is_under_way(partition)
        ]
        if under_way:
            response.topics.append(kind.OngoingTopicReassignment(name=topic.name, partitions=under_way))
    return response


def _is_under_way(partition: Partition) -> bool:
    return bool(partition.adding_replicas or partition.removing_replicas)


def _alter(
    image: Image,
    topic: Topic | None,
    name: str,
    asked: m.AlterPartitionReassignmentsRequest.ReassignablePartition,
    may_change_factor: bool,
) -> m.PartitionChangeRecord | None:
    partition = None if topic is None else topic.partitions.get(asked.partition_index)
    if topic is None or partition is None:
        raise Refused(Error.UNKNOWN_TOPIC_OR_PARTITION, f"There is no partition {name}-{asked.partition_index}.")
    record = m.PartitionChangeRecord(partition_id=asked.partition_index, topic_id=topic.id)
    if asked.replicas is None:
        _cancel(image, partition, record)
        return record
    return _begin(image, partition, asked.replicas, record, may_change_factor)


def _begin(
    image: Image,
    partition: Partition,
    target: list[int],
    record: m.PartitionChangeRecord,
    may_change_factor: bool,
) -> m.PartitionChangeRecord | None:
    check_assignment(image, target)
    # What a move before this one was to add is given up with it.
    before = [broker_id for broker_id in partition.replicas if broker_id not in partition.adding_replicas]
    if not may_change_factor and len(target) != len(before):
        raise Refused(
            Error.INVALID_REPLICATION_FACTOR,
            f"The replication factor is {len(before)}, and {len(target)} replicas would change it.",
        )
    adding = [broker_id for broker_id in target if broker_id not in before]
    removing = [broker_id for broker_id in before if broker_id not in target]
    in_sync = [broker_id for broker_id in partition.isr if broker_id in target]
    if all(broker_id in partition.isr for broker_id in adding) and in_sync:
        replicas, isr, adding, removing = target, in_sync, [], []
    else:
        replicas = target + removing
        isr = [broker_id for broker_id in partition.isr if broker_id in replicas]
    if replicas != list(partition.replicas):
        record.replicas = replicas
    if isr != list(partition.isr):
        record.isr = isr
    if adding != list(partition.adding_replicas):
        record.adding_replicas = adding
    if removing != list(partition.removing_replicas):
        record.removing_replicas = removing
    if partition.has_leader and partition.leader not in replicas:
        record.leader = elected(image, partition, isr)
    is_change = (record.replicas, record.isr, record.adding_replicas, record.removing_replicas) != (None,) * 4
    return record if is_change else None


def _cancel(image: Image, partition: Partition, record: m.PartitionChangeRecord) -> None:
    """Back to what was before: the new replicas go."""
    if not _is_under_way(partition):
        raise Refused(Error.NO_REASSIGNMENT_IN_PROGRESS)
    record.replicas = [broker_id for broker_id in partition.replicas if broker_id not in partition.adding_replicas]
    record.isr = [broker_id for broker_id in partition.isr if broker_id in record.replicas]
    record.adding_replicas = record.removing_replicas = []
    if not record.isr:
        raise Refused(
            Error.INVALID_REPLICA_ASSIGNMENT,
            "None of the replicas from before is in sync, so that to cancel would lose records.",
        )
    if partition.has_leader and partition.leader not in record.replicas:
        record.leader = elected(image, partition, record.isr)
