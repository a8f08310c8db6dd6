# cython: language_level=3, annotation_typing=False, nonecheck=True
"""Committed offsets as records of `__consumer_offsets`: written and read by hand, because there are so many. PURE.

A coordinator that takes over reads millions of them, and a commit of a busy consumer is little more than one of them.
The general codec reads and writes the same bytes, which a test holds us to; what is rare goes through it.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from headrace.coordinator.shard import StateRecord
from headrace.errors import ProtocolError
from headrace.named_tuple import NamedTuple
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
WITH_ID: Final = 4

_int16 = Struct(">h").pack
_unpack_int16 = Struct(">H").unpack_from
_unpack_int32 = Struct(">i").unpack_from
_int32 = Struct(">i").pack
_value_start = Struct(">hqi")
_int64 = Struct(">q")
_pack_int64 = _int64.pack
_KIND_BYTES: Final = _int16(KIND)
ID_TAG: Final = b"\x01\x00\x10"
"""One tagged field, the first, of 16 bytes."""

_USUAL_BYTES: Final = 42
_USUAL_START: Final = _int16(WITH_ID)
"""Of what `encode_commit` writes when there is no metadata, as nearly always."""


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
    tags = ID_TAG + topic_id if topic_id != NO_ID else b"\x00"
    return b"".join(
        (
            _value_start.pack(WITH_ID, offset, leader_epoch),
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


def stored(kind: int, value: bytes, record_offset: int) -> bytes:
    """How a commit is kept in memory: its bytes, behind where it is in the log.

    There may be millions: as one object each, that the garbage collector has nothing to do with, and that is looked
    into when somebody asks. What `encode_commit` does not write is read here, so that damage is found at the load.
    """
    if kind != KIND or not (_is_usual(value) or _is_whole(value)):
        found = decode_commit(kind, value, record_offset)
        if kind == LEGACY_KIND:
            value = encode_commit(found.offset, -1, found.metadata, found.commit_timestamp_ms, NO_TIMESTAMP, NO_ID)
    return put_away(value, record_offset)


def put_away(value: bytes, record_offset: int) -> bytes:
    """The same of what `encode_commit` has written, and so needs no look."""
    return _pack_int64(record_offset) + value


def committed_of(kept: bytes) -> Committed:
    """What was put away."""
    return decode_commit(KIND, kept[8:], _int64.unpack_from(kept)[0])


def record_offset_of(kept: bytes) -> int:
    found: int = _int64.unpack_from(kept)[0]
    return found


def decode_commit(kind: int, value: bytes, record_offset: int) -> Committed:
    if kind == KIND and _is_whole(value):
        _, offset, leader_epoch = _value_start.unpack_from(value)
        end = 14 + value[14]
        (timestamp_ms,) = _int64.unpack_from(value, end)
        topic_id = value[end + 11 :] if len(value) > end + 9 else NO_ID
        text = value[15:end].decode()
        return Committed(offset, leader_epoch, text, timestamp_ms, NO_TIMESTAMP, topic_id, record_offset)
    message = decode_value(Kind.GROUP, _LEGACY_KEY if kind == LEGACY_KIND else _KEY, value)
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
_LEGACY_KEY: Final = m.LegacyOffsetCommitKey()


def _is_usual(value: bytes) -> bool:
    return (
        len(value) == _USUAL_BYTES
        and value[14] == 1
        and value.startswith(_USUAL_START)
        and value.startswith(ID_TAG, _USUAL_BYTES - 19)
    )


def _is_whole(value: bytes) -> bool:
    """What `encode_commit` writes, in the usual case: the version with the id, and a short text."""
    size = len(value)
    if size < 24 or value[0] or value[1] != WITH_ID or not 0 < value[14] < 128:
        return False
    end = 22 + value[14]
    return (size == end + 1 and not value[end]) or (size == end + 19 and value[end : end + 3] == ID_TAG)
