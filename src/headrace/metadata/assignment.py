"""Replicas that were chosen by hand: what an assignment must be like. PURE."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.errors import Error, Refused
from headrace.metadata.image import Image


def check_assignment(image: Image, replicas: Sequence[int], replication_factor: int | None = None) -> None:
    """The brokers of one partition, as many as those of the topic's others where that is said."""
    if not replicas:
        raise _invalid("A partition must have at least one replica.")
    if len(set(replicas)) < len(replicas):
        raise _invalid(f"A broker is twice in the replicas {list(replicas)}.")
    if replication_factor is not None and len(replicas) != replication_factor:
        raise _invalid(f"All partitions of a topic have as many replicas: {replication_factor}, not {len(replicas)}.")
    for broker_id in replicas:
        if broker_id not in image.brokers:
            raise _invalid(f"There is no broker {broker_id}.")


def check_new_assignment(image: Image, replicas: Sequence[int], replication_factor: int) -> None:
    """The same of a partition that is to be made: somebody must be there to lead it."""
    check_assignment(image, replicas, replication_factor)
    if not any(image.brokers[broker_id].is_active for broker_id in replicas):
        raise _invalid(f"None of the brokers {list(replicas)} is active, so none can lead.")


def _invalid(text: str) -> Refused:
    return Refused(Error.INVALID_REPLICA_ASSIGNMENT, text)
