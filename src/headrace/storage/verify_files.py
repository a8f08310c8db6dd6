"""The small files held against the log: checkpoints, leader epochs, producers' snapshots, identities."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Final

from headrace.errors import HeadraceError, ProtocolError
from headrace.named_tuple import NamedTuple
from headrace.protocol.control import ControlType, read_control
from headrace.storage import checkpoint, names
from headrace.storage.checkpoint import CheckpointDamaged, TopicPartition, read_offsets
from headrace.storage.clean_shutdown import read_clean_shutdown
from headrace.storage.closed_logs import CLOSED_LOGS, ClosedLog, ClosedLogs, find_closed_logs
from headrace.storage.disk import TEMPORARY_SUFFIX, Disk, DiskError, FileVanished
from headrace.storage.identity import META_PROPERTIES, MetaProperties, WrongDirectory, id_text, read_topic_id
from headrace.storage.inventory import CHECKPOINTS, QUORUM_STATE, Inventory, PartitionFiles
from headrace.storage.names import Fate
from headrace.storage.producer_snapshot import SnapshotDamaged, decode_snapshot
from headrace.storage.scan import Damage
from headrace.storage.verify_report import Report, Severity
from headrace.storage.walk import Walk

METADATA_TOPIC: Final = "__cluster_metadata"
AT_START: Final = "Nothing is lost: with the node stopped, remove it; the next start works it out from the log."
ANEW: Final = "Nothing is lost: the next start writes it anew."
FETCH_ANEW: Final = (
    "Where other replicas have the partition, stop the node, move the folder away and start it: it fetches the "
    "partition anew."
)


class Known(NamedTuple):
    """What a log directory says of a partition."""

    is_clean: bool
    """Its last stop was clean, and nothing has run on it since: everything is durable, and as it was left."""
    is_listed: bool
    """It has a recovery point."""
    recovery_point: int
    log_start_offset: int
    high_watermark: int
    cleaned_offset: int | None
    """Up to where the cleaner has been; None where it has not."""
    closed: ClosedLog | None = None
    """What the files were at that clean stop, if it was one of ours."""


class Checkpoints:
    """What the checkpoints of a log directory say, each as far as it can be read."""

    __slots__ = ("_closed", "_has_recovery_points", "_offsets", "is_clean")

    def __init__(self, inventory: Inventory, report: Report) -> None:
        self.is_clean = inventory.is_clean
        self._has_recovery_points = checkpoint.RECOVERY_POINTS in inventory.files
        self._offsets: dict[str, dict[TopicPartition, int]] = {}
        self._closed = _closed_logs(inventory, report)
        for name in CHECKPOINTS:
            if self._closed and name in _ALWAYS_LEFT and not getattr(inventory.files.get(name), "size", 0):
                self._offsets[name] = self._closed.offsets(name)
                report.repairable(
                    name,
                    "it is empty" if name in inventory.files else "it is missing",
                    f"Nothing is lost: the next start takes what it said from {CLOSED_LOGS}.",
                )
                continue
            try:
                self._offsets[name] = read_offsets(inventory.disk, name)
            except CheckpointDamaged as damaged:
                self._offsets[name] = {}
                if name == checkpoint.NOT_CLOSED:
                    self.is_clean = False
                    report.repairable(name, damaged.reason, "Leave it: the next start checks all partitions.")
                else:
                    report.repairable(name, damaged.reason, AT_START)
            except DiskError as error:
                self._offsets[name] = {}
                tell_unreadable(report, name, error)

    def known(self, partition: PartitionFiles) -> Known:
        key = (partition.name.topic, partition.name.partition)
        recovery_point = self._offset(checkpoint.RECOVERY_POINTS, partition)
        is_listed = recovery_point is not None
        if recovery_point is None:
            # Of a copy of a folder, and of the metadata log, which has none, what is closed is taken for durable.
            is_unlisted = self._has_recovery_points and partition.name.topic != METADATA_TOPIC
            recovery_point = 0 if is_unlisted or not partition.segments else partition.segments[-1].base_offset
        is_clean = self.is_clean and key not in self._offsets[checkpoint.NOT_CLOSED]
        return Known(
            is_clean,
            is_listed,
            recovery_point,
            self._offset(checkpoint.LOG_STARTS, partition) or 0,
            self._offset(checkpoint.HIGH_WATERMARKS, partition) or 0,
            self._offset(checkpoint.CLEANED, partition),
            self._closed.get(key) if is_clean and partition.name.fate is Fate.CURRENT else None,
        )

    def _offset(self, name: str, partition: PartitionFiles) -> int | None:
        """What a checkpoint says of a folder; nothing of one that waits to be removed, as another may have its name."""
        if partition.name.fate is Fate.DELETE:
            return None
        return self._offsets[name].get((partition.name.topic, partition.name.partition))

    def check_folders(self, inventory: Inventory, report: Report) -> None:
        """A partition with a recovery point has a folder, unless it was deleted since."""
        there = {(partition.name.topic, partition.name.partition) for partition in inventory.partitions}
        if self.is_clean:
            for topic, partition in sorted(self._closed.keys() - there):
                report.damage(
                    CLOSED_LOGS,
                    f"{topic}-{partition} was there when the node stopped, and its folder is gone",
                    "Put it back, or fetch it from another replica. Unless somebody moved it, its records are lost.",
                )
            there |= self._closed.keys()
        for topic, partition in sorted(self._offsets[checkpoint.RECOVERY_POINTS].keys() - there):
            report.note(
                checkpoint.RECOVERY_POINTS,
                f"{topic}-{partition} is in it and has no folder",
                "If nobody deleted or moved the partition, its folder was lost: fetch it from another replica.",
            )


def _closed_logs(inventory: Inventory, report: Report) -> ClosedLogs:
    try:
        shutdown = read_clean_shutdown(inventory.disk)
        found, problem = find_closed_logs(inventory.disk, None if shutdown is None else shutdown.closed_logs_crc)
    except DiskError as error:
        tell_unreadable(report, CLOSED_LOGS, error)
        return ClosedLogs()
    if problem:
        report.repairable(
            CLOSED_LOGS,
            f"it {problem}, so that a file which was cut or removed since the stop can't be told by it",
            "Leave it: the next stop writes it anew.",
        )
    return found


_ALWAYS_LEFT: Final = (checkpoint.RECOVERY_POINTS, checkpoint.LOG_STARTS, checkpoint.HIGH_WATERMARKS)
"""Checkpoints that a clean stop of ours leaves in any case."""


def check_closed(disk: Disk, partition: PartitionFiles, closed: ClosedLog, report: Report) -> None:
    """What was cut, removed or put there since the clean stop."""
    there = {segment.base_offset: segment for segment in partition.segments}
    for left in closed.segments:
        path = partition.path(names.segment_name(left.base_offset) + names.LOG)
        segment = there.pop(left.base_offset, None)
        if segment is None and left.size_bytes:
            what = f"it is missing, and had {left.size_bytes} bytes when the node stopped"
            report.damage(path, what, "Put it back. " + FETCH_ANEW)
        elif segment is not None and segment.size_bytes != left.size_bytes:
            difference = segment.size_bytes - left.size_bytes
            report.damage(
                path,
                f"it has {abs(difference)} bytes {'less' if difference < 0 else 'more'} than when the node stopped",
                FETCH_ANEW + " Else the next start verifies the log from there on.",
                min(segment.size_bytes, left.size_bytes),
            )
    for segment in there.values():
        report.note(partition.path(segment.name()), "it was not there when the node stopped")
    try:
        topic_id = read_topic_id(disk, partition.folder)
    except HeadraceError:
        return  # told of elsewhere
    path = partition.path(names.PARTITION_METADATA)
    if topic_id is None and closed.topic_id is not None:
        report.repairable(path, "it is missing", ANEW)
    elif None is not topic_id != closed.topic_id is not None:
        report.damage(
            path,
            f"it says topic id {id_text(topic_id)}, and the node left the partition with {id_text(closed.topic_id)}",
            "Put the folder back that was there when the node stopped.",
        )


def check_offsets(report: Report, known: Known, *, is_tail_told: bool) -> None:
    """What the checkpoints say of a partition, against where its log begins and ends."""
    end_offset = report.end_offset or 0
    if is_tail_told:
        return
    if known.recovery_point > end_offset:
        report.damage(
            checkpoint.RECOVERY_POINTS,
            f"{report.name} was durable up to offset {known.recovery_point}, and ends at {end_offset}: somebody cut it",
            FETCH_ANEW + " Else the records are lost.",
        )
        return
    if known.is_clean and known.is_listed and known.recovery_point < end_offset:
        report.damage(
            checkpoint.RECOVERY_POINTS,
            f"{report.name} was left with offset {known.recovery_point} to come, and its batches go up to "
            f"{end_offset - 1}: the base offset of the last one may be spoilt, which no checksum covers",
            FETCH_ANEW,
        )
    # A crash may have taken records that were not durable yet; the high watermark may have been beyond them.
    severity = Severity.REPAIRABLE if known.is_clean else Severity.NOTE
    for name, what, offset in (
        (checkpoint.LOG_STARTS, "starts at", known.log_start_offset),
        (checkpoint.HIGH_WATERMARKS, "has its high watermark at", known.high_watermark),
        (checkpoint.CLEANED, "is cleaned up to", known.cleaned_offset or 0),
    ):
        if offset > end_offset:
            report.add(
                severity,
                name,
                f"{report.name} {what} offset {offset}, and ends at {end_offset}",
                "Nothing to do: a node goes by what its log holds.",
            )


def check_snapshots(disk: Disk, partition: PartitionFiles, end_offset: int, known: Known, report: Report) -> None:
    """The producers' snapshots can be read, and say nothing about offsets after their own."""
    bases = [segment.base_offset for segment in partition.segments if segment.base_offset <= known.recovery_point]
    for offset in partition.snapshots:
        if not known.is_clean and offset > max(bases, default=0):
            continue  # the next start removes it
        path = partition.path(names.segment_name(offset) + names.SNAPSHOT)
        try:
            state = decode_snapshot(disk.read(path), path, offset)
        except SnapshotDamaged as damaged:
            report.repairable(path, damaged.reason, AT_START)
            continue
        except FileVanished:
            continue  # a node removes those it does not need
        except DiskError as error:
            tell_unreadable(report, path, error)
            continue
        for producer_id, producer in state:
            recent = producer.recent()
            last_offset = max(producer.transaction_offset, recent[-1].last_offset if recent else -1)
            if last_offset >= offset:
                report.repairable(
                    path, f"producer {producer_id} has offset {last_offset} in it, which came later", AT_START
                )
                break
        if offset > end_offset:
            report.repairable(path, f"it is of offset {offset}, and the log ends at {end_offset}", AT_START)


