"""A file whose bytes are sent, and who sends them, as `net.sending` sees them."""

from collections.abc import Callable

from headrace.net.sending import Done


class SentFile:
    """Is at hand for so many looks, or always."""

    def __init__(self, ahead: tuple[int, int] = (0, 0), looks: int = 1 << 30) -> None:
        self.sync_beats = bytearray(1)
        self.ahead = ahead
        self.looks = looks

    def is_at_hand(self, position: int, size: int) -> bool:
        self.looks -= 1
        return self.looks >= 0

    def ahead_of(self, position: int, size: int) -> tuple[int, int]:
        return self.ahead


class OneSender:
    """Gives the jobs to whoever `run` is."""

    rests = 0

    def __init__(self, run: Callable[[Callable[[], None], Done], None]) -> None:
        self.run = run
