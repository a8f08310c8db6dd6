"""Files of batches as sheets: batch by batch from their headers, or with all records in them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import PurePath
from typing import Any, Final, NamedTuple

from headrace.cli.columns import Column
from headrace.cli.log_values import (
    Shown,
    bytes_json,
    control_text,
    decoded,
    headers_text,
    message_json,
    shown_json,
    shown_text,
    state_kind,
)
from headrace.cli.quantities import plural, time_text
from headrace.cli.sheet import Sheet, Wishes, range_text
from headrace.errors import HeadraceError, ProtocolError
from headrace.protocol.batch import COMPRESSION_MASK, Batch, TimestampType
from headrace.protocol.compression import Compression
from headrace.protocol.control import ControlRecord, read_control
from headrace.protocol.kernel_types import Record
from headrace.protocol.records import records_of
from headrace.protocol.shape import Kind
from headrace.storage.disk import Disk
from headrace.storage.inspect import walk_from
from headrace.storage.inventory import FileKind, NamedFile
from headrace.storage.scan import Damage
from headrace.storage.walk import DECOMPRESSED_BYTES_MAX

BATCH_COLUMNS: Final = (
    Column(">byte", "dim"),
    Column("offsets", "cyan"),
    Column(">records"),
    Column(">bytes"),
    Column("codec", rank=1),
    Column("largest time (UTC)", rank=2),
    Column("flags", rank=3),
    Column(">epoch", rank=4),
    Column(">producer", rank=5),
    Column("sequences", rank=5),
    Column("first time (UTC)", "dim", rank=6),
    Column("crc", "dim", rank=7),
)
RECORD_COLUMNS: Final = (
    Column(">offset", "cyan"),
    Column("time (UTC)", "dim"),
    Column("key"),
    Column("value"),
    Column("headers", "dim"),
)


class Damaged(HeadraceError):
    """The file is not sound; what is wrong has been shown in its place."""


class Placed(NamedTuple):
    """A batch, and where in its file it begins."""

    position: int
    batch: Batch


class Told(NamedTuple):
    """A record, with its key and value as messages where they are some."""

    record: Record
    key: Shown
    value: Shown
    problem: str


class Zeros(NamedTuple):
    """What a file has behind its batches, for those that come."""

    position: int
    end: int


class Unreadable(NamedTuple):
    """A batch that is sound outside, and whose records can't be read."""

    batch: Placed
    reason: str


Thing = Placed | Damage | Zeros | Unreadable | Told | ControlRecord


def batches_sheet(disk: Disk, name: str, named: NamedFile, wishes: Wishes) -> Sheet[Any]:
    if not wishes.records:
        things = islice(_found(disk, name, named, wishes), wishes.count)
        return Sheet(BATCH_COLUMNS, things, lambda thing: _as_json(thing, wishes), _batch_cells)
    kind = state_kind(wishes.state_topic, PurePath(disk.root).name)
    if named.kind is FileKind.METADATA_SNAPSHOT and wishes.state_topic is None:
        kind = Kind.METADATA
    return Sheet(
        RECORD_COLUMNS,
        _with_records(disk, name, named, wishes, kind),
        lambda thing: _as_json(thing, wishes),
        lambda thing: _record_cells(thing, wishes),
    )


# --- what is shown ----------------------------------------------------------------------------------------------------


def _found(disk: Disk, name: str, named: NamedFile, wishes: Wishes) -> Iterator[Placed | Damage | Zeros]:
    """The batches from the wished offset on, and the damage between them, at which it ends unless told otherwise."""
    file = disk.open(name, read_only=True)
    is_damaged = False
    try:
        walk = walk_from(disk, name, file, named, wishes.start_offset)
        for found in walk():
            if isinstance(found, Damage):
                yield found
                is_damaged = is_damaged or found.is_followed or not found.is_lost_write
                if not wishes.past_damage:
                    break
            elif found.last_offset >= wishes.start_offset:
                yield Placed(walk.position, found)
        else:
            if walk.position < walk.size_bytes:
                yield Zeros(walk.position, walk.size_bytes)
    finally:
        file.close()
    if is_damaged:
        raise Damaged(f"{disk.full_path(name)} is damaged; what to do about it: headrace log verify {disk.root}")


def _with_records(disk: Disk, name: str, named: NamedFile, wishes: Wishes, kind: Kind | None) -> Iterator[Thing]:
    left = wishes.count
    for found in _found(disk, name, named, wishes):
        if left == 0:
            return
        yield found
        if not isinstance(found, Placed):
            continue
        try:
            for record in islice(_records_in(found.batch, wishes.start_offset, kind), left):
                yield record
                left = None if left is None else left - 1
        except ProtocolError as error:
            yield Unreadable(found, str(error))


def _records_in(batch: Batch, start_offset: int, kind: Kind | None) -> Iterator[Told | ControlRecord]:
    if batch.is_control:
        yield from (control for control in read_control(batch) if control.offset >= start_offset)
        return
    for record in records_of(batch, DECOMPRESSED_BYTES_MAX).decode():
        if record.offset >= start_offset:
            yield Told(record, *decoded(record, kind))


# --- as JSON ----------------------------------------------------------------------------------------------------------


