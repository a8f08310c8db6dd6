"""What every group is asked, whichever protocol its members speak. PURE.

Groups of all protocols share one space of names, and their offsets live beside them. What offsets need to know of a
group is here; what its members ask is the business of its protocol.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import Final, Protocol

from headrace.coordinator.shard import StateRecord
from headrace.errors import Error, Refused

NO_GENERATION: Final = -1


class GroupType(Enum):
    """As ListGroups names them."""

    CLASSIC = "classic"
    CONSUMER = "consumer"


class Group(Protocol):
    """One group. Whoever asks something that it can't grant gets a Refused."""

    @property
    def group_id(self) -> str: ...

    @property
    def type(self) -> GroupType: ...

    @property
    def protocol_type(self) -> str:
        """ "consumer" for consumers of both protocols; empty when no member ever joined."""

    @property
    def state(self) -> str:
        """As ListGroups and DescribeGroups name it: Empty, Stable, PreparingRebalance, ..."""

    @property
    def is_empty(self) -> bool:
        """It has no members."""

    def validate_commit(
        self,
        member_id: str,
        instance_id: str | None,
        generation_or_epoch: int,
        version: int,
        partitions: Iterable[tuple[bytes, int]],
        *,
        is_transactional: bool,
    ) -> None:
        """Whether this member may commit offsets of these partitions now, all of them or none (hazard 13). `version` is
        that of OffsetCommit, or of TxnOffsetCommit when `is_transactional`. The partitions are those that there are, by
        the ids of their topics, and looked at only where the epoch alone does not say."""

    def committed(self, member_id: str, now_ms: int) -> None:
        """A member committed offsets: under the classic protocol that is a sign of life."""

    def validate_fetch(self, member_id: str | None, member_epoch: int) -> None:
        """Whether this member may read offsets; without a member id and with epoch -1, everybody may."""

    def validate_offset_delete(self) -> None:
        """Whether offsets may be deleted: where members own partitions, only those of topics that nobody subscribes."""

    def validate_delete(self) -> None:
        """Whether the group may be deleted: NON_EMPTY_GROUP while it has members."""

    def is_subscribed(self, topic: str) -> bool:
        """A member subscribes to the topic, or may: then its offsets neither expire nor are they deleted."""

    def expires_from_ms(self, commit_timestamp_ms: int) -> int | None:
        """From when on the retention of an offset counts (KIP-211), None when it does not: the time of the commit, or
        the time when the group lost its last member."""

    def tombstones(self) -> list[StateRecord]:
        """The records that delete the group itself, without its offsets."""


class SimpleGroup:
    """A group that only commits offsets: nobody ever joined it, and no record but its offsets tells of it.

    Who joins it finds it as if there were none.
    """

    __slots__ = ("group_id",)

    type: Final = GroupType.CLASSIC
    protocol_type: Final = ""
    state: Final = "Empty"
    is_empty: Final = True

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id

    def validate_commit(
        self,
        member_id: str,
        instance_id: str | None,
        generation_or_epoch: int,
        version: int,
        partitions: Iterable[tuple[bytes, int]],
        *,
        is_transactional: bool,
    ) -> None:
        if generation_or_epoch > NO_GENERATION:
            raise Refused(Error.UNKNOWN_MEMBER_ID)

    def committed(self, member_id: str, now_ms: int) -> None:
        pass

    def validate_fetch(self, member_id: str | None, member_epoch: int) -> None:
        pass

    def validate_offset_delete(self) -> None:
        pass

    def validate_delete(self) -> None:
        pass

    def is_subscribed(self, topic: str) -> bool:
        return False

    def expires_from_ms(self, commit_timestamp_ms: int) -> int | None:
        return commit_timestamp_ms

    def tombstones(self) -> list[StateRecord]:
        return []
