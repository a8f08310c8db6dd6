# cython: language_level=3, annotation_typing=False, nonecheck=True
"""The frames of a Produce request that comes again and again with other records: what of them is always the same. PURE.

A producer that sends a batch of one partition in a request sends the same bytes before it each time, but for the
correlation id, and the same behind it. The records are found by comparing, then, and nothing is decoded. The reply
differs in its correlation id and in what the append answers.
"""

from __future__ import annotations

from functools import lru_cache
from struct import Struct
from struct import error as StructError
from typing import Final

from headrace.protocol import messages as m
from headrace.protocol.frame import SIZE_BYTES, write_request, write_response
from headrace.protocol.wire import Malformed, read_uvarint

FLEXIBLE_SINCE: Final = 9
LOG_START_SINCE: Final = 5

HEAD_BYTES: Final = 8  # key, version, correlation id
_TAGS: Final = b"\x00\x00\x00"  # of the partition, the topic, the request
_int32: Final = Struct(">i")
_MARK: Final = -0x0123456789ABCDEF
_MARKED: Final = Struct(">q").pack(_MARK)


class ProduceFrame:
    """Of requests with one partition."""

    __slots__ = ("_has_log_start", "_is_flexible", "_pack", "_reply_end", "_reply_start", "_size", "head", "prefix")

    def __init__(self, body: m.ProduceRequest, version: int, client_id: str | None) -> None:
        self._is_flexible = version >= FLEXIBLE_SINCE
        self._has_log_start = version >= LOG_START_SINCE
        topic, data = body.topic_data[0], body.topic_data[0].partition_data[0]
        kind = m.ProduceRequest
        empty = kind(
            transactional_id=body.transactional_id,
            acks=body.acks,
            timeout_ms=body.timeout_ms,
            topic_data=[
                kind.TopicProduceData(
                    name=topic.name,
                    topic_id=topic.topic_id,
                    partition_data=[kind.PartitionProduceData(index=data.index, records=b"")],
                )
            ],
        )
        frame = b"".join(write_request(empty, version, 0, client_id))[SIZE_BYTES:]
        self.head = frame[:4]
        """The API and its version."""
        self.prefix = frame[HEAD_BYTES : -(1 + len(_TAGS) if self._is_flexible else _int32.size)]
        """What stands between the correlation id and the length of the records."""
        self._learn_reply(topic.name, topic.topic_id, data.index, version)

    @classmethod
    def of(cls, body: m.ProduceRequest, version: int, client_id: str | None) -> ProduceFrame | None:
        """None where there is more than one partition, or fields in it that nobody knows."""
        if len(body.topic_data) != 1 or len(body.topic_data[0].partition_data) != 1:
            return None
        parts = (body, body.topic_data[0], body.topic_data[0].partition_data[0])
        return None if any(part.unknown_tags for part in parts) else cls(body, version, client_id)

    def records_in(self, frame: memoryview) -> memoryview | None:
        """The records of a frame with this head and prefix; None when it is another request all the same."""
        start = HEAD_BYTES + len(self.prefix)
        try:
            if self._is_flexible:
                size, start = read_uvarint(frame, start)
                end = start + size - 1
                if end + len(_TAGS) != len(frame) or bytes(frame[end:]) != _TAGS:
                    return None
            else:
                (size,) = _int32.unpack_from(frame, start)
                start += _int32.size
                end = start + size
                if end != len(frame):
                    return None
        except (IndexError, Malformed, StructError):
            return None
        return frame[start:end] if end > start else None

    def reply(self, correlation_id: bytes, base_offset: int, log_append_time_ms: int, log_start_offset: int) -> bytes:
        """The frame that tells where the records are, length included."""
        start, end = self._reply_start, self._reply_end
        if self._has_log_start:
            return self._pack(self._size, correlation_id, start, base_offset, log_append_time_ms, log_start_offset, end)
        return self._pack(self._size, correlation_id, start, base_offset, log_append_time_ms, end)

    def _learn_reply(self, name: str, topic_id: bytes, index: int, version: int) -> None:
        kind = m.ProduceResponse
        answer = kind.PartitionProduceResponse(
            index=index, base_offset=_MARK, log_append_time_ms=_MARK, log_start_offset=_MARK
        )
        topic = kind.TopicProduceResponse(name=name, topic_id=topic_id, partition_responses=[answer])
        frame = b"".join(write_response(kind(responses=[topic]), version, 0))
        count = 3 if self._has_log_start else 2
        start = frame.index(_MARKED * count)  # no name has such bytes, and no id will in our lives
        self._size = frame[:SIZE_BYTES]
        self._reply_start = frame[SIZE_BYTES + 4 : start]
        self._reply_end = frame[start + count * len(_MARKED) :]
        self._pack = _struct(f">4s4s{len(self._reply_start)}s{count}q{len(self._reply_end)}s").pack


_struct = lru_cache(256)(Struct)  # those of the partitions of a topic are the same
