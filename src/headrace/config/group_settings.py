"""What can be set on one group, and is a default on the broker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headrace.config.group import Group, boolean, integer, string
from headrace.config.setting import Scope
from headrace.errors import Error, Refused

if TYPE_CHECKING:
    from headrace.config.coordinators import GroupConfig

NO_SHARE_GROUPS: Final = "there are no share groups yet."
NO_STREAMS_GROUPS: Final = "there are no streams groups yet."


class GroupSettings(Group, scope=Scope.GROUP):
    """How the coordinator treats one group of the consumer protocol (KIP-848)."""

    consumer_session_timeout_ms: int = integer(
        default=45_000,
        least=1,
        synonyms=("group.consumer.session.timeout.ms",),
        doc="How long a member is not heard of before it is out of the group.",
    )
    consumer_heartbeat_interval_ms: int = integer(
        default=5_000,
        least=1,
        synonyms=("group.consumer.heartbeat.interval.ms",),
        doc="How often members are told to send a heartbeat.",
    )
    share_session_timeout_ms: int = integer(
        default=45_000,
        least=1,
        synonyms=("group.share.session.timeout.ms",),
        doc="How long a member of a share group is not heard of before it is out.",
        refuses=True,
        why=NO_SHARE_GROUPS,
    )
    share_heartbeat_interval_ms: int = integer(
        default=5_000,
        least=1,
        synonyms=("group.share.heartbeat.interval.ms",),
        doc="How often members of a share group are told to send a heartbeat.",
        refuses=True,
        why=NO_SHARE_GROUPS,
    )
    share_record_lock_duration_ms: int = integer(
        default=30_000,
        least=1000,
        synonyms=("group.share.record.lock.duration.ms",),
        doc="How long a member has a record for itself.",
        refuses=True,
        why=NO_SHARE_GROUPS,
    )
    share_delivery_count_limit: int = integer(
        default=5,
        least=2,
        synonyms=("group.share.delivery.count.limit",),
        doc="How often a record is given out before it is given up.",
        refuses=True,
        why=NO_SHARE_GROUPS,
    )
    share_partition_max_record_locks: int = integer(
        default=2000,
        least=100,
        synonyms=("group.share.partition.max.record.locks",),
        doc="How many records of a partition may be out at once.",
        refuses=True,
        why=NO_SHARE_GROUPS,
    )
    share_auto_offset_reset: str = string(
        default="latest",
        doc="Where a share group begins: latest, earliest, or by_duration: and a time.",
        refuses=True,
        why=NO_SHARE_GROUPS,
    )
    share_isolation_level: str = string(
        default="read_uncommitted",
        doc="Whether a share group sees records of transactions that are not committed.",
        refuses=True,
        why=NO_SHARE_GROUPS,
    )
    share_renew_acknowledge_enable: bool = boolean(
        default=True,
        doc="Whether members of a share group may renew the time that they have for a record.",
        refuses=True,
        why=NO_SHARE_GROUPS,
    )
    streams_session_timeout_ms: int = integer(
        default=45_000,
        least=1,
        synonyms=("group.streams.session.timeout.ms",),
        doc="How long a member of a streams group is not heard of before it is out.",
        refuses=True,
        why=NO_STREAMS_GROUPS,
    )
    streams_heartbeat_interval_ms: int = integer(
        default=5_000,
        least=1,
        synonyms=("group.streams.heartbeat.interval.ms",),
        doc="How often members of a streams group are told to send a heartbeat.",
        refuses=True,
        why=NO_STREAMS_GROUPS,
    )
    streams_num_standby_replicas: int = integer(
        default=0,
        least=0,
        synonyms=("group.streams.num.standby.replicas",),
        doc="How many standby replicas the tasks of a streams group have.",
        refuses=True,
        why=NO_STREAMS_GROUPS,
    )
    streams_initial_rebalance_delay_ms: int = integer(
        default=3_000,
        least=0,
        synonyms=("group.streams.initial.rebalance.delay.ms",),
        doc="How long the first rebalance of a streams group waits for more members.",
        refuses=True,
        why=NO_STREAMS_GROUPS,
    )

    @classmethod
    def of_broker(cls, groups: GroupConfig) -> GroupSettings:
        """What a group that sets nothing has."""
        return cls(
            consumer_session_timeout_ms=groups.group_consumer_session_timeout_ms,
            consumer_heartbeat_interval_ms=groups.group_consumer_heartbeat_interval_ms,
        )

    def check_within(self, groups: GroupConfig) -> None:
        """Refuses what is outside of the broker's bounds for all groups."""
        for what in ("session.timeout.ms", "heartbeat.interval.ms"):
            field = what.replace(".", "_")
            value = getattr(self, f"consumer_{field}")
            least, most = (getattr(groups, f"group_consumer_{bound}_{field}") for bound in ("min", "max"))
            if not least <= value <= most:
                raise Refused(
                    Error.INVALID_CONFIG,
                    f"consumer.{what} must be from group.consumer.min.{what} ({least}) to group.consumer.max.{what} "
                    f"({most}), not {value}.",
                )
        if self.consumer_heartbeat_interval_ms >= self.consumer_session_timeout_ms:
            raise Refused(
                Error.INVALID_CONFIG,
                f"consumer.heartbeat.interval.ms ({self.consumer_heartbeat_interval_ms}) must be below "
                f"consumer.session.timeout.ms ({self.consumer_session_timeout_ms}).",
            )
