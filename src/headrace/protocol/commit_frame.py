# cython: language_level=3, annotation_typing=False, nonecheck=True
"""An OffsetCommit request that is sent again and again, with other offsets each time. PURE.

All else in its frame are the same bytes as before: they are compared. The offsets and leader epochs are not even read:
records have them in the same bytes.
"""

from __future__ import annotations

from typing import Final

from headrace.protocol import messages as m
from headrace.protocol.frame import SIZE_BYTES, write_request
from headrace.protocol.wire import uvarint

FLEXIBLE_SINCE: Final = 8
EPOCHS_SINCE: Final = 6
IDS_SINCE: Final = 10

_NO_EPOCH: Final = b"\xff\xff\xff\xff"
_OFFSET_BYTES: Final = 8
_EPOCH_BYTES: Final = 4
_HEAD_BYTES: Final = 8  # key, version, correlation id


class CommitFrame:
    """The frames that are such a request but for the correlation id, the offsets and the leader epochs."""

    __slots__ = ("_fixed", "_free_bytes", "_head", "_last", "size_bytes")

    def __init__(self, body: m.OffsetCommitRequest, version: int, client_id: str | None) -> None:
        frame = b"".join(write_request(body, version, 0, client_id))[SIZE_BYTES:]
        self._free_bytes = _OFFSET_BYTES + (_EPOCH_BYTES if version >= EPOCHS_SINCE else 0)
        self._fixed: list[bytes] = []
        """What stands before each partition's place."""
        start = _HEAD_BYTES
        for position in _offset_positions(body, version, len(frame)):
            self._fixed.append(frame[start:position])
            start = position + self._free_bytes
        self._last = frame[start:]
        self._head = frame[:4]
        self.size_bytes = len(frame)

    @classmethod
    def of(cls, body: m.OffsetCommitRequest, version: int, client_id: str | None) -> CommitFrame | None:
        """None where there are fields in it that nobody knows, among which nothing is found by counting."""
        parts = [body, *body.topics, *(partition for topic in body.topics for partition in topic.partitions)]
        return None if any(part.unknown_tags for part in parts) else cls(body, version, client_id)

    def read(self, frame: memoryview) -> tuple[bytes, list[bytes]] | None:
        """Correlation id, and of each partition the offset and the leader epoch; None when it is another request."""
        if len(frame) != self.size_bytes:
            return None
        data = frame.tobytes()
        if not data.startswith(self._head):
            return None
        position, places = _HEAD_BYTES, []
        for fixed in self._fixed:
            if not data.startswith(fixed, position):
                return None
            position += len(fixed)
            place = data[position : position + self._free_bytes]
            places.append(place if self._free_bytes > _OFFSET_BYTES else place + _NO_EPOCH)
            position += self._free_bytes
        return (data[4:_HEAD_BYTES], places) if data.startswith(self._last, position) else None


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
