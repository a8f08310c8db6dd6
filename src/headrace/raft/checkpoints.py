"""Snapshots of the metadata log: `<end offset>-<epoch>.checkpoint` files, in Kafka's format (KIP-630).

A checkpoint is a row of batches, with offsets of its own from 0 on: a control batch with the header, the version of the
quorum protocol and the voters; the records; a control batch with the footer, by which a reader knows that it is whole.
While it is written its name ends in `.part`; a crash leaves nothing else behind, and nothing is read under that name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from headrace.errors import HeadraceError, ProtocolError
from headrace.protocol import messages
from headrace.protocol.batch import Batch, scan
from headrace.protocol.batch_builder import build
from headrace.protocol.control import ControlType, build_quorum_batch, read_control
from headrace.protocol.message import Message
from headrace.protocol.records import records_of
from headrace.protocol.state import decode_metadata_record, encode_metadata_record
from headrace.raft.quorum import KRAFT_VERSION, OffsetAndEpoch, VoterSet
from headrace.storage.disk import Disk, File, FileVanished
from headrace.storage.workers import Workers

CHECKPOINT: Final = ".checkpoint"
PART: Final = ".part"
BOOTSTRAP: Final = OffsetAndEpoch(0, 0)
"""The snapshot that a node is formatted with. It is never sent to another."""

BATCH_RECORDS_MAX: Final = 500
DECOMPRESSED_BYTES_MAX: Final = 64 << 20
_NAME: Final = re.compile(r"(\d{20})-(\d{10})\.checkpoint")

Record = tuple[Message, int]
"""A record of the metadata log, and the version that it is written in."""


class SnapshotDamaged(HeadraceError):
    """A snapshot that is not whole, or not sound."""


def checkpoint_name(id: OffsetAndEpoch) -> str:
    return f"{id.offset:020d}-{id.epoch:010d}{CHECKPOINT}"


def find_checkpoints(disk: Disk, folder: str) -> list[OffsetAndEpoch]:
    """Those in a folder, the oldest first, after what a crash left half written is removed."""
    found = []
    for name in disk.names(folder):
        if name.endswith(CHECKPOINT + PART):
            disk.remove(f"{folder}/{name}")
        elif match := _NAME.fullmatch(name):
            found.append(OffsetAndEpoch(int(match[1]), int(match[2])))
    return sorted(found)


class SnapshotWriter:
    """Writes one checkpoint, batch after batch. `freeze` makes it durable, and only then it has its name."""

    __slots__ = ("_disk", "_file", "_now_ms", "_offset", "_position", "folder", "id")

    def __init__(
        self,
        disk: Disk,
        folder: str,
        id: OffsetAndEpoch,
        voters: VoterSet,
        *,
        last_contained_log_timestamp: int,
        now_ms: int,
    ) -> None:
        self._disk = disk
        self.folder = folder
        self.id = id
        self._now_ms = now_ms
        self._offset = 0
        self._position = 0
        self._file: File = disk.open(self._path + PART, create=True)
        self._file.truncate(0)
        header = messages.SnapshotHeaderRecord(last_contained_log_timestamp=last_contained_log_timestamp)
        version = messages.KRaftVersionRecord(kraft_version=KRAFT_VERSION)
        self._write(
            build_quorum_batch(
                [header, version, voters.to_record()],
                timestamp_ms=now_ms,
                partition_leader_epoch=id.epoch,
            )
        )

    @property
    def _path(self) -> str:
        return f"{self.folder}/{checkpoint_name(self.id)}"

    def append(self, records: Sequence[Record]) -> None:
        """Some of the records: as many as the caller wants to encode in one go."""
        for start in range(0, len(records), BATCH_RECORDS_MAX):
            fields = [
                (None, encode_metadata_record(message, version), (), self._now_ms)
                for message, version in records[start : start + BATCH_RECORDS_MAX]
            ]
            self._write(build(fields, base_offset=self._offset, partition_leader_epoch=self.id.epoch))

    def freeze(self, workers: Workers, done: Callable[[BaseException | None], None]) -> None:
        """Ends it and makes it durable, off the loop."""
        self._write_footer()
        file = self._file
        file.hold()

        def frozen(result: None, error: BaseException | None) -> None:
            file.release()
            file.close()
            done(error)

        disk, path, folder = self._disk, self._path, self.folder
        workers.run(lambda: put_in_place(disk, file, path, folder), frozen)

    def freeze_at_once(self) -> None:
        """The same on the spot, for who has no loop."""
        self._write_footer()
        put_in_place(self._disk, self._file, self._path, self.folder)
        self._file.close()

    def abandon(self) -> None:
        self._file.close()
        self._disk.remove(self._path + PART)

    def _write_footer(self) -> None:
        footer = messages.SnapshotFooterRecord()
        self._write(
            build_quorum_batch(
                [footer], timestamp_ms=self._now_ms, base_offset=self._offset, partition_leader_epoch=self.id.epoch
            )
        )

    def _write(self, batch: bytearray) -> None:
        self._position += self._file.write(self._position, [batch])
        self._offset = Batch(memoryview(batch)).next_offset


def put_in_place(disk: Disk, file: File, path: str, folder: str) -> None:
    """The bytes, then the name, then that the name stays."""
    file.datasync()
    disk.rename(path + PART, path)
    disk.sync_directory(folder)


class Snapshot:
    """A checkpoint that is read. The whole of it is checked when it is opened, before anything of it counts."""

    __slots__ = ("_content", "id", "last_contained_log_timestamp", "size_bytes", "voters")

    def __init__(self, id: OffsetAndEpoch, content: bytes, path: str) -> None:
        self.id = id
        self._content = content
        self.size_bytes = len(content)
        self.voters: VoterSet | None = None
        """None in a checkpoint of a Kafka whose voters stand in its configuration."""
        self.last_contained_log_timestamp = -1
        try:
            self._check()
        except ProtocolError as error:
            raise SnapshotDamaged(
                f"{path} is damaged: {error} Restore it, or remove the node from the voters and format it anew."
            ) from None

    @classmethod
    def read(cls, disk: Disk, folder: str, id: OffsetAndEpoch, suffix: str = "") -> Snapshot:
        path = f"{folder}/{checkpoint_name(id)}{suffix}"
        return cls(id, disk.read(path), disk.full_path(path))

    def _check(self) -> None:
        last: ControlType | None = None
        next_offset = 0
        for batch in scan(self._content):
            batch.verify()
            if last is ControlType.SNAPSHOT_FOOTER:
                raise ProtocolError("Something follows the footer.")
            if batch.base_offset != next_offset:
                raise ProtocolError(f"Offset {next_offset} is next, and {batch.base_offset} comes.")
            next_offset = batch.next_offset
            last = None
            for record in read_control(batch) if batch.is_control else ():
                last = record.type
                if isinstance(record.message, messages.SnapshotHeaderRecord):
                    self.last_contained_log_timestamp = record.message.last_contained_log_timestamp
                elif isinstance(record.message, messages.VotersRecord):
                    self.voters = VoterSet.from_record(record.message)
            if batch.base_offset == 0 and not batch.is_control:
                raise ProtocolError("It does not begin with a header.")
        if last is not ControlType.SNAPSHOT_FOOTER:
            raise ProtocolError("It ends without a footer.")

    def batches(self) -> Iterator[list[Record]]:
        """The records, batch by batch."""
        for batch in scan(self._content):
            if not batch.is_control:
                yield metadata_records(batch)


def metadata_records(batch: Batch) -> list[Record]:
    """The records of a batch of the metadata log, control batches having none."""
    if batch.is_control:
        return []
    found = []
    for record in records_of(batch, DECOMPRESSED_BYTES_MAX).decode():
        if record.value is None:
            raise ProtocolError(f"The metadata record at offset {record.offset} has no value.")
        found.append(decode_metadata_record(record.value))
    return found


def remove_checkpoint(disk: Disk, folder: str, id: OffsetAndEpoch) -> None:
    try:
        disk.remove(f"{folder}/{checkpoint_name(id)}")
    except FileVanished:
        return
