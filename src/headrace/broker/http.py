"""A small HTTP server in the node's loop, for pages that are read: GET and HEAD, HTTP/1.1 with keep-alive, no bodies.

Whatever comes in is bounded: the head of a request, the connections, the replies under way, and how long each may take.
A long page is a generator: each step of it gets its turn of the loop, and none while the client does not read.
"""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Callable, Iterator
from typing import Final, cast

from headrace.errors import HeadraceError
from headrace.named_tuple import NamedTuple
from headrace.net.binding import Binding, cannot_listen

logger = logging.getLogger(__name__)

HEAD_BYTES_MAX: Final = 8192
HEADERS_MAX: Final = 100
CONNECTIONS_MAX: Final = 64
LONG_REPLIES_MAX: Final = 4
"""Long pages that are made at once; who asks for more is told to come again."""
IDLE_SECONDS: Final = 120.0
"""Longer than the usual time between two scrapes."""
HEAD_SECONDS: Final = 10.0
REPLY_SECONDS: Final = 30.0
SWEEP_SECONDS: Final = 1.0

_STATUS: Final = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    413: "Content Too Large",
    414: "URI Too Long",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    503: "Service Unavailable",
    505: "HTTP Version Not Supported",
}
_HEAD_END: Final = b"\r\n\r\n"
TEXT: Final = "text/plain; charset=utf-8"


class HttpRequest(NamedTuple):
    path: str
    accept: str = ""


class HttpReply(NamedTuple):
    status: int
    content_type: str
    body: str | Iterator[str]
    """Text, or the parts of a long one; an empty part is a step that had nothing to say."""


