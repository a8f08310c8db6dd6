"""Replies that are sent from files, by a worker or the loop: their order, slow readers, and what goes wrong."""

import asyncio
import errno
import os
import socket
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from headrace.net import file_send, sending
from headrace.net.connection import Connection, Slot
from headrace.net.listener import Limits, Listener
from headrace.net.sending import RESTING_SLICE_BYTES, SLICE_BYTES, FileUnsendable, Sending, Stretch, Stretches
from headrace.storage.workers import WorkerThread
from tests.net.loops import Run, runner
from tests.net.sent_files import OneSender, SentFile
from tests.net.test_listener import eventually, framed, read_frame

on_real_loops = pytest.mark.parametrize("run", [pytest.param(runner(name), id=name) for name in ("uvloop", "asyncio")])

each_way = pytest.mark.parametrize("by_loop", [False, True], ids=["worker", "loop"])

LARGE_BYTES = 3 * SLICE_BYTES
"""More than sockets hold and than is sent in one go."""


class Server:
    """Answers `send N` with N bytes of a file; `later` when told to; and anything else with itself."""

    def __init__(self, folder: Path, by_loop: bool) -> None:
        self.data = os.urandom(1 << 20) * (LARGE_BYTES >> 20)
        (folder / "file").write_bytes(self.data)
        self.file = os.open(folder / "file", os.O_RDWR)
        self.worker = WorkerThread(asyncio.get_running_loop().call_soon_threadsafe, "sender", gives_way=True)
        self.by_loop = by_loop
        self.looks = 1 << 30
        self.slots: list[Slot] = []
        self.could_send: list[bool] = []
        self.ended: list[BaseException | None] = []

    def __call__(self, connection: Connection, frame: memoryview) -> None:
        asked = bytes(frame)
        if asked == b"later":
            self.slots.append(connection.reserve())
        elif asked.startswith(b"send"):
            self._send(connection, int(asked[4:]))
        else:
            connection.reply([bytearray(framed(asked))])

    def _send(self, connection: Connection, size: int) -> None:
        self.could_send.append(connection.can_send(None))
        if not self.could_send[-1]:
            connection.reply([bytearray(framed(self.data[:size]))])
            return
        half = size // 2
        first = Stretch(SentFile((0, size), self.looks), self.file, 0, half)
        stretches = Stretches([first, Stretch(SentFile(), self.file, half, size - half)])
        assert len(stretches) == size
        buffers = [bytearray(size.to_bytes(4)), stretches, b""]
        connection.reserve().send(buffers, OneSender(self.worker.run), self.by_loop, self.ended.append)


@asynccontextmanager
async def serving(folder: Path, by_loop: bool, **limits: Any) -> AsyncIterator[tuple[Server, Listener, int]]:
    server = Server(folder, by_loop)
    listener = Listener("test", server, Limits(**limits))
    _, port = await listener.start("127.0.0.1", 0)
    open_files = len(os.listdir("/proc/self/fd"))
    try:
        yield server, listener, port
        await eventually(lambda: not listener.connections)
        await eventually(lambda: len(os.listdir("/proc/self/fd")) <= open_files)
    finally:
        await listener.stop()
        server.worker.stop()
        os.close(server.file)


def no_worker(*arguments: Any) -> None:
    raise RuntimeError("can't start new thread")


def scenario_of(folder: Path, by_loop: bool, **limits: Any) -> Callable[[Any], Callable[[], Any]]:
    def decorate(work: Any) -> Any:
        async def scenario() -> None:
            async with serving(folder, by_loop, **limits) as (server, listener, port):
                await work(server, listener, *await asyncio.open_connection("127.0.0.1", port, limit=1 << 16))

        return scenario

    return decorate


@on_real_loops
@each_way
def test_replies_from_files_keep_the_order_of_their_requests(run: Run, tmp_path: Path, by_loop: bool) -> None:
    @scenario_of(tmp_path, by_loop)
    async def scenario(server: Server, listener: Listener, reader: Any, writer: Any) -> None:
        asked = [b"one", b"send 300000", b"send 5000000", b"two", b"send 70000", b"send 0001", b"three"]
        for _ in range(20):
            writer.write(b"".join(map(framed, asked)))
            for name in asked:
                expected = server.data[: int(name[4:])] if name.startswith(b"send") else name
                assert await read_frame(reader) == expected
        # Behind one that is sent from files another may follow; behind what the transport may still have, none.
        assert server.could_send.count(True) >= 20
        assert server.ended == [None] * server.could_send.count(True)
        writer.close()

    run(scenario())


@on_real_loops
@each_way
def test_a_reply_from_files_waits_for_one_before_it_that_is_not_there(run: Run, tmp_path: Path, by_loop: bool) -> None:
    @scenario_of(tmp_path, by_loop)
    async def scenario(server: Server, listener: Listener, reader: Any, writer: Any) -> None:
        writer.write(framed(b"later") + framed(b"send 300000"))
        await eventually(lambda: server.could_send)
        server.slots.pop().fill([framed(b"now")])
        assert await read_frame(reader) == b"now"
        assert await read_frame(reader) == server.data[:300000]
        assert server.could_send == [False]
        writer.close()

    run(scenario())


