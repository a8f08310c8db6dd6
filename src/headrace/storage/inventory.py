"""What lies in a log directory, ours or Kafka's, by the names of its files. Reads nothing else and changes nothing."""

from __future__ import annotations

import re
from enum import Enum
from typing import Final

from headrace.named_tuple import NamedTuple
from headrace.storage import checkpoint, names
from headrace.storage.clean_shutdown import CLEAN_SHUTDOWN
from headrace.storage.closed_logs import CLOSED_LOGS
from headrace.storage.disk import LOCK_FILE, RESERVE_FILE, TEMPORARY_SUFFIX, Disk, FileStat, FileVanished
from headrace.storage.identity import META_PROPERTIES, PARTITION_METADATA
from headrace.storage.names import Folder
from headrace.storage.partition_folder import is_partition_folder
from headrace.storage.truncation_point import TRUNCATION_POINT

QUORUM_STATE: Final = "quorum-state"
CHECKPOINTS: Final = (
    checkpoint.RECOVERY_POINTS,
    checkpoint.LOG_STARTS,
    checkpoint.HIGH_WATERMARKS,
    checkpoint.CLEANED,
    checkpoint.NOT_CLOSED,
)

_SUFFIXED: Final = re.compile(
    r"(?:(\d{20})(?:-\d+)?|.*?)(\.log|\.index|\.timeindex|\.txnindex|\.snapshot|\.checkpoint)"
    r"(\.deleted|\.cleaned|\.swap|\.part)?"
)
_IGNORED_FOLDERS: Final = ("remote-log-index-cache", "lost+found")


class FileKind(Enum):
    """What is in a file, and what to call it."""

    BATCHES = "record batches"
    METADATA_SNAPSHOT = "a snapshot of the metadata log"
    OFFSET_INDEX = "an offset index"
    TIME_INDEX = "a time index"
    TRANSACTION_INDEX = "a transaction index"
    PRODUCER_SNAPSHOT = "a snapshot of producers"
    EPOCHS = "leader epochs"
    OFFSETS = "offsets of partitions"
    PARTITION_METADATA = "the identity of a partition"
    META_PROPERTIES = "the identity of a log directory"
    CLEAN_SHUTDOWN = "the marker of a clean stop"
    QUORUM_STATE = "the state of the quorum"


_BY_SUFFIX: Final = {
    names.LOG: FileKind.BATCHES,
    names.INDEX: FileKind.OFFSET_INDEX,
    names.TIME_INDEX: FileKind.TIME_INDEX,
    names.TXN_INDEX: FileKind.TRANSACTION_INDEX,
    names.SNAPSHOT: FileKind.PRODUCER_SNAPSHOT,
    ".checkpoint": FileKind.METADATA_SNAPSHOT,
}
_BY_NAME: Final = {
    **dict.fromkeys(CHECKPOINTS, FileKind.OFFSETS),
    names.EPOCHS: FileKind.EPOCHS,
    PARTITION_METADATA: FileKind.PARTITION_METADATA,
    META_PROPERTIES: FileKind.META_PROPERTIES,
    CLEAN_SHUTDOWN: FileKind.CLEAN_SHUTDOWN,
    QUORUM_STATE: FileKind.QUORUM_STATE,
}


class NamedFile(NamedTuple):
    kind: FileKind
    base_offset: int | None = None
    """By its name; None where that has none."""
    mark: str = ""
    """What a second suffix says: not finished, thrown away."""


def file_named(name: str) -> NamedFile | None:
    """What a file is, by its name; None for one that no log has. Who copied a file may have changed its stem."""
    if name in _BY_NAME:
        return NamedFile(_BY_NAME[name])
    found = _SUFFIXED.fullmatch(name)
    if found is None:
        return None
    kind = _BY_SUFFIX[found[2]]
    is_metadata = kind is FileKind.METADATA_SNAPSHOT  # the offsets in it are its own
    return NamedFile(kind, int(found[1]) if found[1] and not is_metadata else None, found[3] or "")


class SegmentFiles:
    """The sizes of one segment's files, by suffix."""

    __slots__ = ("base_offset", "sizes")

    def __init__(self, base_offset: int) -> None:
        self.base_offset = base_offset
        self.sizes: dict[str, int] = {}

    @property
    def size_bytes(self) -> int:
        return self.sizes.get(names.LOG, 0)

    @property
    def index_bytes(self) -> int:
        return sum(size for suffix, size in self.sizes.items() if suffix != names.LOG)

    def name(self, suffix: str = names.LOG) -> str:
        return names.segment_name(self.base_offset) + suffix


