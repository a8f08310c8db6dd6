"""The classic group protocol: members join, their leader assigns, heartbeats keep them in. PURE.

`states` has the table of states, `rebalance` the way from one generation to the next, `joins` how members come in.
"""

from headrace.coordinator.groups.classic.group import ClassicGroup
from headrace.coordinator.groups.classic.groups import ClassicGroups

__all__ = ["ClassicGroup", "ClassicGroups"]
