"""How many bytes of unfinished frames a node holds for its clients, over all connections."""

from collections import OrderedDict
from collections.abc import Callable


class Budget:
    """Bytes that may be held at once. Who asks for more than is free waits its turn, in the order of asking.

    A single request above the whole budget is granted when nothing else is held, so that a large frame passes a small
    budget; whether it may be so large at all is checked before.
    """

    __slots__ = ("_waiting", "held_bytes", "size_bytes")

    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = size_bytes
        self.held_bytes = 0
        self._waiting: OrderedDict[Callable[[], None], int] = OrderedDict()

    def take(self, count_bytes: int, granted: Callable[[], None]) -> bool:
        """Whether the bytes are taken now; if not, `granted` is called when they have been."""
        if not self._waiting and self._fits(count_bytes):
            self.held_bytes += count_bytes
            return True
        assert granted not in self._waiting, "each waits for one frame at a time"
        self._waiting[granted] = count_bytes
        return False

    def hold(self, count_bytes: int) -> None:
        """Bytes that are there already, of a request that is kept after it was read: others wait until they go."""
        self.held_bytes += count_bytes

    def give_back(self, count_bytes: int) -> None:
        self.held_bytes -= count_bytes
        waiting = self._waiting
        while waiting:
            granted = next(iter(waiting))
            if not self._fits(waiting[granted]):
                return
            self.held_bytes += waiting.pop(granted)
            granted()

    def forget(self, granted: Callable[[], None]) -> None:
        """Whoever waits under this name does not want it any more."""
        if self._waiting.pop(granted, None) is not None:
            self.give_back(0)

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def _fits(self, count_bytes: int) -> bool:
        return self.held_bytes == 0 or self.held_bytes + count_bytes <= self.size_bytes
