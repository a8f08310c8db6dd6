"""The topics that coordinators keep their state in: their names, and which partition a group belongs to. PURE."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from headrace.metadata.image import Image

CONSUMER_OFFSETS: Final = "__consumer_offsets"
TRANSACTION_STATE: Final = "__transaction_state"

_HASHED_MAX: Final = 100_000
_INT32_MASK: Final = 0xFFFFFFFF
_INT32_MAX: Final = 0x7FFFFFFF


def partitions_of(image: Image, topic: str) -> int:
    """How many partitions a state topic has; 0 when there is none yet."""
    found = image.topic(topic)
    return 0 if found is None else len(found.partitions)


@lru_cache(_HASHED_MAX)
def java_hash(text: str) -> int:
    """What Java's String.hashCode makes of it, as an absolute value: everybody finds the same partition for a name."""
    found = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for position in range(0, len(units), 2):
        found = (31 * found + (units[position] << 8 | units[position + 1])) & _INT32_MASK
    signed = found if found <= _INT32_MAX else found - _INT32_MASK - 1
    return 0 if signed == -_INT32_MAX - 1 else abs(signed)


def partition_for(name: str, partitions: int) -> int:
    """Of a group id or a transactional id."""
    return java_hash(name) % partitions
