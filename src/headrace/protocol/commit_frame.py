# cython: language_level=3, annotation_typing=False, nonecheck=True
"""An OffsetCommit request that is sent again and again, with other offsets each time. PURE.

All else in its frame are the same bytes as before: they are compared, and only the offsets and leader epochs are read.
"""

from __future__ import annotations

from functools import lru_cache
from struct import Struct
from typing import Final

from headrace.protocol import messages as m
from headrace.protocol.frame import SIZE_BYTES, write_request
from headrace.protocol.wire import uvarint

FLEXIBLE_SINCE: Final = 8
EPOCHS_SINCE: Final = 6
IDS_SINCE: Final = 10
NO_EPOCH: Final = -1

_OFFSET_BYTES: Final = 8
_EPOCH_BYTES: Final = 4
_HEAD_BYTES: Final = 8  # key, version, correlation id


class CommitFrame:
    """The frames that are such a request but for the correlation id, the offsets and the leader epochs."""

    __slots__ = ("_fixed", "_has_epochs", "_head", "_no_epochs", "_unpack", "size_bytes")

    def __init__(self, body: m.OffsetCommitRequest, version: int, client_id: str | None) -> None:
        frame = b"".join(write_request(body, version, 0, client_id))[SIZE_BYTES:]
        self._has_epochs = version >= EPOCHS_SINCE
        free_bytes = _OFFSET_BYTES + (_EPOCH_BYTES if self._has_epochs else 0)
        layout, start = ">4s4s", _HEAD_BYTES
        fixed: list[bytes] = []
        for position in _offset_positions(body, version, len(frame)):
            layout += f"{position - start}s" + ("qi" if self._has_epochs else "q")
            fixed.append(frame[start:position])
            start = position + free_bytes
        fixed.append(frame[start:])
        self._head = frame[:4]
        self._fixed = tuple(fixed)
        self._no_epochs = (NO_EPOCH,) * (len(fixed) - 1)
        self.size_bytes = len(frame)
        self._unpack = _struct(f"{layout}{len(frame) - start}s").unpack

    @classmethod
    def of(cls, body: m.OffsetCommitRequest, version: int, client_id: str | None) -> CommitFrame | None:
        """None where there are fields in it that nobody knows, among which nothing is found by counting."""
        parts = [body, *body.topics, *(partition for topic in body.topics for partition in topic.partitions)]
        return None if any(part.unknown_tags for part in parts) else cls(body, version, client_id)

    def read(self, frame: memoryview) -> tuple[bytes, tuple[int, ...], tuple[int, ...]] | None:
        """Correlation id, offsets and leader epochs of such a frame; None when it is another request."""
        if len(frame) != self.size_bytes:
            return None
        found = self._unpack(frame)
        if found[0] != self._head:
            return None
        if self._has_epochs:
            return (found[1], found[3::3], found[4::3]) if found[2::3] == self._fixed else None
        return (found[1], found[3::2], self._no_epochs) if found[2::2] == self._fixed else None


_struct = lru_cache(256)(Struct)  # those of the members of a group are the same


def _offset_positions(body: m.OffsetCommitRequest, version: int, end: int) -> list[int]:
    """Where in a frame that ends there each offset stands: counted from the end, before which there is nothing else."""
    is_flexible = version >= FLEXIBLE_SINCE
    tags_bytes = 1 if is_flexible else 0
    fixed_bytes = tags_bytes + _OFFSET_BYTES + (_EPOCH_BYTES if version >= EPOCHS_SINCE else 0)
    position = end - tags_bytes
    found = []
    for topic in reversed(body.topics):
        position -= tags_bytes
        for partition in reversed(topic.partitions):
            position -= fixed_bytes + _text_bytes(partition.committed_metadata, is_flexible)
            found.append(position)
            position -= 4  # its index
        position -= _count_bytes(len(topic.partitions), is_flexible)
        position -= 16 if version >= IDS_SINCE else _text_bytes(topic.name, is_flexible)
    found.reverse()
    return found


def _count_bytes(count: int, is_flexible: bool) -> int:
    return len(uvarint(count + 1)) if is_flexible else 4


def _text_bytes(text: str | None, is_flexible: bool) -> int:
    size_bytes = 0 if text is None else len(text.encode())
    return size_bytes + (len(uvarint(size_bytes + 1)) if is_flexible else 2)
