"""The topics that coordinators keep their state in: their names, and which partition a group belongs to. PURE."""

from __future__ import annotations

from array import array
from functools import lru_cache
from operator import mul
from sys import byteorder
from typing import Final

from headrace.metadata.image import Image

CONSUMER_OFFSETS: Final = "__consumer_offsets"
TRANSACTION_STATE: Final = "__transaction_state"

_HASHED_MAX: Final = 100_000
_SHORT: Final = 250
"""Hashes of longer names are not kept, so that strangers can't fill the memory with theirs."""
_KEY_BYTES_MAX: Final = 32_767
_BLOCK: Final = 256
_POWERS: Final = tuple(pow(31, power, 1 << 32) for power in range(_BLOCK - 1, -1, -1))
_INT32_MASK: Final = 0xFFFFFFFF
_INT32_MAX: Final = 0x7FFFFFFF


def partitions_of(image: Image, topic: str) -> int:
    """How many partitions a state topic has; 0 when there is none yet."""
    found = image.topic(topic)
    return 0 if found is None else len(found.partitions)


def java_hash(text: str) -> int:
    """What Java's String.hashCode makes of it, as an absolute value: everybody finds the same partition for a name."""
    return _short_hash(text) if len(text) <= _SHORT else _hash(text)


def _hash(text: str) -> int:
    units = array("H", text.encode("utf-16-le" if byteorder == "little" else "utf-16-be", "surrogatepass"))
    found = 0
    for start in range(0, len(units), _BLOCK):
        block = units[start : start + _BLOCK]
        # The sum of all units by falling powers of 31, a block at a time: a client's name may be long.
        found = (found * pow(31, len(block), 1 << 32) + sum(map(mul, block, _POWERS[-len(block) :]))) & _INT32_MASK
    signed = found if found <= _INT32_MAX else found - _INT32_MASK - 1
    return 0 if signed == -_INT32_MAX - 1 else abs(signed)


_short_hash = lru_cache(_HASHED_MAX)(_hash)


def fits_key(name: str) -> bool:
    """A name can be in the key of a record, and in a classic group's: its bytes are counted by 16 bits there."""
    return len(name) <= _KEY_BYTES_MAX // 4 or len(name.encode("utf-8", "surrogatepass")) <= _KEY_BYTES_MAX


def partition_for(name: str, partitions: int) -> int:
    """Of a group id or a transactional id."""
    return java_hash(name) % partitions