def check_identity(disk: Disk, partition: PartitionFiles, closed: ClosedLog | None, report: Report) -> None:
    path = partition.path(names.PARTITION_METADATA)
    try:
        read_topic_id(disk, partition.folder)
    except WrongDirectory as error:
        what, advice = _parted(error, disk.full_path(path))
        if closed is not None and closed.topic_id is not None:
            report.repairable(path, what, ANEW)
        else:
            report.damage(path, what, advice)
    except DiskError as error:
        tell_unreadable(report, path, error)


def check_quorum_state(disk: Disk, partition: PartitionFiles, report: Report) -> None:
    path = partition.path(QUORUM_STATE)
    try:
        state = json.loads(disk.read(path))
        if not isinstance(state, dict) or "leaderEpoch" not in state:
            raise ValueError
    except FileVanished:
        return
    except DiskError as error:
        tell_unreadable(report, path, error)
    except ValueError:
        report.damage(
            path,
            "it does not say what this voter has voted for",
            "Where the quorum has other voters, move the folder away: this one then joins anew as another directory.",
        )


def check_directory(inventory: Inventory, report: Report) -> None:
    """Whose directory it is, and what is in it that does not belong there."""
    disk = inventory.disk
    try:
        if MetaProperties.read(disk) is None:
            report.note(META_PROPERTIES, "it is missing", "A node needs it; a copy that is only looked at does not.")
    except WrongDirectory as error:
        what, advice = _parted(error, disk.full_path(META_PROPERTIES))
        report.damage(META_PROPERTIES, what, advice)
    except DiskError as error:
        tell_unreadable(report, META_PROPERTIES, error)
    for name in inventory.others:
        if name.endswith(TEMPORARY_SUFFIX):
            report.note(name, "it is being written, or left over from a write that was not finished")
        else:
            report.note(name, "it is nothing that a log directory has", "Move it away if nobody needs it here.")


