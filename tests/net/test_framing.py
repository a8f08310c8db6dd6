"""Bytes into frames: however they come, and never at the price of memory that a length only claims."""

from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import ProtocolError
from headrace.net.budget import Budget
from headrace.net.framing import (
    FRAME_STEPS,
    HEAD_BYTES,
    RECEIVE_BYTES,
    SPARES_MAX,
    TRUSTED_BYTES,
    FrameProtocol,
    Receiver,
)


class Collector(FrameProtocol):
    __slots__ = ("changes", "frames", "refused", "stop_after")

    def __init__(self, receiver: Receiver) -> None:
        super().__init__(receiver)
        self.frames: list[bytes] = []
        self.refused: list[str] = []
        self.changes = 0
        self.stop_after = -1

    def frame_received(self, frame: memoryview) -> None:
        self.frames.append(bytes(frame))
        frame[:] = b"\xee" * len(frame)  # whoever looks at it later sees this
        if len(self.frames) == self.stop_after:
            self.stop_frames()

    def frame_refused(self, error: ProtocolError) -> None:
        self.refused.append(str(error))

    def reading_changed(self) -> None:
        self.changes += 1

    def feed(self, data: bytes) -> None:
        while data:
            data = data[self.take(data) :]

    def take(self, data: bytes) -> int:
        """What the loop reads at a time; returns how much."""
        buffer = self.get_buffer(65536)
        taken = min(len(buffer), len(data))
        buffer[:taken] = data[:taken]
        self.buffer_updated(taken)
        return taken


class Resting(Collector):
    """Takes large frames in slices. What is fed is all that the loop gives it in one round."""

    __slots__ = ("rests",)

    def __init__(self, receiver: Receiver) -> None:
        super().__init__(receiver)
        self.rests: list[bool] = []
        """Of the slices of the last frame that came so far, whether it was whole with it."""

    def rests_between_slices(self) -> bool:
        return True

    def slice_received(self, is_whole: bool) -> None:
        self.rests.append(is_whole)
        assert not self.wants_bytes

    def feed(self, data: bytes) -> None:
        """And it goes on behind each slice."""
        while data:
            taken = self.take(data)
            if self.rests:
                assert taken <= RECEIVE_BYTES
                assert True not in self.rests[:-1]
                is_whole = self.rests[-1]
                self.go_on()
                if is_whole:
                    self.rests = []
            data = data[taken:]


def framed(*frames: bytes) -> bytes:
    return b"".join(len(frame).to_bytes(4) + frame for frame in frames)


def collector(frame_bytes_max: int = 64 << 20, budget: int = 1 << 30) -> Collector:
    return Collector(Receiver(frame_bytes_max, Budget(budget)))


@given(frames=st.lists(st.binary(max_size=30), max_size=12), cuts=st.lists(st.integers(1, 40), max_size=60))
def test_frames_come_out_however_the_bytes_are_cut(frames: list[bytes], cuts: list[int]) -> None:
    protocol, data = collector(), framed(*frames)
    for cut in cuts:
        protocol.feed(data[:cut])
        data = data[cut:]
    protocol.feed(data)
    assert protocol.frames == frames
    assert protocol._receiver.budget.held_bytes == 0


@given(
    frames=st.lists(st.binary(max_size=30), min_size=1, max_size=12),
    cut=st.integers(1, 40),
    stop_after=st.integers(1, 12),
)
def test_a_stopped_reader_loses_nothing(frames: list[bytes], cut: int, stop_after: int) -> None:
    protocol, data = collector(), framed(*frames)
    protocol.stop_after = stop_after
    while data:
        protocol.feed(data[:cut])
        data = data[cut:]
    assert protocol.frames == frames[:stop_after]
    protocol.start_frames()
    assert protocol.frames == frames
    assert protocol._receiver.budget.held_bytes == 0


def test_a_large_frame_gets_its_memory_as_its_bytes_come() -> None:
    protocol = collector(frame_bytes_max=1 << 30)
    protocol.feed((900 << 20).to_bytes(4) + bytes(100))
    assert protocol._receiver.budget.held_bytes == 4 + (900 << 20)
    assert len(protocol._frame or b"") == TRUSTED_BYTES
    protocol.feed(bytes(3 << 20))
    assert len(protocol._frame or b"") <= 8 << 20
    protocol.drop_frames()
    assert protocol._receiver.budget.held_bytes == 0


def test_a_frame_larger_than_the_shared_buffer_is_whole() -> None:
    protocol = collector()
    body = bytes(range(256)) * 20_000
    protocol.feed(framed(b"small", body, b"last"))
    assert protocol.frames == [b"small", body, b"last"]


