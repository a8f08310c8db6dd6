"""How long requests of an API take, and where: the slices that Kafka tells too.

    queue         from when its bytes were read until its handler begins: requests that came with it are served before
    local         the handler, with decoding and encoding
    remote wait   from then until its reply is there: for a disk, for replicas, for records, for the controller
    send          until the reply is handed to the socket, behind those of earlier requests

What most requests have none of is not observed: a request that came alone and is answered at once counts as one
increment in `at_once`, which is its local time and its whole time.
"""

from __future__ import annotations

from collections.abc import Callable

from headrace.metrics.histogram import Histogram


class RequestFigures:
    """Of one API, since the start."""

    __slots__ = ("api", "at_once", "errors", "local", "queue", "remote_wait", "send", "total")

    def __init__(self, api: str, errors: dict[int, int] | None = None) -> None:
        self.api = api
        self.errors: dict[int, int] = {} if errors is None else errors
        """How often each error code was answered, each partition of a reply counted."""
        self.at_once = Histogram()
        """Requests without queue, wait or send."""
        self.local = Histogram()
        """Of the others, as all below."""
        self.total = Histogram()
        self.queue = Histogram()
        self.remote_wait = Histogram()
        self.send = Histogram()

    @property
    def answered(self) -> int:
        return self.at_once.count + self.total.count

    def slices(self) -> list[Histogram]:
        """Total, queue, local, remote wait and send, each over all requests: who had none of a slice had 0 of it."""
        at_once, answered = self.at_once, self.answered
        return [
            _sum_of(self.total, at_once),
            _with_zeros(self.queue, answered),
            _sum_of(self.local, at_once),
            _with_zeros(self.remote_wait, answered),
            _with_zeros(self.send, answered),
        ]


def _sum_of(one: Histogram, other: Histogram) -> Histogram:
    found = Histogram()
    found.counts = [a + b for a, b in zip(one.counts, other.counts, strict=True)]
    found.sum_ns = one.sum_ns + other.sum_ns
    return found


def _with_zeros(one: Histogram, count: int) -> Histogram:
    found = Histogram()
    found.counts = list(one.counts)
    found.counts[0] += max(0, count - one.count)
    found.sum_ns = one.sum_ns
    return found


class Stopwatch:
    """When the bytes that are being handled were read, and when the last handler returned. One for each loop."""

    __slots__ = ("at_ns", "clock_ns", "read_ns")

    def __init__(self, clock_ns: Callable[[], int]) -> None:
        """`clock_ns` never goes back."""
        self.clock_ns = clock_ns
        self.read_ns = 0
        self.at_ns = 0
