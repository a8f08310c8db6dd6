# cython: language_level=3, annotation_typing=False, nonecheck=True
"""One client's connection to a listener: frames come in, replies go out in the order of their requests.

A handler that has its reply at once sends it with `Connection.reply`. One that has not takes a `Slot`, and fills it
when the reply is there; replies behind it wait. A client that sends faster than it is served, or does not read what it
asked for, is not read from until it has caught up.

Compiled where there is a C compiler, with the C types of `connection.pxd`, and the same file runs as it stands.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

from headrace.errors import ProtocolError
from headrace.metrics.histogram import bits_of
from headrace.metrics.requests import RequestFigures
from headrace.net.binding import plain_host
from headrace.net.framing import FrameProtocol
from headrace.net.pacing import unpace
from headrace.net.sending import IS_POSSIBLE, Sender, Sending

if TYPE_CHECKING:
    from headrace.net.listener import Listener

logger = logging.getLogger(__name__)

HELD_REPLIES_MAX: Final = 64
HELD_BYTES_MAX: Final = 4096
"""Replies that are held back are small and few: a client that does not read is to be noticed in time."""
POLITE_FRAMES: Final = 64
"""For so many large frames a connection minds others that have small ones, from the last time that it saw one."""


class Slot:
    """The place of a reply among the replies of a connection."""

    __slots__ = (
        "_buffers",
        "_connection",
        "_figures",
        "_is_filled",
        "_queued_bytes",
        "_read_ns",
        "_sending",
        "_since_ns",
    )

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._buffers: list[Any] = []
        self._is_filled = False
        self._sending: Sending | None = None
        """When the reply is sent from files."""
        self._queued_bytes = 0
        self._figures: RequestFigures | None = None
        """Where its times are counted: what waits for its reply, from `_since_ns` on, then for those before it."""
        self._read_ns = 0
        self._since_ns = 0

    def fill(self, buffers: list[Any]) -> None:
        """Send these buffers when it is their turn; none at all for a request that gets no reply (acks=0)."""
        assert not self._is_filled, "a request has one reply"
        self._buffers = buffers
        self._is_filled = True
        self._there()
        self._connection._slot_filled(self)

    def send(
        self, buffers: list[Any], sender: Sender, by_loop: bool, ended: Callable[[BaseException | None], None]
    ) -> None:
        """As `fill`, for a reply with stretches of files in it: see `Connection.can_send`.

        The sender does, or the loop itself where it may and needs not wait. When that is done, or can't be because the
        connection is closed, `ended` is called.
        """
        assert not self._is_filled, "a request has one reply"

        def sent(error: BaseException | None) -> None:
            self._connection._slot_sent(self, error)
            ended(error)

        self._there()
        self._sending = Sending(buffers, sender, by_loop, sent)
        self._connection._slot_sends(self)

    def _there(self) -> None:
        """The reply is: from now on it waits to be sent."""
        if self._figures is not None:
            now_ns = self._connection.stopwatch.clock_ns()
            wait_ns, found = now_ns - self._since_ns, self._figures.remote_wait
            found.counts[bits_of(wait_ns)] += 1
            found.sum_ns += wait_ns
            self._since_ns = now_ns

    def _sent(self) -> None:
        self._is_filled = True
        if self._figures is not None:
            now_ns = self._connection.stopwatch.clock_ns()
            self._figures.send.observe(now_ns - self._since_ns)
            self._since_ns = now_ns


class Repeated(Protocol):
    """A request that a client sends again and again, of which little changes: so most of it is known beforehand."""

    def take(self, connection: Connection, frame: memoryview) -> RequestFigures | None:
        """Handles it when it comes again; None for a frame that is another request."""


class Connection(FrameProtocol):
    """Made by a listener. Handlers use `reply`, `reserve`, `close` and the attributes that tell who it is."""

    __slots__ = (
        "_has_ended",
        "_held_replies",
        "_is_closing",
        "_is_holding",
        "_is_muted",
        "_is_reading",
        "_is_round_due",
        "_polite_frames",
        "_queued_bytes",
        "_requests_max",
        "_seen_cuts",
        "_slots",
        "_stalled_at",
        "_transport",
        "_unsent_bytes",
        "_writes",
        "active_at",
        "listener",
        "peer_host",
        "peer_port",
        "repeated",
        "state",
        "stopwatch",
    )

    def __init__(self, listener: Listener) -> None:
        FrameProtocol.__init__(self, listener.receiver)
        self.listener = listener
        self.stopwatch = listener.stopwatch
        self._requests_max = listener.limits.requests_in_flight
        self.peer_host = ""
        self.peer_port = 0
        self.state: Any = None
        """What the layer above keeps for this connection."""
        self.repeated: dict[int, Repeated] = {}
        """Requests that have come, and may come again, by the key of their API."""
        self.active_at = 0
        """The listener's tick at which bytes last came or went."""
        self._transport: asyncio.Transport | None = None
        self._slots: deque[Slot] = deque()
        self._queued_bytes = 0
        """Of replies that are there, and wait for one before them."""
        self._held_replies: list[Any] = []
        self._is_holding = False
        self._is_muted = False
        self._is_round_due = False
        self._is_reading = True
        self._is_closing = False
        self._has_ended = False
        self._writes = True
        """It takes more replies: few enough of them wait to be read."""
        self._unsent_bytes = 0
        self._stalled_at: int | None = None
        self._seen_cuts = listener.receiver.cuts
        self._polite_frames = 0

    # --- for handlers -------------------------------------------------------------------------------------------------

    def reply(self, buffers: list[Any]) -> None:
        """The reply to the frame that is being handled."""
        if self._slots:
            self.reserve().fill(buffers)
        elif buffers:
            self._write(buffers)

    def reserve(self) -> Slot:
        """A place for the reply to the frame that is being handled, to be filled later."""
        slot = Slot(self)
        self._slots.append(slot)
        if len(self._slots) >= self._requests_max:
            self._update_reading()
        return slot

    def mute(self) -> None:
        """No frame is handled until `unmute`: those behind this one are to see what it changes."""
        self._is_muted = True
        self._update_reading()

    def unmute(self) -> None:
        self._is_muted = False
        self._update_reading()

    def can_send(self, slot: Slot | None) -> bool:
        """Whether the slot's reply, or the one to the frame that is being handled, may be sent from files.

        It has to be the next, or behind others of its kind: all that went by the transport is with the system.
        """
        transport = self._transport
        if not IS_POSSIBLE or transport is None or self._is_closing or self._held_replies:
            return False
        for before in self._slots:
            if before is slot:
                break
            if before._sending is None:
                return False
        return (
            not transport.get_write_buffer_size()
            and transport.get_extra_info("socket") is not None
            and transport.get_extra_info("sslcontext") is None
        )

    def close(self) -> None:
        """Close once what was written has been sent."""
        if not self._is_closing:
            self.frames_end()
            self._is_closing = True
            self.drop_frames()
            if self._transport is not None:
                self._transport.close()

    def abort(self) -> None:
        """Close at once."""
        self.close()
        if self._transport is not None:
            self._transport.abort()

    @property
    def is_closing(self) -> bool:
        return self._is_closing

    @property
    def waiting_replies(self) -> int:
        return len(self._slots)

    @property
    def unsent_bytes(self) -> int:
        """Of replies that are there, and that the client has not taken."""
        return self._queued_bytes + self._written_bytes

    @property
    def buffered_bytes(self) -> int:
        """Those of them that take memory: what is sent from files does not."""
        return self._queued_bytes + (0 if self._transport is None else self._transport.get_write_buffer_size())

    @property
    def _written_bytes(self) -> int:
        """What was given to the transport, or is being sent from files, and was not taken by the system."""
        if self._transport is None:
            return 0
        sending_bytes = sum([slot._sending.left_bytes for slot in self._slots if slot._sending is not None])
        return sending_bytes + self._transport.get_write_buffer_size()

    def __repr__(self) -> str:
        return f"<Connection {self.peer_host}:{self.peer_port} on {self.listener.name}>"

    # --- replies ------------------------------------------------------------------------------------------------------

    def _slot_filled(self, slot: Slot) -> None:
        slots = self._slots
        if not slots or slots[0] is not slot:
            slot._queued_bytes = sum(map(len, slot._buffers))
            self._queued_bytes += slot._queued_bytes
            if self._queued_bytes >= self.listener.limits.write_bytes:
                self._update_reading()
            return
        if len(slots) == 1:  # the one request that is under way, as nearly always
            slots.popleft()
            buffers = slot._buffers
            if (figures := slot._figures) is not None:
                total_ns, found = slot._since_ns - slot._read_ns, figures.total
                found.counts[bits_of(total_ns)] += 1
                found.sum_ns += total_ns
        else:
            buffers = self._take_filled(slot)
        if (
            buffers
            and not (slots or self._is_holding or self._is_round_due or self._has_ended)
            and self._is_reading
            and not self.is_stopped
        ):
            self._write(buffers)  # no other reply can come in this round, and no frame waits for this one
        elif buffers and not self._is_closing:
            # Slots that are filled in one round, by a group commit say, go together too; and then frames that waited
            # for them are handled together.
            self._is_holding = True
            self._write(buffers)
            if not self._is_round_due:
                self._is_round_due = True
                asyncio.get_running_loop().call_soon(self._end_round)
        elif not self._is_round_due:
            self._end_round()

    def _slot_sends(self, slot: Slot) -> None:
        """It begins when it is the first."""
        if self._is_closing or self._transport is None or self._slots[0] is not slot:
            return
        assert slot._sending is not None
        slot._sending.start(self._transport.get_extra_info("socket").fileno())

    def _slot_sent(self, slot: Slot, error: BaseException | None) -> None:
        if self._is_closing:
            return
        if error is not None:
            self.abort()
            return
        slot._sent()
        self.active_at = self._receiver.tick
        self._slot_filled(slot)
        if self._slots and self._slots[0]._sending is not None:
            self._slot_sends(self._slots[0])

    def _take_filled(self, slot: Slot) -> list[Any]:
        """The replies that wait no more: that of the first slot, which was filled now, and those behind it."""
        slots = self._slots
        buffers: list[Any] = []
        while slots and slots[0]._is_filled:
            sent = slots.popleft()
            self._queued_bytes -= sent._queued_bytes
            buffers += sent._buffers
            if (figures := sent._figures) is not None:
                now_ns = slot._since_ns or self.stopwatch.clock_ns()
                figures.total.observe(now_ns - sent._read_ns)
                if sent is not slot:
                    figures.send.observe(now_ns - sent._since_ns)
        return buffers

    def _end_round(self) -> None:
        self._is_round_due = False
        self.frames_end()
        if self._has_ended and not self._slots:
            self.close()
        else:
            self._update_reading()

    def frames_begin(self) -> None:
        # Replies to requests that came together go together: to send is the dearest part of a small request.
        self._is_holding = True
        stopwatch = self.stopwatch
        if stopwatch.count:  # another connection is in the middle of its frames
            stopwatch.close()
        stopwatch.read_ns = stopwatch.at_ns = stopwatch.clock_ns()

    def frame_completed(self) -> None:
        stopwatch = self.stopwatch
        if stopwatch.count:
            stopwatch.close()
        stopwatch.read_ns = stopwatch.at_ns = stopwatch.clock_ns()

    def frame_handled(self) -> None:
        if self.stopwatch.count:
            self.stopwatch.close()

    def frames_end(self) -> None:
        self._is_holding = False
        if self._held_replies:
            held, self._held_replies = self._held_replies, []
            self._write(held)
        if self.stopwatch.count:
            self.stopwatch.close()

    def _write(self, buffers: list[Any]) -> None:
        transport = self._transport
        if transport is None or self._is_closing:
            return
        if self._is_holding:
            self._held_replies += buffers
            if len(self._held_replies) >= HELD_REPLIES_MAX or len(buffers[-1]) >= HELD_BYTES_MAX or len(buffers) > 1:
                self.frames_end()
                self._is_holding = True
            return
        self.active_at = self._receiver.tick
        if len(buffers) == 1:
            transport.write(buffers[0])
        else:
            transport.writelines(buffers)

    # --- reading as fast as replies are taken -------------------------------------------------------------------------

    def _update_reading(self) -> None:
        if self._is_closing:
            return
        served = (
            self._writes
            and not self._is_muted
            and len(self._slots) < self._requests_max
            and self._queued_bytes < self.listener.limits.write_bytes
        )
        reading = served and self.wants_bytes
        if reading != self._is_reading and self._transport is not None:
            self._is_reading = reading
            if reading:
                self._transport.resume_reading()
            else:
                self._transport.pause_reading()
        if not served:
            self.stop_frames()
        elif self.is_stopped:
            self.start_frames()

    def progressed(self) -> None:
        self.active_at = self._receiver.tick

    def reading_changed(self) -> None:
        self._update_reading()

    def rests_between_slices(self) -> bool:
        cuts = self._receiver.cuts - self._cuts
        if cuts != self._seen_cuts:
            self._seen_cuts = cuts
            self._polite_frames = POLITE_FRAMES
        elif self._polite_frames:
            self._polite_frames -= 1
        return self._polite_frames > 0

    def slice_received(self, is_whole: bool) -> None:
        self._update_reading()
        loop = asyncio.get_running_loop()
        if is_whole:
            # To append it takes the longest. What came meanwhile goes first, and what waits for the end of the round.
            loop.call_soon(loop.call_soon, self._go_on)
        else:
            loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        try:
            self.go_on()
        except Exception:  # for want of memory, say: nobody else would end what holds some
            logger.exception("a large request of %s can't be taken; the connection is closed", self)
            self.abort()

    def frame_received(self, frame: memoryview) -> None:
        self.active_at = self._receiver.tick
        try:
            figures = self.listener.handler(self, frame)
        except ProtocolError as error:
            self.frame_refused(error)
            return
        except Exception:
            logger.exception("the handler of %s failed; the connection is closed", self)
            self.abort()
            return
        if figures is None:
            return
        stopwatch, slots = self.stopwatch, self._slots
        slot = slots[-1] if slots else None
        if slot is not None and slot._figures is None:
            slot._figures, slot._read_ns, slot._since_ns = figures, stopwatch.read_ns, stopwatch.handled(figures)
        elif figures is stopwatch.figures:
            stopwatch.count += 1
        else:
            if stopwatch.count:
                stopwatch.close()
            stopwatch.figures = figures
            stopwatch.count = 1

    def frame_refused(self, error: ProtocolError) -> None:
        logger.warning("closing %s: %s", self, error)
        self.listener.counters.frames_refused += 1
        self.abort()

    # --- what the loop calls ------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport = cast("asyncio.Transport", transport)
        address = transport.get_extra_info("peername") or ("", 0)
        self.peer_host, self.peer_port = plain_host(address[0]), address[1]
        self.active_at = self._receiver.tick
        transport.set_write_buffer_limits(high=self.listener.limits.write_bytes)
        unpace(transport)
        self.listener._opened(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_closing = True
        self.drop_frames()
        slots, self._slots = self._slots, deque()
        self._transport = None
        for slot in slots:
            if slot._sending is not None:
                slot._sending.stop()
        self.listener._closed(self)

    def pause_writing(self) -> None:
        self._writes = False
        self._update_reading()

    def resume_writing(self) -> None:
        self._writes = True
        self.active_at = self._receiver.tick
        self._update_reading()

    def eof_received(self) -> bool:
        # A client that closes its side still gets the replies that it waits for.
        self._has_ended = True
        return bool(self._slots)

    def look(self, now: int) -> None:
        """Now and then: does the client take what is there for it, and send what it began?

        What the system buffers counts as taken.
        """
        self.look_at_frame(now)
        unsent_bytes = self._written_bytes
        if not unsent_bytes:
            self._stalled_at = None
        elif self._stalled_at is None or unsent_bytes < self._unsent_bytes:
            self._stalled_at = now
        self._unsent_bytes = unsent_bytes

    def ticks_without_reading(self, now: int) -> int:
        """For how long the client has taken nothing of what is there for it, as far as `look` could see."""
        return 0 if self._stalled_at is None else now - self._stalled_at


class ConnectionProtocol(Connection, asyncio.BufferedProtocol):
    """A connection as loops want it."""

    __slots__ = ()