def check_metadata_snapshot(disk: Disk, path: str, report: Report, advanced: Callable[[int], None] | None) -> None:
    """A snapshot of the metadata log is a file of batches between a header and a footer."""
    advice = "Remove it if a later snapshot is sound; else fetch the metadata from another voter."
    try:
        file = disk.open(path, read_only=True)
    except FileVanished:
        return
    except DiskError as error:
        tell_unreadable(report, path, error)
        return
    edges: list[ControlType] = []
    walk = Walk(file, file.size(), 0)
    try:
        for found in walk(advanced):
            if isinstance(found, Damage):
                what = f"bytes {found.position} to {found.end}: {found.reason}"
                report.damage(path, what, advice, found.position)
            elif found.is_control:
                edges += [record.type for record in read_control(found)]
    except ProtocolError as error:
        report.damage(path, str(error), advice, walk.position)
        return
    except DiskError as error:
        tell_unreadable(report, path, error)
        return
    finally:
        file.close()
    if edges[:1] != [ControlType.SNAPSHOT_HEADER] or edges[-1:] != [ControlType.SNAPSHOT_FOOTER]:
        report.damage(path, "it is not whole: it does not begin with a header and end with a footer", advice)


def tell_unreadable(report: Report, path: str, error: DiskError) -> None:
    report.damage(
        path,
        f"it can't be read ({error.reason or type(error).__name__})",
        "Check the disk, and whether this user may read it. " + FETCH_ANEW,
    )


def _parted(error: HeadraceError, full_path: str) -> tuple[str, str]:
    """What is wrong, and what to do, out of a sentence that says both."""
    what, _, advice = str(error).removeprefix(full_path).strip().partition("; ")
    return what.removeprefix("is damaged: "), advice[:1].upper() + advice[1:] + ("." if advice else "")
