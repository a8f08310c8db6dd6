"""All the other files of a log as sheets: indexes, producers, epochs, offsets, identities."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Final

from headrace.cli.columns import Column
from headrace.cli.quantities import time_text
from headrace.cli.sheet import Sheet, Wishes, range_text
from headrace.cli.sheet_batches import batches_sheet
from headrace.errors import HeadraceError
from headrace.storage.checkpoint import read_numbers, read_offsets
from headrace.storage.disk import Disk
from headrace.storage.identity import MetaProperties, id_text, read_topic_id
from headrace.storage.inspect import INDEX_KINDS, IndexEntries
from headrace.storage.inventory import FileKind, NamedFile, file_named
from headrace.storage.local_disk import LocalDisk
from headrace.storage.producer_snapshot import decode_snapshot
from headrace.storage.producer_state import NO_TRANSACTION

Row = dict[str, Any]


def open_sheet(path: Path, wishes: Wishes) -> Sheet[Any]:
    """What is in a file, by its name. Raises HeadraceError for one that no log has."""
    if not path.exists():
        raise HeadraceError(f"{path} does not exist.")
    if path.is_dir():
        raise HeadraceError(f"{path} is a folder: name files in it, or sum it up with headrace log stat {path}")
    named = file_named(path.name)
    if named is None:
        raise HeadraceError(
            f"{path} is no file of a log by its name: they end in .log, .index, .timeindex, .txnindex, .snapshot or "
            ".checkpoint, or are called leader-epoch-checkpoint, partition.metadata, meta.properties and the like."
        )
    disk = LocalDisk(str(path.absolute().parent))
    return _SHEETS[named.kind](disk, path.name, named, wishes)


def _sheet(columns: Sequence[Column], rows: Iterator[Row], cells: Callable[[Row], Sequence[str] | str]) -> Sheet[Row]:
    return Sheet(columns, rows, lambda row: row, cells)


# --- indexes ----------------------------------------------------------------------------------------------------------


def _offset_index(disk: Disk, name: str, named: NamedFile, wishes: Wishes) -> Sheet[Row]:
    columns = (Column(">byte", "dim"), Column(">offset", "cyan"), Column(">position in the log"))
    return _index(disk, name, named, wishes, columns, ("offset", "log_position"))


def _time_index(disk: Disk, name: str, named: NamedFile, wishes: Wishes) -> Sheet[Row]:
    columns = (Column(">byte", "dim"), Column("largest time (UTC)", "cyan"), Column(">up to offset"))
    return _index(disk, name, named, wishes, columns, ("timestamp", "offset"))


def _transaction_index(disk: Disk, name: str, named: NamedFile, wishes: Wishes) -> Sheet[Row]:
    columns = (
        Column(">byte", "dim"),
        Column(">producer", "cyan"),
        Column(">first offset"),
        Column(">aborted at"),
        Column(">last stable offset"),
    )
    return _index(
        disk, name, named, wishes, columns, ("producer_id", "first_offset", "last_offset", "last_stable_offset")
    )


def _index(
    disk: Disk, name: str, named: NamedFile, wishes: Wishes, columns: Sequence[Column], fields: tuple[str, ...]
) -> Sheet[Row]:
    def rows() -> Iterator[Row]:
        file = disk.open(name, read_only=True)
        try:
            if named.base_offset is None:
                yield {"type": "note", "text": "the file's name has no base offset: offsets are relative to it"}
            entries = IndexEntries(file, INDEX_KINDS[named.kind], named.base_offset or 0)
            for position, entry in entries:
                row = dict(zip(fields, entry, strict=True))
                if row.get("offset", row.get("last_offset", 0)) >= wishes.start_offset:
                    yield {"type": "entry", "position": position, **row}
            if entries.rest:
                yield {"type": "note", "text": entries.rest}
        finally:
            file.close()

    def cells(row: Row) -> Sequence[str] | str:
        if row["type"] == "note":
            return str(row["text"])
        return (
            str(row["position"]),
            *(time_text(row[field]) if field == "timestamp" else str(row[field]) for field in fields),
        )

    return _sheet(columns, islice(rows(), wishes.count), cells)


# --- small files ------------------------------------------------------------------------------------------------------


def _producers(disk: Disk, name: str, named: NamedFile, wishes: Wishes) -> Sheet[Row]:
    state = decode_snapshot(disk.read(name), disk.full_path(name), named.base_offset or 0)
    rows: Iterator[Row] = (
        {
            "type": "producer",
            "producer_id": producer_id,
            "producer_epoch": producer.epoch,
            "last_timestamp": producer.last_timestamp_ms,
            "transaction_offset": producer.transaction_offset
            if producer.transaction_offset != NO_TRANSACTION
            else None,
            "coordinator_epoch": producer.coordinator_epoch,
            "batches": [batch._asdict() for batch in producer.recent()],
        }
        for producer_id, producer in state
    )
    columns = (
        Column(">producer", "cyan"),
        Column("last offsets"),
        Column("last sequences"),
        Column(">open since"),
        Column("time (UTC)", "dim", rank=1),
        Column(">batches", rank=2),
        Column(">coordinator epoch", rank=3),
    )

    def cells(row: Row) -> Sequence[str]:
        last = row["batches"][-1] if row["batches"] else None
        return (
            f"{row['producer_id']}:{row['producer_epoch']}",
            "-" if last is None else range_text(last["first_offset"], last["last_offset"]),
            "-" if last is None else range_text(last["first_sequence"], last["last_sequence"]),
            "-" if row["transaction_offset"] is None else str(row["transaction_offset"]),
            time_text(row["last_timestamp"]),
            str(len(row["batches"])),
            str(row["coordinator_epoch"]),
        )

    return _sheet(columns, islice(rows, wishes.count), cells)


def _epochs(disk: Disk, name: str, named: NamedFile, wishes: Wishes) -> Sheet[Row]:
    rows: Iterator[Row] = (
        {"type": "epoch", "epoch": epoch, "start_offset": start} for epoch, start in read_numbers(disk, name)
    )
    return _sheet(
        (Column(">epoch", "cyan"), Column(">start offset")),
        islice(rows, wishes.count),
        lambda row: (str(row["epoch"]), str(row["start_offset"])),
    )


def _offsets(disk: Disk, name: str, named: NamedFile, wishes: Wishes) -> Sheet[Row]:
    rows: Iterator[Row] = (
        {"type": "offset", "topic": topic, "partition": partition, "offset": offset}
        for (topic, partition), offset in sorted(read_offsets(disk, name).items())
    )
    return _sheet(
        (Column("topic", "cyan"), Column(">partition"), Column(">offset")),
        islice(rows, wishes.count),
        lambda row: (row["topic"], str(row["partition"]), str(row["offset"])),
    )


def _partition_metadata(disk: Disk, name: str, named: NamedFile, wishes: Wishes) -> Sheet[Row]:
    topic_id = read_topic_id(disk, ".")
    return _properties({"topic_id": None if topic_id is None else id_text(topic_id)})


def _meta_properties(disk: Disk, name: str, named: NamedFile, wishes: Wishes) -> Sheet[Row]:
    meta = MetaProperties.read(disk)
    assert meta is not None, "the file is there"
    directory_id = None if meta.directory_id is None else id_text(meta.directory_id)
    return _properties({"cluster.id": meta.cluster_id, "node.id": meta.node_id, "directory.id": directory_id})


def _json_file(disk: Disk, name: str, named: NamedFile, wishes: Wishes) -> Sheet[Row]:
    content = disk.read(name)
    try:
        said = json.loads(content) if content else {}
        if not isinstance(said, dict):
            raise ValueError
    except ValueError:
        raise HeadraceError(f"{disk.full_path(name)} is damaged: it is no JSON object.") from None
    return _properties(said)


def _properties(said: dict[str, Any]) -> Sheet[Row]:
    rows: Iterator[Row] = ({"type": "property", "name": key, "value": value} for key, value in said.items())
    return _sheet(
        (Column("name", "cyan"), Column("value")),
        rows,
        lambda row: (row["name"], row["value"] if isinstance(row["value"], str) else json.dumps(row["value"])),
    )


_SHEETS: Final[dict[FileKind, Callable[[Disk, str, NamedFile, Wishes], Sheet[Any]]]] = {
    FileKind.BATCHES: batches_sheet,
    FileKind.METADATA_SNAPSHOT: batches_sheet,
    FileKind.OFFSET_INDEX: _offset_index,
    FileKind.TIME_INDEX: _time_index,
    FileKind.TRANSACTION_INDEX: _transaction_index,
    FileKind.PRODUCER_SNAPSHOT: _producers,
    FileKind.EPOCHS: _epochs,
    FileKind.OFFSETS: _offsets,
    FileKind.PARTITION_METADATA: _partition_metadata,
    FileKind.META_PROPERTIES: _meta_properties,
    FileKind.CLEAN_SHUTDOWN: _json_file,
    FileKind.QUORUM_STATE: _json_file,
}
