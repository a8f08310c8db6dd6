"""One end of a simulated connection: asyncio's transport for the process, and the socket that its kernel holds.

The kernel's part goes on while the process is paused: bytes pile up until the window is full. As on Linux a socket that
is closed with bytes unread resets the connection, and a reset is seen after the bytes that came before it. Some
transports send a write at once (asyncio's), some at the end of the round from the buffers they were given (uvloop's):
whoever changes a buffer that it has written is found out.
"""

from __future__ import annotations

import asyncio
import errno
import os
from collections import deque
from contextvars import Context
from typing import TYPE_CHECKING, Any, Final

from headrace.testing.sim.pipe import Pipe

if TYPE_CHECKING:
    from headrace.testing.sim.host import Host
    from headrace.testing.sim.network import Network
    from headrace.testing.sim.process import Process
    from headrace.testing.sim.server import SimServer

READ_BYTES_MAX: Final = 256 << 10
_HIGH_BYTES: Final = 64 << 10


class SimTransport(asyncio.Transport):
    """Made by the network, for either side."""

    __slots__ = (
        "_buffer",
        "_buffer_bytes",
        "_context",
        "_end_arrived",
        "_end_sent",
        "_end_told",
        "_failure",
        "_far",
        "_high_bytes",
        "_is_buffered",
        "_is_closing",
        "_is_deferred",
        "_is_flushing",
        "_is_gone",
        "_is_lost",
        "_is_reading",
        "_is_waking",
        "_is_writing_paused",
        "_low_bytes",
        "_network",
        "_out",
        "_protocol",
        "_received",
        "_write_ended",
        "far_host",
        "host",
        "own_name",
        "peer_name",
        "process",
        "server",
        "waits_for_window",
    )

    def __init__(self, network: Network, process: Process | None, host: Host, far_host: Host, context: Context) -> None:
        super().__init__()
        self._network = network
        self.process = process
        self.host = host
        self.far_host = far_host
        self.own_name = ("", 0)
        self.peer_name = ("", 0)
        self.server: SimServer | None = None
        self.waits_for_window = False
        self._context = context
        self._protocol: Any = None
        self._is_buffered = False
        self._far: SimTransport | None = None
        self._out: Pipe | None = None
        # The kernel's part
        self._received: deque[bytes] = deque()
        self._end_arrived = False
        self._end_sent = False
        self._failure: OSError | None = None
        self._is_gone = False
        # The process's part
        self._buffer: deque[bytes | bytearray | memoryview] = deque()
        self._buffer_bytes = 0
        self._high_bytes = _HIGH_BYTES
        self._low_bytes = _HIGH_BYTES // 4
        self._is_deferred = network.chance.random() < 0.5
        self._is_flushing = False
        self._is_writing_paused = False
        self._is_reading = True
        self._is_waking = False
        self._is_closing = False
        self._is_lost = False
        self._end_told = False
        self._write_ended = False

    def set_names(self, own: tuple[str, int], peer: tuple[str, int]) -> None:
        self.own_name = own
        self.peer_name = peer

    def join(self, far: SimTransport) -> None:
        self._far = far
        self._out = Pipe(self._network, self, far)
        self._network.opened(self)

    def incoming(self) -> Pipe:
        assert self._far is not None
        assert self._far._out is not None
        return self._far._out

    def begin(self, protocol: Any) -> None:
        """In the name of the process: the connection is there."""
        self.set_protocol(protocol)
        protocol.connection_made(self)
        self._wake()

    def __str__(self) -> str:
        return f"{self.own_name[0]}:{self.own_name[1]}-{self.peer_name[0]}:{self.peer_name[1]}"

    def __repr__(self) -> str:
        return f"<SimTransport {self}>"

    # --- the transport: facts -----------------------------------------------------------------------------------------

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return {"peername": self.peer_name, "sockname": self.own_name}.get(name, default)

    def is_closing(self) -> bool:
        return self._is_closing

    def get_protocol(self) -> Any:
        return self._protocol

    def set_protocol(self, protocol: Any) -> None:
        self._protocol = protocol
        self._is_buffered = isinstance(protocol, asyncio.BufferedProtocol)

    # --- the transport: reading ---------------------------------------------------------------------------------------

    def is_reading(self) -> bool:
        return self._is_reading and not self._is_closing

    def pause_reading(self) -> None:
        self._enter()
        self._is_reading = False

    def resume_reading(self) -> None:
        self._enter()
        if not self._is_closing and not self._is_reading:
            self._is_reading = True
            self._wake()

    def _wake(self) -> None:
        """The process is told that there is something to read, if it wants to know."""
        there = self._received or self._end_arrived or self._failure is not None
        if there and self._is_reading and not self._is_waking and self._protocol is not None:
            self._is_waking = True
            self._network.loop.call_soon(self._read, context=self._context)

    def _read(self) -> None:
        self._is_waking = False
        if not self._is_reading or self._is_closing:
            return
        if self._received:
            try:
                self._read_bytes()
            except Exception as error:
                self._fail(error, "a protocol failed to take what came")
                return
            self._wake()
        elif self._failure is not None:
            self._lose(self._failure)
        elif not self._end_told:
            self._end_told = True
            if not self._protocol.eof_received():
                self.close()

    def _read_bytes(self) -> None:
        if self._is_buffered:
            # The contract of a shared receive buffer: nothing runs between these two.
            buffer = self._protocol.get_buffer(-1)
            if not len(buffer):
                raise RuntimeError("get_buffer() returned an empty buffer")
            data = self._take(min(len(buffer), READ_BYTES_MAX))
            buffer[: len(data)] = data
            self._protocol.buffer_updated(len(data))
        else:
            self._protocol.data_received(self._take(READ_BYTES_MAX))

    def _take(self, size_max: int) -> bytes:
        parts, size, received = [], 0, self._received
        while received and size < size_max:
            part = received.popleft()
            if size + len(part) > size_max:
                received.appendleft(part[size_max - size :])
                part = part[: size_max - size]
            parts.append(part)
            size += len(part)
        self.incoming().taken(size)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    # --- the transport: writing ---------------------------------------------------------------------------------------

    def write(self, data: Any) -> None:
        self.writelines((data,))

    def writelines(self, list_of_data: Any) -> None:
        self._enter()
        if self._write_ended:
            raise RuntimeError("Cannot call write() after write_eof()")
        for data in list_of_data:
            if not isinstance(data, (bytes, bytearray, memoryview)):
                raise TypeError(f"data argument must be a bytes-like object, not {type(data).__name__!r}")
            if data and not self._is_lost:
                self._buffer.append(data)
                self._buffer_bytes += len(data)
        if not self._is_deferred and not self.waits_for_window:
            self._flush()
        elif not self._is_flushing and self._buffer:
            self._is_flushing = True
            self._network.loop.call_soon(self._flush, context=self._context)
        if self._buffer_bytes > self._high_bytes and not self._is_writing_paused:
            self._is_writing_paused = True
            self._protocol.pause_writing()

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self._enter()
        if not self._is_closing and not self._write_ended:
            self._write_ended = True
            if not self._buffer:
                self._send_end()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        if high is None:
            high = _HIGH_BYTES if low is None else 4 * low
        self._high_bytes = high
        self._low_bytes = high // 4 if low is None else low

    def get_write_buffer_size(self) -> int:
        return self._buffer_bytes

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._low_bytes, self._high_bytes

    def _flush(self) -> None:
        """What was written goes to the kernel, as far as the window allows."""
        self._is_flushing = False
        if self._is_lost or not self._buffer:
            return
        if self._failure is not None:
            self._lose(self._failure)
            return
        out = self._out
        assert out is not None
        data = self._take_buffered(out.free_bytes)
        if data:
            out.send(data)
        self.waits_for_window = bool(self._buffer)
        if self._is_writing_paused and self._buffer_bytes <= self._low_bytes:
            self._is_writing_paused = False
            self._protocol.resume_writing()
        if not self._buffer:
            if self._is_closing:
                self._end(None)
            elif self._write_ended:
                self._send_end()

    def _take_buffered(self, size_max: int) -> bytes:
        parts: list[bytes | bytearray | memoryview] = []
        size, buffer = 0, self._buffer
        while buffer and size < size_max:
            part = buffer.popleft()
            if size + len(part) > size_max:
                view = memoryview(part)
                buffer.appendleft(view[size_max - size :])
                part = view[: size_max - size]
            parts.append(part)
            size += len(part)
        self._buffer_bytes -= size
        return b"".join(parts)

    def _send_end(self) -> None:
        if not self._end_sent and self._out is not None:
            self._end_sent = True
            self._out.send_end()

    # --- the transport: the end ---------------------------------------------------------------------------------------

    def close(self) -> None:
        self._enter()
        if not self._is_closing:
            self._is_closing = True
            if not self._buffer:
                self._end(None)

    def abort(self) -> None:
        self._enter()
        self._lose(None)

    def _fail(self, error: Exception, message: str) -> None:
        self._network.loop.call_exception_handler({"message": message, "exception": error, "transport": self})
        self._lose(error)

    def _lose(self, error: Exception | None) -> None:
        """What was not sent is dropped."""
        self._buffer.clear()
        self._buffer_bytes = 0
        self.waits_for_window = False
        self._is_closing = True
        self._end(error)

    def _end(self, error: Exception | None) -> None:
        if not self._is_lost:
            self._is_lost = True
            self._network.loop.call_soon(self._tell_end, error, context=self._context)

    def _tell_end(self, error: Exception | None) -> None:
        try:
            self._protocol.connection_lost(error)
        finally:
            self.kernel_close()

    def _enter(self) -> None:
        if self.process is not None:
            self.process.enter()

    # --- the kernel ---------------------------------------------------------------------------------------------------

    def bytes_arrived(self, data: bytes) -> None:
        if self._is_gone:
            self._refuse()
        elif self._failure is None:
            self._received.append(data)
            self._wake()

    def end_arrived(self) -> None:
        self._end_arrived = True
        self._wake()

    def reset_arrived(self) -> None:
        self._broke(ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET)))

    def stall(self, until: float) -> None:
        if self._out is not None:
            self._out.not_before(until)

    def timed_out(self) -> None:
        self._broke(TimeoutError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT)))

    def window_opened(self) -> None:
        if self.waits_for_window and not self._is_flushing and not self._is_gone:
            self._is_flushing = True
            self._network.loop.call_soon(self._flush, context=self._context)

    def kernel_close(self) -> None:
        """The process closed its socket, or died: the other side is told."""
        if self._is_gone:
            return
        self._go()
        if self._out is not None and self._failure is None:
            if self._received:
                self._out.send_reset()
            else:
                self._send_end()

    def vanish(self) -> None:
        """The machine lost power: nobody is told."""
        if not self._is_gone:
            self._go()
            if self._out is not None:
                self._out.drop()

    def _go(self) -> None:
        self._is_gone = True
        self._network.closed(self)
        if self.server is not None:
            self.server.left(self)

    def _broke(self, failure: OSError) -> None:
        if self._is_gone or self._failure is not None:
            return
        self._failure = failure
        self._network.event(str(self), failure.strerror or "broke")
        self._wake()
        if self.waits_for_window:
            self.window_opened()

    def _refuse(self) -> None:
        """Bytes for a socket that is not there any more."""
        if self._out is not None:
            self._out.send_reset()
