"""Who leads a partition when brokers come and go. PURE.

A broker that goes leaves the in-sync replicas, except where it is the last of them: then the partition has no leader,
and nobody else can become one, because nobody else has everything that was acknowledged (hazard 3). A broker that comes
is elected where it is in sync and nobody leads. Both begin a new leader epoch, so that a restart is never unseen.

Each is one pass over all partitions: brokers come and go rarely, and an index of partitions by broker would have to be
kept with each change of an image.
"""

from __future__ import annotations

from collections.abc import Collection

from headrace.metadata.image import LOST_DIRECTORY, NO_LEADER, UNASSIGNED_DIRECTORY, Image, Partition
from headrace.metadata.snapshot import Versioned
from headrace.protocol import messages as m

MIGRATING_DIRECTORY = bytes(15) + b"\x02"
RESERVED_DIRECTORIES = (UNASSIGNED_DIRECTORY, LOST_DIRECTORY, MIGRATING_DIRECTORY)
CHANGE_VERSION = 1


def may_lead(image: Image, partition: Partition, broker_id: int) -> bool:
    """It is active, and the directory that holds its replica has not failed."""
    broker = image.brokers.get(broker_id)
    if broker is None or not broker.is_active:
        return False
    directory = partition.directory(broker_id)
    if directory == LOST_DIRECTORY:
        return False
    return directory in RESERVED_DIRECTORIES or not broker.directories or directory in broker.directories


def elected(image: Image, partition: Partition, isr: Collection[int]) -> int:
    """The first replica, in the order of the assignment, that is in sync and may lead."""
    for broker_id in partition.replicas:
        if broker_id in isr and may_lead(image, partition, broker_id):
            return broker_id
    return NO_LEADER


def leave(image: Image, broker_id: int, directories: Collection[bytes] | None = None) -> list[Versioned]:
    """A broker is not active any more, which the image says already; or only some of its directories are not."""
    records: list[Versioned] = []
    for topic_id, topic in image.topics.items():
        for index, partition in topic.partitions.items():
            if broker_id not in partition.isr:
                continue
            if directories is not None and partition.directory(broker_id) not in directories:
                continue
            is_last = len(partition.isr) == 1
            leads = partition.leader == broker_id
            if is_last and not leads:
                continue
            record = m.PartitionChangeRecord(partition_id=index, topic_id=topic_id)
            isr: Collection[int] = partition.isr
            if not is_last:
                record.isr = [member for member in partition.isr if member != broker_id]
                isr = record.isr
            if leads:
                record.leader = elected(image, partition, isr)
            records.append((record, CHANGE_VERSION))
    return records


def enter(image: Image, broker_id: int) -> list[Versioned]:
    """A broker is active now, which the image says already."""
    records: list[Versioned] = []
    for topic_id, topic in image.topics.items():
        for index, partition in topic.partitions.items():
            if partition.leader == NO_LEADER and broker_id in partition.isr:
                leader = elected(image, partition, partition.isr)
                if leader != NO_LEADER:
                    record = m.PartitionChangeRecord(partition_id=index, topic_id=topic_id, leader=leader)
                    records.append((record, CHANGE_VERSION))
    return records


def leads_any(image: Image, broker_id: int) -> bool:
    return any(
        partition.leader == broker_id for topic in image.topics.values() for partition in topic.partitions.values()
    )
