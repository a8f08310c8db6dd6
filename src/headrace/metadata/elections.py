"""Elections that somebody asked for: of the preferred leader, or of whoever is there (ElectLeaders, KIP-460). PURE."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from headrace.errors import Error, Refused
from headrace.metadata.image import NO_LEADER, Image, Partition
from headrace.metadata.leadership import CHANGE_VERSION, elected, may_lead
from headrace.metadata.snapshot import Versioned
from headrace.protocol import messages as m

_RECOVERING: Final = 1


class Election(IntEnum):
    """By Kafka's numbers."""

    PREFERRED = 0
    UNCLEAN = 1


def elect_leaders(image: Image, request: m.ElectLeadersRequest) -> tuple[list[Versioned], m.ElectLeadersResponse]:
    """Each partition is answered for itself; of all partitions, only those that did need an election."""
    if request.election_type not in list(Election):
        raise Refused(Error.INVALID_REQUEST, f"There is no election of type {request.election_type}.")
    election = Election(request.election_type)
    records: list[Versioned] = []
    response = m.ElectLeadersResponse()
    if request.topic_partitions is None:
        wanted = [(topic.name, list(topic.partitions)) for topic in image.topics.values()]
    else:
        wanted = [(topic.topic, topic.partitions) for topic in request.topic_partitions]
    for name, indexes in wanted:
        results = []
        for index in indexes:
            try:
                records.append(_elect(image, name, index, election))
                results.append(m.ElectLeadersResponse.PartitionResult(partition_id=index, error_message=None))
            except Refused as refused:
                if request.topic_partitions is not None or refused.error is not Error.ELECTION_NOT_NEEDED:
                    results.append(
                        m.ElectLeadersResponse.PartitionResult(
                            partition_id=index, error_code=refused.error, error_message=refused.text
                        )
                    )
        response.replica_election_results.append(
            m.ElectLeadersResponse.ReplicaElectionResult(topic=name, partition_result=results)
        )
    return records, response


def _elect(image: Image, name: str, index: int, election: Election) -> Versioned:
    topic = image.topic(name)
    partition = None if topic is None else topic.partitions.get(index)
    if topic is None or partition is None:
        raise Refused(Error.UNKNOWN_TOPIC_OR_PARTITION, f"There is no partition {name}-{index}.")
    record = m.PartitionChangeRecord(partition_id=index, topic_id=topic.id)
    elect = _elect_preferred if election is Election.PREFERRED else _elect_unclean
    elect(image, partition, record)
    return record, CHANGE_VERSION


def _elect_preferred(image: Image, partition: Partition, record: m.PartitionChangeRecord) -> None:
    preferred, leader = partition.replicas[0], partition.leader
    if leader == preferred:
        raise Refused(Error.ELECTION_NOT_NEEDED)
    if preferred in partition.isr and may_lead(image, partition, preferred):
        record.leader = preferred
    elif partition.has_leader and may_lead(image, partition, leader):
        raise Refused(Error.PREFERRED_LEADER_NOT_AVAILABLE)
    else:
        record.leader = elected(image, partition, partition.isr)
        if record.leader == NO_LEADER:
            raise Refused(Error.PREFERRED_LEADER_NOT_AVAILABLE)


def _elect_unclean(image: Image, partition: Partition, record: m.PartitionChangeRecord) -> None:
    """A replica that is not in sync leads, and what the others have beyond it is lost: somebody wanted that."""
    if partition.has_leader:
        raise Refused(Error.ELECTION_NOT_NEEDED)
    record.leader = elected(image, partition, partition.isr)
    if record.leader == NO_LEADER:
        record.leader = elected(image, partition, partition.replicas)
        if record.leader == NO_LEADER:
            raise Refused(Error.ELIGIBLE_LEADERS_NOT_AVAILABLE)
        record.isr = [record.leader]
        record.leader_recovery_state = _RECOVERING
