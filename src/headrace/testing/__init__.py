"""What tests are made of: a real broker in this process, disks that fail by a plan, and a simulator of whole clusters.

from headrace.testing import Cluster

with Cluster() as cluster:
    print(cluster.bootstrap)
"""

from __future__ import annotations

TYPE_CHECKING = False  # `typing` takes 10 ms, and comes below
if TYPE_CHECKING:
    from typing import Any

    from headrace.testing.cluster import Cluster

__all__ = ["Cluster"]


def __getattr__(name: str) -> Any:
    # Imported when it is asked for: a simulation needs no broker of the machine's, nor does a plugin at its load.
    if name == "Cluster":
        from headrace.testing.uncollected import uncollected

        with uncollected():
            from headrace.testing.cluster import Cluster

        return Cluster
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
