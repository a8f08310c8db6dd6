"""Committed offsets as records of `__consumer_offsets`: written and read by hand, because there are so many. PURE.

A coordinator that takes over reads millions of them, and a commit of a busy consumer is little more than one of them.
The general codec reads and writes the same bytes, which a test holds us to; what is rare goes through it.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, NamedTuple

from headrace.coordinator.shard import StateRecord
from headrace.errors import ProtocolError
from headrace.protocol import messages as m
from headrace.protocol.shape import Kind
from headrace.protocol.state import decode_value, encode_value
from headrace.protocol.wire import uvarint

LEGACY_KIND: Final = 0
KIND: Final = 1
NO_ID: Final = bytes(16)
NO_TIMESTAMP: Final = -1

_EXPIRING: Final = 1
"""The one version of the value that says when it expires (commits of before KIP-211)."""
_WITH_ID: Final = 4

_int16 = Struct(">h").pack
_unpack_int16 = Struct(">H").unpack_from
_unpack_int32 = Struct(">i").unpack_from
_int32 = Struct(">i").pack
_value_start = Struct(">hqi")
_int64 = Struct(">q")
_KIND_BYTES: Final = _int16(KIND)


class Committed(NamedTuple):
    """An offset that was committed, and what came with it."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int
    """Of its own, when the commit said so; else -1, and the group's retention counts."""
    topic_id: bytes
    """All zero where nobody said it."""
    record_offset: int
    """Where it is in the log of the state: of two commits the later one counts, whenever its transaction ended."""


def encode_key(group_id: str, topic: str, partition: int) -> bytes:
    group, name = group_id.encode(), topic.encode()
    return b"".join((_KIND_BYTES, _int16(len(group)), group, _int16(len(name)), name, _int32(partition)))


def encode_commit(
    offset: int, leader_epoch: int, metadata: str, commit_timestamp_ms: int, expire_timestamp_ms: int, topic_id: bytes
) -> bytes:
    if expire_timestamp_ms != NO_TIMESTAMP:
        value = m.OffsetCommitValue(
            offset=offset,
            metadata=metadata,
            commit_timestamp=commit_timestamp_ms,
            expire_timestamp=expire_timestamp_ms,
        )
        return encode_value(value, _EXPIRING)
    text = metadata.encode()
    tags = b"\x01\x00\x10" + topic_id if topic_id != NO_ID else b"\x00"
    return b"".join(
        (
            _value_start.pack(_WITH_ID, offset, leader_epoch),
            uvarint(len(text) + 1),
            text,
            _int64.pack(commit_timestamp_ms),
            tags,
        )
    )


def tombstone(group_id: str, topic: str, partition: int) -> StateRecord:
    return StateRecord(encode_key(group_id, topic, partition), None)


def decode_key(key: bytes) -> tuple[str, str, int]:
    """Group id, topic and partition. Keys of both kinds look the same."""
    try:
        (size,) = _unpack_int16(key, 2)
        end = 4 + size
        (size,) = _unpack_int16(key, end)
        topic_end = end + 2 + size
        (partition,) = _unpack_int32(key, topic_end)
        if len(key) != topic_end + 4:
            raise ProtocolError(f"The key of a committed offset has {len(key)} bytes, and {topic_end + 4} are read.")
        return key[4:end].decode(), key[end + 2 : topic_end].decode(), partition
    except (ProtocolError, UnicodeDecodeError):
        raise
    except Exception as error:
        raise ProtocolError(f"The key of a committed offset is cut: {error}") from error


def decode_commit(kind: int, value: bytes, record_offset: int) -> Committed:
    if kind == KIND and value[:2] == b"\x00\x04":
        found = _decode_with_id(value, record_offset)
        if found is not None:
            return found
    message = decode_value(Kind.GROUP, m.LegacyOffsetCommitKey() if kind == LEGACY_KIND else _KEY, value)
    if isinstance(message, m.LegacyOffsetCommitValue):
        return Committed(
            message.offset, -1, message.metadata, message.commit_timestamp, NO_TIMESTAMP, NO_ID, record_offset
        )
    assert isinstance(message, m.OffsetCommitValue)
    return Committed(
        message.offset,
        message.leader_epoch,
        message.metadata,
        message.commit_timestamp,
        message.expire_timestamp,
        message.topic_id,
        record_offset,
    )


_KEY: Final = m.OffsetCommitKey()


def _decode_with_id(value: bytes, record_offset: int) -> Committed | None:
    """What `encode_commit` writes, in the usual case: a short text. None where it is not that."""
    size = len(value)
    if size < 15 or value[14] > 127 or not value[14]:
        return None
    _, offset, leader_epoch = _value_start.unpack_from(value)
    end = 14 + value[14]
    if size < end + 9:
        return None
    text = value[15:end].decode() if end > 15 else ""
    (timestamp_ms,) = _int64.unpack_from(value, end)
    rest = value[end + 8 :]
    if rest == b"\x00":
        topic_id = NO_ID
    elif len(rest) == 19 and rest.startswith(b"\x01\x00\x10"):
        topic_id = rest[3:]
    else:
        return None
    return Committed(offset, leader_epoch, text, timestamp_ms, NO_TIMESTAMP, topic_id, record_offset)
