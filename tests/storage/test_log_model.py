"""A list against the log: appends, rolls, truncations, retention, reopening, at random; and a crash at every call.

The first half holds the log to a model through everything that a node does to it. The second half runs such a life on
a disk that crashes at one of its calls, once for each of them, and holds what is there afterwards to the contract: what
was flushed is there, what was appended is there unless the machine crashed, and what is there is a beginning of it.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from headrace.config import LogConfig
from headrace.errors import Refused
from headrace.protocol.batch import Batch, scan
from headrace.protocol.control import build_marker
from headrace.protocol.records import records_of
from headrace.storage.log import Log
from headrace.storage.producer_state import Origin, ProducerState
from headrace.storage.recovery import Saved
from headrace.testing.disk import Crash, Faults, FaultyDisk, Platter
from tests.storage.batches import START_MS, batch, run
from tests.storage.logs import open_at, records_in

CONFIG = LogConfig(
    segment_bytes=700, index_interval_bytes=120, file_delete_delay_ms=5, segment_ms=50, segment_index_bytes=200
)
PRODUCERS = (7, 8)


@dataclass(slots=True)
class Entry:
    """A batch as the model knows it."""

    base_offset: int
    values: list[bytes]
    times: list[int]
    epoch: int
    producer_id: int = -1
    sequence: int = -1
    is_transactional: bool = False
    is_marker: bool = False
    is_abort: bool = False

    @property
    def end_offset(self) -> int:
        return self.base_offset + (1 if self.is_marker else len(self.values))

    def content(self, *, placed: bool) -> bytearray:
        place: dict[str, Any] = {}
        if placed:
            place = {"base_offset": self.base_offset, "partition_leader_epoch": self.epoch}
        if self.is_marker:
            return build_marker(
                committed=not self.is_abort,
                producer_id=self.producer_id,
                producer_epoch=0,
                coordinator_epoch=0,
                timestamp_ms=self.times[0],
                **place,
            )
        producer: dict[str, Any] = {}
        if self.producer_id >= 0:
            producer = {"producer_id": self.producer_id, "producer_epoch": 0, "base_sequence": self.sequence}
        return batch(*self.values, timestamps=self.times, transactional=self.is_transactional, **producer, **place)


@dataclass(slots=True)
class Model:
    entries: list[Entry] = field(default_factory=list)
    history: list[Entry] = field(default_factory=list)
    """With those that retention took: producers stay known."""
    start: int = 0
    end: int = 0
    sequences: dict[int, int] = field(default_factory=dict)
    open_transactions: set[int] = field(default_factory=set)

    def take(self, entry: Entry) -> None:
        self.entries.append(entry)
        self.history.append(entry)
        self.end = entry.end_offset
        if entry.is_marker:
            self.open_transactions.discard(entry.producer_id)
        elif entry.producer_id >= 0:
            self.sequences[entry.producer_id] = entry.sequence + len(entry.values)
            if entry.is_transactional:
                self.open_transactions.add(entry.producer_id)

    def cut(self, offset: int, empty_end: int) -> None:
        """To the last batch that ends at or before an offset; without one, the log ends where its segment begins."""
        first = self.entries[0].base_offset
        kept = [entry for entry in self.history if entry.end_offset <= offset]
        end = kept[-1].end_offset if kept and kept[-1].base_offset >= first else empty_end
        assert end <= offset
        self.__init__(start=min(self.start, end))  # type: ignore[misc]
        for entry in kept:
            self.take(entry)
        self.entries = [entry for entry in kept if entry.base_offset >= first]
        self.end = end

    def records(self) -> list[tuple[int, int, bytes | None]]:
        return [
            (entry.base_offset + number, time, value)
            for entry in self.entries
            if not entry.is_marker
            for number, (value, time) in enumerate(zip(entry.values, entry.times, strict=True))
            if entry.base_offset + number >= self.start
        ]


def contents(log: Log) -> list[tuple[int, int, bytes | None]]:
    return [(record.offset, record.timestamp, record.value) for record in records_in(log)]


def check(log: Log, model: Model) -> None:
    """The log says what the model says, whichever way it is asked."""
    assert log.log_end_offset == model.end
    assert log.log_start_offset == model.start
    assert log.log_start_offset <= log.last_stable_offset <= log.high_watermark <= log.log_end_offset
    assert contents(log) == model.records()
    times = [
        (time, offset)
        for entry in model.entries
        for offset, time in enumerate(entry.times, entry.base_offset)
        if offset >= model.start
    ]
    for wanted in {START_MS - 1, START_MS + 1_000_000, *(time for time, _ in times)}:
        expected = next(((offset, time) for time, offset in times if time >= wanted), None)
        found = log.by_timestamp(wanted)
        assert (found and (found.offset, found.timestamp)) == expected
    newest = max(times, key=lambda found: (found[0], -found[1]), default=None)
    latest = log.latest()
    assert (latest and (latest.timestamp, latest.offset)) == newest
    assert log.size_bytes == sum(segment.size_bytes for segment in log.segments)
    check_epochs(log, model)
    check_producers(log, model)
    check_aborted(log, model)


def check_epochs(log: Log, model: Model) -> None:
    for entry in model.entries:
        if entry.base_offset >= model.start:
            assert log.epochs.epoch_for_offset(entry.base_offset) == entry.epoch


def check_producers(log: Log, model: Model) -> None:
    state = ProducerState()
    for entry in model.history:
        if entry.producer_id >= 0:
            state.apply(Batch(memoryview(entry.content(placed=True))))
    for producer_id, producer in state:
        known = log.producers.producers[producer_id]
        assert known.next_sequence == producer.next_sequence
        assert known.transaction_offset == producer.transaction_offset
        assert known.recent() == producer.recent()


def check_aborted(log: Log, model: Model) -> None:
    first: dict[int, int] = {}
    expected = []
    for entry in model.history:
        if entry.is_marker and entry.producer_id in first:
            begin = first.pop(entry.producer_id)
            if entry.is_abort:
                expected.append((entry.producer_id, begin, entry.base_offset))
        elif entry.is_transactional:
            first.setdefault(entry.producer_id, entry.base_offset)
    found = log.aborted_in(model.start, model.end)
    assert [(aborted.producer_id, aborted.first_offset, aborted.last_offset) for aborted in found] == [
        aborted for aborted in expected if aborted[2] >= model.start
    ]


class LogMachine(RuleBasedStateMachine):
    """What a node does to a log, at random."""

    def __init__(self) -> None:
        super().__init__()
        self.now_ms = START_MS
        self.model = Model()
        self.epoch = 0
        self.saved_point = 0
        self.followed = 0

    @initialize(preallocate=st.booleans())
    def begin(self, preallocate: bool) -> None:
        self.config = CONFIG.replace(preallocate=preallocate)
        self.disk = FaultyDisk()
        self.log = self.open(Saved())

    def open(self, saved: Saved) -> Log:
        return open_at(self.disk, self.config, saved, now_ms=self.now_ms)

    @rule(sizes=st.lists(st.integers(0, 90), min_size=1, max_size=4), step=st.integers(-20, 40))
    def append(self, sizes: list[int], step: int) -> None:
        self._append(self._entry(sizes, step))

    @rule(
        sizes=st.lists(st.integers(0, 90), min_size=1, max_size=3),
        producer_id=st.sampled_from(PRODUCERS),
        transactional=st.booleans(),
    )
    def append_idempotent(self, sizes: list[int], producer_id: int, transactional: bool) -> None:
        transactional = transactional or producer_id in self.model.open_transactions
        entry = replace(
            self._entry(sizes, 1),
            producer_id=producer_id,
            sequence=self.model.sequences.get(producer_id, 0),
            is_transactional=transactional,
        )
        self._append(entry)

    @rule(producer_id=st.sampled_from(PRODUCERS), abort=st.booleans())
    def end_transaction(self, producer_id: int, abort: bool) -> None:
        if producer_id in self.model.open_transactions:
            entry = replace(self._entry([0], 1), producer_id=producer_id, is_marker=True, is_abort=abort)
            self._append(entry, Origin.COORDINATOR)

    @rule(producer_id=st.sampled_from(PRODUCERS))
    def send_again(self, producer_id: int) -> None:
        mine = [e for e in self.model.entries if e.producer_id == producer_id and not e.is_marker]
        if mine and mine[-1].sequence + len(mine[-1].values) == self.model.sequences.get(producer_id):
            appended = self.log.append_as_leader(memoryview(mine[-1].content(placed=False)), self.epoch, self.now_ms)
            assert appended.is_duplicate
            assert (appended.first_offset, appended.last_offset) == (mine[-1].base_offset, mine[-1].end_offset - 1)

    @rule(producer_id=st.sampled_from(PRODUCERS))
    def send_out_of_order(self, producer_id: int) -> None:
        if producer_id in self.log.producers.producers:
            content = batch(b"x", producer_id=producer_id, producer_epoch=0, base_sequence=99_999)
            with pytest.raises(Refused):
                self.log.append_as_leader(memoryview(content), self.epoch, self.now_ms)

    @rule(
        gaps=st.lists(st.integers(0, 5), min_size=1, max_size=12),
        far=st.booleans(),
    )
    def replicate(self, gaps: list[int], far: bool) -> None:
        """As a follower, with the gaps that compaction leaves, one of them too wide for a segment."""
        entries: list[Entry] = []
        for gap in gaps:
            entry = self._entry([30], 2)
            entry.base_offset = self.model.end + gap + (2**31 if far and not entries else 0)
            self.model.take(entry)
            entries.append(entry)
        content = run(*(entry.content(placed=True) for entry in entries))
        appended = self.log.append_as_follower(memoryview(content), self.epoch, self.now_ms)
        assert appended is not None
        assert appended.last_offset == self.model.end - 1

    @rule()
    def roll(self) -> None:
        self.log.roll(self.now_ms)

    @rule()
    def new_leader(self) -> None:
        self.epoch += 1

    @rule(part=st.floats(0, 1))
    def commit(self, part: float) -> None:
        self.log.set_high_watermark(int(self.model.start + part * (self.model.end - self.model.start)))

    @rule(part=st.floats(0, 1))
    def delete_records(self, part: float) -> None:
        offset = int(self.model.start + part * (self.log.high_watermark - self.model.start))
        self.model.start = self.log.delete_before(offset)
        assert self.model.start == offset

    @rule(part=st.floats(0, 1))
    def truncate(self, part: float) -> None:
        offset = int(self.model.start + part * (self.model.end - self.model.start))
        self.log.truncate_to(offset, self.now_ms)
        if offset < self.model.end:
            self.model.cut(offset, self.log.log_end_offset)

    @rule(ahead=st.integers(0, 50))
    def start_over(self, ahead: int) -> None:
        offset = self.model.end + ahead
        self.log.truncate_fully(offset, self.now_ms)
        self.model = Model(start=offset, end=offset)

    @rule(size=st.integers(0, 3000))
    def retain_by_size(self, size: int) -> None:
        self._retain(self.config.replace(retention_bytes=size, retention_ms=-1))

    @rule(age=st.integers(0, 100))
    def retain_by_age(self, age: int) -> None:
        self._retain(self.config.replace(retention_ms=age))

    def _retain(self, config: LogConfig) -> None:
        self.log.configure(config)
        self.log.retain(self.now_ms)
        self.log.configure(self.config)
        self.model.start = self.log.log_start_offset
        base_offset = self.log.segments[0].base_offset
        self.model.entries = [entry for entry in self.model.entries if entry.end_offset > base_offset]

    @rule(ms=st.integers(1, 30))
    def wait(self, ms: int) -> None:
        self.now_ms += ms
        self.log.sweep(self.now_ms)

    @rule()
    def checkpoint(self) -> None:
        self.log.flush(lambda error: None)
        assert self.log.flushed_offset == self.log.log_end_offset
        self.saved_point = self.log.recovery_point
        self.log.checkpointed(self.saved_point, self.log.truncations)

    @rule()
    def stop_and_start(self) -> None:
        self.log.write_out()
        self.log.close()
        self.disk = self.disk.restart()
        self.log = self.open(Saved(True, self.log.log_end_offset, self.model.start, self.log.high_watermark))

    @rule()
    def die_and_start(self) -> None:
        """A crash of the process: the page cache survives, and so does everything that was appended."""
        self.disk = self.disk.restart()
        self.log = self.open(Saved(False, self.saved_point, self.model.start, self.log.high_watermark))

    @rule(part=st.floats(0, 1), bytes_max=st.integers(1, 2000))
    def read_some(self, part: float, bytes_max: int) -> None:
        start = int(self.model.start + part * (self.model.end - self.model.start))
        found = [(r.offset, r.timestamp, r.value) for r in records_in(self.log, start, bytes_max=bytes_max)]
        assert found == [record for record in self.model.records() if record[0] >= start]

    @rule()
    def read_along(self) -> None:
        """As a consumer at the end does: from where its last read ended."""
        start = min(max(self.followed, self.model.start), self.model.end)
        found = [
            (record.offset, record.timestamp, record.value)
            for batch in scan(self.log.read(start, 1 << 20, self.model.end).take())
            if not batch.is_control
            for record in records_of(batch, 1 << 20).decode()
            if record.offset >= start
        ]
        assert found == [record for record in self.model.records() if record[0] >= start]
        self.followed = self.model.end

    @invariant()
    def is_as_the_model_says(self) -> None:
        if hasattr(self, "log"):
            read_end = self.log.read_end
            check(self.log, self.model)
            self.log.read_end = read_end
            assert self.disk.open_files <= 1 + len(self.log.segments)

    def _entry(self, sizes: list[int], step: int) -> Entry:
        self.now_ms += max(1, step)
        time = self.now_ms if step > 0 else max(START_MS, self.now_ms + step)
        values = [b"%d:" % self.model.end + b"v" * size for size in sizes]
        return Entry(self.model.end, values, [time + number for number in range(len(sizes))], self.epoch)

    def _append(self, entry: Entry, origin: Origin = Origin.CLIENT) -> None:
        appended = self.log.append_as_leader(memoryview(entry.content(placed=False)), self.epoch, self.now_ms, origin)
        assert (appended.first_offset, appended.last_offset) == (entry.base_offset, entry.end_offset - 1)
        assert not appended.is_duplicate
        self.model.take(entry)


TestLogModel = LogMachine.TestCase
TestLogModel.settings = settings(stateful_step_count=40)


# ------------------------------------------------------------------------------------------------ a crash at every call


class Life:
    """What a node does to one log, step by step, on a disk that may crash in the middle of a step."""

    def __init__(self, disk: FaultyDisk, scale: int = 1) -> None:
        self.disk = disk
        self.scale = scale
        self.config = CONFIG.replace(segment_bytes=CONFIG.segment_bytes * scale)
        self.now_ms = START_MS
        self.epoch = 0
        self.before = Model()
        self.after = Model()
        """What the log holds if the step that is under way comes to its end."""
        self.durable_end = 0
        self.saved = Saved()
        self.log: Log | None = None

    def start(self, steps: list[str]) -> None:
        self.log = self.open()
        for step in steps:
            name, _, number = step.partition(" ")
            self.after = deepcopy(self.before)
            getattr(self, name)(int(number or 1))
            self.before = self.after
            self.now_ms += 3

    def open(self) -> Log:
        log = open_at(self.disk, self.config, self.saved, now_ms=self.now_ms)
        self.saved = self.saved._replace(is_clean=False)
        return log

    def append(self, size: int) -> None:
        size *= self.scale
        self._append([Entry(self.after.end, [b"v" * size, b"w"], [self.now_ms, self.now_ms + 1], self.epoch)])

    def idempotent(self, producer_id: int) -> None:
        self._append([self._produced(producer_id, False)])

    def transactional(self, producer_id: int) -> None:
        self._append([self._produced(producer_id, True)])

    def abort(self, producer_id: int) -> None:
        self._end(producer_id, True)

    def commit(self, producer_id: int) -> None:
        self._end(producer_id, False)

    def many(self, count: int) -> None:
        """Several batches in one write."""
        entries = []
        for number in range(count):
            entries.append(Entry(self.after.end, [b"m" * 40 * number], [self.now_ms], self.epoch))
            self.after.take(entries[-1])
        self._write(entries)

    def roll(self, _: int) -> None:
        assert self.log is not None
        self.log.roll(self.now_ms)

    def leader(self, _: int) -> None:
        self.epoch += 1

    def flush(self, _: int) -> None:
        assert self.log is not None
        self.log.flush(self._flushed)

    def checkpoint(self, _: int) -> None:
        assert self.log is not None
        self.flush(1)
        self.saved = self.saved._replace(
            recovery_point=self.log.recovery_point, log_start_offset=self.log.log_start_offset
        )
        self.log.checkpointed(self.log.recovery_point, self.log.truncations)

    def truncate(self, count: int) -> None:
        """The last so many batches."""
        assert self.log is not None
        kept = self.after.entries[:-count]
        if kept and kept[-1].end_offset >= self.after.start:
            offset = kept[-1].end_offset
            self.after.cut(offset, offset)
            self.durable_end = min(self.durable_end, offset)
            self.log.truncate_to(offset, self.now_ms)

    def retain(self, size: int) -> None:
        assert self.log is not None
        self.log.set_high_watermark(self.after.end)
        self.log.configure(self.config.replace(retention_bytes=size, retention_ms=-1))
        self.log.retain(self.now_ms)
        self.log.configure(self.config)
        self.after.start = self.log.log_start_offset
        base_offset = self.log.segments[0].base_offset
        self.after.entries = [entry for entry in self.after.entries if entry.end_offset > base_offset]

    def restart(self, _: int) -> None:
        """A clean stop, as the log directory makes it."""
        assert self.log is not None
        self.log.write_out()
        self.disk.sync_all()
        self._flushed(None)
        self.saved = Saved(True, self.log.log_end_offset, self.log.log_start_offset, self.log.high_watermark)
        self.log.close()
        self.log = self.open()

    def sweep(self, _: int) -> None:
        assert self.log is not None
        self.log.sweep()

    def _produced(self, producer_id: int, transactional: bool) -> Entry:
        transactional = transactional or producer_id in self.after.open_transactions
        sequence = self.after.sequences.get(producer_id, 0)
        return Entry(
            self.after.end, [b"p", b"q" * 50], [self.now_ms] * 2, self.epoch, producer_id, sequence, transactional
        )

    def _end(self, producer_id: int, is_abort: bool) -> None:
        if producer_id in self.after.open_transactions:
            marker = Entry(self.after.end, [], [self.now_ms], self.epoch, producer_id)
            self._append([replace(marker, is_marker=True, is_abort=is_abort)])

    def _append(self, entries: list[Entry]) -> None:
        for entry in entries:
            self.after.take(entry)
        self._write(entries)

    def _write(self, entries: list[Entry]) -> None:
        assert self.log is not None
        content = run(*(entry.content(placed=False) for entry in entries))
        self.log.append_as_leader(memoryview(content), self.epoch, self.now_ms, Origin.COORDINATOR)

    def _flushed(self, error: object) -> None:
        if error is None:
            self.durable_end = self.after.end


def check_after_crash(life: Life, log: Log, *, power_lost: bool) -> Model:
    """What must be there is there, and what is there is a beginning of what was written. Returns what is there."""
    before, after = life.before, life.after
    longer = after if after.end >= before.end else before
    end = log.log_end_offset
    assert end >= (min(life.durable_end, after.end) if power_lost else min(before.end, after.end))
    assert end <= longer.end
    assert not power_lost or log.log_start_offset <= max(before.start, after.start, end)
    there = Model(start=log.log_start_offset, end=log.log_start_offset)
    for entry in longer.history:
        if entry.end_offset <= end:
            there.take(entry)
    assert there.end == end, "the log ends with a batch"
    there.entries = [entry for entry in there.entries if entry.end_offset > log.segments[0].base_offset]
    log.set_high_watermark(end)
    check(log, there)
    return there


def lives_after(steps: list[str], crash_at_call: int, seed: int, *, power_lost: bool, scale: int = 1) -> bool:
    """Lives until the crash, starts again, and checks; False when the life was over before the crash."""
    life = Life(FaultyDisk(Platter(seed), Faults(crash_at_call=crash_at_call)), scale)
    try:
        life.start(steps)
    except Crash:
        pass
    else:
        return False
    for _ in range(2):  # the second start finds what the first one left
        life.disk = life.disk.restart(power_lost=power_lost)
        life.log = log = life.open()
        life.after = check_after_crash(life, log, power_lost=power_lost)
        life.durable_end = min(life.durable_end, log.log_end_offset)
        life.append(20)
        life.flush(1)
        life.before = deepcopy(life.after)
        check(log, life.after)
    return True


LIFE = """
append 30, idempotent 7, append 60, transactional 8, flush, append 200, idempotent 7, abort 8, leader, append 300,
checkpoint, append 300, many 4, truncate 2, append 90, append 310, transactional 7, append 250, retain 900, restart,
append 40, commit 7, many 3, truncate 1, idempotent 7, flush, append 400, append 300, leader, append 10, sweep,
append 500, leader, append 300, append 300, checkpoint, append 20, truncate 3, append 60, append 300, append 200
"""


@pytest.mark.parametrize("power_lost", [False, True], ids=["process", "machine"])
@pytest.mark.parametrize("part", range(4))  # one after the other they take long
def test_a_crash_at_any_call_leaves_what_the_contract_promises(power_lost: bool, part: int) -> None:
    life = [step.strip() for step in LIFE.split(",")]
    crash_at_call = part + 1
    while lives_after(life, crash_at_call, crash_at_call, power_lost=power_lost):
        crash_at_call += 4
    assert crash_at_call > 300


steps = st.one_of(
    st.sampled_from(["roll", "leader", "flush", "checkpoint", "restart", "sweep"]),
    st.builds(
        "{} {}".format, st.sampled_from(["idempotent", "transactional", "abort", "commit"]), st.sampled_from((7, 8))
    ),
    st.builds("append {}".format, st.integers(0, 500)),
    st.builds("many {}".format, st.integers(1, 4)),
    st.builds("truncate {}".format, st.integers(1, 5)),
    st.builds("retain {}".format, st.integers(0, 2000)),
)


@given(
    st.lists(steps, min_size=3, max_size=25),
    st.integers(1, 250),
    st.integers(0, 1000),
    st.booleans(),
    st.sampled_from([1, 30]),  # batches within a page, and over many
)
def test_a_crash_in_any_life_leaves_what_the_contract_promises(
    life: list[str], crash_at_call: int, seed: int, power_lost: bool, scale: int
) -> None:
    lives_after(life, crash_at_call, seed, power_lost=power_lost, scale=scale)
