"""Who a heartbeat is from, and whether it may be: members that are fenced, unknown or not released yet are refused."""

from __future__ import annotations

from dataclasses import replace

from headrace.coordinator.groups.consumer.assignors.spec import Assignment
from headrace.coordinator.groups.consumer.decision import NEWCOMER, Decision, Subscriber
from headrace.coordinator.groups.consumer.group import ConsumerGroup
from headrace.coordinator.groups.consumer.member import JOIN_EPOCH, STATIC_LEAVE_EPOCH, Member
from headrace.coordinator.groups.consumer.requests import is_subset
from headrace.errors import Error, Refused


def subscriber(
    decision: Decision, member_id: str, instance_id: str | None, epoch: int, owned: Assignment | None
) -> Subscriber:
    """A member of the new protocol, by what it says that it is."""
    group, is_joining = decision.group, epoch == JOIN_EPOCH
    if instance_id is None:
        if is_joining and member_id not in group.members:
            return NEWCOMER
        return _known(decision, group.member(member_id), epoch, owned)
    if is_joining and instance_id not in group.instances:
        return NEWCOMER
    member = static_member(group, instance_id)
    if member.id == member_id:
        return _known(decision, member, epoch, owned)
    if not is_joining:
        raise fenced_instance(member_id, instance_id, member)
    if member.current.epoch != STATIC_LEAVE_EPOCH and not member.is_classic:
        raise Refused(
            Error.UNRELEASED_INSTANCE_ID,
            f"Static member {member_id} with instance id {instance_id} can't join: member {member.id} has it still.",
        )
    return decision.replace_static(member)


def identified(group: ConsumerGroup, member_id: str, instance_id: str | None) -> Member:
    """A member that is there, by its id and, if it is static, its instance."""
    if instance_id is None:
        return group.member(member_id)
    member = static_member(group, instance_id)
    if member.id != member_id:
        raise fenced_instance(member_id, instance_id, member)
    return member


def static_member(group: ConsumerGroup, instance_id: str) -> Member:
    member_id = group.instances.get(instance_id)
    if member_id is None:
        raise Refused(Error.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
    return group.members[member_id]


def fenced_instance(member_id: str, instance_id: str, by: Member) -> Refused:
    return Refused(
        Error.FENCED_INSTANCE_ID,
        f"Static member {member_id} with instance id {instance_id} was fenced by member {by.id}.",
    )


def _known(decision: Decision, member: Member, epoch: int, owned: Assignment | None) -> Subscriber:
    current = member.current
    if epoch == JOIN_EPOCH and current.epoch == STATIC_LEAVE_EPOCH:  # clients keep their id while their process lives
        return decision.resume_static(member)
    if epoch != current.epoch:
        is_retry = epoch == current.previous_epoch and is_subset(owned, current.assigned)
        if epoch > current.epoch or not (is_retry or epoch == JOIN_EPOCH):
            raise Refused(
                Error.FENCED_MEMBER_EPOCH,
                f"The member came with epoch {epoch}, and is in epoch {current.epoch}. "
                "It must give up its partitions and rejoin.",
            )
        if not is_retry:
            decision.restart()
            current = replace(current, epoch=JOIN_EPOCH, previous_epoch=JOIN_EPOCH)
    return Subscriber(member.subscription, current, decision.group.target(member.id))
