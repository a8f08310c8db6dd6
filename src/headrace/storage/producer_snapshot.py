"""The `.snapshot` file: a partition's producers at an offset, so that a start replays only what came after it.

Kafka's version 1, big-endian: version (int16), CRC32C of all that follows it (uint32), and an array of producers with
one batch each, the last. Losing the four before it would make a retry out of order that was a duplicate before the
restart (hazard 7), so they follow Kafka's part: a magic number, then for each producer in the same order a count and
its batches as they are in memory. Kafka checks the CRC over all of it, reads its part and leaves the rest.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct
from typing import Final

from headrace.errors import HeadraceError
from headrace.protocol.batch import NO_SEQUENCE
from headrace.protocol.batch_crc import crc32c
from headrace.storage.producer_state import RECENT_BATCHES, Producer, ProducerState

VERSION: Final = 1

_HEAD: Final = Struct(">hIi")
_CRC_FROM: Final = 6
_PRODUCER: Final = Struct(">qhiqiqiq")
_RECENT: Final = Struct(">iiqq")
_RECENT_MAGIC: Final = b"hdrc"
_SEQUENCE_MASK: Final = 0x7FFFFFFF


class SnapshotDamaged(HeadraceError):
    """A snapshot that can't be used. Nothing is lost: an earlier one is taken, and the log is replayed from there."""

    def __init__(self, path: str, reason: str) -> None:
        self.path = path
        self.reason = reason
        super().__init__(f"{path} is damaged: {reason}; the producers are read from the log instead")


def encode_snapshot(state: ProducerState) -> bytes:
    entries = bytearray()
    recent = bytearray(_RECENT_MAGIC)
    for producer_id, producer in state:
        batches = producer.batches
        last_sequence, delta, last_offset = NO_SEQUENCE, 0, -1
        if batches:
            last_sequence, delta, last_offset, _ = _RECENT.unpack_from(batches, len(batches) - _RECENT.size)
        entries += _PRODUCER.pack(
            producer_id,
            producer.epoch,
            last_sequence,
            last_offset,
            delta,
            producer.last_timestamp_ms,
            producer.coordinator_epoch,
            producer.transaction_offset,
        )
        recent.append(len(batches) // _RECENT.size)
        recent += batches
    content = bytearray(_HEAD.pack(VERSION, 0, len(state))) + entries + (recent if len(state) else b"")
    content[2:6] = crc32c(memoryview(content)[_CRC_FROM:]).to_bytes(4)
    return bytes(content)


def decode_snapshot(content: bytes, path: str, end_offset: int) -> ProducerState:
    """The producers of a snapshot of ours or of Kafka's; SnapshotDamaged for anything else."""
    if len(content) < _HEAD.size:
        raise SnapshotDamaged(path, f"it has only {len(content)} bytes")
    version, crc, count = _HEAD.unpack_from(content)
    if version != VERSION:
        raise SnapshotDamaged(path, f"its version is {version}, and only {VERSION} is known")
    if crc != crc32c(memoryview(content)[_CRC_FROM:]):
        raise SnapshotDamaged(path, "its CRC32C does not fit its content")
    end = _HEAD.size + count * _PRODUCER.size
    if count < 0 or end > len(content):
        raise SnapshotDamaged(path, f"it says that it has {count} producers")
    producers = {
        producer_id: _producer(*fields) for producer_id, *fields in _PRODUCER.iter_unpack(content[_HEAD.size : end])
    }
    if content.startswith(_RECENT_MAGIC, end):
        try:
            _add_recent(producers.values(), content, end + len(_RECENT_MAGIC))
        except (IndexError, ValueError):
            raise SnapshotDamaged(path, "its last batches are cut") from None
    state = ProducerState(end_offset)
    state.restore(producers)
    return state


def _producer(
    epoch: int,
    last_sequence: int,
    last_offset: int,
    delta: int,
    timestamp_ms: int,
    coordinator_epoch: int,
    transaction_offset: int,
) -> Producer:
    producer = Producer()
    producer.epoch = epoch
    producer.coordinator_epoch = coordinator_epoch
    producer.last_timestamp_ms = timestamp_ms
    producer.transaction_offset = transaction_offset
    if last_offset >= 0:
        producer.batches = _RECENT.pack(last_sequence, delta, last_offset, timestamp_ms)
        producer.next_sequence = (last_sequence + 1) & _SEQUENCE_MASK
    return producer


def _add_recent(producers: Iterable[Producer], content: bytes, position: int) -> None:
    for producer in producers:
        size = content[position] * _RECENT.size
        batches = content[position + 1 : position + 1 + size]
        if len(batches) != size or size > RECENT_BATCHES * _RECENT.size:
            raise ValueError
        producer.batches = batches
        position += 1 + size