def _as_json(thing: Thing, wishes: Wishes) -> dict[str, Any]:
    match thing:
        case Placed(position, batch):
            return {"type": "batch", "position": position, **_header_json(batch)}
        case Damage():
            return {"type": "damage", **thing._asdict()}
        case Zeros():
            return {"type": "zeros", **thing._asdict()}
        case Unreadable(placed, reason):
            return {
                "type": "unreadable",
                "position": placed.position,
                "base_offset": placed.batch.base_offset,
                "reason": reason,
            }
        case ControlRecord(offset, timestamp, kind, message):
            return {
                "type": "control",
                "offset": offset,
                "timestamp": timestamp,
                "control": kind.name,
                "value": None if message is None else message_json(message),
            }
    record = thing.record
    return {
        "type": "record",
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key": shown_json(thing.key, wishes.format),
        "value": shown_json(thing.value, wishes.format),
        "headers": [[header, bytes_json(content, wishes.format)] for header, content in record.headers],
        **({"problem": thing.problem} if thing.problem else {}),
    }


def _header_json(batch: Batch) -> dict[str, Any]:
    return {
        "base_offset": batch.base_offset,
        "last_offset": batch.last_offset,
        "records": batch.record_count,
        "size_bytes": batch.size_bytes,
        "compression": _codec(batch),
        "timestamp_type": "LogAppendTime" if batch.timestamp_type is TimestampType.LOG_APPEND_TIME else "CreateTime",
        "base_timestamp": None if batch.has_delete_horizon else batch.base_timestamp,
        "max_timestamp": batch.max_timestamp,
        "delete_horizon_ms": batch.delete_horizon_ms,
        "leader_epoch": batch.partition_leader_epoch,
        "producer_id": batch.producer_id,
        "producer_epoch": batch.producer_epoch,
        "base_sequence": batch.base_sequence,
        "last_sequence": batch.last_sequence,
        "is_transactional": batch.is_transactional,
        "is_control": batch.is_control,
        "crc": batch.crc,
    }


# --- as rows of a table -----------------------------------------------------------------------------------------------


def _batch_cells(thing: Thing) -> Sequence[str] | str:
    if not isinstance(thing, Placed):
        return _line(thing)
    position, batch = thing
    return (
        str(position),
        range_text(batch.base_offset, batch.last_offset),
        str(batch.record_count),
        str(batch.size_bytes),
        _codec(batch),
        time_text(batch.max_timestamp),
        _flags(batch) or "-",
        str(batch.partition_leader_epoch),
        f"{batch.producer_id}:{batch.producer_epoch}" if batch.has_producer else "-",
        range_text(batch.base_sequence, batch.last_sequence) if batch.base_sequence >= 0 else "-",
        "-" if batch.has_delete_horizon else time_text(batch.base_timestamp),
        f"{batch.crc:08x}",
    )


def _record_cells(thing: Thing, wishes: Wishes) -> Sequence[str] | str:
    match thing:
        case Told(record, key, value, problem):
            return (
                str(record.offset),
                time_text(record.timestamp),
                shown_text(key, wishes.format, wishes.bytes_max),
                shown_text(value, wishes.format, wishes.bytes_max) + (f"  (not decoded: {problem})" if problem else ""),
                headers_text(record, wishes.format, wishes.bytes_max),
            )
        case ControlRecord(offset, timestamp, kind, message):
            return (str(offset), time_text(timestamp), kind.name, control_text(message))
    return _line(thing)


def _line(thing: Thing) -> str:
    match thing:
        case Placed(position, batch):
            words = [
                plural(batch.record_count, "record"),
                plural(batch.size_bytes, "byte"),
                _codec(batch) if batch.is_compressed else "uncompressed",
                f"epoch {batch.partition_leader_epoch}",
            ]
            if batch.has_producer:
                words.append(f"producer {batch.producer_id}:{batch.producer_epoch}")
            if batch.base_sequence >= 0:
                words.append(f"sequence {range_text(batch.base_sequence, batch.last_sequence)}")
            flags = _flags(batch)
            return f"batch at byte {position}: {', '.join([*words, flags] if flags else words)}"
        case Zeros(position, end):
            return f"bytes {position} to {end} are zeros, reserved for what comes"
        case Unreadable(placed, reason):
            return f"the records of the batch at byte {placed.position} can't be read: {reason}"
        case Damage(position, end, reason, is_followed, is_lost_write):
            behind = (
                "; sound batches follow"
                if is_followed
                else "; an unclean stop leaves such a tail, or a node is writing there"
                if is_lost_write
                else ""
            )
            return f"bytes {position} to {end} are no sound batch: {reason}{behind}"
    raise AssertionError("records are rows")


def _flags(batch: Batch) -> str:
    flags = (
        ("txn", batch.is_transactional),
        ("control", batch.is_control),
        ("append-time", batch.timestamp_type is TimestampType.LOG_APPEND_TIME),
        ("delete-horizon", batch.has_delete_horizon),
    )
    return " ".join(word for word, is_set in flags if is_set)


def _codec(batch: Batch) -> str:
    code = batch.attributes & COMPRESSION_MASK
    return Compression(code).text if code <= max(Compression) else f"unknown {code}"
