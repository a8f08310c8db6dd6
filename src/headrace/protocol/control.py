"""Control batches: what brokers write into a log for brokers, and clients skip.

The end of a transaction, and in the metadata log the quorum's own records: a new leader, the edges of a snapshot, the
version of the quorum protocol and its voters. A control record's key is a version and a type; its value is a message.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from struct import Struct
from typing import TYPE_CHECKING, Final

from headrace.errors import ProtocolError
from headrace.named_tuple import NamedTuple
from headrace.protocol import messages
from headrace.protocol.batch import NO_EPOCH, NO_SEQUENCE, Batch
from headrace.protocol.batch_builder import build
from headrace.protocol.codec import decode, encode_bytes
from headrace.protocol.records import records_of

if TYPE_CHECKING:
    from headrace.protocol.messages import (
        EndTxnMarker,
        KRaftVersionRecord,
        LeaderChangeMessage,
        SnapshotFooterRecord,
        SnapshotHeaderRecord,
        VotersRecord,
    )

    QuorumMessage = (
        LeaderChangeMessage | SnapshotHeaderRecord | SnapshotFooterRecord | KRaftVersionRecord | VotersRecord
    )

__all__ = ["ControlRecord", "ControlType", "build_marker", "build_quorum_batch", "read_control"]


class ControlType(IntEnum):
    """What a control record is about: the second half of its key."""

    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6
    UNKNOWN = -1  # of a later Kafka: to be skipped


class ControlRecord(NamedTuple):
    """A control record that was read. `message` is None when its type is unknown."""

    offset: int
    timestamp: int
    type: ControlType
    message: EndTxnMarker | QuorumMessage | None


_KEY: Final = Struct(">hh")
_MARKER: Final = Struct(">hi")
_VERSION: Final = Struct(">h")
_KEY_VERSION: Final = 0
_SIZE_BYTES_MAX: Final = 16 * 1024 * 1024  # of a batch's control records, decompressed

# By name: a message's class is made when it is first asked for, and most processes never read one of these.
_QUORUM_TYPES: Final = {
    "LeaderChangeMessage": ControlType.LEADER_CHANGE,
    "SnapshotHeaderRecord": ControlType.SNAPSHOT_HEADER,
    "SnapshotFooterRecord": ControlType.SNAPSHOT_FOOTER,
    "KRaftVersionRecord": ControlType.KRAFT_VERSION,
    "VotersRecord": ControlType.KRAFT_VOTERS,
}
_QUORUM_MESSAGES: Final = {kind: name for name, kind in _QUORUM_TYPES.items()}


def build_marker(
    *,
    committed: bool,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int,
    timestamp_ms: int,
    base_offset: int = 0,
    partition_leader_epoch: int = NO_EPOCH,
) -> bytearray:
    """The batch that ends a transaction in a partition."""
    key = _KEY.pack(_KEY_VERSION, ControlType.COMMIT if committed else ControlType.ABORT)
    return build(
        [(key, _MARKER.pack(0, coordinator_epoch), (), timestamp_ms)],
        base_offset=base_offset,
        partition_leader_epoch=partition_leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=NO_SEQUENCE,
        transactional=True,
        control=True,
    )


def build_quorum_batch(
    quorum_messages: Sequence[QuorumMessage],
    *,
    timestamp_ms: int,
    base_offset: int = 0,
    partition_leader_epoch: int = NO_EPOCH,
) -> bytearray:
    """A batch of the quorum's own records, each encoded in the version that it says."""
    return build(
        [
            (
                _KEY.pack(_KEY_VERSION, _QUORUM_TYPES[type(message).__name__]),
                encode_bytes(message, message.version),
                (),
                timestamp_ms,
            )
            for message in quorum_messages
        ],
        base_offset=base_offset,
        partition_leader_epoch=partition_leader_epoch,
        control=True,
    )


def read_control(batch: Batch) -> list[ControlRecord]:
    """The records of a control batch."""
    if not batch.is_control:
        raise ValueError("not a control batch")
    return [
        ControlRecord(record.offset, record.timestamp, *_read(record.key, record.value))
        for record in records_of(batch, _SIZE_BYTES_MAX).decode()
    ]


def _read(key: bytes | None, value: bytes | None) -> tuple[ControlType, EndTxnMarker | QuorumMessage | None]:
    if key is None or len(key) < _KEY.size:
        raise ProtocolError("A control record's key is cut: it needs a version and a type.")
    version, code = _KEY.unpack_from(key)
    if version < 0:
        raise ProtocolError(f"A control record's key has version {version}, which can't be.")
    try:
        kind = ControlType(code)
    except ValueError:
        kind = ControlType.UNKNOWN
    if kind is ControlType.UNKNOWN:
        return kind, None
    if value is None:
        raise ProtocolError(f"A control record of type {kind.name} has no value.")
    if kind in (ControlType.ABORT, ControlType.COMMIT):
        return kind, _read_marker(value)
    message: type[QuorumMessage] = getattr(messages, _QUORUM_MESSAGES[kind])
    if len(value) < _VERSION.size:
        raise ProtocolError(f"A control record of type {kind.name} is cut.")
    (version,) = _VERSION.unpack_from(value)
    return kind, decode(message, version, value)


def _read_marker(value: bytes) -> EndTxnMarker:
    if len(value) < _MARKER.size:
        raise ProtocolError("The end marker of a transaction is cut: it needs a version and a coordinator epoch.")
    version, coordinator_epoch = _MARKER.unpack_from(value)
    if version < 0:
        raise ProtocolError(f"The end marker of a transaction has version {version}, which can't be.")
    return messages.EndTxnMarker(coordinator_epoch=coordinator_epoch)
