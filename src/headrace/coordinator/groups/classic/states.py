"""The states of a classic group, as tables: where each may lead, and what it answers. PURE.

    Empty ──▶ PreparingRebalance ──▶ CompletingRebalance ──▶ Stable
      ▲          │  ▲   ▲                    │                 │
      └──────────┘  │   └────────────────────┘                 │
                    └──────────────────────────────────────────┘

A group is *preparing* while its members join: they hand in what they want to read. It is *completing* while its leader
works out who reads what, and *stable* once that is in the log. Whatever changes the members of a group, or what they
want, takes it back to preparing. It is *empty* when nobody is left. *Dead* is what a group is called that there is not.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from headrace.errors import Error


class State(Enum):
    """As ListGroups and DescribeGroups name them."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


_EMPTY, _PREPARING, _COMPLETING, _STABLE = (
    State.EMPTY,
    State.PREPARING_REBALANCE,
    State.COMPLETING_REBALANCE,
    State.STABLE,
)

NEXT: Final[dict[State, tuple[State, ...]]] = {
    _EMPTY: (_PREPARING,),
    _PREPARING: (_COMPLETING, _EMPTY),
    _COMPLETING: (_STABLE, _PREPARING),
    _STABLE: (_PREPARING,),
}

HEARTBEAT: Final[dict[State, Error]] = {
    _EMPTY: Error.UNKNOWN_MEMBER_ID,
    _PREPARING: Error.REBALANCE_IN_PROGRESS,
    # Members start their heartbeats as soon as they have joined.
    _COMPLETING: Error.NONE,
    _STABLE: Error.NONE,
}
"""What a member hears of its heartbeat, when it is one of this generation."""

COMMIT: Final[dict[State, Error]] = {
    _EMPTY: Error.NONE,
    # Whoever is about to give its partitions away says first how far it has read.
    _PREPARING: Error.NONE,
    # It is of the new generation and does not know yet what it owns: what it commits is of the old one (hazard 13).
    _COMPLETING: Error.REBALANCE_IN_PROGRESS,
    _STABLE: Error.NONE,
}
"""What a member hears of a commit of offsets, when it is one of this generation."""

DELETE: Final[dict[State, Error]] = {
    _EMPTY: Error.NONE,
    _PREPARING: Error.NON_EMPTY_GROUP,
    _COMPLETING: Error.NON_EMPTY_GROUP,
    _STABLE: Error.NON_EMPTY_GROUP,
}
"""Whether the group may be deleted."""
