"""A live group goes over from one protocol to the other, and nobody is thrown out (KIP-848).

A classic group becomes a consumer group when the first member of the new protocol comes. Its members stay, and go on
speaking the classic protocol. When the last member of the new protocol goes, those who are left are a classic group
again. `group.consumer.migration.policy` says which of the two may happen.
"""

from __future__ import annotations

from headrace.config.coordinators import MigrationPolicy
from headrace.coordinator.groups.classic import ClassicGroup, ClassicGroups
from headrace.coordinator.groups.classic import records as classic_records
from headrace.coordinator.groups.classic.answers import dismiss
from headrace.coordinator.groups.classic.member import Member as MemberOfClassic
from headrace.coordinator.groups.classic.states import State
from headrace.coordinator.groups.consumer import records
from headrace.coordinator.groups.consumer.embedded import (
    CONSUMER_PROTOCOL,
    read_assignment,
    read_subscription,
    version_of,
    write_assignment,
)
from headrace.coordinator.groups.consumer.group import ConsumerGroup
from headrace.coordinator.groups.consumer.member import ClassicMember, Current, Member, Subscription
from headrace.coordinator.groups.consumer.target import View
from headrace.coordinator.groups.consumer.topics import Topics
from headrace.coordinator.groups.context import GroupContext
from headrace.coordinator.shard import Outcome, StateRecord
from headrace.errors import Error, Refused
from headrace.metadata.image import Image
from headrace.protocol import messages as m

UPGRADES = (MigrationPolicy.BIDIRECTIONAL, MigrationPolicy.UPGRADE)
RECORD_OVERHEAD_BYTES = 20
FIRST_EPOCH = 1
"""Of a group that nobody was told a generation of yet: in epoch 0 members have not joined."""
DOWNGRADES = (MigrationPolicy.BIDIRECTIONAL, MigrationPolicy.DOWNGRADE)


def upgraded(group: ClassicGroup, context: GroupContext, topics: Topics) -> ConsumerGroup:
    """The group as one of the new protocol, in the generation that it is in, everyone with what it has.

    Raises GROUP_ID_NOT_FOUND when it can't be, as for every group of another kind.
    """
    config = context.group_config
    if (
        config.group_consumer_migration_policy not in UPGRADES
        or group.protocol_type != CONSUMER_PROTOCOL
        or len(group.members) > config.group_consumer_max_size
    ):
        raise Refused(Error.GROUP_ID_NOT_FOUND, f"Group {group.group_id} is not a consumer group.")
    made = ConsumerGroup(group.group_id)
    epoch = max(group.generation, FIRST_EPOCH)
    made.apply_epoch(epoch, 0)
    made.assignment_epoch = epoch
    for member in group.members.values():
        try:
            _take_over(made, member, group.protocol, context.image)
        except Refused as refused:
            raise Refused(
                Error.GROUP_ID_NOT_FOUND, f"Group {group.group_id} can't become a consumer group: {refused.text}"
            ) from None
    made.apply_epoch(epoch, View(made, topics).metadata_hash())
    return made


def _take_over(made: ConsumerGroup, member: MemberOfClassic, protocol: str | None, image: Image) -> None:
    chosen = member.protocols.get(protocol or "")
    said = read_subscription(next(iter(member.protocols.values()), b"") if chosen is None else chosen)
    made.apply_subscription(
        member.member_id,
        Subscription(
            instance_id=member.instance_id,
            rack_id=said.rack_id,
            client_id=member.client_id,
            client_host=member.client_host,
            names=tuple(sorted(dict.fromkeys(said.topics))),
            rebalance_timeout_ms=member.rebalance_timeout_ms,
            classic=ClassicMember(member.session_timeout_ms, tuple(member.protocols.items())),
        ),
    )
    # An assignor of the clients may have given a partition to two: the first one has it.
    assigned: dict[bytes, tuple[int, ...]] = {}
    for topic_id, partitions in read_assignment(member.assignment, image).items():
        taken = made.owners.get(topic_id, {})
        if free := tuple([partition for partition in partitions if partition not in taken]):
            assigned[topic_id] = free
    made.apply_target(member.member_id, assigned)
    held = {topic_id: dict.fromkeys(partitions, made.epoch) for topic_id, partitions in assigned.items()}
    made.apply_current(member.member_id, Current(made.epoch, made.epoch, assigned=held))


