"""A line in the log for each request: who asked what, how long it took, and which errors were answered.

It is told at the level DEBUG of this module, which can be switched on while the node runs. Then listeners hand their
frames to a handler that looks on; else they do not know that there is one, and it costs nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from struct import Struct
from struct import error as StructError
from typing import Any, Final, cast

from headrace.broker import loggers
from headrace.broker.response_errors import count_errors
from headrace.errors import Error
from headrace.metrics.requests import RequestFigures
from headrace.named_tuple import NamedTuple
from headrace.net.connection import Connection, Slot
from headrace.net.listener import Listener
from headrace.protocol.apis import API_VERSIONS_KEY, Api, find_api
from headrace.protocol.frame import SIZE_BYTES, read_response

logger = logging.getLogger(__name__)

Handler = Callable[[Connection, memoryview], "RequestFigures | None"]

_HEAD: Final = Struct(">hhih")


class RequestLog:
    """Of some listeners, which share a handler."""

    __slots__ = ("__weakref__", "_handler", "_listeners")

    def __init__(self, listeners: Sequence[Listener], handler: Handler) -> None:
        self._listeners = listeners
        self._handler = handler
        loggers.tell_changes_to(self)
        self.follow()

    def follow(self) -> None:
        handler = self._handle if logger.isEnabledFor(logging.DEBUG) else self._handler
        for listener in self._listeners:
            listener.handler = handler

    def _handle(self, connection: Connection, frame: memoryview) -> RequestFigures | None:
        header = _header_of(frame)
        if header is None:
            return self._handler(connection, frame)  # which says what is wrong
        watched = _Watched(connection, header, len(frame))
        figures = self._handler(cast("Connection", watched), frame)
        watched.handled()
        return figures


class _Header(NamedTuple):
    """Who asks what."""

    api: Api | None
    key: int
    version: int
    client_id: str

    @property
    def name(self) -> str:
        return f"API {self.key}" if self.api is None else self.api.name


def _header_of(frame: memoryview) -> _Header | None:
    try:
        key, version, _, length = _HEAD.unpack_from(frame, 0)
    except StructError:
        return None
    client_id = repr(str(frame[_HEAD.size : _HEAD.size + max(length, 0)], "utf-8", "replace")) if length >= 0 else "-"
    return _Header(find_api(key), key, version, client_id)


class _Watched:
    """A connection while one request of it is served: it notes when and what is replied."""

    __slots__ = ("_connection", "_header", "_is_answered", "_request_bytes", "_since_ns")

    def __init__(self, connection: Connection, header: _Header, request_bytes: int) -> None:
        self._connection = connection
        self._header = header
        self._request_bytes = request_bytes
        self._is_answered = False
        self._since_ns = connection.listener.stopwatch.clock_ns()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def __eq__(self, other: object) -> bool:
        return self._connection is (other._connection if isinstance(other, _Watched) else other)

    def __hash__(self) -> int:
        return hash(self._connection)

    def __repr__(self) -> str:
        return repr(self._connection)

    @property
    def state(self) -> Any:
        return self._connection.state

    @state.setter
    def state(self, state: Any) -> None:
        self._connection.state = state

    def can_send(self, slot: object) -> bool:
        """What is sent from files is not in the reply, and could not be told of."""
        return False

    def reply(self, buffers: list[Any]) -> None:
        self._is_answered = True
        self.tell(buffers)
        self._connection.reply(buffers)

    def reserve(self) -> _WatchedSlot:
        self._is_answered = True
        return _WatchedSlot(self, self._connection.reserve())

    def handled(self) -> None:
        if not self._is_answered:
            self.tell([])

    def tell(self, buffers: list[Any]) -> None:
        connection, header = self._connection, self._header
        spent_ns = connection.listener.stopwatch.clock_ns() - self._since_ns
        logger.debug(
            "%s v%d of client %s at %s:%d on %s: %.3f ms, %d bytes asked, %d answered, %s",
            header.name,
            header.version,
            header.client_id,
            connection.peer_host,
            connection.peer_port,
            connection.listener.name,
            spent_ns / 1e6,
            self._request_bytes,
            sum(map(len, buffers)),
            _errors_in(header, buffers),
        )


class _WatchedSlot:
    """The place of a reply that comes later."""

    __slots__ = ("_slot", "_watched")

    def __init__(self, watched: _Watched, slot: Slot) -> None:
        self._watched = watched
        self._slot = slot

    def fill(self, buffers: list[Any]) -> None:
        self._watched.tell(buffers)
        self._slot.fill(buffers)


def _errors_in(header: _Header, buffers: list[Any]) -> str:
    """Read from the reply itself, which is the same for whoever gives it."""
    if not buffers:
        return "no reply"
    api, version = header.api, header.version
    assert api is not None, "what is not known gets no reply"
    if version not in api.versions:
        assert api.key == API_VERSIONS_KEY
        version = 0  # which is answered to any version (KIP-511)
    _, message = read_response(api, version, b"".join(buffers)[SIZE_BYTES:])
    errors: dict[int, int] = {}
    count_errors(message, errors)
    if not errors:
        return "no error"
    return ", ".join(
        Error.of(code).name if times == 1 else f"{times} times {Error.of(code).name}" for code, times in errors.items()
    )
