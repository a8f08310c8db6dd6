# cython: language_level=3, annotation_typing=False, nonecheck=True
"""Requests that a connection sends again byte for byte, as members do whose heartbeats say nothing new.

They are decoded once. Only those are kept that were answered at once: others may be at work for longer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headrace.metrics.requests import RequestFigures
from headrace.net.connection import Connection
from headrace.protocol.frame import Request

if TYPE_CHECKING:
    from headrace.broker.router import Route, Router

FRAMES_MAX: Final = 32
"""Of one connection. A client that has more members on it than that, or always says something else, gains nothing."""
FRAME_BYTES_MAX: Final = 512

_CORRELATION_AT: Final = 4
_REST_AT: Final = 8


class KnownFrames:
    """Those of one API on one connection."""

    __slots__ = ("_requests", "_route", "_router")

    def __init__(self, router: Router, route: Route) -> None:
        self._router = router
        self._route = route
        self._requests: dict[bytes, Request] = {}

    def keep(self, frame: memoryview, request: Request) -> None:
        if len(frame) > FRAME_BYTES_MAX:
            return
        if len(self._requests) >= FRAMES_MAX:
            self._requests.clear()
        data = frame.tobytes()
        self._requests[data[:_CORRELATION_AT] + data[_REST_AT:]] = request

    def take(self, connection: Connection, frame: memoryview) -> RequestFigures | None:
        """Handles it when it comes again; None for a frame that is another request."""
        if len(frame) > FRAME_BYTES_MAX:
            return None
        data = frame.tobytes()
        known = self._requests.get(data[:_CORRELATION_AT] + data[_REST_AT:])
        if known is None:
            return None
        correlation_id = int.from_bytes(data[_CORRELATION_AT:_REST_AT], "big", signed=True)
        request = Request(known.api, known.version, correlation_id, known.client_id, known.body)
        self._router.serve(connection, self._route, request)
        return self._route.figures
