"""What an assignor is told of a group, and what it answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

Assignment: TypeAlias = Mapping[bytes, tuple[int, ...]]
"""Partitions, ascending, by topic id; no topic without partitions."""

Racks: TypeAlias = frozenset[str]


@dataclass(slots=True)
class MemberSpec:
    topics: tuple[bytes, ...]
    """The ids of the topics that it subscribes to, ascending; only such that exist."""
    assignment: Assignment = field(default_factory=dict)
    """What it was to own so far."""
    rack: str | None = None
    instance_id: str | None = None
    due_ms: int = 0
    """When it is expected to ask next, and so to hear of what it gets."""


@dataclass(slots=True)
class TopicSpec:
    partition_count: int
    racks: tuple[Racks, ...] = ()
    """Where the replicas of each partition are; left out when no member says where it is."""


@dataclass(slots=True)
class GroupSpec:
    members: Mapping[str, MemberSpec]
    topics: Mapping[bytes, TopicSpec]
    """Every topic that a member subscribes to."""

    def order(self) -> list[str]:
        """The members in an order that does not hang on when they came: static ones by instance (KIP-345)."""

        def key(member_id: str) -> tuple[bool, str]:
            instance_id = self.members[member_id].instance_id
            return instance_id is None, member_id if instance_id is None else instance_id

        return sorted(self.members, key=key)

    def soonest_first(self) -> list[str]:
        """The members by when they will hear of what they get; else in the order above."""
        members = self.members
        return sorted(self.order(), key=lambda member_id: members[member_id].due_ms)
