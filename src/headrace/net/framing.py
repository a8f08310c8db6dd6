# cython: language_level=3, annotation_typing=False, nonecheck=True
"""Cuts the bytes of a connection into frames.

One receive buffer is shared by all connections of a loop: the loop asks for it, fills it and hands it back before
anything else runs, so frames that arrive whole are handled where they lie and never copied. A frame that is only partly
there moves to a buffer of its own, where the rest of it lands. So an idle connection holds no buffer at all. Behind a
large frame little is read at first, as little of the next large one is to be moved.

To take in a large frame takes as long as a hundred small ones. Where others have small ones it is done in slices, and
the loop turns to the others after each of them (`rests_between_slices`).

Compiled where there is a C compiler, with the C types of `framing.pxd`, and the same file runs as it stands.
"""

from typing import Final

from headrace.errors import ProtocolError
from headrace.net.budget import Budget
from headrace.protocol.frame import SIZE_BYTES, read_size

RECEIVE_BYTES: Final = 256 << 10
TRUSTED_BYTES: Final = 2 << 20
"""A frame up to this size gets its buffer at once. A larger one gets it as its bytes come, so that a length alone takes
no memory; it counts against the budget in full."""
HEAD_BYTES: Final = 4 << 10
"""What is read at first where a large frame is likely to come."""
FRAME_STEPS: Final = 30
"""A frame has come on when so large a part of it came: what is little for a large one is much for a small one."""

SPARES_MAX: Final = 4


class Receiver:
    """What the connections of a loop share: the receive buffer, the frame limit, the budgets for unfinished frames.

    Those beyond `TRUSTED_BYTES` have one of their own, if it is given: a few lengths would take all that others need.
    And buffers for large frames, which are used again: new memory costs as much as the check of what comes into it.
    """

    __slots__ = ("_spares", "budget", "buffer", "cuts", "data", "frame_bytes_max", "head", "large_budget", "tick")

    def __init__(self, frame_bytes_max: int, budget: Budget, large_budget: Budget | None = None) -> None:
        self.data = bytearray(RECEIVE_BYTES)
        self.buffer = memoryview(self.data)
        self.head = self.buffer[:HEAD_BYTES]
        self.cuts = 0
        """How often small frames came, one or many together."""
        self.tick = 0
        """The time, as exact as anybody needs it of a connection."""
        self.frame_bytes_max = frame_bytes_max
        self.budget = budget
        self.large_budget = large_budget or budget
        self._spares: dict[int, list[bytearray]] = {}
        """By size, which is a power of two."""

    def take_buffer(self, size_bytes: int) -> bytearray:
        """At least so large, and for as long as `give_back_buffer` is not called. What is in it is any bytes."""
        if not RECEIVE_BYTES < size_bytes <= TRUSTED_BYTES:
            return bytearray(size_bytes)
        capacity = 1 << (size_bytes - 1).bit_length()
        spares = self._spares.get(capacity)
        return spares.pop() if spares else bytearray(capacity)

    def give_back_buffer(self, buffer: bytearray) -> None:
        size_bytes = len(buffer)
        if RECEIVE_BYTES < size_bytes <= TRUSTED_BYTES and size_bytes & (size_bytes - 1) == 0:
            spares = self._spares.setdefault(size_bytes, [])
            if len(spares) < SPARES_MAX:
                spares.append(buffer)


