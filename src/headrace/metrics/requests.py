# cython: language_level=3, annotation_typing=False, nonecheck=True
"""How long requests of an API take, and where: the slices that Kafka tells too.

    queue         from when its bytes were read until its handler begins: requests that came with it are served before
    local         the handler, with decoding and encoding
    remote wait   from then until its reply is there: for a disk, for replicas, for records, for the controller
    send          until the reply is handed to the socket, behind those of earlier requests

The clock is read when bytes came, and when all requests in them have been handled and their replies sent, which is done
together. So requests of one API that came together and are answered at once share their times: the whole is the same
for all of them, and what each took is the part that it took on average. One that came alone is a single increment, in
`at_once`: its local time is its whole time. A request whose reply comes later is timed by itself.
"""

from __future__ import annotations

from collections.abc import Callable

from headrace.metrics.histogram import Histogram, bits_of


class ErrorCounts(dict[str, dict[int, int]]):
    """By API, how often each error code was answered: for handlers that count, and that are made later than routes."""

    def __missing__(self, api: str) -> dict[int, int]:
        counts: dict[int, int] = {}
        self[api] = counts
        return counts


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
    """The times of the requests that are being handled. One for each loop."""

    __slots__ = ("at_ns", "clock_ns", "count", "figures", "read_ns")

    def __init__(self, clock_ns: Callable[[], int]) -> None:
        """`clock_ns` never goes back."""
        self.clock_ns = clock_ns
        self.read_ns = 0
        """When their bytes were read."""
        self.at_ns = 0
        """What was before this has been counted."""
        self.figures: RequestFigures | None = None
        """Of the API that was asked last."""
        self.count = 0
        """How many requests of it have been answered since then."""

    def switch(self, figures: RequestFigures) -> None:
        """A request of this API is handled now, which may be another one."""
        if self.count and self.figures is not figures:
            self.close()

    def close(self) -> None:
        """Counts them: their replies are sent, or will be with those that follow."""
        at_ns, count, figures = self.at_ns, self.count, self.figures
        assert figures is not None
        self.count = 0
        self.at_ns = now_ns = self.clock_ns()
        spent_ns = now_ns - at_ns
        if count == 1 and at_ns == self.read_ns:
            found = figures.at_once
            found.counts[bits_of(spent_ns)] += 1
            found.sum_ns += spent_ns
            return
        total_ns = now_ns - self.read_ns
        behind_ns = spent_ns * (count - 1) // 2
        figures.total.observe_all(total_ns * count, count)
        figures.local.observe_all(spent_ns, count)
        figures.queue.observe_all((at_ns - self.read_ns) * count + behind_ns, count)
        if behind_ns:
            figures.send.observe_all(behind_ns, count)

    def handled(self, figures: RequestFigures) -> int:
        """A request was, whose reply has not been sent. Returns the time."""
        if self.count:
            self.close()
        at_ns = self.at_ns
        self.at_ns = now_ns = self.clock_ns()
        spent_ns, found = now_ns - at_ns, figures.local
        found.counts[bits_of(spent_ns)] += 1
        found.sum_ns += spent_ns
        if at_ns != self.read_ns:
            figures.queue.observe(at_ns - self.read_ns)
        return now_ns
