# cython: language_level=3, annotation_typing=False, nonecheck=True
"""A Fetch request that is sent again and again, from other offsets each time. PURE.

All else in its frame are the same bytes as before: they are compared, and only the offsets and the session's epoch are
read.
"""

from __future__ import annotations

from functools import lru_cache
from struct import Struct
from typing import Final

from headrace.protocol import messages as m
from headrace.protocol.frame import SIZE_BYTES, write_request

SESSIONS_SINCE: Final = 7

_EPOCH_BYTES: Final = 4
_OFFSET_BYTES: Final = 8
_HEAD_BYTES: Final = 8  # key, version, correlation id


class FetchFrame:
    """The frames that are such a request but for the correlation id, the session's epoch and the fetch offsets."""

    __slots__ = ("_fixed", "_head", "_unpack", "size_bytes")

    def __init__(self, body: m.FetchRequest, version: int, client_id: str | None) -> None:
        frame, positions = _moving(body, version, client_id)
        sizes = [_OFFSET_BYTES] * len(positions)
        if version >= SESSIONS_SINCE:
            sizes[0] = _EPOCH_BYTES
        layout, start = ">4si", _HEAD_BYTES
        fixed: list[bytes] = []
        for position, size in zip(positions, sizes, strict=True):
            layout += f"{position - start}s" + ("i" if size == _EPOCH_BYTES else "q")
            fixed.append(frame[start:position])
            start = position + size
        fixed.append(frame[start:])
        self._head = frame[:4]
        self._fixed = tuple(fixed)
        self.size_bytes = len(frame)
        self._unpack = _struct(f"{layout}{len(frame) - start}s").unpack

    @classmethod
    def of(cls, body: m.FetchRequest, version: int, client_id: str | None, bytes_max: int) -> FetchFrame | None:
        """None for a larger one, and where there are fields in it that nobody knows."""
        if sum(map(len, write_request(body, version, 0, client_id))) - SIZE_BYTES > bytes_max:
            return None  # before its bytes are compared one by one
        parts = [body, *body.topics, *(partition for topic in body.topics for partition in topic.partitions)]
        return None if any(part.unknown_tags for part in parts) else cls(body, version, client_id)

    def read(self, frame: memoryview) -> tuple[int, tuple[int, ...]] | None:
        """Correlation id, then the epoch if the version has sessions and the offsets; None for another request."""
        if len(frame) != self.size_bytes:
            return None
        found = self._unpack(frame)
        return (found[1], found[3::2]) if found[0] == self._head and found[2::2] == self._fixed else None


_struct = lru_cache(256)(Struct)


def _moving(body: m.FetchRequest, version: int, client_id: str | None) -> tuple[bytes, list[int]]:
    """A frame of the request, and where in it those numbers stand: where it differs from one with all bits changed."""
    partitions = [partition for topic in body.topics for partition in topic.partitions]
    epoch, offsets = body.session_epoch, [partition.fetch_offset for partition in partitions]
    frames = []
    try:
        for number in (0, -1):
            body.session_epoch = number
            for partition in partitions:
                partition.fetch_offset = number
            frames.append(b"".join(write_request(body, version, 0, client_id))[SIZE_BYTES:])
    finally:
        body.session_epoch = epoch
        for partition, offset in zip(partitions, offsets, strict=True):
            partition.fetch_offset = offset
    differs = [at for at, (one, other) in enumerate(zip(*frames, strict=True)) if one != other]
    if version < SESSIONS_SINCE:
        return frames[0], differs[::_OFFSET_BYTES]
    return frames[0], [differs[0], *differs[_EPOCH_BYTES::_OFFSET_BYTES]]
