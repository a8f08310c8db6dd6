"""Members near the partitions that they read (KIP-881)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice
from typing import Final, TypeAlias

from headrace.coordinator.groups.consumer.assignors.spec import Racks

ROUNDS_MAX: Final = 8
CANDIDATES_MAX: Final = 32

_Bucket: TypeAlias = dict[tuple[int, int], None]
"""Pairs of member and partition, in order."""


class RackView:
    """Where members and partitions are."""

    __slots__ = ("_orders", "members", "partitions")

    def __init__(self, members: Sequence[str | None], partitions: Sequence[Racks]) -> None:
        self.members = members
        self.partitions = partitions
        self._orders: dict[Racks, tuple[str, ...]] = {}

    @classmethod
    def of(cls, members: Sequence[str | None], partitions: Sequence[Racks]) -> RackView | None:
        """None when racks make no difference: nobody says where it is, or every partition is in all the racks."""
        present = frozenset(rack for rack in members if rack is not None)
        if not present or all(present <= racks for racks in partitions):
            return None
        return cls(members, partitions)

    def is_near(self, partition: int, member: int) -> bool:
        rack = self.members[member]
        return rack is None or rack in self.partitions[partition]

    def order_of(self, partition: int) -> tuple[str, ...]:
        """The racks of a partition, in an order that is always the same."""
        racks = self.partitions[partition]
        order = self._orders.get(racks)
        if order is None:
            order = self._orders[racks] = tuple(sorted(racks))
        return order


def swap_for_racks(owned: list[list[int]], racks: RackView, is_eligible: Callable[[int, int], bool]) -> None:
    """Swaps partitions between members as long as more of them are near then; nobody gets more or fewer.

    What has been swapped as far as it goes is left alone the next time: each swap is a gain.
    """
    for _ in range(ROUNDS_MAX):
        if not _swap_once_around(owned, racks, is_eligible):
            return


def _swap_once_around(owned: list[list[int]], racks: RackView, is_eligible: Callable[[int, int], bool]) -> bool:
    far = [
        (member, partition)
        for member, mine in enumerate(owned)
        for partition in mine
        if not racks.is_near(partition, member)
    ]
    if not far:
        return False
    buckets: dict[str | None, dict[tuple[str, ...], _Bucket]] = {}
    for member, mine in enumerate(owned):
        by_racks = buckets.setdefault(racks.members[member], {})
        for partition in mine:
            by_racks.setdefault(racks.order_of(partition), {})[member, partition] = None
    has_swapped = False
    for member, partition in far:
        here = racks.members[member]
        mine_bucket = buckets[here].get(racks.order_of(partition), {})
        if (member, partition) not in mine_bucket:
            continue  # swapped in the meantime
        found = _partner(member, partition, buckets, racks, is_eligible)
        if found is None:
            continue
        other, theirs = found
        del mine_bucket[member, partition]
        there = racks.members[other]
        del buckets[there][racks.order_of(theirs)][other, theirs]
        buckets[there].setdefault(racks.order_of(partition), {})[other, partition] = None
        buckets[here].setdefault(racks.order_of(theirs), {})[member, theirs] = None
        owned[member][owned[member].index(partition)] = theirs
        owned[other][owned[other].index(theirs)] = partition
        has_swapped = True
    return has_swapped


def _partner(
    member: int,
    partition: int,
    buckets: dict[str | None, dict[tuple[str, ...], _Bucket]],
    racks: RackView,
    is_eligible: Callable[[int, int], bool],
) -> tuple[int, int] | None:
    """A member near the partition that has one to give for it, which is not farther from here than from there."""
    here = racks.members[member]
    for rack in (*racks.order_of(partition), None):
        for theirs_in, bucket in buckets.get(rack, {}).items():
            if not (here in theirs_in or (rack is not None and rack not in theirs_in)):
                continue
            for other, theirs in islice(bucket, CANDIDATES_MAX):
                if is_eligible(partition, other) and is_eligible(theirs, member):
                    return other, theirs
    return None