def upgrade_records(group: ClassicGroup, made: ConsumerGroup) -> list[StateRecord]:
    group_id = made.group_id
    return [
        *group.tombstones(),
        *(records.member_metadata(group_id, member.id, member.subscription) for member in made.members.values()),
        records.group_metadata(group_id, made.epoch, made.metadata_hash),
        *(records.target(group_id, member_id, target) for member_id, target in made.targets.items()),
        records.target_epoch(group_id, made.assignment_epoch),
        *(records.current_assignment(group_id, member.id, member.current) for member in made.members.values()),
    ]


def give_away(classic: ClassicGroups, group: ClassicGroup, outcome: Outcome) -> None:
    """Who waits for the classic group is to join again, and finds the new one."""
    for member in group.members.values():
        dismiss(group, member, Error.REBALANCE_IN_PROGRESS, member.member_id, outcome)
    classic.give_away(group)


def can_downgrade(group: ConsumerGroup, without: list[Member], context: GroupContext) -> bool:
    """The last of the new protocol go, and those who stay, if there are any, speak the classic one."""
    config = context.group_config
    staying = len(group.members) - len(without)
    return (
        config.group_consumer_migration_policy in DOWNGRADES
        and group.classic_count == staying
        and not any(member.is_classic for member in without)
        and staying <= config.group_max_size
        and (not staying or bool(_common_protocols(group)))
    )


def downgraded(group: ConsumerGroup, without: list[Member], image: Image, now_ms: int) -> ClassicGroup:
    """The members that stay, with what they have, in a generation that is the epoch of the group."""
    gone = {member.id: None for member in without}
    common = _common_protocols(group)
    made = ClassicGroup(group.group_id, now_ms)
    made.may_have_offsets = True
    for member in group.members.values():
        classic = member.subscription.classic
        if member.id in gone or classic is None:
            continue
        protocols = {name: metadata for name, metadata in classic.protocols if name in common}
        version = version_of(next(iter(protocols.values())))
        made.add(
            MemberOfClassic(
                member.id,
                member.subscription.instance_id,
                member.subscription.client_id,
                member.subscription.client_host,
                member.subscription.rebalance_timeout_ms,
                classic.session_timeout_ms,
                dict(classic.protocols),
                write_assignment(member.current.assigned, version, image),
            ),
            CONSUMER_PROTOCOL,
        )
    made.generation = group.epoch
    if made.members:
        made.protocol = made.select_protocol()
        made.phase = State.STABLE
        made.find_subscribed_topics()
    return made


def downgrade_records(group: ConsumerGroup, made: ClassicGroup, now_ms: int) -> list[StateRecord]:
    """To the log the classic group is empty until it has assigned what it has. A coordinator that takes over meanwhile
    would think it stable, and nobody would ever assign what those who left had."""
    value = m.GroupMetadataValue(
        protocol_type=CONSUMER_PROTOCOL,
        generation=made.generation,
        protocol=None,
        leader=None,
        current_state_timestamp=now_ms,
        members=[],
    )
    return [*group.tombstones(), classic_records.record(group.group_id, value)]


def size_of(written: list[StateRecord]) -> int:
    """As they are in a batch, and a bit more."""
    return sum(len(record.key) + len(record.value or b"") + RECORD_OVERHEAD_BYTES for record in written)


def _common_protocols(group: ConsumerGroup) -> dict[str, None]:
    return {name: None for name, count in group.classic_protocols.items() if count == group.classic_count}
