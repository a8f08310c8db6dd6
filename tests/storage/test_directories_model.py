"""A node's storage at work, with syncs and checkpoints under way in workers, and a crash at any call.

What was acknowledged after a flush is there after a loss of power; what was appended is there after a crash of the
process; what is there is a beginning of what was appended; and a retry is known as one (hazards 7 and 8).
"""

from __future__ import annotations

import random
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.storage.disk import DiskError
from headrace.storage.log import Log
from headrace.testing.disk import Crash, Faults, FaultyDisk, Platter
from tests.storage.batches import batch
from tests.storage.logs import values_in
from tests.storage.nodes import TOPIC_ID, Node

PARTITIONS = 3


class Life:
    """Appends, flushes, truncations, checkpoints and clean stops at random, while a loop and a worker take turns."""

    def __init__(self, seed: int, crash_at_call: int) -> None:
        self.chance = random.Random(seed)
        self.disk = FaultyDisk(Platter(seed), Faults(crash_at_call=crash_at_call), root="/disk0")
        self.appended: list[list[bytes]] = [[] for _ in range(PARTITIONS)]
        self.flushed = [0] * PARTITIONS
        self.cutting: tuple[int, int] | None = None
        self.node: Node | None = None

    def live(self, steps: int) -> None:
        self.node = Node([self.disk])
        for partition in range(PARTITIONS):
            self.node.directories.create("t", partition, TOPIC_ID)
        for _ in range(steps):
            partition = self.chance.randrange(PARTITIONS)
            log = self.log(partition)
            match self.chance.choices(
                ["append", "flush", "turn", "truncate", "checkpoint", "restart", "look after"],
                [10, 5, 12, 1, 2, 0.3, 1],
            ):
                case ["append"]:
                    self.append(partition, log)
                case ["flush"]:
                    log.flush(lambda error, p=partition, log=log: self.was_flushed(p, log, error))  # type: ignore[misc]
                case ["turn"]:
                    self.node.turn(self.chance)
                case ["truncate"] if log.log_end_offset:
                    end = self.chance.randrange(log.log_end_offset)
                    self.flushed[partition] = min(self.flushed[partition], end)
                    self.cutting = partition, end
                    log.truncate_to(end, 0)
                    del self.appended[partition][end:]
                    self.cutting = None
                case ["checkpoint"]:
                    self.node.directories.checkpoint()
                case ["restart"]:
                    self.node.drain()
                    self.node.stop()
                    self.flushed = [len(values) for values in self.appended]
                    self.node = Node([self.disk])
                case ["look after"]:
                    self.node.look_after()

    def log(self, partition: int) -> Log:
        assert self.node is not None
        log = self.node.directories.log("t", partition)
        assert log is not None
        return log

    def append(self, partition: int, log: Log) -> None:
        values = self.appended[partition]
        values.append(b"%d-%d " % (partition, len(values)) + b"x" * self.chance.randrange(300))
        content = batch(values[-1], producer_id=5, producer_epoch=0, base_sequence=len(values) - 1)
        log.append_as_leader(memoryview(content), 1, 1_700_000_000_000)

    def was_flushed(self, partition: int, log: Log, error: DiskError | None) -> None:
        if error is None:
            self.flushed[partition] = log.flushed_offset

    def check(self, *, power_lost: bool) -> None:
        for partition, values in enumerate(self.appended):
            found = self.node.directories.log("t", partition) if self.node else None
            least = self.flushed[partition] if power_lost else len(values) - 1  # the last one may have been under way
            if self.cutting is not None and self.cutting[0] == partition:
                least = min(least, self.cutting[1])
            if found is None:
                assert least <= 0 or power_lost
                assert not self.flushed[partition]
                continue
            there = values_in(found)
            assert there == list(enumerate(values))[: len(there)]
            assert len(there) >= least
            for number in range(max(0, len(there) - 5), len(there)):
                again = batch(values[number], producer_id=5, producer_epoch=0, base_sequence=number)
                appended = found.append_as_leader(memoryview(again), 1, 1_700_000_000_000)
                assert (appended.is_duplicate, appended.first_offset) == (True, number)


@given(st.integers(0, 1 << 30), st.integers(20, 900), st.booleans())
@pytest.mark.filterwarnings("ignore")
def test_a_crash_at_any_call_keeps_what_was_acknowledged(seed: int, crash_at_call: int, power_lost: bool) -> None:
    life = Life(seed, crash_at_call)
    with suppress(Crash):
        life.live(150)
    life.disk = life.disk.restart(power_lost=power_lost)
    life.node = Node([life.disk])
    life.check(power_lost=power_lost)
