"""The metadata log on disk: `__cluster_metadata-0/` with its segments, its checkpoints and the quorum state.

How it is formatted, and how a start finds its history again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Final, Protocol

from headrace.config import LogConfig
from headrace.errors import HeadraceError
from headrace.protocol.batch import scan
from headrace.raft.checkpoints import (
    BOOTSTRAP,
    Snapshot,
    SnapshotWriter,
    checkpoint_name,
    find_checkpoints,
    remove_checkpoint,
)
from headrace.raft.node.history import BOOTSTRAP_OFFSET, History, voters_in
from headrace.raft.node.rpc import METADATA_PARTITION, METADATA_TOPIC, METADATA_TOPIC_ID
from headrace.raft.quorum import OffsetAndEpoch, VoterSet
from headrace.storage.disk import Disk
from headrace.storage.epochs import LeaderEpochs
from headrace.storage.flush import Flushed, SyncsFiles
from headrace.storage.handles import Handles
from headrace.storage.index import IndexCache
from headrace.storage.log_options import LogOptions
from headrace.storage.names import folder_name
from headrace.storage.place import Place
from headrace.storage.read import Fetched
from headrace.storage.recovery import Saved, open_log

logger = logging.getLogger(__name__)

FOLDER: Final = folder_name(METADATA_TOPIC, METADATA_PARTITION)
READ_BYTES: Final = 1 << 20
BATCH_BYTES_MAX: Final = 8 << 20

CONFIG: Final = LogConfig(
    cleanup_policy=("delete",),
    retention_ms=-1,
    retention_bytes=-1,
    max_message_bytes=2 * BATCH_BYTES_MAX,
    flush_messages=1,
)
"""Nothing goes by age or size: the start of the log moves with its snapshots."""


class NotFormatted(HeadraceError):
    """There is nothing that says who votes."""


class LogCutOff(HeadraceError):
    """What the log begins with is gone."""


class ReplicatedLog(Protocol):
    """What the driver asks of a log. `storage.log.Log` has it."""

    log_start_offset: int
    log_end_offset: int
    epochs: LeaderEpochs
    offline: HeadraceError | None

    @property
    def flushed_offset(self) -> int: ...

    @property
    def size_bytes(self) -> int: ...

    def append_as_follower(self, records: memoryview, leader_epoch: int, now_ms: int) -> object: ...

    def read(self, offset: int, bytes_max: int, offset_max: int) -> Fetched: ...

    def truncate_to(self, offset: int, now_ms: int) -> bool: ...

    def truncate_fully(self, offset: int, now_ms: int) -> None: ...

    def flush(self, flushed: Flushed) -> None: ...

    def set_high_watermark(self, offset: int) -> int: ...

    def delete_before(self, offset: int) -> int: ...

    def retain(self, now_ms: int) -> int: ...

    def sweep(self, now_ms: int) -> int: ...

    def trim(self) -> None: ...

    def close(self) -> None: ...


def is_formatted(disk: Disk) -> bool:
    return disk.exists(f"{FOLDER}/{checkpoint_name(BOOTSTRAP)}") or any(
        name.endswith((".log", ".checkpoint")) for name in (disk.names(FOLDER) if disk.exists(FOLDER) else ())
    )


def has_records(disk: Disk) -> bool:
    """Something was written since it was formatted: there is a log, or a snapshot of one."""
    formatted = checkpoint_name(BOOTSTRAP)
    return any(
        name.endswith((".log", ".checkpoint")) and name != formatted
        for name in (disk.names(FOLDER) if disk.exists(FOLDER) else ())
    )


def format_voter(disk: Disk, voters: VoterSet, now_ms: int) -> None:
    """Writes the snapshot that a log begins with: who votes. Durable when it returns; doing it twice is harmless.

    All voters of a new quorum are formatted with the same set. A node that joins one is formatted with none.
    """
    disk.make_directory(FOLDER)
    disk.sync_directory("")
    SnapshotWriter(disk, FOLDER, BOOTSTRAP, voters, last_contained_log_timestamp=0, now_ms=now_ms).freeze_at_once()


def not_alone(folder: str, voters: VoterSet) -> HeadraceError:
    """It would wait for the others for ever."""
    ids = ", ".join(str(voter.key.id) for voter in voters)
    whose = (
        f"has the voters {ids}, and this directory of this node is not the only one"
        if ids
        else "names no voters, as that of a Kafka which has them in controller.quorum.voters"
    )
    return HeadraceError(f"The metadata log in {folder} {whose}; choose another folder, or move it away.")


class MetadataLog:
    """The log, its checkpoints, and the history of both."""

    __slots__ = ("disk", "folder", "history", "log")

    def __init__(self, disk: Disk, folder: str, log: ReplicatedLog, history: History) -> None:
        self.disk = disk
        self.folder = folder
        self.log = log
        self.history = history

    def path(self, name: str) -> str:
        return f"{self.folder}/{name}"

    def snapshot(self, id: OffsetAndEpoch) -> Snapshot:
        return Snapshot.read(self.disk, self.folder, id)

    def latest_snapshot(self) -> Snapshot | None:
        """The one to begin from; the one that was formatted with counts when there is no other."""
        if self.history.snapshots:
            return self.snapshot(self.history.snapshots[-1])
        return self.snapshot(BOOTSTRAP) if self.disk.exists(self.path(checkpoint_name(BOOTSTRAP))) else None

    def install(self, id: OffsetAndEpoch, now_ms: int) -> None:
        """A leader's snapshot, which is in place, takes over from everything that is here."""
        self.log.truncate_fully(id.offset, now_ms)
        for other in find_checkpoints(self.disk, self.folder):
            if other < id and other != BOOTSTRAP:
                remove_checkpoint(self.disk, self.folder, other)

    def clean(self, retention_bytes: int, retention_ms: int, now_ms: int) -> OffsetAndEpoch | None:
        """Lets old snapshots go, and the segments before the oldest that stays; the latest always stays.

        As Kafka does by metadata.max.retention.bytes and .ms, of which -1 is no limit. Returns what is oldest now, or
        None when nothing went.
        """
        sizes = [(id, self.disk.stat(self.path(checkpoint_name(id))).size) for id in self.history.snapshots]
        total_bytes = sum(size for _, size in sizes) + self.log.size_bytes
        oldest: OffsetAndEpoch | None = None
        for (id, size_bytes), (follower, _) in pairwise(sizes):
            is_too_large = 0 <= retention_bytes < total_bytes
            is_too_old = 0 <= retention_ms < now_ms - self.snapshot(id).last_contained_log_timestamp
            if not is_too_large and not is_too_old:
                break
            total_bytes -= size_bytes
            oldest = follower
        if oldest is None and self.history.start_offset == 0 and len(sizes) == 1:
            # The log is whole and one snapshot stands for its begin: by size, that goes.
            oldest = sizes[0][0] if 0 <= retention_bytes < total_bytes else None
        if oldest is None:
            return None
        for id, _ in sizes:
            if id < oldest:
                remove_checkpoint(self.disk, self.folder, id)
        self.log.delete_before(oldest.offset)
        self.log.retain(now_ms)
        return oldest


