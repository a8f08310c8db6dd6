"""The HTTP port: what it tells of a node, and what it does with whatever is sent to it."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager

import pytest
import uvloop
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.broker import http
from headrace.broker.http import BadRequest, HttpReply, HttpRequest, HttpServer, parse_head
from headrace.config import NodeConfig
from headrace.config.http import AUTO_PORT, HttpAddress, HttpConfig
from headrace.errors import HeadraceError, Refused
from headrace.net.binding import Binding
from tests.broker.nodes import run, running


def page(request: HttpRequest) -> HttpReply:
    if request.path == "/long":
        return HttpReply(200, "text/plain", iter(["one ", "", "two ", "three"]))
    if request.path == "/endless":
        return HttpReply(200, "text/plain", iter(lambda: "x" * 100_000, None))
    if request.path == "/broken":
        return HttpReply(200, "text/plain", broken())
    if request.path == "/failing":
        raise ValueError("a defect")
    return HttpReply(200, "text/plain", f"path {request.path} accept {request.accept}")


def broken() -> Iterator[str]:
    yield "so far"
    raise ValueError("a defect")


@asynccontextmanager
async def served(answer: Callable[[HttpRequest], HttpReply] = page) -> AsyncIterator[int]:
    server = HttpServer(answer)
    _, port = await server.start("127.0.0.1", 0)
    try:
        yield port
    finally:
        await server.stop()


class Asker:
    """A client that reads one reply after another."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def ask(self, text: str | bytes) -> tuple[int, dict[str, str], str]:
        self.writer.write(text if isinstance(text, bytes) else text.encode())
        return await self.read(is_head=text[:4] in ("HEAD", b"HEAD"))

    async def read(self, *, is_head: bool = False) -> tuple[int, dict[str, str], str]:
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = dict(line.split(": ", 1) for line in head[1:] if line)
        body = b""
        if is_head:
            pass
        elif headers.get("Transfer-Encoding") == "chunked":
            while size := int(await self.reader.readline(), 16):
                body += await self.reader.readexactly(size)
                await self.reader.readline()
            await self.reader.readline()
        elif "Content-Length" in headers:
            body = await self.reader.readexactly(int(headers["Content-Length"]))
        else:
            body = await self.reader.read()
        return int(head[0].split()[1]), headers, body.decode()

    async def is_closed(self) -> bool:
        try:
            return await self.reader.read(1) == b""
        except ConnectionError:
            return True


@asynccontextmanager
async def asking(port: int) -> AsyncIterator[Asker]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield Asker(reader, writer)
    finally:
        writer.close()


def get(path: str, version: str = "HTTP/1.1", **headers: str) -> str:
    lines = [f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items()]
    return f"GET {path} {version}\r\nHost: a\r\n{''.join(lines)}\r\n"


def test_one_connection_asks_many_times() -> None:
    async def check() -> None:
        async with served() as port, asking(port) as asker:
            assert (await asker.ask(get("/a?query", Accept="text/x")))[2] == "path /a accept text/x"
            status, headers, body = await asker.ask(get("/long"))
            assert (status, headers["Transfer-Encoding"], body) == (200, "chunked", "one two three")
            assert (await asker.ask(get("http://a:1/b#c")))[2] == "path /b accept "
            status, headers, body = await asker.ask(get("/a").replace("GET", "HEAD"))
            assert (status, headers["Content-Length"], body) == (200, "15", "")
            status, headers, body = await asker.ask(get("/long").replace("GET", "HEAD"))
            assert (status, headers["Transfer-Encoding"], body) == (200, "chunked", "")
            status, headers, _ = await asker.ask(get("/last", Connection="close"))
            assert (status, headers["Connection"]) == (200, "close")
            assert await asker.is_closed()

    run(check())


def test_requests_that_come_together_are_answered_in_turn() -> None:
    async def check() -> None:
        async with served() as port, asking(port) as asker:
            asker.writer.write((get("/long") + get("/2") + get("/long") + get("/4")).encode())
            assert [(await asker.read())[2] for _ in range(4)] == [
                "one two three",
                "path /2 accept ",
                "one two three",
                "path /4 accept ",
            ]

    run(check())


def test_a_head_may_come_byte_by_byte() -> None:
    async def check() -> None:
        async with served() as port, asking(port) as asker:
            for byte in get("/slow").encode():
                asker.writer.write(bytes([byte]))
                await asyncio.sleep(0)
            assert (await asker.read())[2] == "path /slow accept "

    run(check())