class FrameProtocol:
    """A protocol that is told of frames instead of bytes. A frame is valid until `frame_received` returns.

    Who inherits it inherits asyncio.BufferedProtocol too: what is compiled can't.
    """

    __slots__ = (
        "_backlog",
        "_budget",
        "_came_at",
        "_came_bytes",
        "_cuts",
        "_expects_large",
        "_filled",
        "_frame",
        "_held_bytes",
        "_is_held",
        "_is_sliced",
        "_receiver",
        "_rest",
        "_room",
        "_size",
        "_slice_end",
        "_stopped",
    )

    def __init__(self, receiver: Receiver) -> None:
        self._receiver = receiver
        self._frame: bytearray | None = None  # an unfinished frame, with its four bytes of length
        self._rest: memoryview | None = None  # where its next bytes go
        self._filled = 0
        self._room = 0  # how much of the frame the buffer is for
        self._size = 0  # of the whole of it; 0 while its length is not known
        self._held_bytes = 0
        self._budget = receiver.budget  # of which they are held, or waited for
        self._came_at = 0  # when somebody saw that the frame had come on
        self._came_bytes = 0  # how much of it was there then; 0 when nobody has looked at it yet
        self._cuts = 0  # how often small frames came here
        self._expects_large = False  # as the last one was
        self._is_sliced = False  # the unfinished frame is taken in slices
        self._slice_end = 0
        self._is_held = False  # it is whole, and waits for `start_frames`
        self._backlog = b""  # bytes that came while the reader was stopped
        self._stopped = False

    # --- for subclasses -----------------------------------------------------------------------------------------------

    def frame_received(self, frame: memoryview) -> None:
        """A whole frame, without its length. It is a view into a buffer that is used again afterwards."""
        raise NotImplementedError

    def frame_refused(self, error: ProtocolError) -> None:
        """The bytes are no frame: the connection can't go on."""
        raise NotImplementedError

    def reading_changed(self) -> None:
        """`wants_bytes` may have changed."""
        raise NotImplementedError

    def progressed(self) -> None:
        """More of an unfinished frame came, or can come from now on."""

    def rests_between_slices(self) -> bool:
        """A large frame begins: is the loop to turn to others between its slices, and before it is handled?"""
        return False

    def slice_received(self, is_whole: bool) -> None:
        """Nothing is read until `go_on` is called, in a later round of the loop. The frame may be whole now."""
        raise NotImplementedError

    def frame_completed(self) -> None:
        """A frame that came in parts is whole, and follows."""

    def frame_handled(self) -> None:
        """That was it."""

    def frames_begin(self) -> None:
        """Frames follow, one or many, that came together."""

    def frames_end(self) -> None:
        """Those were all, or there is no going on with the rest."""

    @property
    def wants_bytes(self) -> bool:
        """False while the connection waits for room in the budget, or between two slices of a frame."""
        return self._rest is not None or self._frame is None

    @property
    def is_inside_frame(self) -> bool:
        """A part of a frame is here, and there is room for the rest."""
        return self._rest is not None

    def look_at_frame(self, now: int) -> None:
        """Now and then, by any clock: does the frame come on that memory is held for?"""
        if self._held_bytes and (not self._came_bytes or (self._filled - self._came_bytes) * FRAME_STEPS >= self._size):
            self._came_at = now
            self._came_bytes = self._filled

    def ticks_without_coming(self, now: int) -> int:
        """For how long it has not, as far as `look_at_frame` could see."""
        return now - self._came_at if self._came_bytes and not self._is_held else 0

    @property
    def is_waited_for(self) -> bool:
        """Others wait for such memory as is held for the frame."""
        return self._held_bytes > 0 and self._budget.waiting > 0

    @property
    def frame_bytes(self) -> int:
        """The size of an unfinished frame, with its length; 0 while there is none, or its length is not there yet."""
        return self._size

    @property
    def is_stopped(self) -> bool:
        return self._stopped

    def stop_frames(self) -> None:
        """No more frames until `start_frames`, though their bytes may be here already."""
        self._stopped = True

    def start_frames(self) -> None:
        self._stopped = False
        if self._is_held:
            self._is_held = False
            self._take_or_refuse()
            self.reading_changed()
        backlog, self._backlog = self._backlog, b""
        if backlog:
            data = bytearray(backlog)
            self._cut(memoryview(data), data, len(data))

    def drop_frames(self) -> None:
        """The connection is gone: give everything back."""
        self._stopped = True
        self._backlog = b""
        if self._frame is not None and self._rest is None:
            self._budget.forget(self._granted)
        self._release()

    # --- what the loop calls ------------------------------------------------------------------------------------------

    def get_buffer(self, sizehint: int) -> memoryview:
        if self._rest is not None:
            return self._rest
        return self._receiver.head if self._expects_large else self._receiver.buffer

    def buffer_updated(self, nbytes: int) -> None:
        if self._rest is None:
            self._cut(self._receiver.buffer, self._receiver.data, nbytes)
        else:
            self._filled += nbytes
            self.progressed()
            self._fill()

    # --- cutting ------------------------------------------------------------------------------------------------------

    def _cut(self, view: memoryview, data: bytearray, end: int) -> None:
        """The view is of the data, of which the bytes up to `end` came."""
        position, most = 0, self._receiver.frame_bytes_max
        self.frames_begin()
        try:
            while position + SIZE_BYTES <= end:
                if self._stopped:
                    break
                size = 0
                for at in range(position, position + SIZE_BYTES):
                    size = size << 8 | data[at]
                if size > most:
                    read_size(view, position, most)  # which says what is wrong with it
                stop = position + SIZE_BYTES + size
                if stop > end:
                    break
                self.frame_received(view[position + SIZE_BYTES : stop])
                position = stop
        except ProtocolError as error:
            self.frames_end()
            self.frame_refused(error)
            return
        self.frames_end()
        if position:
            self._receiver.cuts += 1
            self._cuts += 1
            self._expects_large = False
        if position < end:
            if self._stopped:
                self._backlog += bytes(view[position:end])
            else:
                self._keep(view[position:end])

    def _keep(self, part: memoryview) -> None:
        """The start of a frame gets a buffer of its own."""
        self._filled = len(part)
        if self._filled < SIZE_BYTES:
            self._frame = bytearray(SIZE_BYTES)
            self._room = SIZE_BYTES
            self._frame[: self._filled] = part
            self._open_rest()
        else:
            self._size = SIZE_BYTES + read_size(part, 0, self._receiver.frame_bytes_max)
            self._reserve(part)

    def _reserve(self, part: bytearray | memoryview) -> None:
        """Room for the whole frame, before more of it is read: else frames that are half there could wait for ever."""
        receiver = self._receiver
        budget = self._budget = receiver.budget if self._size <= TRUSTED_BYTES else receiver.large_budget
        if budget.take(self._size, self._granted):
            self._begin(part)
        else:
            self._frame = bytearray(part)
            self._rest = None
            self.reading_changed()

    def _granted(self) -> None:
        assert self._frame is not None
        self._begin(self._frame)
        self.progressed()
        self.reading_changed()

    def _begin(self, part: bytearray | memoryview) -> None:
        """There is room for the frame."""
        self._held_bytes = self._size
        self._is_sliced = self._size > RECEIVE_BYTES and self.rests_between_slices()
        self._grow(part)

    def _open_rest(self) -> None:
        assert self._frame is not None
        self._slice_end = min(self._room, self._filled + RECEIVE_BYTES) if self._is_sliced else self._room
        self._rest = memoryview(self._frame)[self._filled : self._slice_end]

    def _grow(self, part: bytearray | memoryview) -> None:
        """A new buffer: the loop may still hold a view of the old one, which then can't change its size."""
        self._room = min(self._size, max(TRUSTED_BYTES, 2 * self._filled))
        self._frame = self._receiver.take_buffer(self._room)
        self._frame[: self._filled] = part
        self._open_rest()

    def _fill(self) -> None:
        """More bytes of the unfinished frame came."""
        if self._filled < self._slice_end:
            assert self._frame is not None
            self._rest = memoryview(self._frame)[self._filled : self._slice_end]
        elif self._is_sliced:
            self._rest = None
            self.slice_received(self._filled == self._size)
        else:
            self._take_or_refuse()

    def go_on(self) -> None:
        """After a slice."""
        if self._frame is None:
            return  # the connection is gone
        if self._filled == self._size and self._stopped:
            self._is_held = True
            return
        if self._filled < self._room:
            self._open_rest()
        else:
            self._take_or_refuse()
        self.reading_changed()

    def _take_or_refuse(self) -> None:
        assert self._frame is not None
        try:
            self._take(self._frame)
        except ProtocolError as error:
            self.frame_refused(error)

    def _take(self, frame: bytearray) -> None:
        """The buffer of the unfinished frame is full: with its length, with a part of it, or with the whole."""
        if self._size == 0:
            self._size = SIZE_BYTES + read_size(frame, 0, self._receiver.frame_bytes_max)
            if self._filled < self._size:
                self._reserve(frame)
                return
        size = self._size
        if self._filled < size:
            self._grow(memoryview(frame)[: self._filled])
            return
        if self._stopped:
            self._backlog += bytes(memoryview(frame)[:size])
            self._release()
            return
        # The frame is whole. A handler may stop the frames, and then the next bytes must find the shared buffer.
        self._release()
        self._expects_large = size > RECEIVE_BYTES
        self.frame_completed()
        self.frame_received(memoryview(frame)[SIZE_BYTES:size])
        self.frame_handled()
        self._receiver.give_back_buffer(frame)

    def _release(self) -> None:
        held, self._held_bytes = self._held_bytes, 0
        self._frame = self._rest = None
        self._is_sliced = self._is_held = False
        self._filled = self._room = self._size = self._came_bytes = 0
        if held:
            self._budget.give_back(held)
