"""Checkpoints: small text files of numbers, replaced whole. A version, a count, then a line for each entry.

Kafka's names and format. A missing one says nothing, and so does an empty one, which Kafka makes before it first
writes; a damaged one raises CheckpointDamaged, and the log goes on without it, with that sentence as a warning.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, TypeAlias

from headrace.errors import HeadraceError
from headrace.storage.disk import Disk, FileVanished

RECOVERY_POINTS: Final = "recovery-point-offset-checkpoint"
"""Up to where each log was synced: what is before it needs no check after an unclean stop."""
LOG_STARTS: Final = "log-start-offset-checkpoint"
HIGH_WATERMARKS: Final = "replication-offset-checkpoint"
CLEANED: Final = "cleaner-offset-checkpoint"
"""Up to where each compacted log was cleaned."""

NOT_CLOSED: Final = "headrace-not-closed-checkpoint"
"""Partitions that a clean stop could not close, because they were offline. Each with 1 if a sync of it may have failed
too, else 0."""

VERSION: Final = 0

TopicPartition: TypeAlias = tuple[str, int]


class CheckpointDamaged(HeadraceError):
    """What the checkpoint said is not known. Nothing is lost: the log works it out again."""

    def __init__(self, path: str, reason: str) -> None:
        self.path = path
        self.reason = reason
        super().__init__(f"{path} is damaged: {reason}; what it said is worked out anew")


def read_offsets(disk: Disk, path: str) -> dict[TopicPartition, int]:
    """An offset for each partition."""
    offsets: dict[TopicPartition, int] = {}
    for parts in read_lines(disk, path, 3):
        partition, offset = _numbers(disk, path, parts[1:])
        offsets[parts[0], partition] = offset
    return offsets


def write_offsets(disk: Disk, path: str, offsets: Mapping[TopicPartition, int]) -> None:
    """Blocks for two syncs."""
    write_lines(disk, path, (f"{topic} {partition} {offset}" for (topic, partition), offset in sorted(offsets.items())))


def read_numbers(disk: Disk, path: str) -> list[tuple[int, int]]:
    """Pairs of numbers, as in `leader-epoch-checkpoint`: an epoch and the offset at which it begins."""
    return [_numbers(disk, path, parts) for parts in read_lines(disk, path, 2)]


def write_numbers(disk: Disk, path: str, pairs: Iterable[tuple[int, int]]) -> None:
    """Blocks for two syncs."""
    write_lines(disk, path, (f"{first} {second}" for first, second in pairs))


def encode_numbers(pairs: Iterable[tuple[int, int]]) -> bytes:
    """For who syncs by other means."""
    return _encode(f"{first} {second}" for first, second in pairs)


def write_lines(disk: Disk, path: str, lines: Iterable[str]) -> None:
    disk.replace(path, _encode(lines))


def _encode(lines: Iterable[str]) -> bytes:
    entries = list(lines)
    return "\n".join([str(VERSION), str(len(entries)), *entries, ""]).encode()


def read_lines(disk: Disk, path: str, words: int) -> list[list[str]]:
    """The words of each line; every line must have as many as that."""
    try:
        content = disk.read(path)
    except FileVanished:
        return []
    if not content:
        return []
    try:
        lines = content.decode().splitlines()
    except UnicodeDecodeError:
        raise CheckpointDamaged(disk.full_path(path), "it is not text") from None
    if lines[0].strip() != str(VERSION):
        raise CheckpointDamaged(disk.full_path(path), f"its version is {lines[0][:20]!r}, and only {VERSION} is known")
    entries = [line.split() for line in lines[2:]]
    if len(lines) < 2 or lines[1].strip() != str(len(entries)):
        raise CheckpointDamaged(disk.full_path(path), f"it has {len(entries)} entries and says another number")
    for number, entry in enumerate(entries, start=3):
        if len(entry) != words:
            raise CheckpointDamaged(disk.full_path(path), f"line {number} does not have {words} words")
    return entries


def _numbers(disk: Disk, path: str, words: list[str]) -> tuple[int, int]:
    try:
        first, second = map(int, words)
    except ValueError:
        raise CheckpointDamaged(disk.full_path(path), f"{' '.join(words)[:40]!r} are no numbers") from None
    if first < 0 or second < 0:
        raise CheckpointDamaged(disk.full_path(path), f"{first} {second} can't be, one is negative")
    return first, second