def open_metadata_log(
    disk: Disk,
    flusher: SyncsFiles,
    *,
    handles: Handles,
    indexes: IndexCache,
    now_ms: int,
    voters: VoterSet | None = None,
    config: LogConfig = CONFIG,
    advanced: Callable[[int], None] | None = None,
) -> MetadataLog:
    """Opens what is on the disk. `voters` count where neither log nor snapshot names any, as in Kafka's static quorums.

    Everything after the oldest snapshot is verified as the device has it: what a crash left torn at the end is cut.
    """
    if not disk.exists(FOLDER):
        raise NotFormatted(f"{disk.full_path(FOLDER)} does not exist; format the directory first")
    checkpoints = [id for id in find_checkpoints(disk, FOLDER) if id != BOOTSTRAP]
    start_offset = checkpoints[0].offset if checkpoints else 0
    committed = checkpoints[-1].offset if checkpoints else 0
    log = open_log(
        Place(disk, FOLDER, handles, indexes),
        METADATA_TOPIC,
        METADATA_PARTITION,
        config,
        LogOptions(takes_reserve=True),
        flusher,
        # As after an unclean stop: the log is small, and what only memory shows must not be committed (hazard 8).
        saved=Saved(log_start_offset=start_offset, high_watermark=committed),
        now_ms=now_ms,
        topic_id=METADATA_TOPIC_ID,
        advanced=advanced,
    )
    log.place.names_changed = True  # what the last life made it may not have synced
    while checkpoints and checkpoints[0].offset < log.log_start_offset:
        # It had been removed, and the segments after it too, when a loss of power brought its name back.
        remove_checkpoint(disk, FOLDER, checkpoints.pop(0))
    if log.log_start_offset and not checkpoints:
        raise LogCutOff(
            f"{disk.full_path(FOLDER)} begins at offset {log.log_start_offset} and has no snapshot of what was before; "
            "restore the missing .checkpoint file, or remove the node from the voters and format it anew"
        )
    if checkpoints and not OffsetAndEpoch(log.log_end_offset, log.epochs.latest).is_at_least(
        OffsetAndEpoch(checkpoints[-1].offset, checkpoints[-1].epoch)
    ):
        # A leader's snapshot was put in place, and a crash came before the log was emptied.
        log.truncate_fully(checkpoints[-1].offset, now_ms)
        for id in checkpoints[:-1]:
            remove_checkpoint(disk, FOLDER, id)
        checkpoints = checkpoints[-1:]
    if checkpoints:
        log.set_high_watermark(checkpoints[-1].offset)
        log.delete_before(checkpoints[0].offset)
    opened = MetadataLog(disk, FOLDER, log, History())
    opened.history = History(
        voters=_voters(opened, checkpoints, voters),
        start_offset=log.log_start_offset,
        end_offset=log.log_end_offset,
        flushed_offset=log.flushed_offset,
        epochs=log.epochs.entries(),
        snapshots=checkpoints,
    )
    return opened


def _voters(
    opened: MetadataLog, checkpoints: Sequence[OffsetAndEpoch], fallback: VoterSet | None
) -> list[tuple[int, VoterSet]]:
    found = [(BOOTSTRAP_OFFSET, fallback or VoterSet())]
    if opened.disk.exists(opened.path(checkpoint_name(BOOTSTRAP))):
        named = opened.snapshot(BOOTSTRAP).voters
        found = [(BOOTSTRAP_OFFSET, named)] if named is not None else found
    if checkpoints:
        named = opened.snapshot(checkpoints[0]).voters
        found += [(checkpoints[0].offset - 1, named)] if named is not None else []
    log = opened.log
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        for batch in scan(log.read(offset, READ_BYTES, log.log_end_offset).take(), partial=True):
            if batch.is_control:
                found += voters_in(batch)
            offset = batch.next_offset
    return found
