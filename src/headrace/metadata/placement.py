"""Where the replicas of new partitions go.

Leaders are spread evenly over the brokers, the replicas of a partition over racks before they share one, and the
followers of one broker's partitions over all others, so that its load is shared out when it fails.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from headrace.errors import Error, Refused
from headrace.plain import plain_frozen


@plain_frozen
class Candidate:
    """A broker that may get replicas; one that is not active only when there are not enough that are."""

    id: int
    rack: str | None
    is_active: bool


def place(
    candidates: Sequence[Candidate],
    partitions: int,
    replication_factor: int,
    choose: Callable[[int], int],
    first_partition: int = 0,
) -> list[list[int]]:
    """The replicas of each partition, its preferred leader first. `choose(n)` gives a number below n at random."""
    active = [candidate for candidate in candidates if candidate.is_active]
    if replication_factor > len(candidates):
        raise Refused(
            Error.INVALID_REPLICATION_FACTOR,
            f"A replication factor of {replication_factor} needs {replication_factor} brokers, and the cluster has "
            f"{len(candidates)}.",
        )
    if not active:
        raise Refused(Error.INVALID_REPLICATION_FACTOR, "No broker is active, so none could lead a new partition.")
    order = _interleaved(active)
    spare = _interleaved([candidate for candidate in candidates if not candidate.is_active])
    start = choose(len(order))
    return [_replicas(order, spare, start, first_partition + index, replication_factor) for index in range(partitions)]


def _interleaved(candidates: Sequence[Candidate]) -> list[Candidate]:
    """One broker of each rack in turn."""
    by_rack: dict[str, list[Candidate]] = {}
    for candidate in sorted(candidates, key=lambda candidate: candidate.id):
        by_rack.setdefault(candidate.rack or "", []).append(candidate)
    racks = [by_rack[rack] for rack in sorted(by_rack)]
    longest = max(map(len, racks), default=0)
    return [rack[index] for index in range(longest) for rack in racks if index < len(rack)]


def _replicas(
    order: Sequence[Candidate], spare: Sequence[Candidate], start: int, index: int, replication_factor: int
) -> list[int]:
    count = len(order)
    leader = order[(start + index) % count]
    # Each time that all brokers have led, the followers move on by one, so that they are not the same for ever.
    shift = 1 + (index // count) % max(1, count - 1)
    others = [order[(start + index + (shift - 1 + step) % (count - 1) + 1) % count] for step in range(count - 1)]
    chosen = [leader]
    for pool in (others, spare):
        remaining = [candidate for candidate in pool if candidate.id != leader.id]
        while remaining and len(chosen) < replication_factor:
            used = {candidate.rack for candidate in chosen}
            fresh = next((candidate for candidate in remaining if candidate.rack not in used), remaining[0])
            chosen.append(fresh)
            remaining.remove(fresh)
    return [candidate.id for candidate in chosen]