@on_real_loops
@each_way
def test_a_slow_reader_gets_all_of_a_reply_and_stalls_nobody(run: Run, tmp_path: Path, by_loop: bool) -> None:
    @scenario_of(tmp_path, by_loop)
    async def scenario(server: Server, listener: Listener, reader: Any, writer: Any) -> None:
        writer.write(framed(b"send %d" % LARGE_BYTES) + framed(b"behind"))
        await eventually(lambda: server.could_send)
        other_reader, other_writer = await asyncio.open_connection(*writer.get_extra_info("peername"))
        for number in range(50):
            other_writer.write(framed(b"%d" % number))
            assert await read_frame(other_reader) == b"%d" % number
        [connection] = [found for found in listener.connections.values() if found.waiting_replies]
        assert 0 < connection.unsent_bytes <= LARGE_BYTES + 10 + 10
        assert await read_frame(reader) == server.data
        assert await read_frame(reader) == b"behind"
        assert server.ended == [None]
        other_writer.close()
        writer.close()

    run(scenario())


@on_real_loops
@each_way
def test_a_client_that_goes_away_in_the_middle_leaves_nothing_behind(run: Run, tmp_path: Path, by_loop: bool) -> None:
    @scenario_of(tmp_path, by_loop)
    async def scenario(server: Server, listener: Listener, reader: Any, writer: Any) -> None:
        writer.write(framed(b"send %d" % LARGE_BYTES) * 3)
        await reader.readexactly(100_000)
        writer.transport.abort()
        await eventually(lambda: len(server.ended) == 3)
        assert all(isinstance(error, ConnectionError) for error in server.ended)

    run(scenario())


