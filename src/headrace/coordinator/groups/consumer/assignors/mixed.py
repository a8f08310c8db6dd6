"""Members that subscribe to different topics: each partition to one who subscribes, the loads as even as that allows.

Topics with the same subscribers are one class; a class is what partitions move within. Everyone keeps what it has, what
is free goes to those who have least, and then partitions move from who has two more than another subscriber of theirs
to that one, until there is no such pair. Each such move evens the loads out, so there is an end to them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from heapq import heapify, heappop, heappush

from headrace.coordinator.groups.consumer.assignors.numbering import Numbering
from headrace.coordinator.groups.consumer.assignors.racks import RackView, swap_for_racks
from headrace.coordinator.groups.consumer.assignors.spec import MemberSpec


def divide_mixed(members: Sequence[MemberSpec], numbering: Numbering, racks: RackView | None) -> list[list[int]]:
    """The numbers of the partitions that each member gets."""
    return _Division(members, numbering, racks).run()


class _Division:
    __slots__ = ("_class_of", "_classes", "_loads", "_members", "_numbering", "_owned", "_racks", "_subscribers")

    def __init__(self, members: Sequence[MemberSpec], numbering: Numbering, racks: RackView | None) -> None:
        self._members = members
        self._numbering = numbering
        self._racks = racks
        subscribers: dict[bytes, list[int]] = {topic_id: [] for topic_id in numbering.topics}
        for index, member in enumerate(members):
            for topic_id in member.topics:
                subscribers[topic_id].append(index)
        numbers: dict[tuple[int, ...], int] = {}
        self._subscribers: list[tuple[int, ...]] = []
        """Of each class."""
        self._classes: list[list[int]] = []
        """The partitions of each class."""
        self._class_of: list[int] = [0] * numbering.size
        for topic_id in numbering.topics:
            who = tuple(subscribers[topic_id])
            number = numbers.get(who)
            if number is None:
                number = numbers[who] = len(self._subscribers)
                self._subscribers.append(who)
                self._classes.append([])
            partitions = numbering.range_of(topic_id)
            self._classes[number].extend(partitions)
            for partition in partitions:
                self._class_of[partition] = number
        self._loads = [0] * len(members)
        self._owned: list[defaultdict[int, dict[int, None]]] = [defaultdict(dict) for _ in self._classes]
        """By class and member; only members that subscribe to a class have some of it."""

    def run(self) -> list[list[int]]:
        free = self._keep()
        # Who few subscribe to goes first: there is less to choose from.
        order = sorted(range(len(self._classes)), key=lambda number: len(self._subscribers[number]))
        for number in order:
            self._place(number, free[number])
        has_moved = True
        while has_moved:
            has_moved = False
            for number in order:
                if self._even_out(number):
                    has_moved = True
        owned: list[list[int]] = [[] for _ in self._members]
        for by_member in self._owned:
            for member, partitions in by_member.items():
                owned[member].extend(partitions)
        if self._racks is not None:
            eligible = [frozenset(who) for who in self._subscribers]
            swap_for_racks(owned, self._racks, lambda partition, member: member in eligible[self._class_of[partition]])
        return owned

    def _keep(self) -> list[list[int]]:
        """Everyone keeps what it had and still subscribes to. Returns what is free, by class."""
        taken = [False] * self._numbering.size
        for index, member in enumerate(self._members):
            topics = frozenset(member.topics)
            still = {topic_id: parts for topic_id, parts in member.assignment.items() if topic_id in topics}
            for partition in self._numbering.numbers(still):
                if not taken[partition]:
                    taken[partition] = True
                    self._owned[self._class_of[partition]][index][partition] = None
                    self._loads[index] += 1
        return [[partition for partition in partitions if not taken[partition]] for partitions in self._classes]

    def _place(self, number: int, free: list[int]) -> None:
        """Free partitions of a class, to who has least; of several such to one that is near."""
        who, loads, racks = self._subscribers[number], self._loads, self._racks
        if not who or not free:
            return
        heap = [(loads[member], member) for member in who]
        heapify(heap)
        for partition in free:
            load, member = heappop(heap)
            if racks is not None and not racks.is_near(partition, member):
                passed = [(load, member)]
                while heap and heap[0][0] == load:
                    passed.append(heappop(heap))
                    if racks.is_near(partition, passed[-1][1]):
                        _, member = passed.pop()
                        break
                else:
                    _, member = passed.pop(0)
                for entry in passed:
                    heappush(heap, entry)
            loads[member] += 1
            self._owned[number][member][partition] = None
            heappush(heap, (loads[member], member))

    def _even_out(self, number: int) -> bool:
        """Moves partitions of a class from who has most to who has least. True when some moved."""
        who, loads, owned = self._subscribers[number], self._loads, self._owned[number]
        if len(who) < 2:
            return False
        least = [(loads[member], member) for member in who]
        givers = [(-loads[member], member) for member, mine in owned.items() if mine]
        heapify(least)
        heapify(givers)
        has_moved = False
        while givers:
            load, giver = -givers[0][0], givers[0][1]
            if load != loads[giver] or not owned[giver]:
                heappop(givers)
                if owned[giver]:
                    heappush(givers, (-loads[giver], giver))
                continue
            while least[0][0] != loads[least[0][1]]:
                member = heappop(least)[1]
                heappush(least, (loads[member], member))
            taker = least[0][1]
            if load - loads[taker] < 2:
                return has_moved
            partition = self._given(owned[giver], giver, taker)
            del owned[giver][partition]
            owned[taker][partition] = None
            loads[giver] -= 1
            loads[taker] += 1
            if len(owned[taker]) == 1:
                heappush(givers, (-loads[taker], taker))
            has_moved = True
        return has_moved

    def _given(self, partitions: dict[int, None], giver: int, taker: int) -> int:
        """The one that is nearer to who takes it, else the last that came."""
        racks = self._racks
        if racks is not None:
            for partition in partitions:
                if racks.is_near(partition, taker) and not racks.is_near(partition, giver):
                    return partition
            for partition in partitions:
                if racks.is_near(partition, taker):
                    return partition
        return next(reversed(partitions))