class BadRequest(Exception):
    """What came can't be answered otherwise; the connection ends."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status
        self.text = text


class _Head(NamedTuple):
    request: HttpRequest
    is_head: bool
    is_chunked: bool
    """The client knows chunks (HTTP/1.1)."""
    keeps: bool


class HttpServer:
    """`answer` makes the reply to a request, at once."""

    __slots__ = ("_answer", "_binding", "_connections", "_loop", "_sweeping", "long_replies")

    def __init__(self, answer: Callable[[HttpRequest], HttpReply]) -> None:
        """In the loop that it will run in."""
        self._answer = answer
        self._loop = asyncio.get_running_loop()
        self._connections: dict[_HttpConnection, None] = {}
        self._binding: Binding | None = None
        self._sweeping: asyncio.TimerHandle | None = None
        self.long_replies = 0

    async def start(self, host: str, port: int, *, may_differ: bool = False) -> tuple[str, int]:
        """Listens; returns the address. Where the port `may_differ`, any free one is taken when it is in use."""
        try:
            binding = await self._listen(host, port)
        except OSError as error:
            if not may_differ or error.errno != errno.EADDRINUSE:
                raise HeadraceError(f"http.listen: {cannot_listen(error, host, port)}") from error
            binding = await self._listen(host, 0)
        self._binding = binding
        return binding.host, binding.port

    async def _listen(self, host: str, port: int) -> Binding:
        binding = await Binding.take(host, port)
        try:
            await binding.serve(lambda: _HttpConnection(self), CONNECTIONS_MAX)
        except OSError:
            binding.close()
            raise
        return binding

    async def stop(self) -> None:
        if self._binding is None:
            return
        self._binding.close()
        for connection in list(self._connections):
            connection.abort()
        await self._binding.wait_closed()
        self._binding = None
        if self._sweeping is not None:
            self._sweeping.cancel()

    def answer(self, request: HttpRequest) -> HttpReply:
        try:
            return self._answer(request)
        except Exception:
            logger.exception("the page %s failed", request.path)
            return HttpReply(500, TEXT, "The page can't be made; the node's log tells why.\n")

    # --- what connections report --------------------------------------------------------------------------------------

    def opened(self, connection: _HttpConnection) -> bool:
        """Whether there is room for it."""
        if len(self._connections) >= CONNECTIONS_MAX:
            return False
        self._connections[connection] = None
        if self._sweeping is None:
            self._sweeping = self._loop.call_later(SWEEP_SECONDS, self._sweep)
        return True

    def closed(self, connection: _HttpConnection) -> None:
        self._connections.pop(connection, None)

    def _sweep(self) -> None:
        self._sweeping = None
        now = self._loop.time()
        for connection in list(self._connections):
            if now >= connection.deadline_s:
                connection.abort()
        if self._connections:
            self._sweeping = self._loop.call_later(SWEEP_SECONDS, self._sweep)


class _HttpConnection(asyncio.Protocol):
    """One request after another."""

    __slots__ = (
        "_body",
        "_head",
        "_is_stepping",
        "_loop",
        "_received",
        "_server",
        "_transport",
        "_writes",
        "deadline_s",
    )

    def __init__(self, server: HttpServer) -> None:
        self._server = server
        self._loop = asyncio.get_running_loop()
        self._received = bytearray()
        self._head: _Head | None = None
        """Of the request whose long reply is under way."""
        self._body: Iterator[str] | None = None
        self._is_stepping = False
        self._writes = True
        self._transport: asyncio.Transport | None = None
        self.deadline_s = self._loop.time() + HEAD_SECONDS

    # --- what the loop calls ------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        if not self._server.opened(self):
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._end_body()
        self._server.closed(self)

    def data_received(self, data: bytes) -> None:
        self._received += data
        if self._body is not None:
            self._bound()
        else:
            if self._received and len(self._received) == len(data):
                self.deadline_s = self._loop.time() + HEAD_SECONDS
            self._serve()

    def eof_received(self) -> bool:
        return self._body is not None  # a reply that is under way is sent to its end

    def pause_writing(self) -> None:
        self._writes = False

    def resume_writing(self) -> None:
        self._writes = True
        if self._body is not None and not self._is_stepping:
            self._step_soon()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    # --- requests -----------------------------------------------------------------------------------------------------

    def _bound(self) -> None:
        """A client that goes on sending while it is answered is not read from any more."""
        if len(self._received) > HEAD_BYTES_MAX and self._transport is not None:
            self._transport.pause_reading()

    def _serve(self) -> None:
        """All requests that are here, until one has a long reply."""
        while self._body is None and self._transport is not None and not self._transport.is_closing():
            end = self._received.find(_HEAD_END, 0, HEAD_BYTES_MAX)
            if end < 0:
                if len(self._received) >= HEAD_BYTES_MAX:
                    self._refuse(BadRequest(431, f"A request's head may have {HEAD_BYTES_MAX} bytes."))
                return
            text = bytes(self._received[:end])
            del self._received[: end + len(_HEAD_END)]
            try:
                head = parse_head(text)
            except BadRequest as bad:
                self._refuse(bad)
                return
            self._reply(head, self._server.answer(head.request))

    def _refuse(self, bad: BadRequest) -> None:
        head = _Head(HttpRequest(""), is_head=False, is_chunked=False, keeps=False)
        self._reply(head, HttpReply(bad.status, TEXT, f"{bad.text}\n"))

    def _reply(self, head: _Head, reply: HttpReply) -> None:
        assert self._transport is not None
        body = reply.body
        if not isinstance(body, str) and not head.is_head and self._server.long_replies >= LONG_REPLIES_MAX:
            reply = HttpReply(503, TEXT, "Too many are reading this at once; come again in a moment.\n")
            body = reply.body
        is_long = not isinstance(body, str)
        keeps = head.keeps and (head.is_chunked or not is_long)
        lines = [
            f"HTTP/1.1 {reply.status} {_STATUS[reply.status]}",
            f"Content-Type: {reply.content_type}",
            "Cache-Control: no-store",
            "X-Content-Type-Options: nosniff",
            f"Connection: {'keep-alive' if keeps else 'close'}",
        ]
        if reply.status == 405:
            lines.append("Allow: GET, HEAD")
        if reply.status == 503:
            lines.append("Retry-After: 1")
        content = b""
        if isinstance(body, str):
            content = body.encode()
            lines.append(f"Content-Length: {len(content)}")
        elif head.is_chunked:
            lines.append("Transfer-Encoding: chunked")
        start = "\r\n".join(lines).encode() + _HEAD_END
        self._transport.write(start if head.is_head else start + content)
        if not isinstance(body, str) and not head.is_head:
            self._head, self._body = head._replace(keeps=keeps), body
            self._server.long_replies += 1
            self.deadline_s = self._loop.time() + REPLY_SECONDS
            self._bound()
            self._step_soon()
        else:
            self._replied(keeps)

    def _replied(self, keeps: bool) -> None:
        if self._transport is None:
            return
        if keeps:
            self.deadline_s = self._loop.time() + IDLE_SECONDS
        else:
            self._transport.close()
            self.deadline_s = self._loop.time() + REPLY_SECONDS

    # --- long replies -------------------------------------------------------------------------------------------------

    def _step_soon(self) -> None:
        self._is_stepping = True
        self._loop.call_soon(self._step)

    def _step(self) -> None:
        self._is_stepping = False
        body, head, transport = self._body, self._head, self._transport
        if body is None or head is None or transport is None:
            return
        try:
            part = next(body, None)
        except Exception:
            logger.exception("the page %s failed; the connection is closed", head.request.path)
            transport.abort()  # without its end, so that nobody takes it for the whole
            return
        if part is None:
            if head.is_chunked:
                transport.write(b"0\r\n\r\n")
            self._end_body()
            self._replied(head.keeps)
            transport.resume_reading()
            self._serve()
            return
        if part:
            data = part.encode()
            transport.write(b"%x\r\n%b\r\n" % (len(data), data) if head.is_chunked else data)
        if self._writes:
            self._step_soon()

    def _end_body(self) -> None:
        if self._body is not None:
            self._body = None
            self._server.long_replies -= 1


def parse_head(text: bytes) -> _Head:
    """The request line and the headers. Raises BadRequest."""
    try:
        lines = text.decode("ascii").split("\r\n")
    except UnicodeDecodeError:
        raise BadRequest(400, "A request's head is of ASCII characters.") from None
    words = lines[0].split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/"):
        raise BadRequest(400, "A request begins with a method, a path and HTTP/1.1.")
    method, target, version = words
    if version not in ("HTTP/1.1", "HTTP/1.0"):
        raise BadRequest(505, "HTTP/1.1 is spoken here.")
    headers = _headers(lines[1:])
    if headers.get("content-length", "0") != "0" or "transfer-encoding" in headers:
        raise BadRequest(413, "A request may have no body here.")
    if method not in ("GET", "HEAD"):
        raise BadRequest(405, "Only GET and HEAD are answered here.")
    if version == "HTTP/1.1" and "host" not in headers:
        raise BadRequest(400, "A request of HTTP/1.1 names its host.")
    wishes = [wish.strip() for wish in headers.get("connection", "").lower().split(",")]
    is_new = version == "HTTP/1.1"
    keeps = "close" not in wishes if is_new else "keep-alive" in wishes
    return _Head(HttpRequest(_path(target), headers.get("accept", "")), method == "HEAD", is_new, keeps)


def _headers(lines: list[str]) -> dict[str, str]:
    if len(lines) > HEADERS_MAX:
        raise BadRequest(431, f"A request may have {HEADERS_MAX} headers.")
    found: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or not name or name != name.strip() or any(character in name for character in " \t"):
            raise BadRequest(400, "A header is written as a name, a colon and a value.")
        key = name.lower()
        if key in found and key in ("content-length", "host"):
            raise BadRequest(400, f"The header {name} stands twice.")
        found[key] = f"{found[key]}, {value.strip()}" if key in found else value.strip()
    return found


def _path(target: str) -> str:
    """Of `/path?query`, or of a whole address as proxies send it."""
    if target.startswith(("http://", "https://")):
        _, slash, rest = target.partition("://")[2].partition("/")
        target = f"/{rest}" if slash else "/"
    if not target.startswith("/"):
        raise BadRequest(400, "A path begins with a slash.")
    return target.partition("?")[0].partition("#")[0]
