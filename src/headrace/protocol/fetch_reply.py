# cython: language_level=3, annotation_typing=False, nonecheck=True
"""Replies to a fetch of one partition that comes again: the same bytes each time but for a few numbers. PURE."""

from __future__ import annotations

from functools import lru_cache
from struct import Struct
from typing import Any, Final

from headrace.protocol import messages as m
from headrace.protocol.frame import SIZE_BYTES, write_response
from headrace.protocol.wire import uvarint

SESSIONS_SINCE: Final = 7
START_OFFSET_SINCE: Final = 5
FLEXIBLE_SINCE: Final = 12

_SESSION_BYTES: Final = 4
_HEAD_BYTES: Final = 8  # size, correlation id


class FetchReply:
    """Those with records and nothing out of the ordinary."""

    __slots__ = (
        "_fixed",
        "_has_session",
        "_has_start_offset",
        "_index",
        "_is_flexible",
        "_other_bytes",
        "_pack",
        "_tail",
        "_topic",
    )

    def __init__(self, topic: str, topic_id: bytes, index: int, version: int) -> None:
        self._topic = (topic, topic_id)
        self._index = index
        self._has_session = version >= SESSIONS_SINCE
        self._has_start_offset = version >= START_OFFSET_SINCE
        self._is_flexible = version >= FLEXIBLE_SINCE
        one, self._tail = _parts(topic, topic_id, index, version, 0)
        other, _ = _parts(topic, topic_id, index, version, -1)
        # Where they differ the numbers stand: first the session's id, then offsets, one behind the other.
        differs = [at for at, (left, right) in enumerate(zip(one, other, strict=True)) if left != right]
        layout, start = ">ii", _HEAD_BYTES
        fixed: list[bytes] = []
        if self._has_session:
            fixed.append(one[start : differs[0]])
            layout += f"{differs[0] - start}si"
            start = differs[0] + _SESSION_BYTES
            del differs[:_SESSION_BYTES]
        fixed += [one[start : differs[0]], one[differs[-1] + 1 :]]
        layout += f"{len(fixed[-2])}s{'qqq' if self._has_start_offset else 'qq'}{len(fixed[-1])}s"
        self._fixed = tuple(fixed)
        self._pack = _struct(layout).pack
        self._other_bytes = len(one) + len(self._tail) - SIZE_BYTES
        """What its length counts beside the records and their size."""

    def write(self, response: m.FetchResponse, correlation_id: int) -> list[Any] | None:
        """A whole frame, length included; None for a reply that is not of this kind."""
        topics = response.responses
        if response.error_code or len(topics) != 1 or len(topics[0].partitions) != 1:
            return None
        topic, data = topics[0], topics[0].partitions[0]
        if (
            data.error_code
            or not data.records
            or data.partition_index != self._index
            or data.aborted_transactions is not None
            or data.diverging_epoch is not None
            or data.preferred_read_replica != -1
            or (topic.topic, topic.topic_id) != self._topic
        ):
            return None
        size, fixed, tail = len(data.records), self._fixed, self._tail
        length = uvarint(size + 1) if self._is_flexible else size.to_bytes(4, "big")
        values: list[Any] = [self._other_bytes + len(length) + size, correlation_id]
        if self._has_session:
            values += (fixed[0], response.session_id)
        values += (fixed[-2], data.high_watermark, data.last_stable_offset)
        if self._has_start_offset:
            values.append(data.log_start_offset)
        values.append(fixed[-1])
        head = self._pack(*values) + length
        return [head, data.records, tail] if tail else [head, data.records]


_struct = lru_cache(256)(Struct)


def _parts(topic: str, topic_id: bytes, index: int, version: int, number: int) -> tuple[bytes, bytes]:
    """What stands before the size of the records, and behind them."""
    data = m.FetchResponse.PartitionData(
        partition_index=index,
        high_watermark=number,
        last_stable_offset=number,
        log_start_offset=number if version >= START_OFFSET_SINCE else -1,
        aborted_transactions=None,
        records=b"x",
    )
    named = m.FetchResponse.FetchableTopicResponse(topic=topic, topic_id=topic_id, partitions=[data])
    session_id = number if version >= SESSIONS_SINCE else 0
    head, _, tail = write_response(m.FetchResponse(session_id=session_id, responses=[named]), version, 0)
    return bytes(head[: -1 if version >= FLEXIBLE_SINCE else -4]), bytes(tail)
