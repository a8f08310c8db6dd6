"""What a partition is made of: sizes, times, codecs, producers. One walk over its batches, no state for a record."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from headrace.errors import ProtocolError
from headrace.protocol.batch import (
    COMPRESSION_MASK,
    CONTROL_BIT,
    HEADER_SIZE_BYTES,
    NO_TIMESTAMP,
    TIMESTAMP_TYPE_BIT,
    TRANSACTIONAL_BIT,
    Batch,
)
from headrace.protocol.compression import Compression, decompress
from headrace.storage import checkpoint
from headrace.storage.checkpoint import CheckpointDamaged, TopicPartition, read_offsets
from headrace.storage.disk import Disk, FileVanished
from headrace.storage.inventory import Inventory, PartitionFiles, SegmentFiles
from headrace.storage.scan import Damage
from headrace.storage.walk import DECOMPRESSED_BYTES_MAX, Walk


class CodecUse:
    """The batches of one codec."""

    __slots__ = ("batches", "decompressed_bytes", "records", "stored_bytes")

    def __init__(self) -> None:
        self.batches = 0
        self.records = 0
        self.stored_bytes = 0
        """Of the records as they lie, without the headers of their batches."""
        self.decompressed_bytes: int | None = None
        """Known where it was asked for."""

    def add(self, other: CodecUse) -> None:
        self.batches += other.batches
        self.records += other.records
        self.stored_bytes += other.stored_bytes
        if other.decompressed_bytes is not None:
            self.decompressed_bytes = (self.decompressed_bytes or 0) + other.decompressed_bytes

    @property
    def ratio(self) -> float | None:
        """How many bytes a stored byte stands for."""
        return self.decompressed_bytes / self.stored_bytes if self.decompressed_bytes and self.stored_bytes else None


class Statistics:
    """Of one partition, or of many in all."""

    __slots__ = (
        "batches",
        "codecs",
        "control_batches",
        "end_offset",
        "first_timestamp",
        "index_bytes",
        "last_timestamp",
        "name",
        "producers",
        "records",
        "segments",
        "size_bytes",
        "start_offset",
        "transactional_records",
        "unreadable_bytes",
    )

    def __init__(self, name: str) -> None:
        self.name = name
        self.segments = 0
        self.size_bytes = 0
        self.index_bytes = 0
        self.start_offset: int | None = None
        self.end_offset: int | None = None
        self.first_timestamp = NO_TIMESTAMP
        self.last_timestamp = NO_TIMESTAMP
        self.batches = 0
        self.records = 0
        self.control_batches = 0
        self.transactional_records = 0
        self.producers: set[int] = set()
        self.codecs: dict[Compression, CodecUse] = {}
        self.unreadable_bytes = 0
        """No sound batches: a torn tail, or damage that `verify` tells about."""

    @property
    def ratio(self) -> float | None:
        """Of all codecs together; None where nothing is compressed, or nobody asked."""
        compressed = CodecUse()
        for codec, use in self.codecs.items():
            if codec is not Compression.NONE:
                compressed.add(use)
        return compressed.ratio

    def add(self, other: Statistics) -> None:
        """Offsets of several partitions have no sum."""
        self.segments += other.segments
        self.size_bytes += other.size_bytes
        self.index_bytes += other.index_bytes
        self._saw(other.first_timestamp, other.last_timestamp)
        self.batches += other.batches
        self.records += other.records
        self.control_batches += other.control_batches
        self.transactional_records += other.transactional_records
        self.producers |= other.producers
        self.unreadable_bytes += other.unreadable_bytes
        for codec, use in other.codecs.items():
            self.codecs.setdefault(codec, CodecUse()).add(use)

    def see(self, batch: Batch, deep: bool) -> None:
        attributes = batch.attributes
        count = batch.record_count
        self.batches += 1
        self.records += count
        if attributes & CONTROL_BIT:
            self.control_batches += 1
        elif attributes & TRANSACTIONAL_BIT:
            self.transactional_records += count
        if batch.producer_id >= 0:
            self.producers.add(batch.producer_id)
        # The first record's timestamp is in the header, unless another time took its place.
        is_other = attributes & TIMESTAMP_TYPE_BIT or batch.has_delete_horizon
        self._saw(batch.max_timestamp if is_other else batch.base_timestamp, batch.max_timestamp)
        self._use(batch, attributes & COMPRESSION_MASK, deep)

    def _saw(self, first_timestamp: int, last_timestamp: int) -> None:
        if last_timestamp > self.last_timestamp:
            self.last_timestamp = last_timestamp
        if first_timestamp >= 0 and (first_timestamp < self.first_timestamp or self.first_timestamp < 0):
            self.first_timestamp = first_timestamp

    def _use(self, batch: Batch, code: int, deep: bool) -> None:
        try:
            codec = Compression(code)
        except ValueError:
            self.unreadable_bytes += batch.size_bytes
            return
        use = self.codecs.get(codec)
        if use is None:
            use = self.codecs[codec] = CodecUse()
        use.batches += 1
        use.records += batch.record_count
        stored_bytes = batch.size_bytes - HEADER_SIZE_BYTES
        use.stored_bytes += stored_bytes
        if deep and stored_bytes:
            try:
                size_bytes = len(decompress(codec, batch.payload, DECOMPRESSED_BYTES_MAX)) if code else stored_bytes
            except ProtocolError:
                self.unreadable_bytes += batch.size_bytes
                return
            use.decompressed_bytes = (use.decompressed_bytes or 0) + size_bytes


def statistics(
    inventory: Inventory, *, deep: bool = False, advanced: Callable[[int], None] | None = None
) -> Iterator[Statistics]:
    """Those of each partition; `deep` decompresses, so that ratios are known. `advanced` hears of the bytes read."""
    try:
        starts = read_offsets(inventory.disk, checkpoint.LOG_STARTS)
    except CheckpointDamaged:
        starts = {}
    for partition in inventory.partitions:
        yield _partition(inventory.disk, partition, starts, deep, advanced)


def _partition(
    disk: Disk,
    partition: PartitionFiles,
    starts: dict[TopicPartition, int],
    deep: bool,
    advanced: Callable[[int], None] | None,
) -> Statistics:
    found = Statistics(partition.folder)
    for segment in partition.segments:
        found.segments += 1
        found.index_bytes += segment.index_bytes
        if found.start_offset is None:
            start = starts.get((partition.name.topic, partition.name.partition), 0)
            found.start_offset = max(segment.base_offset, start)
        try:
            _segment(disk, partition, segment, found, deep, advanced)
        except FileVanished:
            continue  # a node deletes what is past retention
    return found


def _segment(
    disk: Disk,
    partition: PartitionFiles,
    segment: SegmentFiles,
    found: Statistics,
    deep: bool,
    advanced: Callable[[int], None] | None,
) -> None:
    file = disk.open(partition.path(segment.name()), read_only=True)
    try:
        size_bytes = file.size()
        found.size_bytes += size_bytes
        found.end_offset = max(found.end_offset or 0, segment.base_offset)
        walk = Walk(file, size_bytes, segment.base_offset)
        for batch in walk(advanced):
            if isinstance(batch, Damage):
                found.unreadable_bytes += batch.end - batch.position
            else:
                found.see(batch, deep)
                found.end_offset = max(found.end_offset, batch.last_offset + 1)
    finally:
        file.close()
