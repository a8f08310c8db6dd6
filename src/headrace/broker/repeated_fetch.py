# cython: language_level=3, annotation_typing=False, nonecheck=True
"""Fetches that a connection sends again and again, from other offsets each time: nothing else of them is read twice.

To decode such a request takes as long as to find what it gets. From the second one on its frame is compared with what
is known of it. What it says is put into the request that was decoded before, which goes the way of any other. The reply
to a fetch of one partition is known but for a few numbers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headrace.broker.fetch_session import INITIAL_EPOCH
from headrace.metrics.requests import RequestFigures
from headrace.net.connection import Connection
from headrace.protocol import messages as m
from headrace.protocol.fetch_frame import SESSIONS_SINCE, FetchFrame
from headrace.protocol.fetch_reply import FetchReply
from headrace.protocol.frame import Request, write_response

if TYPE_CHECKING:
    from headrace.broker.fetch import Fetch

FETCH_KEY: Final = 1
PARTITIONS_MAX: Final = 100
"""To read larger ones is a small part of what they take."""
FRAME_BYTES_MAX: Final = 8 << 10
MISSES_MAX: Final = 16
"""A connection that fetches now this and now that is not worth the preparation each time."""


def prepare(fetch: Fetch, connection: Connection, request: Request, figures: RequestFigures) -> None:
    """Prepares the connection for this request to come again."""
    known = connection.repeated.get(FETCH_KEY)
    if isinstance(known, RepeatedFetch) and not known.is_worn():
        return
    body: m.FetchRequest = request.body
    if body.forgotten_topics_data or (request.version >= SESSIONS_SINCE and body.session_epoch == INITIAL_EPOCH):
        return  # they are said once
    if len(body.topics) > PARTITIONS_MAX or sum([len(topic.partitions) for topic in body.topics]) > PARTITIONS_MAX:
        return
    frame = FetchFrame.of(body, request.version, request.client_id, FRAME_BYTES_MAX)
    if frame is not None:
        connection.repeated[FETCH_KEY] = RepeatedFetch(fetch, request, frame, figures)


class RepeatedFetch:
    __slots__ = ("_fetch", "_figures", "_frame", "_has_epoch", "_hits", "_misses", "_partitions", "_reply", "_request")

    def __init__(self, fetch: Fetch, request: Request, frame: FetchFrame, figures: RequestFigures) -> None:
        self._fetch = fetch
        self._request = request
        self._frame = frame
        self._figures = figures
        self._has_epoch = request.version >= SESSIONS_SINCE
        self._partitions = [partition for topic in request.body.topics for partition in topic.partitions]
        self._reply: FetchReply | None = None
        if len(self._partitions) == 1:
            (topic,) = [topic for topic in request.body.topics if topic.partitions]
            self._reply = FetchReply(topic.topic, topic.topic_id, self._partitions[0].partition, request.version)
        self._hits = self._misses = 0

    def is_worn(self) -> bool:
        """Another fetch came: this is to be replaced by it, unless it would be the next to be replaced."""
        self._misses += 1
        return self._hits > 0 or self._misses > MISSES_MAX

    def take(self, connection: Connection, frame: memoryview) -> RequestFigures | None:
        """Handles such a frame. None when it is another request."""
        found = self._frame.read(frame)
        if found is None:
            return None
        self._hits += 1
        figures, request = self._figures, self._request
        connection.listener.stopwatch.switch(figures)
        request.correlation_id, numbers = found
        at = 0
        if self._has_epoch:
            request.body.session_epoch = numbers[0]
            at = 1
        for partition in self._partitions:
            partition.fetch_offset = numbers[at]
            at += 1
        response = self._fetch.begin(connection, request, self._reply)
        if response is not None:
            buffers = None if self._reply is None else self._reply.write(response, request.correlation_id)
            connection.reply(buffers or write_response(response, request.version, request.correlation_id))
        return figures
