"""The link to one broker: it connects when it is needed, learns what the broker speaks, and waits between failures."""

import asyncio
import random
from typing import Any, Final

import headrace
from headrace.client.backoff import Backoff
from headrace.client.errors import WrongArgument
from headrace.client.settings import Settings
from headrace.client.versions import Served
from headrace.errors import Error, HeadraceError, ProtocolError
from headrace.net.peer import Disconnected, Peer
from headrace.protocol.apis import API_VERSIONS_KEY, find_api
from headrace.protocol.frame import write_request
from headrace.protocol.message import Message
from headrace.protocol.messages import ApiVersionsRequest, ApiVersionsResponse

__all__ = ["Link"]

_SOFTWARE_NAME: Final = "headrace"
_NO_NODE: Final = -1


class Link:
    """One address. Many may wait for it at once; it is opened once."""

    __slots__ = (
        "_backoff",
        "_loop",
        "_open_after",
        "_opening",
        "_settings",
        "host",
        "is_closed",
        "last_error",
        "node_id",
        "peer",
        "port",
        "served",
    )

    def __init__(
        self, host: str, port: int, settings: Settings, chance: random.Random, node_id: int = _NO_NODE
    ) -> None:
        self.host = host
        self.port = port
        self.node_id = node_id
        self.peer: Peer | None = None
        self.served: Served | None = None
        self.last_error = ""
        """Why the last try to open it failed; empty when it succeeded."""
        self.is_closed = False
        self._settings = settings
        self._backoff = Backoff(settings.reconnect_backoff_s, settings.reconnect_backoff_max_s, chance)
        self._loop = asyncio.get_running_loop()
        self._open_after = 0.0
        self._opening: asyncio.Task[None] | None = None

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def is_ready(self) -> bool:
        return self.served is not None and self.peer is not None and self.peer.is_connected

    @property
    def is_failing(self) -> bool:
        return self._backoff.failures > 0

    async def ready(self) -> None:
        """Returns with an open link, or raises why there is none. Waits first when the last tries failed."""
        if self.is_ready:
            return
        if self.is_closed:
            raise Disconnected(f"the client of {self} is closed.")
        if self._opening is None:
            self._opening = self._loop.create_task(self._open())
            self._opening.add_done_callback(self._opened)
        opening = self._opening
        await asyncio.wait([opening])  # whoever stops waiting does not stop the others
        if opening.cancelled():
            raise Disconnected(f"the client of {self} is closed.")
        opening.result()

    async def call(self, message: Message, timeout_s: float | None = None, version_max: int | None = None) -> Any:
        """Send a request in the highest common version and wait for the response."""
        await self.ready()
        assert self.peer is not None
        assert self.served is not None
        version = self.served.choose(type(message), version_max)
        try:
            return await self.peer.call(message, version, timeout_s or self._settings.request_timeout_s)
        except ProtocolError:
            _check_writable(message, version)
            raise

    def close(self) -> None:
        self.is_closed = True
        if self._opening is not None:
            self._opening.cancel()
        if self.peer is not None:
            self.peer.close()

    def _opened(self, opening: asyncio.Task[None]) -> None:
        self._opening = None
        if not opening.cancelled():
            opening.exception()  # whoever waits is told; when nobody does, it is no news

    async def _open(self) -> None:
        await asyncio.sleep(max(0.0, self._open_after - self._loop.time()))
        peer = Peer(self.host, self.port, self._settings.client_id)
        try:
            await peer.connect(self._settings.connect_timeout_s, self._settings.response_bytes_max)
            served = await self._negotiate(peer)
        except HeadraceError as error:
            peer.close()
            self.last_error = str(error)
            self._open_after = self._loop.time() + self._backoff.failed()
            raise
        except asyncio.CancelledError:
            peer.close()
            raise
        # Not before: until now the versions that are known are those of the connection before.
        self.peer, self.served = peer, served
        self._backoff.succeeded()
        self.last_error = ""

    async def _negotiate(self, peer: Peer) -> Served:
        """Ask in our highest version; a broker that is older says which it has, and is asked again (KIP-511)."""
        request = ApiVersionsRequest(
            client_software_name=_SOFTWARE_NAME, client_software_version=headrace.__version__.replace("+", "-")
        )
        api = find_api(API_VERSIONS_KEY)
        assert api is not None
        response: ApiVersionsResponse = await peer.call(request, api.versions.last, self._settings.connect_timeout_s)
        if response.error_code == Error.UNSUPPORTED_VERSION:
            version = Served(response, str(self)).highest_of(API_VERSIONS_KEY) or 0
            response = await peer.call(request, min(version, api.versions.last), self._settings.connect_timeout_s)
        if response.error_code:
            error = Error.of(response.error_code)
            raise ProtocolError(f"{self} refuses to say what it speaks ({error.name}): {error.text}")
        return Served(response, str(self))


def _check_writable(message: Message, version: int) -> None:
    """When it is the request that makes no sense, and not the answer, no other broker can answer it either."""
    try:
        write_request(message, version, 0, None)
    except ProtocolError as error:
        raise WrongArgument(f"A request can't be written: {error}") from error