@given(
    sizes=st.lists(
        st.one_of(st.integers(0, 40), st.integers(RECEIVE_BYTES - 8, 3 * RECEIVE_BYTES), st.just(TRUSTED_BYTES + 9)),
        max_size=5,
    ),
    cut=st.integers(RECEIVE_BYTES // 5, 2 * RECEIVE_BYTES),
    stop_after=st.integers(0, 4),
)
def test_a_frame_that_comes_in_slices_is_the_same(sizes: list[int], cut: int, stop_after: int) -> None:
    frames = [bytes([number + 1]) * size for number, size in enumerate(sizes)]
    protocol, data = Resting(Receiver(64 << 20, Budget(1 << 30))), framed(*frames)
    protocol.stop_after = stop_after
    while data:
        protocol.feed(data[:cut])
        data = data[cut:]
    if stop_after:
        assert protocol.frames == frames[:stop_after]
        protocol.start_frames()
    assert protocol.frames == frames
    assert protocol._receiver.budget.held_bytes == 0


def test_between_two_slices_nothing_is_read_until_it_goes_on() -> None:
    protocol = Resting(Receiver(64 << 20, Budget(1 << 30)))
    data = framed(bytes(3 * RECEIVE_BYTES))
    Collector.feed(protocol, data[: 2 * RECEIVE_BYTES])
    assert protocol.rests == [False]
    assert not protocol.wants_bytes
    protocol.go_on()
    assert protocol.wants_bytes
    assert protocol.changes == 1
    assert len(protocol.get_buffer(0)) == RECEIVE_BYTES


def test_who_is_gone_between_two_slices_leaves_nothing_behind() -> None:
    for size in (2 * RECEIVE_BYTES, RECEIVE_BYTES + 100):  # in the middle, and at its end
        protocol = Resting(Receiver(64 << 20, Budget(1 << 30)))
        Collector.feed(protocol, framed(b"v" * size)[: 2 * RECEIVE_BYTES])
        assert protocol.rests == [size < 2 * RECEIVE_BYTES]
        protocol.drop_frames()
        protocol.go_on()
        assert protocol._receiver.budget.held_bytes == 0
        assert not protocol.frames


def test_it_rests_when_a_slice_is_full_and_not_before() -> None:
    protocol, data = Resting(Receiver(64 << 20, Budget(1 << 30))), framed(bytes(2 * RECEIVE_BYTES))
    for cut in range(0, len(data), 1000):
        protocol.feed(data[cut : cut + 1000])
        assert len(protocol.rests) <= 2
    assert len(protocol.frames) == 1


def test_a_whole_frame_that_rests_when_the_reader_is_stopped_stays_where_it_is() -> None:
    protocol, frame = Resting(Receiver(64 << 20, Budget(1 << 30))), b"v" * (RECEIVE_BYTES + 100)
    Collector.feed(protocol, framed(frame))
    assert protocol.rests == [True]
    protocol.stop_frames()
    protocol.go_on()
    assert not protocol.frames
    assert not protocol.wants_bytes
    assert protocol._receiver.budget.held_bytes == 4 + len(frame)
    protocol.start_frames()
    assert protocol.frames == [frame]
    assert protocol.wants_bytes
    assert protocol._receiver.budget.held_bytes == 0


def test_behind_a_large_frame_little_is_read_at_first_until_a_small_one_came() -> None:
    protocol = collector()
    assert len(protocol.get_buffer(0)) == RECEIVE_BYTES
    protocol.feed(framed(bytes(2 * RECEIVE_BYTES)))
    assert len(protocol.get_buffer(0)) == HEAD_BYTES
    protocol.feed(framed(bytes(RECEIVE_BYTES))[:-1])
    protocol.feed(b"\0")
    assert len(protocol.get_buffer(0)) == HEAD_BYTES
    protocol.feed(framed(b"small"))
    assert len(protocol.get_buffer(0)) == RECEIVE_BYTES
    assert [len(frame) for frame in protocol.frames] == [2 * RECEIVE_BYTES, RECEIVE_BYTES, 5]


@given(
    sizes=st.lists(st.integers(RECEIVE_BYTES - 2, 3 * RECEIVE_BYTES), min_size=2, max_size=8),
    cut=st.integers(RECEIVE_BYTES // 3, RECEIVE_BYTES),
)
def test_connections_use_the_buffers_of_large_frames_in_turns_and_never_at_once(sizes: list[int], cut: int) -> None:
    receiver = Receiver(64 << 20, Budget(1 << 30))
    protocols = [Collector(receiver), Collector(receiver)]
    frames = [bytes([number + 1]) * size for number, size in enumerate(sizes)]
    left = [framed(*frames[0::2]), framed(*frames[1::2])]
    while any(left):
        for number, protocol in enumerate(protocols):
            protocol.feed(left[number][:cut])
            left[number] = left[number][cut:]
    assert [protocol.frames for protocol in protocols] == [frames[0::2], frames[1::2]]
    spares = [spare for found in receiver._spares.values() for spare in found]
    assert len({id(spare) for spare in spares}) == len(spares) <= 2 * SPARES_MAX


def test_a_length_above_the_limit_is_refused_before_a_byte_is_kept() -> None:
    for data in (b"\0\1\0\0", b"\0\1\0"):
        protocol = collector(frame_bytes_max=1000)
        protocol.feed(data)
        protocol.feed(b"\0" * (4 - len(data)))
        assert protocol.refused == ["a frame says that it is 65536 bytes long, and the limit is 1000"]
        assert protocol._receiver.budget.held_bytes <= 4


def test_a_connection_waits_for_room_in_the_budget() -> None:
    receiver = Receiver(64 << 20, Budget(3 << 20))
    one, two, three = Collector(receiver), Collector(receiver), Collector(receiver)
    start = (2 << 20).to_bytes(4) + b"x"
    for protocol in (one, two, three):
        protocol.feed(start)
    assert [one.wants_bytes, two.wants_bytes, three.wants_bytes] == [True, False, False]
    assert receiver.budget.waiting == 2

    one.feed(bytes((2 << 20) - 1))
    assert len(one.frames) == 1
    assert [two.wants_bytes, three.wants_bytes] == [True, False]
    assert two.changes == 2

    two.drop_frames()
    assert three.wants_bytes
    three.drop_frames()
    assert receiver.budget.held_bytes == 0


def test_how_long_a_frame_has_hardly_come_on_is_told_by_a_clock() -> None:
    receiver = Receiver(64 << 20, Budget(3 << 20))
    fast, slow, waiting = Collector(receiver), Collector(receiver), Collector(receiver)
    everybody = (fast, slow, waiting)
    assert [one.ticks_without_coming(7) for one in everybody] == [0, 0, 0]
    for protocol in everybody:
        protocol.feed((1500 << 10).to_bytes(4) + b"x")
    for now in range(10, 20):
        for protocol in everybody:
            protocol.look_at_frame(now)
        assert [one.ticks_without_coming(now) for one in everybody] == [0, now - 10, 0]
        fast.feed(bytes((1500 << 10) // FRAME_STEPS + 1))
        slow.feed(b"x")
    slow.drop_frames()
    assert slow.ticks_without_coming(20) == 0
    # Who waited begins anew, and so does the next frame.
    for now in (20, 21):
        waiting.look_at_frame(now)
        assert waiting.ticks_without_coming(now) == now - 20
    waiting.feed(bytes((1500 << 10) - 1) + (1500 << 10).to_bytes(4))
    waiting.look_at_frame(30)
    assert waiting.ticks_without_coming(30) == 0


def test_hazard_15_frames_of_an_ordinary_size_do_not_wait_for_large_ones() -> None:
    receiver = Receiver(64 << 20, Budget(1 << 20), Budget(10 << 20))
    large = [Collector(receiver) for _ in range(100)]
    for protocol in large:
        protocol.feed((8 << 20).to_bytes(4) + b"x")
    assert [protocol.wants_bytes for protocol in large] == [True] + 99 * [False]
    assert sum(len(protocol._frame or b"") for protocol in large) < 3 << 20, "who waits takes no memory before its turn"
    ordinary = Collector(receiver)
    ordinary.feed((1000).to_bytes(4) + b"x")
    assert ordinary.is_inside_frame
    assert [one.is_waited_for for one in (large[0], large[1], ordinary)] == [True, False, False]
    large[0].feed(bytes((8 << 20) - 1))
    assert [len(large[0].frames), large[1].wants_bytes, large[2].wants_bytes] == [1, True, False]
    for protocol in (*reversed(large), ordinary):
        protocol.drop_frames()
    assert [budget.held_bytes for budget in (receiver.budget, receiver.large_budget)] == [0, 0]
    assert receiver.large_budget.waiting == 0


def test_who_leaves_the_queue_lets_the_next_one_in() -> None:
    receiver = Receiver(64 << 20, Budget(3 << 20))
    one, two, small = Collector(receiver), Collector(receiver), Collector(receiver)
    one.feed((2 << 20).to_bytes(4) + b"x")
    two.feed((2 << 20).to_bytes(4) + b"x")
    small.feed((100).to_bytes(4) + b"x")
    assert not small.wants_bytes
    two.drop_frames()
    assert small.wants_bytes


def test_a_frame_above_the_whole_budget_passes_when_nothing_else_is_held() -> None:
    protocol = collector(budget=1000)
    protocol.feed(framed(bytes(500_000)))
    assert len(protocol.frames[0]) == 500_000


class Waiting:
    """Somebody who waits for a budget, and counts with how many others it is compared."""

    compared = 0

    def __init__(self) -> None:
        self.is_granted = False

    def __call__(self) -> None:
        self.is_granted = True

    def __eq__(self, other: object) -> bool:
        Waiting.compared += 1
        return self is other

    def __hash__(self) -> int:
        return id(self)


def test_hazard_15_thousands_who_wait_for_the_budget_leave_without_looking_at_each_other() -> None:
    budget = Budget(10)
    assert budget.take(10, lambda: None)
    waiting = [Waiting() for _ in range(1000)]
    for one in waiting:
        assert not budget.take(5, one)
    for one in waiting[1:-1]:
        budget.forget(one)
    assert Waiting.compared < 1000
    assert budget.waiting == 2
    budget.give_back(10)
    assert [one.is_granted for one in (waiting[0], waiting[1], waiting[-1])] == [True, False, True]
    assert (budget.waiting, budget.held_bytes) == (0, 10)
