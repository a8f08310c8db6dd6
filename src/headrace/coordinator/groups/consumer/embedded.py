"""What consumers of the classic protocol say inside of it: their subscriptions, and what they are assigned."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from headrace.coordinator.groups.consumer.assignors.spec import Assignment
from headrace.errors import Error, ProtocolError, Refused
from headrace.metadata.image import Image
from headrace.protocol import messages as m
from headrace.protocol.codec import decode_at, encode_bytes

CONSUMER_PROTOCOL: Final = "consumer"
VERSION_MAX: Final = 3
NO_GENERATION: Final = -1


def read_subscription(data: bytes) -> m.ConsumerProtocolSubscription:
    """Of any version: a later one only adds to the last that is known."""
    try:
        found, _ = decode_at(m.ConsumerProtocolSubscription, version_of(data), data, 2)
    except ProtocolError:
        raise Refused(Error.INCONSISTENT_GROUP_PROTOCOL, "The subscription of the consumer can't be read.") from None
    assert isinstance(found, m.ConsumerProtocolSubscription)
    return found


def read_assignment(data: bytes, image: Image) -> Assignment:
    """By topic ids; topics that are gone are left out."""
    if not data:
        return {}
    try:
        found, _ = decode_at(m.ConsumerProtocolAssignment, version_of(data), data, 2)
    except ProtocolError:
        raise Refused(Error.INCONSISTENT_GROUP_PROTOCOL, "The assignment of a consumer can't be read.") from None
    assert isinstance(found, m.ConsumerProtocolAssignment)
    return _by_id({topic.topic: topic.partitions for topic in found.assigned_partitions}, image)


def write_assignment(assignment: Mapping[bytes, Iterable[int]], version: int, image: Image) -> bytes:
    kind = m.ConsumerProtocolAssignment
    message = kind(
        assigned_partitions=[
            kind.TopicPartition(topic=image.topics[topic_id].name, partitions=list(partitions))
            for topic_id, partitions in assignment.items()
            if topic_id in image.topics
        ]
    )
    return version.to_bytes(2) + encode_bytes(message, version)


def version_of(data: bytes) -> int:
    if len(data) < 2:
        raise Refused(Error.INCONSISTENT_GROUP_PROTOCOL, "What the consumer says has no version.")
    return min(max(int.from_bytes(data[:2], signed=True), 0), VERSION_MAX)


def owned_by(subscription: m.ConsumerProtocolSubscription, epoch: int, image: Image) -> Assignment:
    """What a member says that it owns when it joins: nothing counts that is of another generation than it is in."""
    if subscription.generation_id not in (NO_GENERATION, epoch):
        return {}
    return _by_id({topic.topic: topic.partitions for topic in subscription.owned_partitions}, image)


def _by_id(topics: Mapping[str, list[int]], image: Image) -> Assignment:
    found: dict[bytes, tuple[int, ...]] = {}
    for name, partitions in topics.items():
        topic_id = image.topic_ids.get(name)
        if topic_id is not None and partitions:
            found[topic_id] = tuple(sorted(dict.fromkeys(partitions)))
    return dict(sorted(found.items()))
