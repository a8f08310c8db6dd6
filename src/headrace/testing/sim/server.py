"""A listening socket of the simulated network. Its kernel takes connections while its process is paused."""

from __future__ import annotations

import asyncio
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, Final

from headrace.testing.sim.process import CURRENT

if TYPE_CHECKING:
    from headrace.testing.sim.host import Host
    from headrace.testing.sim.loop import SimLoop
    from headrace.testing.sim.transport import SimTransport

_EVERY_ADDRESS: Final = "0.0.0.0"


class SimServer(asyncio.AbstractServer):
    __slots__ = (
        "_addresses",
        "_backlog",
        "_closed",
        "_is_closed",
        "_is_serving",
        "_loop",
        "_open",
        "_protocol_factory",
        "_waiting",
        "context",
        "process",
    )

    def __init__(self, loop: SimLoop, protocol_factory: Any = None, backlog: int = 100) -> None:
        self.process = CURRENT.get()
        self.context = copy_context()
        self._loop = loop
        self._protocol_factory = protocol_factory
        self._backlog = backlog
        self._addresses: list[tuple[Host, str, int]] = []
        self._waiting: dict[SimTransport, None] = {}
        self._open: dict[SimTransport, None] = {}
        self._is_serving = False
        self._is_closed = False
        self._closed: asyncio.Future[None] = loop.create_future()

    @property
    def sockets(self) -> tuple[SimSocket, ...]:
        return tuple(SimSocket(self, address, port) for _, address, port in self._addresses)

    def get_loop(self) -> SimLoop:
        return self._loop

    def is_serving(self) -> bool:
        return self._is_serving

    def take(self, protocol_factory: Any, backlog: int) -> None:
        """What a server that was bound before lets in."""
        self._protocol_factory = protocol_factory
        self._backlog = backlog

    async def start_serving(self) -> None:
        self._is_serving = True

    async def serve_forever(self) -> None:
        await self.start_serving()
        await self._closed

    def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        self._is_serving = False
        for host, _, port in self._addresses:
            self._loop.network.forget_server(self, host, port)
        for transport in list(self._waiting):
            transport.kernel_close()
        self._waiting.clear()
        self._end_when_empty()

    async def wait_closed(self) -> None:
        await asyncio.shield(self._closed)

    def bind(self, name: str | None, port: int) -> tuple[str, int]:
        self._loop.network.listen(self, name, port)
        _, address, port = self._addresses[-1]
        return address, port

    # --- for the network ----------------------------------------------------------------------------------------------

    def bound(self, host: Host, address: str, port: int) -> None:
        self._addresses.append((host, address, port))

    def meets(self, port: int, address: str) -> bool:
        """Whether an address is among those that it listens on."""
        return any(
            port == own_port and (address == own or _EVERY_ADDRESS in (own, address))
            for _, own, own_port in self._addresses
        )

    @property
    def is_full(self) -> bool:
        return len(self._waiting) >= self._backlog

    def arrived(self, transport: SimTransport) -> None:
        """A connection waits to be accepted. Its client knows nothing of that."""
        transport.server = self
        self._waiting[transport] = None
        self._loop.call_soon(self._accept, transport, context=self.context)

    def left(self, transport: SimTransport) -> None:
        self._open.pop(transport, None)
        self._end_when_empty()

    def _accept(self, transport: SimTransport) -> None:
        if self._waiting.pop(transport, transport) is None:
            self._open[transport] = None
            transport.begin(self._protocol_factory())

    def _end_when_empty(self) -> None:
        if self._is_closed and not self._open and not self._closed.done():
            self._closed.set_result(None)


class SimSocket:
    """As much of a socket as callers ask of a server's. Two can't be bound to one address, listening or not."""

    __slots__ = ("_address", "_port", "server")

    def __init__(self, server: SimServer, address: str = "", port: int = 0) -> None:
        self.server = server
        self._address = address
        self._port = port

    def setsockopt(self, *_: int) -> None:
        pass

    def bind(self, address: tuple[Any, ...]) -> None:
        self._address, self._port = self.server.bind(address[0], address[1])

    def listen(self, backlog: int) -> None:
        """Its server is the one that lets clients in."""

    def getsockname(self) -> tuple[str, int]:
        return self._address, self._port

    def close(self) -> None:
        self.server.close()
