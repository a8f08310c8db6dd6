"""A consumer group as ConsumerGroupDescribe tells of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from headrace.coordinator.groups.consumer.assignors.spec import Assignment
from headrace.coordinator.groups.consumer.group import ConsumerGroup
from headrace.coordinator.groups.consumer.member import Current, Member
from headrace.metadata.image import Image
from headrace.protocol import messages as m

CLASSIC_MEMBER: Final = 0
CONSUMER_MEMBER: Final = 1


def described(
    group: ConsumerGroup, default_assignor: str, image: Image
) -> m.ConsumerGroupDescribeResponse.DescribedGroup:
    return m.ConsumerGroupDescribeResponse.DescribedGroup(
        group_id=group.group_id,
        group_state=group.state,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=group.assignor(default_assignor),
        members=[_member(member, group.target(member.id), image) for member in group.members.values()],
    )


def _member(member: Member, target: Assignment, image: Image) -> m.ConsumerGroupDescribeResponse.Member:
    subscription = member.subscription
    return m.ConsumerGroupDescribeResponse.Member(
        member_id=member.id,
        instance_id=subscription.instance_id,
        rack_id=subscription.rack_id,
        member_epoch=member.current.epoch,
        client_id=subscription.client_id,
        client_host=subscription.client_host,
        subscribed_topic_names=list(subscription.names),
        subscribed_topic_regex=subscription.regex or "",
        assignment=_assignment(_owned(member.current), image),
        target_assignment=_assignment(target, image),
        member_type=CLASSIC_MEMBER if member.is_classic else CONSUMER_MEMBER,
    )


def _owned(current: Current) -> Mapping[bytes, Iterable[int]]:
    """What it has to give up it has until it says that it did."""
    if not current.revoking:
        return current.assigned
    return {
        topic_id: tuple(sorted({*current.assigned.get(topic_id, ()), *current.revoking.get(topic_id, ())}))
        for topic_id in {**current.assigned, **current.revoking}
    }


def _assignment(assignment: Mapping[bytes, Iterable[int]], image: Image) -> m.ConsumerGroupDescribeResponse.Assignment:
    """Of the topics that exist: a deleted one has no name to tell."""
    kind = m.ConsumerGroupDescribeResponse
    return kind.Assignment(
        topic_partitions=[
            kind.TopicPartitions(topic_id=topic_id, topic_name=image.topics[topic_id].name, partitions=list(partitions))
            for topic_id, partitions in assignment.items()
            if topic_id in image.topics
        ]
    )
