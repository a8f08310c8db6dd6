"""What clients saw, and what must not be in it: the anomalies that Jepsen's Kafka workload looks for. PURE.

A history is writes, polls and the machines that lost power. A write that nobody answered is "maybe": it may be there or
not, but at most once and never in two places (hazard 14). What a write was promised says which crashes it must survive;
one that need not survive is "maybe" from then on.
"""

from __future__ import annotations

import enum
import itertools
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple


class Outcome(enum.Enum):
    """What the producer was told."""

    ACKNOWLEDGED = "acknowledged"
    MAYBE = "maybe"
    """Timed out, disconnected, or an error that leaves it open."""
    REFUSED = "refused"
    """Surely not written."""


class Promise(enum.IntEnum):
    """What an acknowledgement is worth."""

    NOTHING = 0
    """acks=0"""
    PROCESS_CRASHES = 1
    """acks=1, or replicas that did not sync: it is in page caches. A machine without power can lose it."""
    ONE_MACHINE = 2
    """acks=all with two or more replicas in sync: any one machine may lose power, not two."""
    ALL_MACHINES = 3
    """Synced before the acknowledgement, everywhere."""


@dataclass(slots=True)
class Write:
    """One value that a producer wanted in a partition. Values are unique in a history; retries are the same write."""

    value: str
    partition: int
    producer: str
    start: float
    end: float = float("inf")
    outcome: Outcome = Outcome.MAYBE
    offset: int | None = None
    """What the acknowledgement said."""
    promise: Promise = Promise.PROCESS_CRASHES
    at_most_once: bool = True
    """By an idempotent producer, or never retried."""
    in_order: bool = True
    """Its producer sends in the order of the history and keeps it over retries."""
    visible_from: float | None = None
    """In a transaction, when its commit was asked for. One that was aborted is refused."""


class Entry(NamedTuple):
    offset: int
    value: str


@dataclass(slots=True)
class Poll:
    """What one fetch brought. Polls of one session go on where the last ended; a seek starts a new session."""

    consumer: str
    session: int
    partition: int
    start: float
    end: float
    entries: list[Entry]
    reads_to_end: bool = False
    """After everything healed, this session reads the partition from its start to its end."""


@dataclass(slots=True, frozen=True)
class MachineCrash:
    """A machine lost power, or its device failed a sync: what was not synced before may be gone."""

    at: float
    host: str


class Kind(enum.Enum):
    LOST_WRITE = "lost write"
    DUPLICATE = "duplicate"
    REORDERED = "reordered"
    DIVERGENT = "divergent value"
    GAP = "gap in a poll"
    INVERSION = "inversion in a poll"
    PHANTOM = "phantom"
    """Read, and nobody wrote it."""
    REFUSED_READ = "refused, and read"
    READ_TOO_EARLY = "read before it was written"
    NOT_TOLD = "reader not told of a loss"


@dataclass(slots=True, frozen=True)
class Anomaly:
    kind: Kind
    partition: int
    text: str

    def __str__(self) -> str:
        return f"{self.kind.value} in partition {self.partition}: {self.text}"


@dataclass(slots=True)
class History:
    writes: list[Write] = field(default_factory=list)
    polls: list[Poll] = field(default_factory=list)
    machine_crashes: list[MachineCrash] = field(default_factory=list)

    def anomalies(self) -> list[Anomaly]:
        """Everything that is wrong, in an order that depends on nothing else."""
        found: list[Anomaly] = []
        for partition in sorted({w.partition for w in self.writes} | {p.partition for p in self.polls}):
            found += _Partition(self, partition).anomalies()
        return found

    def must_survive(self, write: Write, *, was_read: bool = False) -> bool:
        """Whether a write is there for good, by what it was promised and what crashed since it began.

        Consumers read up to the high watermark only, so to be read is worth as much as to be acknowledged.
        """
        is_known = write.outcome is Outcome.ACKNOWLEDGED or was_read
        if not is_known or write.promise is Promise.NOTHING:
            return False
        machines = {crash.host for crash in self.machine_crashes if crash.at >= write.start}  # counted, never iterated
        return len(machines) <= _MACHINES_SURVIVED[write.promise]


