"""A port that clients connect to, with limits on who may and how long."""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Callable
from typing import Any

from headrace.errors import HeadraceError
from headrace.metrics.requests import RequestFigures, Stopwatch
from headrace.net.budget import Budget
from headrace.net.connection import Connection
from headrace.net.crowd import Crowd
from headrace.net.framing import Receiver
from headrace.plain import field, plain

logger = logging.getLogger(__name__)

BACKLOG = 1024
TICK_MS = 250
"""How exact idle times are. A connection notes the tick and not the clock, which would cost more than the rest."""
TRICKLING_MS = 2000
"""How long a request may hardly come on while others have to wait for the memory that is held for it."""


@plain
class Limits:
    """What a listener allows its clients. Listeners that share a crowd count their connections together."""

    frame_bytes: int = 100 << 20
    connections: int = 0x7FFFFFFF
    connections_per_address: int = 0x7FFFFFFF
    connections_by_address: dict[str, int] = field(default_factory=dict)
    """Other limits for some addresses."""
    requests_in_flight: int = 1000
    """Requests of one connection that have no reply yet; beyond that it is not read from."""
    write_bytes: int = 4 << 20
    """Replies of one connection that its client has not taken; beyond that it is not read from."""
    idle_ms: int = 600_000
    slow_ms: int = 60_000
    """How long a client may leave its replies lying, or stop in the middle of a request, before it is disconnected."""


@plain
class Counters:
    """What happened since the start."""

    accepted: int = 0
    refused: int = 0
    frames_refused: int = 0
    idle_closed: int = 0
    slow_closed: int = 0


