"""A port that clients connect to, with limits on who may and how long."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from headrace.errors import HeadraceError
from headrace.metrics.requests import RequestFigures, Stopwatch
from headrace.net.binding import Binding, cannot_listen
from headrace.net.budget import Budget
from headrace.net.connection import Connection, ConnectionProtocol
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
        "_binding",
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
        large_budget: Budget | None = None,
    ) -> None:
        self.name = name
        self.handler = handler
        self.limits = limits or Limits()
        self.budget = budget or Budget(512 << 20)
        self.counters = counters or Counters()
        self.crowd = crowd or Crowd()
        self.stopwatch = stopwatch or Stopwatch(lambda: 0)
        self.receiver = Receiver(self.limits.frame_bytes, self.budget, large_budget)
        self.connections: dict[int, Connection] = {}
        self._binding: Binding | None = None
        self._timer: asyncio.TimerHandle | None = None

    @property
    def tick(self) -> int:
        return self.receiver.tick

    async def start(self, host: str, port: int) -> tuple[str, int]:
        """Listen; returns the address, whose port was chosen by the system if it was 0."""
        address = await self.bind(host, port)
        await self.serve()
        return address

    async def bind(self, host: str, port: int) -> tuple[str, int]:
        """Take the address, without anyone being able to connect yet."""
        try:
            binding = self._binding = await Binding.take(host, port)
        except OSError as error:
            raise HeadraceError(cannot_listen(error, host, port)) from error
        return binding.host, binding.port

    async def serve(self) -> None:
        """Accept connections."""
        binding = self._binding
        assert binding is not None
        try:
            await binding.serve(lambda: ConnectionProtocol(self), BACKLOG)
        except OSError as error:  # two may take an address, and one may listen on it
            raise HeadraceError(cannot_listen(error, binding.host, binding.port)) from error
        self._timer = asyncio.get_running_loop().call_later(TICK_MS / 1000, self._ticked)

    async def stop(self, grace_seconds: float = 0) -> None:
        """Accept no more, give replies under way a moment, then close everything."""
        if self._binding is None:
            return
        self._binding.close()
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
        await self._binding.wait_closed()
        if self._timer is not None:
            self._timer.cancel()
        self._binding = None

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
        self.receiver.tick += 1
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
            elif connection.is_waited_for and connection.ticks_without_coming(self.tick) >= TRICKLING_MS // TICK_MS:
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
