"""What the parts of a group shard share. PURE."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

from headrace.config.coordinators import GroupConfig, OffsetsConfig
from headrace.coordinator.groups.group import Group
from headrace.coordinator.shard import Outcome, ProducerStamp, Timers
from headrace.metadata.delta import Delta
from headrace.metadata.image import Image


class GroupContext:
    """Made by the runtime for each shard; the shard keeps `image` at the newest one before it asks its parts."""

    __slots__ = ("group_config", "groups", "image", "offsets_config", "random_bytes", "timers")

    def __init__(
        self,
        timers: Timers,
        *,
        group_config: GroupConfig,
        offsets_config: OffsetsConfig,
        random_bytes: Callable[[int], bytes],
    ) -> None:
        self.timers = timers
        self.group_config = group_config
        self.offsets_config = offsets_config
        self.random_bytes = random_bytes
        """For member ids, say."""
        self.image = Image()
        self.groups: dict[str, Group] = {}
        """All groups of the shard by their id, of both protocols. A part puts its own here when it replays them, and
        takes away those that a tombstone deletes."""


class Part(Protocol):
    """One noun of a group shard: the offsets, the groups of a protocol."""

    @property
    def kinds(self) -> tuple[int, ...]:
        """The kinds of records that are its own: the first int16 of their keys."""

    def replay(
        self,
        kind: int,
        key: bytes,
        value: bytes | None,
        offset: int,
        timestamp_ms: int,
        stamp: ProducerStamp | None,
    ) -> None:
        """A record of one of its kinds; the key is whole, with its kind."""

    def settle(self, now_ms: int) -> Iterator[None]:
        """All records were replayed: the time to look at all that there is, in steps, and to arm timers."""

    def loaded(self, now_ms: int) -> Outcome:
        """From now on it is asked."""

    def image_changed(self, delta: Delta, now_ms: int) -> Outcome:
        """The context has the new image."""

    def unloaded(self, now_ms: int) -> Outcome:
        """Replies only, for whoever waits (NOT_COORDINATOR)."""
