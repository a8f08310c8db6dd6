"""Compaction against a list of all that was written: at random, with transactions, tombstones, crashes, many passes.

HYPOTHESIS_PROFILE=campaign pytest tests/storage/test_cleaning_model.py   # many more, others each time
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

from hypothesis import event, given
from hypothesis import strategies as st

from headrace.protocol.batch_builder import build
from headrace.protocol.kernel_types import Record
from headrace.storage import names
from headrace.storage.cleaner import cleanable_of
from headrace.storage.disk import DiskError, DiskFull, TooManyOpenFiles
from headrace.testing.disk import Crash, FaultyDisk
from tests.storage.cleaning import KEYS, Compacted, Reader, codec

HOUR_MS = 3_600_000
PRODUCERS = 3
BYTES_OF_A_KEY = 24


@dataclass
class Written:
    """A record that was appended, and what became of its transaction: True, False, or None while it is open."""

    record: Record
    is_committed: bool | None
    tombstone_until_ms: int | None = None


class Model:
    """A compacted log beside a list of all that was written to it."""

    def __init__(self, **cleaner: Any) -> None:
        self.real = Compacted(**cleaner)
        self.written: list[Written] = []
        self.open: dict[int, list[Written]] = {}
        self.last_batch: dict[int, tuple[bytes, int]] = {}
        self.follower = Reader(self.real.log)
        self.log_start_offset = 0
        self.emptied_at = 0
        self.followed_from = 0

    # What may happen

    def put(self, pairs: list[tuple[int, bool]], producer: int, transactional: bool, compression: int) -> None:
        real = self.real
        transactional = producer >= 0 and (transactional or producer in self.open)
        records = [
            (KEYS[key], None if is_tombstone else b"%d/%d" % (len(self.written), i) + b"." * 20)
            for i, (key, is_tombstone) in enumerate(pairs)
        ]
        header: dict[str, Any] = {"compression": codec(compression)}
        if producer >= 0:
            sequence = real.sequences.get((producer, 0), 0)
            header |= {"producer_id": producer, "producer_epoch": 0, "base_sequence": sequence}
            real.sequences[producer, 0] = sequence + len(pairs)
        content = build(
            [(key, value, (), real.now_ms + i) for i, (key, value) in enumerate(records)],
            transactional=transactional,
            **header,
        )
        sent, end_offset = bytes(content), self.end_offset()
        appended = real.log.append_as_leader(memoryview(content), 0, real.now_ms)
        assert not appended.is_duplicate
        assert appended.first_offset == end_offset
        real.log.set_high_watermark(real.log.log_end_offset)
        if producer >= 0:
            self.last_batch[producer] = sent, appended.first_offset
        for i, (key, value) in enumerate(records):
            record = Record(appended.first_offset + i, real.now_ms + i, key, value)
            self.written.append(Written(record, None if transactional else True))
            if transactional:
                self.open.setdefault(producer, []).append(self.written[-1])

    def end(self, producer: int, commit: bool) -> None:
        real = self.real
        marker = Written(Record(real.end(producer, commit=commit), 0, None, None), False)
        for written in self.open.pop(producer, []):
            written.is_committed = commit
        self.written.append(marker)

    def again(self, producer: int) -> None:
        """A producer that did not hear the answer sends its last batch again."""
        if producer in self.last_batch:
            content, offset = self.last_batch[producer]
            appended = self.real.log.append_as_leader(memoryview(bytearray(content)), 0, self.real.now_ms)
            assert appended.is_duplicate
            assert appended.first_offset == offset

    def roll(self) -> None:
        self.real.roll()

    def clean(self) -> None:
        self.real.clean()
        assert not self.real.cleaner.set_aside

    def clean_a_little(self, steps: int) -> None:
        """Others go on while a log is cleaned."""
        self.real.cleaner.poll()
        for _ in range(steps):
            if len(self.real.workers):
                self.real.workers.step()

    def wait(self, hours: int) -> None:
        """A reader has as long as delete.retention.ms to see what was deleted."""
        self.follow(1_000)
        self.real.now_ms += hours * HOUR_MS

    def follow(self, fetches: int) -> None:
        while fetches and self.follower.fetch():
            fetches -= 1

    def restart(self, how: str) -> None:
        real = self.real
        if how != "clean":
            real.checkpoint()
        self.real = real.restart(power_lost=how == "power", clean=how == "clean")
        self.follower.log = self.real.log

    def crash(self, calls: int, how: str) -> None:
        """In the middle of a cleaning, at a disk call."""
        disk = self.real.disk
        assert isinstance(disk, FaultyDisk)
        self.real.checkpoint()
        disk.faults.crash_at_call = disk.calls + calls
        try:
            self.real.clean()
        except Crash:
            event("crashed while cleaning")
        self.real = self.real.restart(power_lost=how == "power")
        self.follower.log = self.real.log

    def fail(self, calls: int, error: int) -> None:
        """A disk call of a cleaning fails, and a later cleaning does what it did not."""
        disk = self.real.disk
        assert isinstance(disk, FaultyDisk)
        disk.faults.errors_at_calls = {disk.calls + calls: (DiskFull, DiskError, TooManyOpenFiles)[error]}
        self.real.clean()
        disk.faults.errors_at_calls = {}
        if self.real.log.offline is not None:
            event("offline after a failed rename")
            self.restart("process")
        self.real.cleaner.retry(self.real.log)

    def truncate(self, back: int) -> None:
        """As after another leader was elected. Where it was compacted, what newer records replaced is gone for good."""
        log = self.real.log
        log.truncate_to(max(log.log_start_offset, log.log_end_offset - back), self.real.now_ms)
        self.log_start_offset = log.log_start_offset
        self.forget_from(log.log_end_offset)
        there = {record.offset for record in self.real.committed(self.log_start_offset)}
        self.written = [written for written in self.written if written.record.offset in there]

    def delete_before(self, back: int) -> None:
        log = self.real.log
        self.follow(1_000)
        self.log_start_offset = log.delete_before(max(log.log_start_offset, log.last_stable_offset - back))
        log.retain(self.real.now_ms)

    # What must hold

    def end_offset(self) -> int:
        return max([self.emptied_at, *(written.record.offset + 1 for written in self.written[-1:])])

    def forget_from(self, offset: int) -> None:
        self.written = [written for written in self.written if written.record.offset < offset]
        self.emptied_at = offset
        self.real.sequences = {
            (producer_id, producer.epoch): producer.next_sequence for producer_id, producer in self.real.log.producers
        }
        self.last_batch = {}
        self.follower = Reader(self.real.log, self.log_start_offset)
        self.followed_from = self.log_start_offset

    def committed(self, start: int | None = None) -> list[Record]:
        stable = self.real.log.last_stable_offset
        start = self.log_start_offset if start is None else start
        return [
            written.record
            for written in self.written
            if written.is_committed and start <= written.record.offset < stable
        ]

    def table(self, records: list[Record]) -> dict[bytes | None, bytes | None]:
        last = {record.key: record.value for record in records}
        return {key: value for key, value in last.items() if value is not None}

    def check(self) -> None:
        real, log = self.real, self.real.log
        assert log.log_end_offset == max(self.end_offset(), log.log_start_offset)
        first_open = min((of_one[0].record.offset for of_one in self.open.values()), default=log.log_end_offset)
        assert log.last_stable_offset == max(first_open, log.log_start_offset)

        expected = self.committed()
        found = real.committed(self.log_start_offset)
        assert found == sorted(found, key=lambda record: record.offset), "order is kept"
        by_offset = {record.offset: record for record in expected}
        for record in found:
            assert (*by_offset[record.offset][:4], ()) == (*record[:4], ()), "a record is as it was written"
        assert self.table(found) == self.table(expected), "the last value of each key is there"

        untouched = max(log.clean_offset, log.segments.active.base_offset)
        assert [record for record in found if record.offset >= untouched] == [
            record for record in expected if record.offset >= untouched
        ], "the active segment is not touched"

        clean_keys = [record.key for record in found if record.offset < log.clean_offset]
        assert len(clean_keys) == len(set(clean_keys)), "what is clean has each key once"

    def check_at_the_end(self) -> None:
        self.follow(100_000)
        self.check()
        seen = {record.key: record.value for record in self.follower.records}
        live = {key: value for key, value in seen.items() if value is not None}
        expected = self.table(self.committed(self.followed_from))
        assert live == expected, "who followed knows the last value of each key, and every deletion"


class Chance:
    """What happens next, by a seed. A failing run gets shorter by its length: what happens first stays the same."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.transactions = self.random.random() < 0.7
        self.tombstones = self.random.choice([0.0, 0.2, 0.6])
        self.keys = self.random.choice([1, 3, len(KEYS)])
        self.trouble = self.random.choice([0, 1, 4])
        """Some runs are full of it, and some go far without."""

    def next(self) -> tuple[str, tuple[Any, ...]]:
        weights = {
            "put": 40,
            "end": 6 if self.transactions else 0,
            "again": 2,
            "roll": 6,
            "clean": 4,
            "clean_a_little": 5,
            "wait": 3,
            "follow": 4,
            "restart": self.trouble,
            "crash": 2 * self.trouble,
            "fail": self.trouble,
            "truncate": 0 if self.transactions else self.trouble,
            "delete_before": self.trouble // 2,
        }
        (name,) = self.random.choices([*weights], [*weights.values()])
        return name, getattr(self, name)() if hasattr(self, name) else ()

    def put(self) -> tuple[Any, ...]:
        pairs = [
            (self.random.randrange(self.keys), self.random.random() < self.tombstones)
            for _ in range(self.random.choice([1, 1, 2, 5]))
        ]
        is_transactional = self.transactions and self.random.random() < 0.4
        return pairs, self.random.randint(-1, PRODUCERS - 1), is_transactional, self.random.choice([0, 0, 1, 2, 3, 4])

    def end(self) -> tuple[Any, ...]:
        return self.random.randrange(PRODUCERS), self.random.random() < 0.5

    def again(self) -> tuple[Any, ...]:
        return (self.random.randrange(PRODUCERS),)

    def clean_a_little(self) -> tuple[Any, ...]:
        return (self.random.randint(1, 6),)

    def wait(self) -> tuple[Any, ...]:
        return (self.random.choice([1, 23, 24, 25]),)

    def follow(self) -> tuple[Any, ...]:
        return (self.random.randint(1, 4),)

    def restart(self) -> tuple[Any, ...]:
        return (self.random.choice(["clean", "process", "power"]),)

    def crash(self) -> tuple[Any, ...]:
        return int(self.random.expovariate(1 / 60)) + 1, self.random.choice(["process", "power"])

    def fail(self) -> tuple[Any, ...]:
        return int(self.random.expovariate(1 / 60)) + 1, self.random.randrange(3)

    def truncate(self) -> tuple[Any, ...]:
        return (self.random.randint(1, 20),)

    def delete_before(self) -> tuple[Any, ...]:
        return (self.random.randint(0, 60),)


@given(st.integers(0, 2**32), st.integers(1, 150), st.sampled_from([1, 2, 5, 1000]))
def test_the_last_value_of_each_key_survives(seed: int, length: int, keys_at_once: int) -> None:
    model = Model(log_cleaner_dedupe_buffer_size=keys_at_once * BYTES_OF_A_KEY, log_cleaner_io_buffer_load_factor=1.0)
    chance = Chance(seed)
    for _ in range(length):
        name, arguments = chance.next()
        getattr(model, name)(*arguments)
        model.check()
    model.real.clean()
    event(f"{min(3, model.real.cleaner.cleanings)} or more cleanings since the last restart")
    for producer in [*model.open]:
        model.end(producer, commit=True)
    model.roll()
    model.clean()
    model.check()
    log = model.real.log
    assert not cleanable_of(log, model.real.now_ms).dirty_bytes
    assert not [name for name in model.real.disk.names("t-0") if name.endswith((names.CLEANED, names.SWAP))], (
        "nothing is left lying about"
    )
    model.restart("clean")
    model.check_at_the_end()
    for producer in range(PRODUCERS):
        model.put([(0, False)], producer, False, 0)  # idempotent producers go on
    model.check()
