"""Who gets which partition: the assignors that members may ask for by name.

An assignor is a pure function of what is known of members and topics. What it promises, in this order: every partition
that somebody subscribes to has one owner; the numbers of partitions differ as little as the subscriptions allow;
members read from their own rack where they can (KIP-881); and what a member had, it keeps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from headrace.coordinator.groups.consumer.assignors.range import range_assignor
from headrace.coordinator.groups.consumer.assignors.spec import Assignment, GroupSpec
from headrace.coordinator.groups.consumer.assignors.uniform import uniform_assignor

ASSIGNORS: Final[Mapping[str, Callable[[GroupSpec], dict[str, Assignment]]]] = {
    "uniform": uniform_assignor,
    "range": range_assignor,
}