def test_an_old_client_gets_a_long_page_until_the_connection_closes() -> None:
    async def check() -> None:
        async with served() as port:
            for keep in ("close", "keep-alive"):
                async with asking(port) as asker:
                    status, headers, body = await asker.ask(get("/long", "HTTP/1.0", Connection=keep))
                    assert (status, headers["Connection"], body) == (200, "close", "one two three")
            async with asking(port) as asker:
                for _ in range(2):
                    _, headers, body = await asker.ask(get("/a", "HTTP/1.0", Connection="Keep-Alive"))
                    assert (headers["Connection"], body) == ("keep-alive", "path /a accept ")

    run(check())


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("POST / HTTP/1.1\r\nHost: a\r\n\r\n", 405),
        ("get / HTTP/1.1\r\nHost: a\r\n\r\n", 405),
        ("GET / HTTP/2.0\r\nHost: a\r\n\r\n", 505),
        ("GET / HTTP/1.1\r\n\r\n", 400),
        ("GET /\r\n\r\n", 400),
        ("\r\n\r\n", 400),
        ("GET  / HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("GET a HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("GET * HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc", 413),
        ("GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\nContent-Length: 3\r\n\r\nabc", 400),
        ("GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 413),
        ("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a\r\nno colon\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a\r\n folded: b\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a\r\nname : b\r\n\r\n", 400),
        ("GET /é HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a\r\n" + "a: b\r\n" * 200 + "\r\n", 431),
        ("GET /" + "a" * 9000 + " HTTP/1.1\r\nHost: a\r\n\r\n", 431),
        ("\x16\x03\x01" + "\0" * 9000, 431),
    ],
)
def test_what_is_not_served_is_said_and_ends_the_connection(text: str, status: int) -> None:
    async def check() -> None:
        async with served() as port, asking(port) as asker:
            found, headers, body = await asker.ask(text)
            assert (found, headers["Connection"]) == (status, "close")
            assert body.endswith(".\n")
            assert await asker.is_closed()
            async with asking(port) as other:
                assert (await other.ask(get("/a")))[0] == 200

    run(check())


@settings(max_examples=30)
@given(st.binary(max_size=300) | st.text(alphabet="GET /HP1.:\r\na", max_size=100).map(str.encode))
def test_any_head_is_read_or_refused(text: bytes) -> None:
    try:
        parse_head(text)
    except BadRequest as bad:
        assert bad.status in http._STATUS


def test_a_page_that_fails_is_said_or_cut_off() -> None:
    async def check() -> None:
        async with served() as port, asking(port) as asker:
            assert (await asker.ask(get("/failing")))[0] == 500
            with pytest.raises((asyncio.IncompleteReadError, ConnectionError, ValueError)):
                await asker.ask(get("/broken"))

    run(check())


def test_who_does_not_read_a_page_holds_up_nobody_and_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "REPLY_SECONDS", 0.2)
    monkeypatch.setattr(http, "SWEEP_SECONDS", 0.05)

    async def check() -> None:
        async with served() as port:
            lazy = [await asyncio.open_connection("127.0.0.1", port, limit=1) for _ in range(http.LONG_REPLIES_MAX)]
            for _, writer in lazy:
                writer.write(get("/endless").encode())
            await asyncio.sleep(0.05)
            async with asking(port) as asker:
                status, headers, _ = await asker.ask(get("/long"))
                assert (status, headers["Retry-After"]) == (503, "1")
                assert (await asker.ask(get("/a")))[0] == 200
                while (await asker.ask(get("/long")))[0] != 200:
                    await asyncio.sleep(0.05)
            for _, writer in lazy:
                writer.close()

    run(check())


def test_a_head_that_does_not_end_and_a_silent_client_are_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "HEAD_SECONDS", 0.05)
    monkeypatch.setattr(http, "IDLE_SECONDS", 0.05)
    monkeypatch.setattr(http, "SWEEP_SECONDS", 0.02)

    async def check() -> None:
        async with served() as port, asking(port) as silent, asking(port) as half, asking(port) as idle:
            half.writer.write(b"GET / HT")
            await idle.ask(get("/a"))
            assert [await asker.is_closed() for asker in (silent, half, idle)] == [True] * 3

    run(check())


