"""A member of a consumer group: what it wants, and what it has."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final, TypeAlias

JOIN_EPOCH: Final = 0
LEAVE_EPOCH: Final = -1
STATIC_LEAVE_EPOCH: Final = -2
"""A static member that goes, and comes back soon: what it has is kept for it."""


NEVER: Final = 1 << 62

Held: TypeAlias = Mapping[bytes, Mapping[int, int]]
"""Partitions, ascending, by topic id, each with its assignment epoch: the one in which the member got it (KIP-1251)."""
_NOTHING: Final[Mapping[int, int]] = {}


class MemberState(IntEnum):
    """How far a member is on its way to the target assignment, by the numbers in its records."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    """It has to give partitions up, and has not said yet that it did."""
    UNRELEASED_PARTITIONS = 2
    """It waits for partitions that another has not given up yet."""
    UNKNOWN = 127
    """A newer coordinator wrote it."""


@dataclass(slots=True)
class ClassicMember:
    """What a member that speaks the classic protocol said when it joined (KIP-848, migration)."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]
    """Names and subscriptions, the one it likes best first."""


@dataclass(slots=True)
class Subscription:
    """What a member says of itself. It does not change: a new one takes its place."""

    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    names: tuple[str, ...] = ()
    """Ascending, each once."""
    regex: str | None = None
    rebalance_timeout_ms: int = -1
    server_assignor: str | None = None
    classic: ClassicMember | None = None


@dataclass(slots=True)
class Current:
    """Where a member is. It does not change: a new one takes its place."""

    epoch: int = JOIN_EPOCH
    previous_epoch: int = JOIN_EPOCH
    """A reply may be lost: a member may come with the epoch before."""
    state: MemberState = MemberState.STABLE
    assigned: Held = field(default_factory=dict)
    revoking: Held = field(default_factory=dict)
    """Given up as soon as the member says so; until then it still owns them."""

    def is_reconciled(self, target_epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.epoch == target_epoch

    def has_had(self, partitions: Iterable[tuple[bytes, int]], epoch: int) -> bool:
        """All of these are the member's, and have been since that epoch; what it gives up is its until it did."""
        for topic_id, partition in partitions:
            since = self.assigned.get(topic_id, _NOTHING).get(partition)
            if since is None:
                since = self.revoking.get(topic_id, _NOTHING).get(partition, NEVER)
            if since > epoch:
                return False
        return True


class Member:
    """State that records tell, and beside it the end of its session, which they do not."""

    __slots__ = ("current", "id", "is_rejoining", "session_deadline_ms", "session_timer_ms", "subscription")

    def __init__(self, member_id: str) -> None:
        self.id = member_id
        self.subscription = Subscription()
        self.current = Current()
        self.session_deadline_ms = 0
        self.session_timer_ms = NEVER
        """When the timer rings that looks at the deadline; not known of one that has just joined."""
        self.is_rejoining = False
        """A member of the classic protocol was told to join again, and there is a timer for it."""

    @property
    def is_classic(self) -> bool:
        return self.subscription.classic is not None