class PartitionFiles:
    """What lies in the folder of one partition."""

    __slots__ = (
        "folder",
        "has_holes",
        "metadata_snapshots",
        "name",
        "orphans",
        "others",
        "put_aside",
        "segments",
        "snapshots",
    )

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.name = names.parse_folder(folder) or Folder(folder, -1)
        self.has_holes = False
        """It is written down that its offsets have jumped."""
        self.segments: list[SegmentFiles] = []
        """Ascending."""
        self.snapshots: dict[int, int] = {}
        """Sizes of the producers' snapshots, by offset, ascending."""
        self.metadata_snapshots: dict[str, int] = {}
        self.orphans: list[str] = []
        """Indexes without a segment."""
        self.put_aside: list[str] = []
        """Marked as deleted, as the cleaner's, or as not finished."""
        self.others: list[str] = []

    @property
    def size_bytes(self) -> int:
        return sum(segment.size_bytes for segment in self.segments)

    @property
    def walk_bytes(self) -> int:
        """How much there is to read for who walks all batches."""
        return self.size_bytes + sum(self.metadata_snapshots.values())

    def path(self, name: str) -> str:
        return f"{self.folder}/{name}"


class Inventory:
    """A log directory, or one partition of it."""

    __slots__ = ("disk", "files", "is_clean", "is_whole", "others", "partitions")

    def __init__(self, disk: Disk) -> None:
        self.disk = disk
        self.partitions: list[PartitionFiles] = []
        self.files: dict[str, FileStat] = {}
        """Those of the directory itself that a log directory has."""
        self.others: list[str] = []
        """Names in the directory that a log directory does not have."""
        self.is_clean = False
        """The marker of a clean stop is there: no node has run since."""
        self.is_whole = True
        """All partitions are looked at, and not one."""

    @property
    def size_bytes(self) -> int:
        return sum(partition.size_bytes for partition in self.partitions)

    @property
    def walk_bytes(self) -> int:
        """How much there is to read for who walks all batches, snapshots of the metadata log too."""
        own = (
            sum(stat.size for name, stat in self.files.items() if name.endswith(".checkpoint")) if self.is_whole else 0
        )
        return own + sum(partition.walk_bytes for partition in self.partitions)


def take_inventory(disk: Disk, only: str | None = None) -> Inventory:
    """All of a log directory, or only one of its folders with what the directory says of it."""
    inventory = Inventory(disk)
    inventory.is_whole = only is None
    for name, stat in disk.scan().items():
        if stat.is_directory:
            if only is not None or name in _IGNORED_FOLDERS:
                continue
            if names.parse_folder(name) is None:
                inventory.others.append(name)
            else:
                try:
                    inventory.partitions.append(take_partition(disk, name))
                except FileVanished:
                    continue  # deleted meanwhile
        elif _belongs_to_directory(name):
            inventory.files[name] = stat
        else:
            inventory.others.append(name)
    if only is not None:
        inventory.partitions.append(take_partition(disk, only))
    inventory.partitions.sort(key=lambda partition: (partition.name.topic, partition.name.partition, partition.folder))
    inventory.is_clean = CLEAN_SHUTDOWN in inventory.files
    return inventory


def take_partition(disk: Disk, folder: str) -> PartitionFiles:
    partition = PartitionFiles(folder)
    segments: dict[int, SegmentFiles] = {}
    for name, stat in disk.scan(folder).items():
        known = None if stat.is_directory else file_named(name)
        if name in (names.HOLES, names.ABORTED, TRUNCATION_POINT):
            partition.has_holes = partition.has_holes or name == names.HOLES
            continue
        if known is None and not name.endswith(TEMPORARY_SUFFIX):
            partition.others.append(name)
        elif known is None or known.mark:
            partition.put_aside.append(name)
        elif known.kind is FileKind.METADATA_SNAPSHOT:
            partition.metadata_snapshots[name] = stat.size
        elif known.kind is FileKind.PRODUCER_SNAPSHOT and known.base_offset is not None:
            partition.snapshots[known.base_offset] = stat.size
        elif known.base_offset is not None:
            segment = segments.setdefault(known.base_offset, SegmentFiles(known.base_offset))
            segment.sizes[f".{name.rpartition('.')[2]}"] = stat.size
    for base_offset in sorted(segments):
        segment = segments[base_offset]
        if names.LOG in segment.sizes:
            partition.segments.append(segment)
        else:
            partition.orphans += [segment.name(suffix) for suffix in segment.sizes]
    return partition


def is_log_directory(disk: Disk, found: dict[str, FileStat]) -> bool:
    """It has a file that only a log directory has, or a partition. Other folders have names like theirs, too."""
    return any(not stat.is_directory and _belongs_to_directory(name) for name, stat in found.items()) or any(
        stat.is_directory and names.parse_folder(name) is not None and is_partition_folder(disk.scan(name))
        for name, stat in found.items()
    )


def _belongs_to_directory(name: str) -> bool:
    known = file_named(name)
    return name in (LOCK_FILE, RESERVE_FILE, CLOSED_LOGS) or (
        known is not None
        and known.kind
        in (FileKind.OFFSETS, FileKind.META_PROPERTIES, FileKind.CLEAN_SHUTDOWN, FileKind.METADATA_SNAPSHOT)
    )
