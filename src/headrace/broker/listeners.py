"""The listeners of a node: opened, and known by the addresses that clients are told."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from headrace.broker.request_log import RequestLog
from headrace.config import ListenerConfig, RequestConfig
from headrace.config.listeners import host_and_port
from headrace.metadata.image import Endpoint
from headrace.metrics.requests import RequestFigures, Stopwatch
from headrace.net.budget import Budget
from headrace.net.connection import Connection
from headrace.net.crowd import Crowd
from headrace.net.listener import Limits, Listener

logger = logging.getLogger(__name__)

WITHOUT_LIMIT = 2**62
STALLED_MS = 2000
"""How long a client may leave its replies unread while others have to wait for the memory that they take."""


class Listeners:
    """Bound when the node starts, so that it knows its addresses, and open when it is ready.

    Whoever connects in between is refused, and tries again: a client that is told of a cluster without brokers may wait
    for minutes, and a producer must not write under the leader epoch of the life before.
    """

    __slots__ = (
        "_bound",
        "_config",
        "_host_name",
        "_limits",
        "_log",
        "_relieved_tick",
        "all",
        "budget",
        "endpoints",
        "large_budget",
    )

    def __init__(
        self,
        config: ListenerConfig,
        request: RequestConfig,
        host_name: Callable[[], str],
        stopwatch: Stopwatch | None = None,
    ) -> None:
        """`host_name` is what the machine is called, for listeners on all of its addresses."""
        self._config = config
        self._host_name = host_name
        self._relieved_tick = -1
        queued_bytes = config.queued_max_request_bytes
        if queued_bytes < 0:
            queued_bytes = WITHOUT_LIMIT
        self.large_budget = Budget(queued_bytes // 2)
        self.budget = Budget(queued_bytes - queued_bytes // 2)
        limits = self._limits = Limits(
            frame_bytes=request.socket_request_max_bytes,
            connections=config.max_connections,
            connections_per_address=config.max_connections_per_ip,
            connections_by_address=config.connections_by_address(),
            requests_in_flight=config.connections_max_requests_in_flight,
            write_bytes=config.connections_max_reply_bytes,
            idle_ms=config.connections_max_idle_ms,
            slow_ms=config.connections_max_stalled_ms,
        )
        stopwatch = stopwatch or Stopwatch(lambda: 0)
        crowd = Crowd()
        self.all = [
            Listener(
                address.name,
                _nothing,
                limits,
                self.budget,
                stopwatch=stopwatch,
                crowd=crowd,
                large_budget=self.large_budget,
            )
            for address in config.addresses()
        ]
        self._bound: list[str] = []
        self._log: RequestLog | None = None
        self.endpoints: list[Endpoint] = []
        """What clients are told, by listener, once they are open."""

    def configure(self, config: ListenerConfig) -> None:
        """Takes other limits on connections, for those who connect from now on."""
        self._limits.connections = config.max_connections
        self._limits.connections_per_address = config.max_connections_per_ip
        self._limits.connections_by_address = config.connections_by_address()

    @property
    def request_bytes_held(self) -> int:
        """For requests that have not arrived whole, or are kept for a while."""
        return self.budget.held_bytes + self.large_budget.held_bytes

    async def bind(self) -> None:
        told = {address.name: address for address in self._config.advertised()}
        for listener, address in zip(self.all, self._config.addresses(), strict=True):
            bound, port = await listener.bind(address.host, address.port)
            self._bound.append(host_and_port(bound, port))
            advertised = told.get(address.name)
            if advertised is not None:
                host, port = advertised.host, advertised.port or port
            else:
                host = self._host_name() if address.is_wildcard else address.host
            protocol = self._config.security_protocol(address.name)
            self.endpoints.append(Endpoint(address.name, host, port, protocol))

    async def serve(self, handler: Callable[[Connection, memoryview], RequestFigures | None]) -> None:
        self._log = RequestLog(self.all, handler)
        for listener, bound, endpoint in zip(self.all, self._bound, self.endpoints, strict=True):
            await listener.serve()
            told = host_and_port(endpoint.host, endpoint.port)
            logger.info("%s listens on %s; clients are told %s", listener.name, bound, told)

    def relieve(self) -> None:
        """The memory of replies is full: who has not read for a while makes room. Looked at once a tick."""
        tick = self.all[0].tick
        if tick != self._relieved_tick:
            self._relieved_tick = tick
            for listener in self.all:
                listener.close_stalled(STALLED_MS)

    async def stop(self, grace_seconds: float) -> None:
        """Accepts no more, gives replies under way a moment, then closes everything."""
        await asyncio.gather(*(listener.stop(grace_seconds) for listener in self.all))


def _nothing(connection: Connection, frame: memoryview) -> None:
    """Nobody can connect yet."""