class Listener:
    """Accepts connections and hands their frames to `handler`, on the loop, one after another.

    The handler must not keep the frame: it is a view into a buffer that is used again. It returns where the times of
    the request are counted, by the clock of `stopwatch`; or None, when nobody counts them.
    """

    __slots__ = (
        "_server",
        "_timer",
        "budget",
        "connections",
        "counters",
        "crowd",
        "handler",
        "limits",
        "name",
        "receiver",
        "stopwatch",
        "tick",
    )

    def __init__(
        self,
        name: str,
        handler: Callable[[Connection, memoryview], RequestFigures | None],
        limits: Limits | None = None,
        budget: Budget | None = None,
        counters: Counters | None = None,
        stopwatch: Stopwatch | None = None,
        crowd: Crowd | None = None,
    ) -> None:
        self.name = name
        self.handler = handler
        self.limits = limits or Limits()
        self.budget = budget or Budget(512 << 20)
        self.counters = counters or Counters()
        self.crowd = crowd or Crowd()
        self.stopwatch = stopwatch or Stopwatch(lambda: 0)
        self.receiver = Receiver(self.limits.frame_bytes, self.budget)
        self.tick = 0
        self.connections: dict[int, Connection] = {}
        self._server: asyncio.Server | None = None
        self._timer: asyncio.TimerHandle | None = None

    async def start(self, host: str, port: int) -> tuple[str, int]:
        """Listen; returns the address, whose port was chosen by the system if it was 0."""
        address = await self.bind(host, port)
        await self.serve()
        return address

    async def bind(self, host: str, port: int) -> tuple[str, int]:
        """Take the address, without anyone being able to connect yet."""
        loop = asyncio.get_running_loop()
        try:
            self._server = await loop.create_server(
                lambda: Connection(self), to_look_up(host), port, backlog=BACKLOG, start_serving=False
            )
        except OSError as error:
            raise HeadraceError(cannot_listen(error, host, port)) from error
        address = self._server.sockets[0].getsockname()
        return str(address[0]), int(address[1])

    async def serve(self) -> None:
        """Accept connections."""
        assert self._server is not None
        host, port = self._server.sockets[0].getsockname()[:2]
        try:
            await self._server.start_serving()
        except OSError as error:  # two may take an address, and one may listen on it
            raise HeadraceError(cannot_listen(error, host, port)) from error
        self._timer = asyncio.get_running_loop().call_later(TICK_MS / 1000, self._ticked)

    async def stop(self, grace_seconds: float = 0) -> None:
        """Accept no more, give replies under way a moment, then close everything."""
        if self._server is None:
            return
        self._server.close()
        deadline = asyncio.get_running_loop().time() + grace_seconds
        while (
            any(c.waiting_replies for c in self.connections.values()) and asyncio.get_running_loop().time() < deadline
        ):
            await asyncio.sleep(0.005)
        for connection in list(self.connections.values()):
            connection.close()
        await asyncio.sleep(0)
        for connection in list(self.connections.values()):
            connection.abort()
        await self._server.wait_closed()
        if self._timer is not None:
            self._timer.cancel()
        self._server = None

    def close_stalled(self, stalled_ms: int) -> int:
        """Disconnects who has not read its replies for so long: others need the memory. Returns how many those were."""
        ticks = max(1, stalled_ms // TICK_MS)
        stalled = [
            found
            for found in self.connections.values()
            if found.ticks_without_reading(self.tick) >= ticks and found.buffered_bytes
        ]
        for connection in stalled:
            logger.warning("closing %s: it does not read its replies, and others wait for their memory", connection)
            self.counters.slow_closed += 1
            connection.abort()
        return len(stalled)

    # --- what connections report --------------------------------------------------------------------------------------

    def _opened(self, connection: Connection) -> None:
        host = connection.peer_host
        self.connections[id(connection)] = connection
        crowd, limits = self.crowd, self.limits
        count = crowd.join(host)
        most = limits.connections_by_address.get(host, limits.connections_per_address)
        if crowd.count > limits.connections or count > most:
            self.counters.refused += 1
            logger.warning(
                "%s: refusing a connection from %s, which has %d; there are %d in all",
                self.name,
                host,
                count - 1,
                crowd.count - 1,
            )
            connection.abort()
        else:
            self.counters.accepted += 1
            logger.debug("%s has come; there are %d in all", connection, crowd.count)

    def _closed(self, connection: Connection) -> None:
        del self.connections[id(connection)]
        self.crowd.leave(connection.peer_host)
        logger.debug("%s is gone; there are %d in all", connection, self.crowd.count)

    # --- time ---------------------------------------------------------------------------------------------------------

    def _ticked(self) -> None:
        self.tick += 1
        self._timer = asyncio.get_running_loop().call_later(TICK_MS / 1000, self._ticked)
        # A sweep over all connections costs microseconds for thousands, but not on every tick.
        if self.tick % 4 == 0:
            self._sweep()

    def _sweep(self) -> None:
        idle_ticks = max(1, self.limits.idle_ms // TICK_MS)
        slow_ticks = max(1, self.limits.slow_ms // TICK_MS)
        for connection in list(self.connections.values()):
            connection.look(self.tick)
            if connection.ticks_without_reading(self.tick) > slow_ticks:
                logger.warning("closing %s: it has not read its replies for %d ms", connection, slow_ticks * TICK_MS)
                self.counters.slow_closed += 1
                connection.abort()
            elif connection.is_inside_frame and self.tick - connection.active_at > slow_ticks:
                logger.warning("closing %s: it stopped in the middle of a request", connection)
                self.counters.slow_closed += 1
                connection.abort()
            elif self.budget.waiting and connection.ticks_without_coming(self.tick) >= TRICKLING_MS // TICK_MS:
                logger.warning(
                    "closing %s: hardly anything comes of its request of %d bytes, and others wait for the memory",
                    connection,
                    connection.frame_bytes,
                )
                self.counters.slow_closed += 1
                connection.abort()
            elif self.tick - connection.active_at > idle_ticks and not connection.waiting_replies:
                logger.info("closing %s: idle for %d ms", connection, idle_ticks * TICK_MS)
                self.counters.idle_closed += 1
                connection.close()


def to_look_up(host: str) -> Any:
    """The host that a loop is to listen on, in bytes: for a string, uvloop loads the codec of international names."""
    return [host.encode()] if host and host.isascii() else host or None


def cannot_listen(error: OSError, host: str, port: int) -> str:
    """Why, in a sentence, and what to do."""
    if error.errno == errno.EADDRINUSE:
        return f"{host}:{port} is in use by another process. Stop it, or choose another port."
    if error.errno == errno.EADDRNOTAVAIL:
        return f"this machine has no address {host}. Use one of its own, 127.0.0.1 or 0.0.0.0."
    if error.errno in (errno.EACCES, errno.EPERM):
        return f"listening on port {port} is not permitted. Choose one above 1023."
    return f"can't listen on {host}:{port} ({error.strerror or error}). Use an address of this machine."