_MACHINES_SURVIVED = {
    Promise.PROCESS_CRASHES: 0,
    Promise.ONE_MACHINE: 1,
    Promise.ALL_MACHINES: 1 << 30,
}


class _Seen(NamedTuple):
    """A value was seen at an offset: by a poll, or by the producer that was told so."""

    offset: int
    value: str
    start: float
    end: float
    by: str


class _Partition:
    """One partition of a history, indexed."""

    __slots__ = ("_crashes", "_final", "_history", "_number", "_polls", "_read", "_seen", "_writes")

    def __init__(self, history: History, number: int) -> None:
        self._history = history
        self._number = number
        self._writes = {write.value: write for write in history.writes if write.partition == number}
        self._polls = [poll for poll in history.polls if poll.partition == number]
        self._crashes = sorted(crash.at for crash in history.machine_crashes)
        self._seen: dict[int, list[_Seen]] = defaultdict(list)
        self._read: dict[str, list[_Seen]] = defaultdict(list)
        for poll in self._polls:
            for offset, value in poll.entries:
                seen = _Seen(offset, value, poll.start, poll.end, poll.consumer)
                self._seen[offset].append(seen)
                self._read[value].append(seen)
        self._final = {entry.value for poll in self._polls if poll.reads_to_end for entry in poll.entries}
        for write in self._writes.values():
            if write.outcome is Outcome.ACKNOWLEDGED and write.offset is not None:
                told = _Seen(write.offset, write.value, write.start, write.end, write.producer)
                self._seen[write.offset].append(told)

    def anomalies(self) -> Iterator[Anomaly]:
        yield from self._strangers()
        yield from self._divergent()
        yield from self._duplicates()
        yield from self._lost()
        yield from self._reordered()
        yield from self._poll_order()
        yield from self._not_told()

    def _strangers(self) -> Iterator[Anomaly]:
        for value, reads in self._read.items():
            write = self._writes.get(value)
            first = min(reads, key=lambda read: read.end)
            if write is None:
                yield self._anomaly(Kind.PHANTOM, f"{_short(value)} at offset {first.offset}, read by {first.by}")
            elif write.outcome is Outcome.REFUSED:
                yield self._anomaly(Kind.REFUSED_READ, f"{_short(value)} at offset {first.offset}, read by {first.by}")
            elif first.end < (start := write.start if write.visible_from is None else write.visible_from):
                yield self._anomaly(
                    Kind.READ_TOO_EARLY, f"{_short(value)} at {first.end:g} s, not there before {start:g} s"
                )

    def _divergent(self) -> Iterator[Anomaly]:
        """Two values at one offset. Only power that was lost in between may have taken the earlier, and for good."""
        for offset, seen in sorted(self._seen.items()):
            by_value: dict[str, list[_Seen]] = {}
            for sight in seen:
                by_value.setdefault(sight.value, []).append(sight)
            for one, two in itertools.combinations(by_value.values(), 2):
                if not all(
                    self._may_replace(before, after) or self._may_replace(after, before)
                    for before in self._lives(one)
                    for after in self._lives(two)
                ):
                    values = " and ".join(f"{_short(ones[0].value)} ({ones[0].by})" for ones in (one, two))
                    yield self._anomaly(Kind.DIVERGENT, f"offset {offset} holds {values}")

    def _lives(self, seen: list[_Seen]) -> list[list[_Seen]]:
        """What was seen of a value at an offset, by when it came there: one that is sent until it is acknowledged may
        come there again after a loss of power, and another one may have been there in between."""
        write = self._writes.get(seen[0].value)
        return [seen] if write is None or write.at_most_once else [[sight] for sight in seen]

    def _may_replace(self, before: list[_Seen], after: list[_Seen]) -> bool:
        """Whether a loss of power can have taken what was there before, so that all that came after may be there."""
        write = self._writes.get(before[0].value)
        if write is not None and self._survives(write):
            return False
        return self._power_lost(max(one.start for one in before), min(one.end for one in after))

    def _duplicates(self) -> Iterator[Anomaly]:
        """One value at two offsets, when no loss of power can have taken one before a retry wrote the other."""
        places: dict[str, dict[int, list[_Seen]]] = defaultdict(lambda: defaultdict(list))
        for seen in self._seen.values():
            for sight in seen:
                places[sight.value][sight.offset].append(sight)
        for value, by_offset in places.items():
            write = self._writes.get(value)
            if write is None or not write.at_most_once:
                continue
            for low, high in itertools.pairwise(sorted(by_offset)):
                one, two = by_offset[low], by_offset[high]
                if (
                    self._read_twice_in_one_session(value)
                    or self._survives(write)
                    or not (self._may_replace(one, two) or self._may_replace(two, one))
                ):
                    yield self._anomaly(Kind.DUPLICATE, f"{_short(value)} at the offsets {low} and {high}")

    def _read_twice_in_one_session(self, value: str) -> bool:
        """A reader of what a crash took is told, and starts a new session."""
        sessions = Counter(
            (poll.consumer, poll.session) for poll in self._polls for entry in poll.entries if entry.value == value
        )
        return max(sessions.values(), default=0) > 1

    def _lost(self) -> Iterator[Anomaly]:
        """Acknowledged and promised, below what was read to the end (or anywhere behind it), and read by nobody."""
        read = [seen.offset for reads in self._read.values() for seen in reads]
        lowest, highest = min(read, default=0), max(read, default=-1)
        read_to_end_from = min((poll.start for poll in self._polls if poll.reads_to_end), default=float("inf"))
        for write in self._writes.values():
            if not self._survives(write):
                continue
            known_at = min([write.end, *(seen.end for seen in self._read.get(write.value, ()))])
            if known_at <= read_to_end_from < float("inf"):
                if write.value not in self._final:
                    yield self._anomaly(Kind.LOST_WRITE, f"{_told(write)}, is not there at the end")
            elif write.value not in self._read and write.offset is not None and lowest < write.offset < highest:
                yield self._anomaly(Kind.LOST_WRITE, f"{_told(write)}, was never read, though {highest} was")

    def _reordered(self) -> Iterator[Anomaly]:
        """By one producer: sent earlier, stands later. By anybody: acknowledged before the other was sent."""
        placed = [(offset, write) for write in self._writes.values() if (offset := self._place(write)) is not None]
        last: dict[str, tuple[int, Write]] = {}
        for offset, write in placed:
            if not write.in_order:
                continue
            before = last.get(write.producer)
            if before is not None and offset < before[0]:
                yield self._anomaly(
                    Kind.REORDERED,
                    f"{write.producer} sent {_short(before[1].value)} before {_short(write.value)}, and they stand at "
                    f"{before[0]} and {offset}",
                )
            else:
                last[write.producer] = (offset, write)
        yield from self._against_time(placed)

    def _against_time(self, placed: list[tuple[int, Write]]) -> Iterator[Anomaly]:
        ended = sorted(((w.end, offset, w) for offset, w in placed if self._survives(w)), key=lambda item: item[:2])
        ends = [end for end, _, _ in ended]
        highest: list[tuple[int, Write]] = []
        for _, offset, write in ended:
            highest.append(max(highest[-1], (offset, write), key=lambda item: item[0]) if highest else (offset, write))
        for offset, write in placed:
            index = bisect_left(ends, write.start)
            if not index or offset >= highest[index - 1][0]:
                continue
            earlier_offset, earlier = highest[index - 1]
            if earlier.producer == write.producer and write.in_order:
                continue  # told above
            yield self._anomaly(
                Kind.REORDERED,
                f"{_short(earlier.value)} was acknowledged before {_short(write.value)} was sent, and they stand at "
                f"{earlier_offset} and {offset}",
            )

    def _survives(self, write: Write) -> bool:
        return self._history.must_survive(write, was_read=write.value in self._read)

    def _place(self, write: Write) -> int | None:
        """The offset at which a write stands for certain: nobody saw it elsewhere, and no loss of power took it."""
        offsets = {seen.offset for seen in self._read.get(write.value, ())}
        if write.outcome is Outcome.ACKNOWLEDGED and write.offset is not None:
            offsets.add(write.offset)
        if len(offsets) != 1:
            return None
        is_certain = (
            self._survives(write) or write.value in self._final or not self._power_lost(write.start, float("inf"))
        )
        return offsets.pop() if is_certain else None

    def _poll_order(self) -> Iterator[Anomaly]:
        """Within a session offsets go up, and skip nothing that is there for good."""
        durable = sorted(
            offset
            for write in self._writes.values()
            if self._survives(write) and (offset := self._place(write)) is not None
        )
        last: dict[tuple[str, int], int] = {}
        for poll in self._polls:
            key = (poll.consumer, poll.session)
            for offset, value in poll.entries:
                before = last.get(key)
                if before is not None and offset <= before:
                    yield self._anomaly(
                        Kind.INVERSION, f"{poll.consumer} read {_short(value)} at offset {offset} after offset {before}"
                    )
                elif before is not None:
                    skipped = durable[bisect_right(durable, before) : bisect_left(durable, offset)]
                    if skipped:
                        yield self._anomaly(
                            Kind.GAP, f"{poll.consumer} read {before} and then {offset}, and not {_list(skipped)}"
                        )
                last[key] = offset

    def _not_told(self) -> Iterator[Anomaly]:
        """A session reads on in a log of which a crash took what it had read before. It should have been told."""
        final = {entry.offset: entry.value for poll in self._polls if poll.reads_to_end for entry in poll.entries}
        lowest = min(final, default=0)
        taken: dict[tuple[str, int], tuple[Entry, float]] = {}
        for poll in self._polls if final else ():
            key = (poll.consumer, poll.session)
            for entry in poll.entries:
                if entry.offset >= lowest and final.get(entry.offset) != entry.value:
                    taken.setdefault(key, (entry, poll.end))
                elif (
                    key in taken and entry.offset > taken[key][0].offset and self._is_later(entry, poll, taken[key][1])
                ):
                    before, _ = taken.pop(key)
                    yield self._anomaly(
                        Kind.NOT_TOLD,
                        f"{poll.consumer} read {_short(entry.value)} at {entry.offset} after {_short(before.value)} at "
                        f"{before.offset}, which is not there any more",
                    )

    def _is_later(self, entry: Entry, poll: Poll, before: float) -> bool:
        """Whether it was read after a loss of power after another read. A retry may come to the same place."""
        write = self._writes.get(entry.value)
        return write is not None and write.at_most_once and self._power_lost(before, poll.start)

    def _power_lost(self, start: float, end: float) -> bool:
        return bisect_left(self._crashes, start) < bisect_right(self._crashes, end)

    def _anomaly(self, kind: Kind, text: str) -> Anomaly:
        return Anomaly(kind, self._number, text)


def _told(write: Write) -> str:
    place = "" if write.offset is None else f" at offset {write.offset}"
    told = "acknowledged" if write.outcome is Outcome.ACKNOWLEDGED else "read once"
    return f"{_short(write.value)}, {told}{place} ({write.promise.name.lower().replace('_', ' ')})"


def _list(offsets: Iterable[int]) -> str:
    shown = list(offsets)
    return ", ".join(map(str, shown[:5])) + (f" and {len(shown) - 5} more" if len(shown) > 5 else "")


def _short(value: str) -> str:
    return repr(value if len(value) <= 40 else f"{value[:32]}… ({len(value)})")
