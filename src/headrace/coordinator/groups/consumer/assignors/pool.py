"""Partitions that a number of equal members share: how to divide them evenly, and move as few as can be.

Partitions are numbers here, 0 to `size`, and members their places in a list. Those who use it know what they stand for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from headrace.coordinator.groups.consumer.assignors.racks import RackView, swap_for_racks

NOBODY: Final = -1


def divide(
    size: int, previous: Sequence[Sequence[int]], racks: RackView | None, *, in_runs: bool = False
) -> list[list[int]]:
    """The partitions of each member. Nobody gets two more than another.

    Of equal members the first are given, and the last keep: they come in the order in which they hear of it.
    `previous` has what each member had; a partition that two had is the first one's. With `in_runs`, a member that has
    room takes the next free ones in a row, else they are dealt out like cards.
    """
    count = len(previous)
    if not count:
        return []
    least, extra = divmod(size, count)
    owner = [NOBODY] * size
    owned = _kept(size, previous, owner, least, extra, racks)
    free = [partition for partition, member in enumerate(owner) if member == NOBODY]
    if free:
        extra -= sum(len(own) > least for own in owned)
        if racks is not None:
            free = _dealt_by_rack(free, owned, least, extra, racks)
            extra = size % count - sum(len(own) > least for own in owned)
        _dealt(free, owned, least, extra, in_runs=in_runs)
    if racks is not None:
        swap_for_racks(owned, racks, lambda partition, member: True)
    return owned


def _kept(
    size: int,
    previous: Sequence[Sequence[int]],
    owner: list[int],
    least: int,
    extra: int,
    racks: RackView | None,
) -> list[list[int]]:
    """What members keep of what they had: up to an even share."""
    owned: list[list[int]] = []
    for member, partitions in enumerate(previous):
        mine: list[int] = []
        for partition in partitions:
            if partition < size and owner[partition] == NOBODY:
                owner[partition] = member
                mine.append(partition)
        owned.append(mine)
    for member in range(len(owned) - 1, -1, -1):  # the last first: see `divide`
        mine = owned[member]
        if len(mine) <= least:
            continue
        room = least
        if extra > 0:
            room, extra = least + 1, extra - 1
        if racks is not None and len(mine) > room:
            # What is far away goes first.
            mine.sort(key=lambda partition: not racks.is_near(partition, member))
        for partition in mine[room:]:
            owner[partition] = NOBODY
        del mine[room:]
    return owned


def _dealt_by_rack(free: list[int], owned: list[list[int]], least: int, extra: int, racks: RackView) -> list[int]:
    """Gives free partitions to members near them that have room; returns the others."""
    open_in: dict[str, list[int]] = {}
    for member in range(len(racks.members) - 1, -1, -1):  # the first of them are given first
        rack = racks.members[member]
        if rack is not None:
            open_in.setdefault(rack, []).append(member)
    left: list[int] = []
    for partition in free:
        for rack in racks.order_of(partition):
            members = open_in.get(rack)
            while members and len(owned[members[-1]]) >= least + (extra > 0):
                members.pop()
            if members:
                member = members[-1]
                if len(owned[member]) == least:
                    extra -= 1
                owned[member].append(partition)
                # The next one's turn, so that a rack's members fill evenly.
                members.insert(0, members.pop())
                break
        else:
            left.append(partition)
    return left


def _dealt(free: list[int], owned: list[list[int]], least: int, extra: int, *, in_runs: bool) -> None:
    rooms: list[tuple[int, int]] = []
    for member, mine in enumerate(owned):
        room = least - len(mine)
        if room >= 0 and extra > 0:
            room, extra = room + 1, extra - 1
        if room > 0:
            rooms.append((member, room))
    if in_runs:
        at = 0
        for member, room in rooms:
            owned[member].extend(free[at : at + room])
            at += room
        return
    cards = iter(free)
    while rooms:
        still: list[tuple[int, int]] = []
        for member, room in rooms:
            partition = next(cards, NOBODY)
            if partition == NOBODY:
                return
            owned[member].append(partition)
            if room > 1:
                still.append((member, room - 1))
        rooms = still
