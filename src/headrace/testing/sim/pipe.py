"""One direction of a connection: bytes, then an end or a reset, in order and each at its time."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from headrace.testing.sim.network import Network
    from headrace.testing.sim.transport import SimTransport

END: Final = b"end"
RESET: Final = b"reset"
"""What stands in a queue for an end and a reset. They are told from bytes by identity."""


class Pipe:
    """The sending and the receiving kernel and the wire between them. It takes as much as the window allows."""

    __slots__ = (
        "_is_moving",
        "_last_arrival",
        "_parked_at",
        "_queue",
        "_unacknowledged_bytes",
        "network",
        "receiver",
        "sender",
        "used_bytes",
        "window_bytes",
    )

    def __init__(self, network: Network, sender: SimTransport, receiver: SimTransport) -> None:
        self.network = network
        self.sender = sender
        self.receiver = receiver
        self.window_bytes = network.window_bytes()
        self.used_bytes = 0
        """Sent and not yet taken by the process on the other side, as far as the sender knows."""
        self._queue: deque[tuple[float, bytes]] = deque()
        self._last_arrival = 0.0
        self._unacknowledged_bytes = 0
        self._is_moving = False
        self._parked_at: float | None = None

    @property
    def free_bytes(self) -> int:
        return self.window_bytes - self.used_bytes

    def not_before(self, when: float) -> None:
        """Nothing arrives before this."""
        self._last_arrival = max(self._last_arrival, when)

    # --- sending ------------------------------------------------------------------------------------------------------

    def send(self, data: bytes) -> None:
        """At most `free_bytes`. Arrives in one piece or in several."""
        self.used_bytes += len(data)
        chance = self.network.chance
        if len(data) > 1 and chance.random() < self.network.weather.chunk_chance:
            cuts = sorted(chance.randrange(1, len(data)) for _ in range(chance.randint(1, 3)))
            start = 0
            for cut in (*cuts, len(data)):
                if cut > start:
                    self._put(data[start:cut])
                    start = cut
        else:
            self._put(data)

    def send_end(self) -> None:
        self._put(END)

    def send_reset(self) -> None:
        self._put(RESET)

    def drop(self) -> None:
        """The sender lost power, or its connection: what has not left is gone."""
        if self._parked_at is not None:
            self._queue.clear()

    def _put(self, item: bytes) -> None:
        network = self.network
        arrival = network.loop.now + network.delay(self.sender.host, self.receiver.host, len(item))
        self._last_arrival = arrival = max(self._last_arrival, arrival)
        self._queue.append((arrival, item))
        if not self._is_moving and self._parked_at is None:
            self._is_moving = True
            network.loop.outside_at(arrival, self._move)

    # --- arriving -----------------------------------------------------------------------------------------------------

    def _move(self) -> None:
        self._is_moving = False
        network, queue = self.network, self._queue
        while queue:
            if not network.is_open(self.sender.host, self.receiver.host):
                self._park()
                return
            arrival, item = queue[0]
            if arrival > network.loop.now:
                self._is_moving = True
                network.loop.outside_at(arrival, self._move)
                return
            queue.popleft()
            self._deliver(item)

    def _deliver(self, item: bytes) -> None:
        receiver, weather = self.receiver, self.network.weather
        if item is RESET:
            receiver.reset_arrived()
        elif item is END:
            receiver.end_arrived()
        elif weather.reset_chance and self.network.chance.random() < weather.reset_chance:
            self.network.event(str(receiver), "reset by the network")
            receiver.reset_arrived()
            self.sender.reset_arrived()
        else:
            receiver.bytes_arrived(item)

    def _park(self) -> None:
        loop = self.network.loop
        self._parked_at = loop.now
        self.network.park(self)
        loop.outside_at(loop.now + self.network.weather.send_timeout_seconds, self._give_up, loop.now)

    def unpark(self) -> None:
        """Links have changed. What was held back comes after a while, or parks again."""
        self._acknowledge()
        if self._parked_at is None:
            return
        self._parked_at = None
        if self._queue and not self._is_moving:
            loop, chance = self.network.loop, self.network.chance
            self._is_moving = True
            self.not_before(loop.now + chance.uniform(0, 0.2))
            loop.outside_at(self._last_arrival, self._move)

    def _give_up(self, parked_at: float) -> None:
        if self._parked_at == parked_at and self._queue:
            self._queue.clear()
            self.sender.timed_out()

    # --- the window ---------------------------------------------------------------------------------------------------

    def taken(self, count: int) -> None:
        """The receiving process took bytes. The sender learns it, unless the way back is cut."""
        self._unacknowledged_bytes += count
        self._acknowledge()

    def _acknowledge(self) -> None:
        network, count = self.network, self._unacknowledged_bytes
        if not count:
            return
        if not network.is_open(self.receiver.host, self.sender.host):
            network.park(self)
            return
        self._unacknowledged_bytes = 0
        if self.sender.waits_for_window:
            when = network.loop.now + network.delay(self.receiver.host, self.sender.host, 60)
            network.loop.outside_at(when, self._window_opened, count)
        else:
            self.used_bytes -= count

    def _window_opened(self, count: int) -> None:
        self.used_bytes -= count
        self.sender.window_opened()
