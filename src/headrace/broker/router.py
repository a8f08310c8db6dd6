# cython: language_level=3, annotation_typing=False, nonecheck=True
"""The router: which API is served, in which versions, on which kind of listener, and by whom.

Its table is the single statement of that; ApiVersions is made from it. A request for anything else ends its connection,
as in Kafka: a client that asked ApiVersions knows better. ApiVersions itself is answered in any version (KIP-511).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable
from enum import Enum
from typing import Any, Final, TypeAlias

from headrace.broker.known_frames import KnownFrames
from headrace.broker.response_errors import count_errors
from headrace.errors import Error, ProtocolError
from headrace.metrics.requests import RequestFigures
from headrace.net.connection import Connection
from headrace.protocol import messages as m
from headrace.protocol.apis import API_VERSIONS_KEY
from headrace.protocol.codec import ELEMENTS_MAX
from headrace.protocol.frame import Request, Unsupported, read_request, write_response
from headrace.protocol.message import Message
from headrace.protocol.shape import Kind, head

logger = logging.getLogger(__name__)

Handler: TypeAlias = Callable[[Connection, Request], "Message | Coroutine[Any, Any, Message] | None"]
"""Returns the response, or a coroutine that will, or None when there is nothing to send now: it took a slot that it
fills later, or there is no reply to this request at all."""

PRODUCE_KEY: Final = 0
_KEY_AT: Final = 1  # of the key of its API the lower byte: there is none above 255


class Serves(Enum):
    """Who connects to a listener."""

    CLIENTS = "clients"
    BROKERS = "brokers"
    CONTROLLERS = "controllers"


class Route:
    """An API as it is served: all stable versions that there are shapes for."""

    __slots__ = ("comes_again", "figures", "handler", "is_scanned", "key", "max_version", "min_version", "serves")

    def __init__(
        self,
        name: str,
        handler: Handler,
        serves: Iterable[Serves] = (Serves.CLIENTS,),
        *,
        errors: dict[int, int] | None = None,
        is_scanned: bool = True,
        is_unstable_served: bool = False,
        comes_again: bool = False,
    ) -> None:
        """Errors in what the handler returns are counted in `errors`; where it `is_scanned` not, the handler counts.

        What `comes_again` is sent by the same client byte for byte: see `known_frames`. Its handler leaves it as it is.
        """
        api = head(Kind.API, name)
        assert api.key is not None
        unstable = () if is_unstable_served else api.unstable
        stable = [version for version in api.versions if version not in unstable]
        self.key = api.key
        self.min_version, self.max_version = min(stable), max(stable)
        self.handler = handler
        self.serves = tuple(serves)
        self.figures = RequestFigures(name, errors)
        self.is_scanned = is_scanned
        self.comes_again = comes_again

    @property
    def advertised_min_version(self) -> int:
        # Clients with an older librdkafka do not compress unless they see Produce v0 (KAFKA-18659). It is not served.
        return 0 if self.key == PRODUCE_KEY else self.min_version


class Router:
    """The routes of one kind of listener."""

    __slots__ = ("_elements_max", "_loop", "_routes", "_tasks", "routes")

    def __init__(
        self,
        routes: Iterable[Route],
        serves: Serves,
        loop: asyncio.AbstractEventLoop,
        elements_max: int = ELEMENTS_MAX,
    ) -> None:
        self.routes = sorted((route for route in routes if serves in route.serves), key=lambda route: route.key)
        self._routes = {route.key: route for route in self.routes}
        self._loop = loop
        self._elements_max = elements_max
        self._tasks: dict[asyncio.Task[Message], None] = {}

    def handle(self, connection: Connection, frame: memoryview) -> RequestFigures | None:
        """What a listener calls with each frame. Raises ProtocolError for what ends the connection."""
        if (
            (known := connection.repeated)
            and len(frame) > _KEY_AT
            and (repeated := known.get(frame[_KEY_AT])) is not None
            and (figures := repeated.take(connection, frame)) is not None
        ):
            return figures
        request = read_request(frame, self._elements_max)
        if isinstance(request, Unsupported):
            self._unsupported(connection, request)
            return None
        route = self._routes.get(request.api.key)
        if route is None or not route.min_version <= request.version <= route.max_version:
            raise ProtocolError(f"{request.api.name} v{request.version} is not served on {connection.listener.name}")
        if self.serve(connection, route, request) and route.comes_again:
            kept = known.get(route.key)
            if not isinstance(kept, KnownFrames):
                kept = known[route.key] = KnownFrames(self, route)
            kept.keep(frame, request)
        return route.figures

    def serve(self, connection: Connection, route: Route, request: Request) -> bool:
        """Whether it was answered at once."""
        connection.stopwatch.switch(route.figures)
        result = route.handler(connection, request)
        if result is None:
            return False
        if isinstance(result, Message):
            connection.reply(write_response(result, request.version, request.correlation_id))
            if route.is_scanned:
                count_errors(result, route.figures.errors)
            return True
        self._run(connection, request, result, route.figures.errors)
        return False

    def _run(
        self, connection: Connection, request: Request, work: Coroutine[Any, Any, Message], errors: dict[int, int]
    ) -> None:
        slot = connection.reserve()
        connection.mute()

        def answer(task: asyncio.Task[Message]) -> None:
            del self._tasks[task]
            if task.cancelled():
                return
            try:
                message = task.result()
                slot.fill(write_response(message, request.version, request.correlation_id))
                count_errors(message, errors)
                connection.unmute()
            except Exception:
                logger.exception("%s v%d of %s failed", request.api.name, request.version, connection)
                connection.abort()

        task = self._loop.create_task(work)
        self._tasks[task] = None
        task.add_done_callback(answer)

    def _unsupported(self, connection: Connection, request: Unsupported) -> None:
        if request.api_key != API_VERSIONS_KEY:
            raise ProtocolError(f"{request.text} on {connection.listener.name}")
        # In version 0, which everyone can read; the client takes a version from it and asks again.
        connection.reply(write_response(self.unsupported_api_versions(), 0, request.correlation_id))

    def unsupported_api_versions(self) -> m.ApiVersionsResponse:
        route = self._routes[API_VERSIONS_KEY]
        return m.ApiVersionsResponse(error_code=Error.UNSUPPORTED_VERSION, api_keys=[_advertised(route)])

    def api_keys(self) -> list[m.ApiVersionsResponse.ApiVersion]:
        """What ApiVersions says."""
        return [_advertised(route) for route in self.routes]


def _advertised(route: Route) -> m.ApiVersionsResponse.ApiVersion:
    return m.ApiVersionsResponse.ApiVersion(
        api_key=route.key, min_version=route.advertised_min_version, max_version=route.max_version
    )
