"""What the files and folders of a log directory are called: Kafka's names, so that its tools find their way.

A segment is a family of files with one name, its base offset in 20 digits, and a suffix for each. While files are made,
swapped in or thrown away, a second suffix says so; whoever starts up knows from it what a crash left behind.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import Final

from headrace.named_tuple import NamedTuple

LOG: Final = ".log"
INDEX: Final = ".index"
TIME_INDEX: Final = ".timeindex"
TXN_INDEX: Final = ".txnindex"
SNAPSHOT: Final = ".snapshot"
SEGMENT_SUFFIXES: Final = (LOG, INDEX, TIME_INDEX, TXN_INDEX)

CLEANED: Final = ".cleaned"
"""Written by the cleaner and not finished, or not taken yet: means nothing after a crash."""
SWAP: Final = ".swap"
"""Finished and about to replace the segments that it was made from: is taken after a crash."""
DELETED: Final = ".deleted"
"""Thrown away; the files stay for a while, so that a reader in the middle can finish."""

METADATA_TOPIC: Final = "__cluster_metadata"
"""The quorum's log, which is not one of the partitions."""

EPOCHS: Final = "leader-epoch-checkpoint"
PARTITION_METADATA: Final = "partition.metadata"
HOLES: Final = "headrace-holes"
"""An empty file: offsets of the log have jumped, as compaction here or at a leader leaves them. Else they do not."""
ABORTED: Final = "headrace-aborted"
"""How many aborted transactions the indexes of closed segments have: one that is gone is missed by it."""

FOLDER_NAME_LENGTH_MAX: Final = 255

_SEGMENT_FILE: Final = re.compile(r"(\d{20})(\.log|\.index|\.timeindex|\.txnindex|\.snapshot)(\.\w+)?")
_FOLDER: Final = re.compile(r"(.+)-(\d+)")
_MARKED_FOLDER: Final = re.compile(r"(.+)\.([0-9a-f]{32})-(delete|future|stray)")


class Fate(Enum):
    """What a folder is, by the end of its name."""

    CURRENT = ""
    DELETE = "delete"
    """The partition was deleted; its files follow."""
    FUTURE = "future"
    """A copy on its way from another log directory."""
    STRAY = "stray"
    """The node was not meant to have it; kept for the operator."""


class SegmentFile(NamedTuple):
    base_offset: int
    suffix: str
    mark: str
    """"", or one of CLEANED, SWAP, DELETED."""


class Folder(NamedTuple):
    topic: str
    partition: int
    fate: Fate = Fate.CURRENT


def segment_name(base_offset: int) -> str:
    return f"{base_offset:020d}"


def parse_segment_file(name: str) -> SegmentFile | None:
    """None for a file that belongs to no segment."""
    found = _SEGMENT_FILE.fullmatch(name)
    return SegmentFile(int(found[1]), found[2], found[3] or "") if found else None


def folder_name(topic: str, partition: int) -> str:
    return f"{topic}-{partition}"


def marked_folder_name(topic: str, partition: int, fate: Fate, unique: str) -> str:
    """A long topic name is cut to fit; `unique` (32 hex digits) keeps the names apart all the same."""
    end = f".{unique}-{fate.value}"
    return folder_name(topic, partition)[: FOLDER_NAME_LENGTH_MAX - len(end)] + end


def parse_folder(name: str) -> Folder | None:
    """None for a folder that holds no partition. A marked name that was cut has partition -1."""
    marked = _MARKED_FOLDER.fullmatch(name)
    plain = _FOLDER.fullmatch(marked[1] if marked else name)
    if marked:
        fate = Fate(marked[3])
        return Folder(plain[1], int(plain[2]), fate) if plain else Folder(marked[1], -1, fate)
    return Folder(plain[1], int(plain[2])) if plain else None
