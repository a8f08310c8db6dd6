"""Which partition a record goes to: by the hash of its key as in Java's client, or sticky for records without one."""

import random
from collections.abc import Callable
from typing import Final, TypeAlias

from headrace.client.metadata import TopicInfo
from headrace.protocol.kernel_types import Buffer

__all__ = ["DefaultPartitioner", "Partitioner", "murmur2"]

Partitioner: TypeAlias = Callable[[TopicInfo, Buffer | None, int], int]
"""(topic, key, size of the record in bytes) -> partition."""

_MASK: Final = 0xFFFFFFFF
_SEED: Final = 0x9747B28C
_MULTIPLIER: Final = 0x5BD1E995


def murmur2(data: bytes) -> int:
    """The 32-bit MurmurHash2 with the seed that Kafka's clients use, unsigned."""
    length = len(data)
    hashed = _SEED ^ length
    whole = length & ~3
    for at in range(0, whole, 4):
        word = int.from_bytes(data[at : at + 4], "little") * _MULTIPLIER & _MASK
        word = (word ^ (word >> 24)) * _MULTIPLIER & _MASK
        hashed = (hashed * _MULTIPLIER & _MASK) ^ word
    if whole < length:
        hashed = (hashed ^ int.from_bytes(data[whole:], "little")) * _MULTIPLIER & _MASK
    hashed = (hashed ^ (hashed >> 13)) * _MULTIPLIER & _MASK
    return hashed ^ (hashed >> 15)


class DefaultPartitioner:
    """Keys by murmur2. Records without a key stay with one partition for a batch's worth of bytes (KIP-794)."""

    __slots__ = ("_chance", "_sticky", "_sticky_bytes")

    def __init__(self, chance: random.Random, sticky_bytes: int) -> None:
        self._chance = chance
        self._sticky_bytes = sticky_bytes
        self._sticky: dict[str, list[int]] = {}
        """By topic: the partition, and the bytes that it got."""

    def __call__(self, topic: TopicInfo, key: Buffer | None, size_bytes: int) -> int:
        if key is not None:
            return (murmur2(bytes(key)) & 0x7FFFFFFF) % len(topic.partitions)
        sticky = self._sticky.get(topic.name)
        if sticky is None:
            sticky = self._sticky[topic.name] = [-1, 0]
        partition, used_bytes = sticky
        known = topic.partitions.get(partition)
        if known is None or known.leader_id < 0 or used_bytes >= self._sticky_bytes:
            led = [index for index, info in topic.partitions.items() if info.leader_id >= 0 and index != partition]
            partition, used_bytes = (self._chance.choice(led) if led else max(partition, 0)), 0
            sticky[0] = partition
        sticky[1] = used_bytes + size_bytes
        return partition
