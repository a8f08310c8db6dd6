"""A member's way from what it has to what it shall have, so that nobody ever owns what another still owns.

                   target changed                            gave up all of it
STABLE ------------------------------> UNREVOKED_PARTITIONS ------------------+
  ^  ^   what must go is still owned          (keeps its epoch)               |
  |  +------------- nothing is missing ---------------------------------------+
  |                                                                           |
  +--------- what was missing is free -- UNRELEASED_PARTITIONS <--------------+
                                          (has the target's epoch)   others still own some of it
"""

from __future__ import annotations

from collections.abc import Mapping

from headrace.coordinator.groups.consumer.assignors.spec import Assignment
from headrace.coordinator.groups.consumer.member import JOIN_EPOCH, Current, Held, MemberState
from headrace.errors import Error, Refused


def reconciled(
    member_id: str,
    current: Current,
    target: Assignment,
    target_epoch: int,
    owners: Mapping[bytes, Mapping[int, str]],
    owned: Assignment | None,
) -> Current:
    """The next step of a member. `owned` is what it says that it owns; None when it does not say."""
    if current.is_reconciled(target_epoch):
        return current
    if current.state is MemberState.UNREVOKED_PARTITIONS:
        if _owns_any(owned, current.revoking):
            return current
        # It gave them up, and goes on from the epoch behind the one that it left.
        return _next(member_id, current, current.epoch + 1, target, target_epoch, owners, owned)
    if current.state is MemberState.UNKNOWN and owned != {}:
        raise Refused(
            Error.FENCED_MEMBER_EPOCH,
            "The member is in a state that this coordinator does not know; it must give up its partitions and rejoin.",
        )
    return _next(member_id, current, current.epoch, target, target_epoch, owners, owned)


def waits_for_others(
    member_id: str, current: Current, target: Assignment, owners: Mapping[bytes, Mapping[int, str]]
) -> bool:
    """Some of what it shall have and has not is another's still."""
    for topic_id, partitions in target.items():
        mine, of_topic = current.assigned.get(topic_id, ()), owners.get(topic_id, {})
        for partition in partitions:
            if partition not in mine and of_topic.get(partition, member_id) != member_id:
                return True
    return False


def _next(
    member_id: str,
    current: Current,
    epoch: int,
    target: Assignment,
    target_epoch: int,
    owners: Mapping[bytes, Mapping[int, str]],
    owned: Assignment | None,
) -> Current:
    kept: dict[bytes, dict[int, int]] = {}
    revoking: dict[bytes, dict[int, int]] = {}
    for topic_id, had in current.assigned.items():
        wanted = frozenset(target.get(topic_id, ()))
        if keep := {partition: since for partition, since in had.items() if partition in wanted}:
            kept[topic_id] = keep
        if len(keep) < len(had):
            revoking[topic_id] = {partition: since for partition, since in had.items() if partition not in wanted}
    if revoking and _owns_any(owned, revoking):
        return _changed(current, epoch, MemberState.UNREVOKED_PARTITIONS, kept, revoking)
    is_waiting = False
    # To who joins, what it had before is new: whoever it was then is fenced.
    is_joining = current.epoch == JOIN_EPOCH
    assigned: dict[bytes, dict[int, int]] = {}
    for topic_id, wanted_partitions in target.items():
        mine, of_topic = kept.get(topic_id, {}), owners.get(topic_id, {})
        have = {
            p: target_epoch if is_joining else mine.get(p, target_epoch)
            for p in wanted_partitions
            if p in mine or of_topic.get(p, member_id) == member_id
        }
        if have:
            assigned[topic_id] = have
        if len(have) < len(wanted_partitions):
            is_waiting = True
    state = MemberState.UNRELEASED_PARTITIONS if is_waiting else MemberState.STABLE
    return _changed(current, target_epoch, state, assigned, {})


def _changed(current: Current, epoch: int, state: MemberState, assigned: Held, revoking: Held) -> Current:
    if (epoch, state, assigned, revoking) == (current.epoch, current.state, current.assigned, current.revoking):
        return current
    # In the same epoch too: from here on, who comes with the one before has missed more than one reply.
    return Current(epoch, current.epoch, state, assigned, revoking)


def _owns_any(owned: Assignment | None, partitions: Held) -> bool:
    """It may own one of them: it says so, or does not say what it owns."""
    if owned is None:
        return True
    return any(partition in partitions.get(topic_id, ()) for topic_id, mine in owned.items() for partition in mine)
