"""A cleaning: one pass that learns the last offset of each key, one that writes the log anew without what came before.

A generator over the disk port. Each step is a bounded piece of work: a worker process exhausts it, a simulation steps
it. It writes files that end in `.cleaned` and renames nothing; the log swaps them in, group by group, while it goes on.

What stays, by Kafka's rules:

- The last record of each key. Behind `end_offset`, up to where the map of keys had room, everything.
- A tombstone, for delete.retention.ms after the cleaning that first had it as the last of its key. When that is over
  stands in the header of its batch (KIP-534). Behind `end_offset` the time has not begun: older ones are still there.
- The last batch of each producer that is known, for its sequence: its header, when all records are gone.
- The marker of a transaction, while a batch of it is left; then for delete.retention.ms like a tombstone.
- The last batch of each new segment, or its header: by it a segment says how far it reaches, and so, after a crash in
  the middle of a swap, which segments it replaces.

No record of an aborted transaction stays, and none without a key.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from itertools import chain
from typing import Final

from headrace.errors import HeadraceError, ProtocolError
from headrace.protocol.batch import CONTROL_BIT, Batch
from headrace.protocol.batch_builder import empty, rewrite
from headrace.protocol.kernel import Records
from headrace.protocol.records import records_of
from headrace.storage import names
from headrace.storage.cleanable import grouped
from headrace.storage.cleaned_segment import CleanedSegment
from headrace.storage.cleaning_job import (
    Cleaned,
    CleaningFailed,
    CleaningJob,
    Replacement,
    Source,
    Step,
    Trouble,
    Worked,
)
from headrace.storage.cleaning_transactions import CleaningTransactions
from headrace.storage.disk import Disk, FileVanished
from headrace.storage.index import IndexDamaged
from headrace.storage.offset_index import OffsetIndex
from headrace.storage.offset_map import ENTRY_BYTES, OffsetMap
from headrace.storage.scan import LogDamaged, SegmentScan
from headrace.storage.transaction_index import AbortedTransaction, TransactionIndex

STEP_BYTES_MIN: Final = 1024


def clean(job: CleaningJob, disk: Disk) -> Iterator[Step]:
    """Yields a Replacement for each new segment, Worked in between, and Cleaned at the end."""
    yield from Cleaning(job, disk).run()


class Cleaning:
    __slots__ = (
        "_bytes_read",
        "_bytes_written",
        "_disk",
        "_end_offset",
        "_job",
        "_map",
        "_mask",
        "_oversized_batches",
        "_path_at_hand",
        "_step_bytes",
        "_told_read",
        "_told_written",
    )

    def __init__(self, job: CleaningJob, disk: Disk) -> None:
        self._job = job
        self._disk = disk
        self._map = _map_for(job)
        self._end_offset = job.end_offset
        """Before it, the map knows every key."""
        self._mask = bytearray()
        self._path_at_hand = ""
        self._step_bytes = max(STEP_BYTES_MIN, job.io_buffer_bytes // 2)
        self._bytes_read = self._bytes_written = self._told_read = self._told_written = 0
        self._oversized_batches = 0

    def run(self) -> Iterator[Step]:
        job = self._job
        yield from self._learn_keys()
        learning_bytes = self._bytes_read
        sources = [source for source in job.sources if source.base_offset < self._end_offset]
        transactions = CleaningTransactions(self._aborted(job.sources))
        for group in grouped(
            sources,
            end_offset=job.end_offset,
            segment_bytes=job.segment_bytes,
            segment_index_bytes=job.segment_index_bytes,
            index_bytes=self._index_bytes,
        ):
            yield from self._clean_group(group, transactions)
        yield Cleaned(
            self._end_offset,
            keys=len(self._map),
            bytes_read=self._bytes_read - learning_bytes,
            bytes_written=self._bytes_written,
            oversized_batches=self._oversized_batches,
        )

    # --------------------------------------------------------------------------------------------------- the first pass

    def _learn_keys(self) -> Iterator[Worked]:
        """Fills the map with the keys of the dirty records, from the oldest on, until it is full or all are in."""
        job = self._job
        start = job.first_dirty_offset
        dirty = [
            source
            for source, end in zip(job.sources, _ends(job.sources, job.end_offset), strict=True)
            if end > start and source.size_bytes
        ]
        transactions = CleaningTransactions(self._aborted(job.sources))
        for source in dirty:
            position = self._position_of(source, start) if start > source.base_offset else 0
            for batch in self._batches(source, position):
                if batch.attributes & CONTROL_BIT:
                    transactions.is_marker_needed(batch)
                elif (
                    not transactions.is_aborted(batch)
                    and batch.record_count
                    and batch.base_offset + batch.last_offset_delta >= start
                ):
                    records, outline = self._open(batch)
                    taken = self._map.add(records.section(), outline, start)
                    if taken < batch.record_count:
                        self._end_offset = outline[4 * taken]
                        return
                if self._bytes_read - self._told_read >= self._step_bytes:
                    yield self._worked()

    def _position_of(self, source: Source, offset: int) -> int:
        try:
            index = OffsetIndex.load(self._disk, self._path(source, names.INDEX), source.base_offset)
        except IndexDamaged:
            return 0
        position = index.lookup(offset)[1]
        return position if position < source.size_bytes else 0

    # -------------------------------------------------------------------------------------------------- the second pass

    def _clean_group(self, group: list[Source], transactions: CleaningTransactions) -> Iterator[Step]:
        job = self._job
        cleaned = CleanedSegment(
            self._disk,
            job.folder,
            group[0].base_offset,
            index_interval_bytes=job.index_interval_bytes,
            buffer_bytes=self._step_bytes,
        )
        last = max((source.base_offset for source in group if source.size_bytes), default=-1)
        is_changed = len(group) > 1
        for source in group:
            ends_at = self._bytes_read + source.size_bytes if source.base_offset == last else -1
            for batch in self._batches(source, 0):
                kept = self._kept(batch, transactions, is_last=self._bytes_read == ends_at)
                if kept is not batch:
                    is_changed = True
                if kept is not None:
                    cleaned.append(kept)
                    self._bytes_written += kept.size_bytes
                    if transactions.marked is not None:
                        cleaned.add_aborted(transactions.marked)
                if self._bytes_read - self._told_read >= self._step_bytes:
                    yield self._worked()
        if not is_changed:
            cleaned.discard()
            return
        cleaned.finish(group[-1].modified_ms)
        yield self._worked()
        yield Replacement(
            group[0].base_offset,
            [source.base_offset for source in group],
            cleaned.size_bytes,
            group[-1].modified_ms,
            cleaned.has_transaction_index,
        )

    def _kept(self, batch: Batch, transactions: CleaningTransactions, is_last: bool) -> Batch | None:
        """What stays of a batch: itself, when that is all of it; None when it goes."""
        if batch.attributes & CONTROL_BIT:
            return self._kept_marker(batch, transactions, is_last)
        transactions.marked = None
        if not transactions.is_aborted(batch) and batch.record_count:
            if batch.base_offset >= self._end_offset:
                return batch
            rewritten = self._without_old_records(batch)
            if rewritten is not None:
                return rewritten
        if is_last or (batch.producer_id >= 0 and self._job.last_offsets.get(batch.producer_id) == batch.last_offset):
            return _emptied(batch)
        return None

    def _without_old_records(self, batch: Batch) -> Batch | None:
        job = self._job
        records, outline = self._open(batch)
        count = batch.record_count
        if len(self._mask) != count:
            self._mask = bytearray(count)
        horizon_ms = batch.delete_horizon_ms
        kept, tombstones = self._map.keep(
            records.section(), outline, self._end_offset, horizon_ms is None or job.now_ms < horizon_ms, self._mask
        )
        if not kept:
            return None
        begins_horizon = tombstones and horizon_ms is None and batch.last_offset < self._end_offset
        if kept == count and not begins_horizon:
            return batch
        return self._rewritten(
            batch,
            rewrite(
                batch,
                records,
                self._mask,
                delete_horizon_ms=job.now_ms + job.delete_retention_ms if begins_horizon else None,
            ),
        )

    def _kept_marker(self, batch: Batch, transactions: CleaningTransactions, is_last: bool) -> Batch | None:
        job = self._job
        if transactions.is_marker_needed(batch):
            return batch
        if not batch.record_count:
            return batch if is_last else None
        horizon_ms = batch.delete_horizon_ms
        if horizon_ms is None:
            return self._rewritten(
                batch,
                rewrite(
                    batch,
                    self._open(batch)[0],
                    b"\1" * batch.record_count,
                    delete_horizon_ms=job.now_ms + job.delete_retention_ms,
                ),
            )
        # The epoch of a producer that has written nothing since is in its marker's record, not only in the header.
        if job.now_ms < horizon_ms or job.last_epochs.get(batch.producer_id) == batch.producer_epoch:
            return batch
        return _emptied(batch) if is_last else None

    def _rewritten(self, batch: Batch, content: bytearray) -> Batch:
        # A batch can grow: a delete horizon makes timestamps longer, and fewer records compress worse.
        if len(content) > max(batch.size_bytes, self._job.max_message_bytes):
            self._oversized_batches += 1
        return Batch(memoryview(content))

    def _open(self, batch: Batch) -> tuple[Records, array[int]]:
        try:
            records = records_of(batch, self._job.decompressed_bytes_max)
            return records, records.outline()
        except ProtocolError as error:
            # Its CRC is right, so this is what the leader took: before the topic was compacted, or from a Kafka folder.
            raise CleaningFailed(
                Trouble.DAMAGED,
                f"{self._path_at_hand} has a batch at offset {batch.base_offset} that can't be compacted: {error} "
                "Move the log's start behind it by deleting records, or drop the topic's compact policy.",
            ) from error

    # -------------------------------------------------------------------------------------------------------- the files

    def _batches(self, source: Source, position: int) -> Iterator[Batch]:
        """The batches of a segment, each verified; `_bytes_read` counts up to the end of the current one."""
        self._path_at_hand = self._disk.full_path(self._path(source))
        file = self._disk.open(self._path(source), read_only=True)
        try:
            scan = SegmentScan(file, source.size_bytes, source.base_offset, position)
            for batch in scan.batches(chunk_bytes=self._step_bytes):
                self._bytes_read += batch.size_bytes
                yield batch
            if scan.problem is not None:
                raise LogDamaged(self._path_at_hand, scan.position, source.size_bytes, scan.problem)
        finally:
            file.close()

    def _aborted(self, sources: list[Source]) -> Iterator[AbortedTransaction]:
        """In the order of their markers."""
        indexes = (
            TransactionIndex.load(self._disk, self._path(source, names.TXN_INDEX), source.base_offset)
            for source in sources
            if source.has_transaction_index
        )
        return chain(chain.from_iterable(indexes), self._job.aborted_after)

    def _index_bytes(self, source: Source) -> tuple[int, int]:
        """The sizes of the offset and the time index; nothing for one that is missing, and will be made anew."""
        sizes = []
        for suffix in (names.INDEX, names.TIME_INDEX):
            try:
                sizes.append(self._disk.stat(self._path(source, suffix)).size)
            except FileVanished:
                sizes.append(0)
        return sizes[0], sizes[1]

    def _path(self, source: Source, suffix: str = names.LOG) -> str:
        return f"{self._job.folder}/{names.segment_name(source.base_offset)}{suffix}"

    def _worked(self) -> Worked:
        worked = Worked(self._bytes_read - self._told_read, self._bytes_written - self._told_written)
        self._told_read, self._told_written = self._bytes_read, self._bytes_written
        return worked


def _map_for(job: CleaningJob) -> OffsetMap:
    """As large as the memory allows, and no larger than the dirty offsets need."""
    keys_max = max(1, job.end_offset - job.first_dirty_offset)
    needed_bytes = int(keys_max / job.load_factor * 17 / 16 + 1024) * ENTRY_BYTES
    if job.dedupe_buffer_bytes < ENTRY_BYTES:
        raise HeadraceError(
            f"{job.dedupe_buffer_bytes} bytes hold no key; raise log.cleaner.dedupe.buffer.size, or lower "
            "log.cleaner.threads."
        )
    size_bytes = min(job.dedupe_buffer_bytes, needed_bytes)
    try:
        return OffsetMap(size_bytes, job.load_factor, job.secret)
    except MemoryError:
        raise CleaningFailed(
            Trouble.TRANSIENT,
            f"There are no {size_bytes} bytes of memory for the keys; lower log.cleaner.dedupe.buffer.size.",
        ) from None


def _ends(sources: list[Source], end_offset: int) -> list[int]:
    return [source.base_offset for source in sources[1:]] + ([end_offset] if sources else [])


def _emptied(batch: Batch) -> Batch:
    return Batch(memoryview(empty(batch))) if batch.record_count else batch
