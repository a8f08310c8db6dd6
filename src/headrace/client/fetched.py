"""Fetched batches, opened one at a time: control batches and aborted transactions are left out. No I/O."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from headrace.protocol.batch import Batch, TimestampType, scan
from headrace.protocol.control import ControlType, read_control
from headrace.protocol.kernel_types import Headers
from headrace.protocol.messages import FetchResponse
from headrace.protocol.records import records_of

__all__ = ["ConsumedRecord", "Fetched"]

DECOMPRESSED_BYTES_MAX: Final = 1 << 30


class ConsumedRecord(NamedTuple):
    """A record as it lies in its partition."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    leader_epoch: int
    timestamp_type: TimestampType


class Fetched:
    """The records of one partition in one response, decoded batch by batch when they are wanted."""

    __slots__ = ("_aborted", "_aborting", "_batches", "_is_committed_only", "end_offset", "last_epoch", "size_bytes")

    def __init__(
        self, data: bytes | bytearray | memoryview, answer: FetchResponse.PartitionData, is_committed_only: bool
    ) -> None:
        self.size_bytes = len(data)
        batches = list(scan(data, partial=True))
        self.end_offset = batches[-1].next_offset if batches else -1
        self.last_epoch = batches[-1].partition_leader_epoch if batches else -1
        self._batches: Iterator[Batch] = iter(batches)
        self._is_committed_only = is_committed_only
        self._aborted = sorted(
            answer.aborted_transactions or (), key=lambda aborted: aborted.first_offset, reverse=True
        )
        self._aborting: dict[int, None] = {}

    def next_batch(self, topic: str, partition: int, from_offset: int) -> tuple[list[ConsumedRecord], int] | None:
        """The records of the next batch from an offset on, and the offset after the batch; None after the last."""
        batch = next(self._batches, None)
        if batch is None:
            return None
        batch.verify()
        if self._is_left_out(batch):
            return [], batch.next_offset
        records = records_of(batch, DECOMPRESSED_BYTES_MAX).decode()
        if batch.base_offset < from_offset:
            records = [record for record in records if record.offset >= from_offset]
        # The middle of a consumed record is the kernel's record as it is: to join tuples costs half of naming fields.
        head, tail, new = (topic, partition), (batch.partition_leader_epoch, batch.timestamp_type), tuple.__new__
        return [new(ConsumedRecord, head + record + tail) for record in records], batch.next_offset

    def _is_left_out(self, batch: Batch) -> bool:
        while self._is_committed_only and self._aborted and self._aborted[-1].first_offset <= batch.last_offset:
            self._aborting[self._aborted.pop().producer_id] = None
        if batch.is_control:
            if self._is_committed_only and any(record.type is ControlType.ABORT for record in read_control(batch)):
                self._aborting.pop(batch.producer_id, None)
            return True
        return batch.is_transactional and batch.producer_id in self._aborting
