"""Leaders, replicas and directories, as the controller decides on them when it is asked to."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.errors import Error
from headrace.metadata.delta import Delta
from headrace.metadata.directories import assign_replicas
from headrace.metadata.elections import elect_leaders
from headrace.metadata.image import NO_LEADER, Image, Partition
from headrace.metadata.reassignments import alter_reassignments, list_reassignments
from headrace.metadata.snapshot import Versioned
from headrace.protocol import messages as m

TOPIC_ID = b"t" * 16
HERE, THERE = b"h" * 16, b"x" * 16
PREFERRED, UNCLEAN = 0, 1


class Cluster:
    """Brokers 1 and 2 are active, 3 is fenced; what is decided is replayed."""

    def __init__(self, **partition: Any) -> None:
        self.image = Image()
        state: dict[str, Any] = {
            "replicas": [1, 2, 3],
            "isr": [1, 2],
            "leader": 1,
            "leader_epoch": 0,
            "directories": [HERE] * 3,
        }
        self.replay(
            *(
                m.RegisterBrokerRecord(broker_id=broker_id, fenced=broker_id == 3, log_dirs=[HERE, THERE])
                for broker_id in (1, 2, 3)
            ),
            m.TopicRecord(name="t", topic_id=TOPIC_ID),
            m.PartitionRecord(topic_id=TOPIC_ID, partition_id=0, **(state | partition)),
        )

    @property
    def partition(self) -> Partition:
        return self.image.topics[TOPIC_ID].partitions[0]

    def replay(self, *records: Any) -> None:
        delta = Delta(self.image)
        for record in records:
            delta.replay(record)
        self.image = delta.image(self.image.offset + 1, 1)

    def take(self, records: list[Versioned]) -> None:
        self.replay(*(record for record, _ in records))

    def elect(self, kind: int, topic: str = "t", index: int = 0) -> Error:
        wanted = [m.ElectLeadersRequest.TopicPartitions(topic=topic, partitions=[index])]
        records, response = elect_leaders(
            self.image, m.ElectLeadersRequest(election_type=kind, topic_partitions=wanted)
        )
        self.take(records)
        return Error.of(response.replica_election_results[0].partition_result[0].error_code)

    def reassign(self, replicas: list[int] | None, **more: Any) -> Error:
        kind = m.AlterPartitionReassignmentsRequest
        wanted = kind.ReassignableTopic(
            name="t", partitions=[kind.ReassignablePartition(partition_index=0, replicas=replicas)]
        )
        records, response = alter_reassignments(self.image, kind(topics=[wanted], **more))
        self.take(records)
        return Error.of(response.responses[0].partitions[0].error_code)

    def assign(self, directory_id: bytes, broker_id: int = 1, topic_id: bytes = TOPIC_ID, index: int = 0) -> Error:
        kind = m.AssignReplicasToDirsRequest
        topic = kind.TopicData(topic_id=topic_id, partitions=[kind.PartitionData(partition_index=index)])
        request = kind(broker_id=broker_id, directories=[kind.DirectoryData(id=directory_id, topics=[topic])])
        records, response = assign_replicas(self.image, self.image.brokers[broker_id], request)
        self.take(records)
        return Error.of(response.directories[0].topics[0].partitions[0].error_code)


def test_the_preferred_leader_is_elected_when_it_is_in_sync() -> None:
    cluster = Cluster(leader=2, leader_epoch=4)
    assert cluster.elect(PREFERRED) is Error.NONE
    assert (cluster.partition.leader, cluster.partition.leader_epoch) == (1, 5)
    assert cluster.elect(PREFERRED) is Error.ELECTION_NOT_NEEDED


def test_a_preferred_leader_that_is_not_in_sync_or_not_there_is_not_elected() -> None:
    assert Cluster(leader=2, isr=[2]).elect(PREFERRED) is Error.PREFERRED_LEADER_NOT_AVAILABLE
    assert Cluster(replicas=[3, 2], isr=[3, 2], leader=2).elect(PREFERRED) is Error.PREFERRED_LEADER_NOT_AVAILABLE
    assert Cluster(replicas=[3], isr=[3], leader=NO_LEADER).elect(PREFERRED) is Error.PREFERRED_LEADER_NOT_AVAILABLE


def test_an_unclean_election_takes_who_is_there_and_only_when_nobody_leads() -> None:
    assert Cluster().elect(UNCLEAN) is Error.ELECTION_NOT_NEEDED
    cluster = Cluster(isr=[3], leader=NO_LEADER)
    assert cluster.elect(UNCLEAN) is Error.NONE
    assert (cluster.partition.leader, cluster.partition.isr, cluster.partition.is_recovering) == (1, (1,), True)
    alone = Cluster(replicas=[3], isr=[3], leader=NO_LEADER)
    assert alone.elect(UNCLEAN) is Error.ELIGIBLE_LEADERS_NOT_AVAILABLE


def test_elections_of_what_is_not_there() -> None:
    assert Cluster().elect(PREFERRED, "none") is Error.UNKNOWN_TOPIC_OR_PARTITION
    assert Cluster().elect(PREFERRED, index=9) is Error.UNKNOWN_TOPIC_OR_PARTITION


def test_of_all_partitions_only_those_that_need_one_are_told() -> None:
    cluster = Cluster()
    _, response = elect_leaders(cluster.image, m.ElectLeadersRequest(topic_partitions=None))
    assert [topic.partition_result for topic in response.replica_election_results] == [[]]


@pytest.mark.parametrize("replicas", [[1, 1], [], [9], [1, 9]])
def test_replicas_that_can_not_be(replicas: list[int]) -> None:
    assert Cluster().reassign(replicas) is Error.INVALID_REPLICA_ASSIGNMENT


def test_another_order_of_replicas_is_taken_at_once_and_the_same_changes_nothing() -> None:
    cluster = Cluster()
    assert cluster.reassign([2, 1, 3]) is Error.NONE
    assert cluster.partition.replicas == (2, 1, 3)
    epoch = cluster.partition.partition_epoch
    assert cluster.reassign([2, 1, 3]) is Error.NONE
    assert cluster.partition.partition_epoch == epoch


def test_replicas_that_go_are_gone_when_others_are_in_sync_and_a_leader_among_them_is_followed_by_another() -> None:
    cluster = Cluster()
    assert cluster.reassign([2]) is Error.NONE
    state = cluster.partition
    assert (state.replicas, state.isr, state.leader, state.removing_replicas) == ((2,), (2,), 2, ())


def test_a_replica_that_comes_is_waited_for_and_the_move_can_be_cancelled() -> None:
    cluster = Cluster(replicas=[1], isr=[1], directories=[HERE])
    assert cluster.reassign(None) is Error.NO_REASSIGNMENT_IN_PROGRESS
    assert cluster.reassign([2]) is Error.NONE
    state = cluster.partition
    assert (state.replicas, state.adding_replicas, state.removing_replicas) == ((2, 1), (2,), (1,))
    listed = list_reassignments(cluster.image, m.ListPartitionReassignmentsRequest(topics=None))
    (found,) = listed.topics[0].partitions
    assert (found.replicas, found.adding_replicas, found.removing_replicas) == ([2, 1], [2], [1])
    assert cluster.reassign(None) is Error.NONE
    assert (cluster.partition.replicas, cluster.partition.adding_replicas) == ((1,), ())
    assert list_reassignments(cluster.image, m.ListPartitionReassignmentsRequest(topics=None)).topics == []


def test_a_replication_factor_that_is_to_stay_is_not_changed() -> None:
    cluster = Cluster()
    assert cluster.reassign([1], allow_replication_factor_change=False) is Error.INVALID_REPLICATION_FACTOR
    assert cluster.reassign([3, 2, 1], allow_replication_factor_change=False) is Error.NONE


def test_the_controller_keeps_in_which_directory_a_replica_is() -> None:
    cluster = Cluster()
    assert cluster.assign(THERE) is Error.NONE
    state = cluster.partition
    assert (state.directories, state.leader, state.leader_epoch) == ((THERE, HERE, HERE), 1, 0)
    assert cluster.assign(THERE, topic_id=b"?" * 16) is Error.UNKNOWN_TOPIC_ID
    assert cluster.assign(THERE, index=9) is Error.UNKNOWN_TOPIC_OR_PARTITION
    assert Cluster(replicas=[2], isr=[2], leader=2, directories=[HERE]).assign(THERE) is Error.NOT_LEADER_OR_FOLLOWER


def test_a_replica_in_a_directory_that_has_failed_does_not_lead() -> None:
    cluster = Cluster()
    assert cluster.assign(b"gone" * 4) is Error.NONE
    assert (cluster.partition.leader, cluster.partition.isr) == (2, (2,))


def test_a_replica_that_is_found_in_a_directory_that_is_there_leads_again() -> None:
    cluster = Cluster(replicas=[1], isr=[1], leader=NO_LEADER, directories=[b"gone" * 4])
    assert cluster.assign(HERE) is Error.NONE
    assert cluster.partition.leader == 1
