"""Requests of administration, well and badly made, by API key: `test_versions` asks them in every version."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headrace.protocol import messages as m
from headrace.protocol.message import Message

TOPIC = "orders"
LONG = "x" * 32_767
LARGE, LEAST = 2**31 - 1, -(2**31)
NAMES = (TOPIC, "none", "", "a b", LONG)
PARTITIONS = [0, 1, 0, 9, -1, LEAST]


def deletes_of_records(topic_id: bytes) -> Sequence[Message]:
    kind = m.DeleteRecordsRequest
    offsets = (0, -1, -2, 99, 2**62)
    parts = [kind.DeleteRecordsPartition(partition_index=i, offset=at) for i in PARTITIONS for at in offsets]
    topics = [kind.DeleteRecordsTopic(name=name, partitions=parts) for name in (*NAMES, "__consumer_offsets")]
    return [kind(topics=topics, timeout_ms=timeout_ms) for timeout_ms in (1000, 0, LEAST)] + [kind()]


def log_dirs(topic_id: bytes) -> Sequence[Message]:
    kind = m.DescribeLogDirsRequest
    topics = [kind.DescribableLogDirTopic(topic=name, partitions=PARTITIONS) for name in NAMES]
    return [kind(topics=None), kind(topics=[]), kind(topics=topics)]


def moves(topic_id: bytes) -> Sequence[Message]:
    kind = m.AlterReplicaLogDirsRequest
    topics = [kind.AlterReplicaLogDirTopic(name=name, partitions=PARTITIONS) for name in NAMES]
    return [
        kind(dirs=[]),
        kind(dirs=[kind.AlterReplicaLogDir(path=path, topics=topics) for path in ("/nowhere", "", "relative", LONG)]),
    ]


def growths(topic_id: bytes) -> Sequence[Message]:
    kind = m.CreatePartitionsRequest
    assignments: list[Any] = [None, [], [[1]], [[9]], [[]], [[1, 1]], [[9] * 9000]]
    return [
        kind(
            topics=[
                kind.CreatePartitionsTopic(
                    name=name,
                    count=count,
                    assignments=None
                    if assignment is None
                    else [kind.CreatePartitionsAssignment(broker_ids=ids) for ids in assignment],
                )
                for name in (*NAMES, *repeated)
            ],
            timeout_ms=timeout_ms,
            validate_only=True,
        )
        for count in (0, 1, 2, 3, LARGE, LEAST)
        for assignment in assignments
        for repeated, timeout_ms in (((), 1000), ((TOPIC, LONG), 1000), ((), LEAST))
    ] + [kind()]


def elections(topic_id: bytes) -> Sequence[Message]:
    kind = m.ElectLeadersRequest
    topics = [kind.TopicPartitions(topic=name, partitions=PARTITIONS) for name in NAMES]
    return [
        kind(election_type=election, topic_partitions=wanted, timeout_ms=timeout_ms)
        for election in (0, 1, 7, -1)
        for wanted in (None, [], topics)
        for timeout_ms in (1000, 0)
    ]


def reassignments(topic_id: bytes) -> Sequence[Message]:
    kind = m.AlterPartitionReassignmentsRequest
    targets: list[Any] = [None, [], [1], [1, 1], [9], [9] * 9000]
    topics = [
        kind.ReassignableTopic(
            name=name,
            partitions=[
                kind.ReassignablePartition(partition_index=index, replicas=to) for index in PARTITIONS for to in targets
            ],
        )
        for name in NAMES
    ]
    return [kind(), kind(topics=topics), kind(topics=topics, allow_replication_factor_change=False)]


def listed_reassignments(topic_id: bytes) -> Sequence[Message]:
    kind = m.ListPartitionReassignmentsRequest
    topics = [kind.ListPartitionReassignmentsTopics(name=name, partition_indexes=PARTITIONS) for name in NAMES]
    return [kind(topics=None), kind(topics=[]), kind(topics=topics)]


def acls(topic_id: bytes) -> Sequence[Message]:
    return [
        m.DescribeAclsRequest(
            resource_type_filter=kind, resource_name_filter=name, principal_filter=name, host_filter=None
        )
        for kind in (1, 2, 99, -1)
        for name in (None, "", LONG)
    ]


def new_acls(topic_id: bytes) -> Sequence[Message]:
    kind = m.CreateAclsRequest
    return [kind(), kind(creations=[kind.AclCreation(resource_name=name, principal=name) for name in NAMES])]


def old_acls(topic_id: bytes) -> Sequence[Message]:
    kind = m.DeleteAclsRequest
    filters = [
        kind.DeleteAclsFilter(resource_name_filter=name, principal_filter=None, host_filter=None)
        for name in (None, *NAMES)
    ]
    return [kind(), kind(filters=filters)]


def quotas(topic_id: bytes) -> Sequence[Message]:
    kind = m.DescribeClientQuotasRequest
    return [
        kind(components=[kind.ComponentData(entity_type=entity, match_type=how, match=name)] * count, strict=strict)
        for entity in ("user", "client-id", "ip", "", LONG)
        for how in (0, 1, 2, 9)
        for name in (None, "", LONG)
        for count, strict in ((1, False), (1, True), (2, False))
    ] + [kind()]


def scram(topic_id: bytes) -> Sequence[Message]:
    kind = m.DescribeUserScramCredentialsRequest
    return [kind(users=None), kind(users=[]), kind(users=[kind.UserName(name=name) for name in ("a", "a", "", LONG)])]


def quorums(topic_id: bytes) -> Sequence[Message]:
    kind = m.DescribeQuorumRequest
    part = kind.PartitionData
    return [kind()] + [
        kind(topics=[kind.TopicData(topic_name=name, partitions=[part(partition_index=i) for i in PARTITIONS])])
        for name in ("__cluster_metadata", *NAMES)
    ]


def features(topic_id: bytes) -> Sequence[Message]:
    kind = m.UpdateFeaturesRequest
    updates: list[dict[str, Any]] = [{}, {"upgrade_type": 2}, {"upgrade_type": 3}, {"upgrade_type": 9}]
    return [kind(), kind(validate_only=True)] + [
        kind(
            feature_updates=[kind.FeatureUpdateKey(feature=name, max_version_level=level, **more)],
            validate_only=validate_only,
        )
        for name in ("metadata.version", "none", "", LONG)
        for level in (7, 0, -1, 32767)
        for more in (*updates, {"allow_downgrade": True})
        for validate_only in (True, False)
        if name != "metadata.version" or level != 29
    ]


def producers(topic_id: bytes) -> Sequence[Message]:
    kind = m.DescribeProducersRequest
    return [kind(), kind(topics=[kind.TopicRequest(name=name, partition_indexes=PARTITIONS) for name in NAMES])]


def unregistrations(topic_id: bytes) -> Sequence[Message]:
    return [m.UnregisterBrokerRequest(broker_id=broker_id) for broker_id in (9, -1, LARGE)]


def pages(topic_id: bytes) -> Sequence[Message]:
    kind = m.DescribeTopicPartitionsRequest
    cursors = [None, *(kind.Cursor(topic_name=name, partition_index=i) for name in NAMES for i in PARTITIONS)]
    return [
        kind(topics=[kind.TopicRequest(name=name) for name in names], response_partition_limit=limit, cursor=cursor)
        for names in ((), NAMES, (TOPIC, TOPIC))
        for limit in (0, 1, LARGE, LEAST)
        for cursor in cursors
    ]


ASKED = {
    21: deletes_of_records,
    29: acls,
    30: new_acls,
    31: old_acls,
    34: moves,
    35: log_dirs,
    37: growths,
    43: elections,
    45: reassignments,
    46: listed_reassignments,
    48: quotas,
    50: scram,
    55: quorums,
    57: features,
    61: producers,
    64: unregistrations,
    75: pages,
}
REFUSED = (growths, elections, reassignments, quorums, features, unregistrations)
"""What the controller may refuse as a whole."""
