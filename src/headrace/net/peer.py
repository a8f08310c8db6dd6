"""One outbound connection to a broker or controller, on which requests are pipelined.

Responses come in the order of the requests, so a queue of futures is all the bookkeeping. A link that breaks fails
what waits on it, with an error that says whether the request may have been carried out; to try again is the caller's.
"""

import asyncio
from collections import deque
from typing import Any, Final, NamedTuple, cast

from headrace.errors import Error, HeadraceError, ProtocolError
from headrace.net.budget import Budget
from headrace.net.framing import FrameProtocol, Receiver
from headrace.net.pacing import unpace
from headrace.protocol.apis import API_VERSIONS_KEY, Api, find_api
from headrace.protocol.frame import read_correlation_id, read_response, write_request
from headrace.protocol.message import Message

_ERROR_AT: Final = 4  # right after the correlation id, in every version of ApiVersions
_UNSUPPORTED_VERSION: Final = Error.UNSUPPORTED_VERSION.to_bytes(2, "big")


class Disconnected(HeadraceError):
    """The link broke, or never came to be. A request that was sent may have been carried out (hazard 14)."""


class _Waiting(NamedTuple):
    correlation_id: int
    api: Api
    version: int
    future: asyncio.Future[Any]


class Peer:
    """A link to one address. `connect` first; a peer that lost its link is not used again."""

    __slots__ = ("_link", "client_id", "host", "port")

    def __init__(self, host: str, port: int, client_id: str) -> None:
        self.host = host
        self.port = port
        self.client_id = client_id
        self._link: _Link | None = None

    async def connect(self, timeout_seconds: float, frame_bytes_max: int = 1 << 30) -> None:
        loop = asyncio.get_running_loop()
        receiver = Receiver(frame_bytes_max, Budget(frame_bytes_max))
        try:
            async with asyncio.timeout(timeout_seconds):
                _, self._link = await loop.create_connection(lambda: _Link(self, receiver), self.host, self.port)
        except TimeoutError:
            raise Disconnected(f"{self} did not answer within {timeout_seconds:g} s.") from None
        except OSError as error:
            raise Disconnected(f"can't connect to {self}: {error.strerror or error}.") from error
        except (ValueError, OverflowError) as error:  # where a broker says that it is may be anything
            raise Disconnected(f"can't connect to {self}: there can be no such address.") from error

    @property
    def is_connected(self) -> bool:
        return self._link is not None and self._link.is_open

    @property
    def waiting(self) -> int:
        """Requests without a response yet."""
        return 0 if self._link is None else len(self._link.waiting)

    def send(self, message: Message, version: int) -> asyncio.Future[Any]:
        """Send a request now; the future is its response."""
        if self._link is None or not self._link.is_open:
            raise Disconnected(f"there is no connection to {self}.")
        return self._link.send(message, version)

    def send_without_reply(self, message: Message, version: int) -> None:
        """Send a request that gets no response (Produce with acks=0)."""
        if self._link is None or not self._link.is_open:
            raise Disconnected(f"there is no connection to {self}.")
        self._link.write(message, version)

    async def call(self, message: Message, version: int, timeout_seconds: float) -> Any:
        """Send a request and wait for its response. One that takes too long breaks the link: order would be lost."""
        future = self.send(message, version)
        try:
            async with asyncio.timeout(timeout_seconds):
                return await future
        except TimeoutError:
            self.close(f"{self} did not answer {message.shape.name} within {timeout_seconds:g} s.")
            raise Disconnected(f"{self} did not answer {message.shape.name} within {timeout_seconds:g} s.") from None

    @property
    def is_writable(self) -> bool:
        """The peer takes what is sent: `drain` would not wait."""
        return self._link is not None and self._link.drained.is_set()

    async def drain(self) -> None:
        """Wait until the peer takes what was sent, when it is slow."""
        if self._link is not None:
            await self._link.drained.wait()

    def close(self, why: str = "") -> None:
        if self._link is not None:
            self._link.break_off(why or f"the connection to {self} was closed.")

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


class _Link(FrameProtocol, asyncio.BufferedProtocol):
    __slots__ = ("_next_id", "_transport", "_why", "drained", "peer", "waiting")

    def __init__(self, peer: Peer, receiver: Receiver) -> None:
        super().__init__(receiver)
        self.peer = peer
        self.waiting: deque[_Waiting] = deque()
        self.drained = asyncio.Event()
        self.drained.set()
        self._transport: asyncio.Transport | None = None
        self._next_id = 0
        self._why = ""

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    def write(self, message: Message, version: int) -> int:
        assert self._transport is not None
        correlation_id = self._next_id
        self._next_id = (correlation_id + 1) & 0x7FFFFFFF
        self._transport.writelines(write_request(message, version, correlation_id, self.peer.client_id))
        return correlation_id

    def send(self, message: Message, version: int) -> asyncio.Future[Any]:
        key = message.shape.key
        api = find_api(key) if key is not None else None
        assert api is not None, f"{message.shape.name} is not a request"
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.waiting.append(_Waiting(self.write(message, version), api, version, future))
        return future

    def break_off(self, why: str) -> None:
        self._why = self._why or why
        if self._transport is not None:
            self._transport.abort()

    # --- what comes in ------------------------------------------------------------------------------------------------

    def frame_received(self, frame: memoryview) -> None:
        if not self.waiting:
            raise ProtocolError(f"{self.peer} sent a response that nobody asked for")
        correlation_id = read_correlation_id(frame)
        expected = self.waiting.popleft()
        if correlation_id != expected.correlation_id:
            self.waiting.appendleft(expected)
            raise ProtocolError(f"{self.peer} answered request {correlation_id} before {expected.correlation_id}")
        if expected.future.done():  # whoever asked has given up
            return
        try:
            # The response is kept, and the frame is not: its records need bytes of their own.
            _, response = read_response(expected.api, _version_of(expected, frame), bytes(frame))
        except ProtocolError as error:
            expected.future.set_exception(error)
            raise
        expected.future.set_result(response)

    def frame_refused(self, error: ProtocolError) -> None:
        self.break_off(f"{self.peer} sent what can't be read: {error}.")

    def reading_changed(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            if self.wants_bytes:
                self._transport.resume_reading()
            else:
                self._transport.pause_reading()

    # --- what the loop calls ------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        unpace(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self.drop_frames()
        self.drained.set()
        why = self._why or f"{self.peer} closed the connection."
        while self.waiting:
            future = self.waiting.popleft().future
            if not future.done():
                future.set_exception(Disconnected(why))

    def pause_writing(self) -> None:
        self.drained.clear()

    def resume_writing(self) -> None:
        self.drained.set()


def _version_of(expected: _Waiting, frame: memoryview) -> int:
    """A broker that does not know the version of an ApiVersions request says so in version 0 (KIP-511)."""
    if expected.api.key == API_VERSIONS_KEY and frame[_ERROR_AT : _ERROR_AT + 2] == _UNSUPPORTED_VERSION:
        return 0
    return expected.version