def test_there_are_only_so_many_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "CONNECTIONS_MAX", 2)

    async def check() -> None:
        async with served() as port, asking(port) as one:
            async with asking(port) as two:
                assert (await one.ask(get("/a")))[0] == (await two.ask(get("/a")))[0] == 200
                async with asking(port) as three:
                    assert await three.is_closed()
            while True:
                async with asking(port) as again:
                    try:
                        assert (await again.ask(get("/a")))[0] == 200
                        break
                    except (asyncio.IncompleteReadError, ConnectionError):
                        await asyncio.sleep(0.01)

    run(check())


# --- the setting ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("off", None),
        ("", None),
        ("auto", HttpAddress("127.0.0.1", AUTO_PORT, True)),
        ("0.0.0.0:80", HttpAddress("0.0.0.0", 80, False)),
        (":0", HttpAddress("", 0, False)),
        ("[::1]:9192", HttpAddress("::1", 9192, False)),
    ],
)
def test_the_setting_says_where(text: str, address: HttpAddress | None) -> None:
    assert HttpConfig.parse({"http.listen": text}).address() == address


@pytest.mark.parametrize("text", ["on", "9192", "::1:9192", "a:b", "a:70000", "a:²", "a:-1"])
def test_a_setting_that_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(Refused, match="http.listen is '.*', and it must be host:port"):
        NodeConfig.parse({"http.listen": text})


def test_a_port_that_is_taken_is_a_sentence_unless_any_will_do() -> None:
    async def check() -> None:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = taken.getsockname()[1]
            with pytest.raises(HeadraceError, match=rf"^http.listen: 127.0.0.1:{port} is in use by another process\."):
                await HttpServer(page).start("127.0.0.1", port)
            server = HttpServer(page)
            _, other = await server.start("127.0.0.1", port, may_differ=True)
            assert other not in (port, 0)
            await server.stop()

    run(check())


def test_a_port_that_another_listens_on_first_is_taken_though_both_had_it(monkeypatch: pytest.MonkeyPatch) -> None:
    take = Binding.take

    async def check() -> None:
        with socket.socket() as other:
            other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            other.bind(("127.0.0.1", 0))
            port = other.getsockname()[1]

            async def take_and_be_late(host: str, port: int) -> Binding:
                taken = await take(host, port)
                other.listen()
                return taken

            monkeypatch.setattr(Binding, "take", take_and_be_late)
            server = HttpServer(page)
            _, chosen = await server.start("127.0.0.1", port, may_differ=True)
            assert chosen not in (port, 0)
            await server.stop()

    uvloop.run(check())  # which says nothing of it


# --- the pages of a node ----------------------------------------------------------------------------------------------


def test_a_node_tells_what_it_is_and_that_it_is_well() -> None:
    async def check() -> None:
        async with running(http_listen="127.0.0.1:0") as node:
            assert node.http_address is not None
            async with asking(node.http_address[1]) as asker:
                for path in ("/healthz", "/readyz"):
                    assert (await asker.ask(get(path)))[::2] == (200, "ok\n")
                _, headers, body = await asker.ask(get("/"))
                assert headers["Content-Type"] == "text/html; charset=utf-8"
                assert node.cluster_id in body
                for path in ("/metrics", "/metrics/partitions", "/healthz", "/readyz"):
                    assert f'href="{path}"' in body
                assert (await asker.ask(get("/none")))[0] == 404

    run(check())


def test_a_node_that_has_failed_says_so() -> None:
    async def check() -> None:
        async with running(http_listen="127.0.0.1:0") as node:
            assert node.http_address is not None
            async with asking(node.http_address[1]) as asker:
                node.failed.set_result(HeadraceError("the disk is gone."))
                for path in ("/healthz", "/readyz"):
                    assert (await asker.ask(get(path)))[::2] == (503, "the disk is gone.\n")

    run(check())


def test_a_node_that_stops_is_alive_and_not_ready() -> None:
    async def check() -> None:
        async with running(http_listen="127.0.0.1:0") as node:
            assert node.http_address is not None
            async with asking(node.http_address[1]) as asker:
                node._observation.stopping()
                assert (await asker.ask(get("/healthz")))[0] == 200
                status, _, body = await asker.ask(get("/readyz"))
                assert (status, body) == (503, "The node is starting, or stopping: clients are not served.\n")
                _, _, text = await asker.ask(get("/metrics"))
                assert "headrace_ready 0\n" in text

    run(check())


def test_a_node_has_no_port_when_it_is_off() -> None:
    async def check() -> None:
        async with running(http_listen="off") as node:
            assert node.http_address is None

    run(check())