@on_real_loops
@each_way
def test_a_connection_that_is_closed_while_too_many_files_are_open_leaves_nothing_behind(
    run: Run, tmp_path: Path, by_loop: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries: list[int] = []

    def dup(socket: int) -> int:
        tries.append(socket)
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr("headrace.net.sending.DESCRIPTOR_WAIT_S", 0.01)
    monkeypatch.setattr(os, "dup", dup)

    @scenario_of(tmp_path, by_loop)
    async def scenario(server: Server, listener: Listener, reader: Any, writer: Any) -> None:
        writer.write(framed(b"send %d" % LARGE_BYTES))
        await eventually(lambda: len(tries) > 2)
        [connection] = listener.connections.values()
        assert not server.ended
        connection.abort()
        await eventually(lambda: server.ended)
        assert isinstance(server.ended[0], ConnectionError)
        tries.clear()
        await asyncio.sleep(0.05)
        assert not tries
        writer.close()

    run(scenario())


@on_real_loops
@pytest.mark.parametrize("looks", [0, 1, 2])
def test_what_is_not_at_hand_any_more_is_left_to_a_worker(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, looks: int
) -> None:
    """A client that takes its time may have a reply sent long after it was found in memory."""
    senders: list[str] = []

    def send(*arguments: Any) -> int:
        senders.append("loop" if threading.current_thread() is threading.main_thread() else "worker")
        return file_send.send(*arguments)

    monkeypatch.setattr(sending, "send", send)

    @scenario_of(tmp_path, True)
    async def scenario(server: Server, listener: Listener, reader: Any, writer: Any) -> None:
        server.looks = looks
        writer.write(framed(b"send %d" % LARGE_BYTES) + framed(b"behind"))
        assert await read_frame(reader) == server.data
        assert await read_frame(reader) == b"behind"
        assert server.ended == [None]
        writer.close()

    run(scenario())
    assert ("loop" in senders) is (looks > 0)
    assert senders == sorted(senders), "it is not taken back"
    assert "worker" in senders


@on_real_loops
def test_a_file_that_can_not_be_asked_ends_the_connection(run: Run, tmp_path: Path) -> None:
    def broken(*arguments: Any) -> Any:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    async def scenario(asked: str) -> None:
        file, ended = SentFile(looks=0), list[BaseException | None]()
        setattr(file, asked, broken)
        ours, theirs = socket.socketpair()
        stretches = Stretches([Stretch(file, 0, 0, 1000)])
        sending = Sending([b"head", stretches], OneSender(no_worker), True, ended.append)
        sending.start(ours.fileno())
        await eventually(lambda: ended)
        assert isinstance(ended[0], OSError)
        ours.close()
        theirs.close()

    run(scenario("is_at_hand"))
    run(scenario("ahead_of"))


@on_real_loops
def test_a_worker_that_can_not_be_had_ends_the_connection(run: Run, tmp_path: Path) -> None:
    async def scenario() -> None:
        ended: list[BaseException | None] = []
        ours, theirs = socket.socketpair()
        sending = Sending([Stretches([Stretch(SentFile(), 0, 0, 1000)])], OneSender(no_worker), False, ended.append)
        sending.start(ours.fileno())
        assert isinstance(ended[0], RuntimeError)
        ours.close()
        theirs.close()

    run(scenario())


@on_real_loops
@pytest.mark.parametrize("broken", ["dup", "add_writer"])
def test_a_socket_that_can_not_be_waited_for_ends_the_reply(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    def refused(*arguments: Any) -> Any:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def full(*arguments: Any) -> int:
        return -errno.EAGAIN

    def no_socket(socket: int) -> int:
        """Of a file, which can't be waited for."""
        return os.open(tmp_path, os.O_RDONLY)

    async def scenario() -> None:
        monkeypatch.setattr(os, "dup", refused if broken == "dup" else no_socket)
        monkeypatch.setattr(sending, "send", full)
        ended: list[BaseException | None] = []
        ours, theirs = socket.socketpair()
        reply = Sending([Stretches([Stretch(SentFile(), 0, 0, 1000)])], OneSender(no_worker), True, ended.append)
        reply.start(ours.fileno())
        await eventually(lambda: ended)
        assert isinstance(ended[0], OSError)
        monkeypatch.undo()
        reply.stop()
        assert len(ended) == 1
        ours.close()
        theirs.close()

    run(scenario())


@on_real_loops
def test_a_reply_that_rests_lets_others_have_their_turn_sooner(run: Run, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(bytes(SLICE_BYTES))

    async def scenario() -> None:
        sent: list[int] = []
        for rests in (0, 4):
            left, ended = socket.socketpair(), list[BaseException | None]()
            left[0].setblocking(True)
            with open(tmp_path / "file", "rb") as file:
                jobs: list[Any] = []
                sender = OneSender(partial(_note, jobs))
                sender.rests = rests
                reply = Sending(
                    [Stretches([Stretch(SentFile(), file.fileno(), 0, SLICE_BYTES)])], sender, False, ended.append
                )
                reply.start(left[0].fileno())
                reader = threading.Thread(target=read_all, args=(left[1],))
                reader.start()
                jobs[0]()
                sent.append(SLICE_BYTES - reply.left_bytes)
                reply._worked(None, ConnectionError())
                left[0].close()
                reader.join()
                left[1].close()
        assert sent == [SLICE_BYTES, RESTING_SLICE_BYTES]

    run(scenario())


def _note(jobs: list[Any], job: Callable[[], None], done: Any) -> None:
    jobs.append(job)


def read_all(taken: socket.socket) -> None:
    while taken.recv(1 << 20):
        pass


@on_real_loops
def test_a_reply_that_is_stopped_before_its_turn_sends_nothing(run: Run, tmp_path: Path) -> None:
    """The number of its socket may be that of another one by then."""
    (tmp_path / "file").write_bytes(bytes(100_000))
    ended: list[BaseException | None] = []

    async def scenario() -> None:
        ours, theirs = socket.socketpair()
        file = os.open(tmp_path / "file", os.O_RDONLY)
        try:
            theirs.setblocking(False)
            stretches = Stretches([Stretch(SentFile(), file, 0, 100_000)])
            sending = Sending([b"head", stretches, b"tail"], OneSender(no_worker), True, ended.append)
            sending.start(ours.fileno())
            sending.stop()
            await eventually(lambda: ended)
            assert isinstance(ended[0], ConnectionError)
            with pytest.raises(BlockingIOError):
                theirs.recv(1)
        finally:
            os.close(file)
            ours.close()
            theirs.close()

    run(scenario())


@on_real_loops
@each_way
def test_a_client_that_does_not_read_a_reply_from_files_is_disconnected(
    run: Run, tmp_path: Path, by_loop: bool
) -> None:
    @scenario_of(tmp_path, by_loop, slow_ms=500)
    async def scenario(server: Server, listener: Listener, reader: Any, writer: Any) -> None:
        writer.write(framed(b"send %d" % LARGE_BYTES))
        await eventually(lambda: listener.counters.slow_closed == 1)
        await eventually(lambda: len(server.ended) == 1)
        writer.close()

    run(scenario())


@on_real_loops
@each_way
def test_a_file_that_is_shorter_than_was_promised_ends_the_connection(run: Run, tmp_path: Path, by_loop: bool) -> None:
    @scenario_of(tmp_path, by_loop)
    async def scenario(server: Server, listener: Listener, reader: Any, writer: Any) -> None:
        os.ftruncate(server.file, 1_000_000)
        writer.write(framed(b"send 2000000"))
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            await read_frame(reader)
        await eventually(lambda: server.ended)
        assert isinstance(server.ended[0], FileUnsendable)
        writer.close()

    run(scenario())


@on_real_loops
@each_way
def test_stopping_lets_a_reply_from_files_finish(run: Run, tmp_path: Path, by_loop: bool) -> None:
    @scenario_of(tmp_path, by_loop)
    async def scenario(server: Server, listener: Listener, reader: Any, writer: Any) -> None:
        writer.write(framed(b"send %d" % LARGE_BYTES))
        await reader.readexactly(4)
        stopping = asyncio.ensure_future(listener.stop(grace_seconds=30))
        assert await reader.readexactly(LARGE_BYTES) == server.data
        await stopping
        assert server.ended == [None]
        writer.close()

    run(scenario())
