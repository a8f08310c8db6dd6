"""A shard of groups: one partition of `__consumer_offsets`, with the groups of both protocols and their offsets. PURE.

It only puts the parts together: each record goes to the part that its kind belongs to, each change of the cluster to
all of them. Handlers ask the parts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from headrace.coordinator.groups.classic import ClassicGroups
from headrace.coordinator.groups.consumer.groups import ConsumerGroups
from headrace.coordinator.groups.context import GroupContext, Part
from headrace.coordinator.offsets.offsets import Offsets
from headrace.coordinator.shard import Outcome, ProducerStamp
from headrace.metadata.delta import Delta
from headrace.metadata.image import Image


class GroupShard:
    __slots__ = ("_by_kind", "_parts", "classic", "consumer", "context", "offsets")

    def __init__(self, context: GroupContext) -> None:
        self.context = context
        self.offsets = Offsets(context)
        self.classic = ClassicGroups(context)
        self.consumer = ConsumerGroups(context, self.classic)
        self._parts: list[Part] = [self.offsets, self.classic, self.consumer]
        self._by_kind = {
            kind.to_bytes(2, signed=True): (kind, part.replay) for part in self._parts for kind in part.kinds
        }
        """What replays a record, by how its key begins."""

    def replay(
        self, key: bytes, value: bytes | None, offset: int, timestamp_ms: int, stamp: ProducerStamp | None
    ) -> None:
        found = self._by_kind.get(key[:2])
        if found is not None:
            kind, replay = found
            replay(kind, key, value, offset, timestamp_ms, stamp)

    def replay_end(self, stamp: ProducerStamp, is_commit: bool) -> None:
        self.offsets.replay_end(stamp, is_commit)

    def settle(self, image: Image, now_ms: int) -> Iterator[None]:
        self.context.image = image
        for part in self._parts:
            yield from part.settle(now_ms)

    def loaded(self, image: Image, now_ms: int) -> Outcome:
        self.context.image = image
        return self._all(lambda part: part.loaded(now_ms))

    def image_changed(self, delta: Delta, image: Image, now_ms: int) -> Outcome:
        self.context.image = image
        return self._all(lambda part: part.image_changed(delta, now_ms))

    def unloaded(self, now_ms: int) -> Outcome:
        return self._all(lambda part: part.unloaded(now_ms))

    def _all(self, ask: Callable[[Part], Outcome]) -> Outcome:
        together = Outcome()
        for part in self._parts:
            outcome = ask(part)
            together.records += outcome.records
            together.replies += outcome.replies
            together.effects += outcome.effects
            together.is_atomic = together.is_atomic and outcome.is_atomic
        return together
