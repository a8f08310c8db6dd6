"""A member of a classic group. PURE."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from headrace.coordinator.shard import Reply
from headrace.protocol import messages as m

NO_ALARM: Final = 0


class Member:
    """What a member said of itself, what it was assigned, and what it waits for.

    A heartbeat only moves `deadline_ms`: the alarm that watches over it looks there when it goes off, and is set again
    if need be. So a heartbeat costs no timer.
    """

    __slots__ = (
        "alarm_ms",
        "assignment",
        "client_host",
        "client_id",
        "deadline_ms",
        "instance_id",
        "is_new",
        "join_reply",
        "member_id",
        "protocols",
        "rebalance_timeout_ms",
        "session_timeout_ms",
        "sync_reply",
    )

    def __init__(
        self,
        member_id: str,
        instance_id: str | None,
        client_id: str,
        client_host: str,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
        protocols: dict[str, bytes],
        assignment: bytes = b"",
    ) -> None:
        self.member_id = member_id
        self.instance_id = instance_id
        """Static members have one (KIP-345): they come back under another member id, and are the same member."""
        self.client_id = client_id
        self.client_host = client_host
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.session_timeout_ms = session_timeout_ms
        self.protocols = protocols
        """What it would read by, the one it likes best first, and its metadata for each, which is its own affair."""
        self.assignment = assignment
        self.join_reply: Reply | None = None
        self.sync_reply: Reply | None = None
        self.is_new = False
        """It waits for its first generation."""
        self.deadline_ms = 0
        """When its session is over, unless it is heard of."""
        self.alarm_ms = NO_ALARM
        """When the alarm goes off that looks at the deadline."""

    @property
    def is_static(self) -> bool:
        return self.instance_id is not None

    @property
    def is_excused(self) -> bool:
        """It waits for the group, and can't send heartbeats meanwhile. A new one is not: it may be gone for good, and
        nobody would notice."""
        return not self.is_new and (self.join_reply is not None or self.sync_reply is not None)

    def heard_of(self, now_ms: int) -> None:
        self.deadline_ms = now_ms + self.session_timeout_ms

    def offers_the_same(self, protocols: dict[str, bytes]) -> bool:
        """In the same order too: a change of mind is a change."""
        return list(protocols.items()) == list(self.protocols.items())

    def vote(self, candidates: dict[str, None]) -> str:
        """Of what all members can do, what this one likes best."""
        return next(name for name in self.protocols if name in candidates)


def protocols_of(offered: Iterable[m.JoinGroupRequest.JoinGroupRequestProtocol]) -> dict[str, bytes]:
    return {protocol.name: protocol.metadata for protocol in offered}
