"""Defects of a node, planted by patches: its simulation must find each of them within some seeds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from headrace.metadata import brokers, controller
from headrace.metadata.controller import PRODUCER_IDS_A_BLOCK, Controller
from headrace.protocol import messages as m
from headrace.protocol.batch import Batch
from headrace.raft.node.rpc import METADATA_TOPIC
from headrace.replica.in_sync import InSync
from headrace.replica.partition import Partition
from headrace.storage import opening as log_opening
from headrace.storage import scan
from headrace.storage.disk import DiskError
from headrace.storage.log import Log
from headrace.storage.producer_state import AppendedBatch, Origin, ProducerState
from headrace.storage.recovery import open_log
from headrace.storage.segment import Segment
from headrace.testing.disk import FaultyFile
from headrace.testing.sim.chaos import Odds
from headrace.testing.sim.run import run_seed
from tests.sim import node as simulated
from tests.sim.node import node
from tests.sim.test_planted import first_failure

Plant = Callable[[pytest.MonkeyPatch], None]


class Defect(NamedTuple):
    plant: Plant
    seeds: int
    """Within how many seeds it must be found."""
    says: tuple[str, ...] = ("anomalies in",)


def acknowledged_before_the_sync(patch: pytest.MonkeyPatch) -> None:
    """The partition takes its flushes for done when they begin."""

    def flush(self: Partition, now_ms: int) -> None:
        self.in_sync.flushing(self.log.log_end_offset)
        self.log.unsynced.point = self.log.log_end_offset
        self._flushed(None)

    patch.setattr(Partition, "flush", flush)


def the_high_watermark_is_the_log_end(patch: pytest.MonkeyPatch) -> None:
    """Past records with acks of all that are not synced."""
    patch.setattr(InSync, "high_watermark", lambda self, mark, log_end: max(mark, log_end))


def metadata_is_committed_before_the_sync(patch: pytest.MonkeyPatch) -> None:
    flush = Log.flush

    def hasty(self: Log, flushed: Callable[[DiskError | None], None]) -> None:
        if self.topic == METADATA_TOPIC:
            self.unsynced.point = self.log_end_offset
            flushed(None)
        else:
            flush(self, flushed)

    patch.setattr(Log, "flush", hasty)


def opened(patch: pytest.MonkeyPatch, after: Callable[[Log], None], **saved_as: Any) -> None:
    """Logs of partitions are opened as if something else had been saved, and something is done to each afterwards."""

    def opening(*arguments: Any, saved: Any, **options: Any) -> Log:
        log = open_log(*arguments, saved=saved._replace(**saved_as), **options)
        after(log)
        return log

    patch.setattr(log_opening, "open_log", opening)


def producers_are_forgotten_at_a_restart(patch: pytest.MonkeyPatch) -> None:
    opened(patch, lambda log: log.producers.clear(log.log_end_offset))


def a_restart_loses_the_last_record(patch: pytest.MonkeyPatch) -> None:
    """And so its offset is used twice."""

    def cut(log: Log) -> None:
        if log.log_end_offset > log.log_start_offset:
            log.truncate_to(log.log_end_offset - 1, 0)

    opened(patch, cut)


def recovery_is_skipped(patch: pytest.MonkeyPatch) -> None:
    """Every stop is taken for a clean one."""
    opened(patch, lambda log: None, is_clean=True, closed=None, lost_sync=False)


class EqualToAll:
    """A checksum that is always right."""

    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = None  # type: ignore[assignment]


def a_torn_tail_is_trusted(patch: pytest.MonkeyPatch) -> None:
    """What has the length of a batch is taken for one."""
    patch.setattr(scan, "crc32c", lambda data: EqualToAll())


def what_a_failed_sync_lost_is_trusted(patch: pytest.MonkeyPatch) -> None:
    """Hazard 8: memory still shows it, the device never got it, and the next sync says yes."""
    patch.setattr(FaultyFile, "forget_cached", lambda self: None)


def the_metadata_log_trusts_memory_after_a_failed_sync(patch: pytest.MonkeyPatch) -> None:
    """What the simulation found in the first hour, and finds once in 500 seeds, or where syncs fail more often."""
    patch.setattr(simulated, "ODDS", Odds(machine_crash=4, terminate=2, sync_failure=20))
    forget_cached = FaultyFile.forget_cached

    def forgetting(self: FaultyFile) -> None:
        if not self.path.startswith(METADATA_TOPIC):
            forget_cached(self)

    patch.setattr(FaultyFile, "forget_cached", forgetting)


def sequences_are_not_looked_at(patch: pytest.MonkeyPatch) -> None:
    def check(self: ProducerState, batch: Batch, origin: Origin, version: int = 0) -> AppendedBatch | None:
        return None

    patch.setattr(ProducerState, "check", check)


def epochs_are_not_looked_at(patch: pytest.MonkeyPatch) -> None:
    require = Partition.require_leader
    patch.setattr(Partition, "require_leader", lambda self, current_leader_epoch=-1: require(self))


def a_restart_begins_no_epoch(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(brokers, "leave", lambda image, broker_id, directories=None: [])


def producer_ids_are_given_twice(patch: pytest.MonkeyPatch) -> None:
    """A block is given without a record of it."""

    def allocate(self: Controller, request: Any, next_offset: int, now_ms: int) -> object:
        first = self._active_image().next_producer_id
        return [], m.AllocateProducerIdsResponse(producer_id_start=first, producer_id_len=PRODUCER_IDS_A_BLOCK)

    assert m.AllocateProducerIdsRequest.__name__ in controller._DECISIONS
    patch.setitem(controller._DECISIONS, m.AllocateProducerIdsRequest.__name__, allocate)


def a_partial_write_is_not_cut(patch: pytest.MonkeyPatch) -> None:
    """Of a full disk: the next batch is written behind what the last one left."""

    def cut_back(self: Segment) -> None:
        self.size_bytes = self.file.size()

    patch.setattr(Segment, "cut_back", cut_back)


DEFECTS: dict[str, Defect] = {
    "acknowledged before the sync": Defect(acknowledged_before_the_sync, 40),
    "high watermark past what is synced": Defect(the_high_watermark_is_the_log_end, 150),
    "metadata committed before the sync": Defect(metadata_is_committed_before_the_sync, 100, ("",)),
    "producers forgotten at a restart": Defect(producers_are_forgotten_at_a_restart, 60),
    "an offset used twice": Defect(a_restart_loses_the_last_record, 20, ("anomalies in", "problems, the first")),
    "recovery skipped": Defect(recovery_is_skipped, 60, ("",)),
    "a torn tail trusted": Defect(a_torn_tail_is_trusted, 250, ("",)),
    "a failed sync trusted": Defect(what_a_failed_sync_lost_is_trusted, 300, ("",)),
    "a failed sync of metadata trusted": Defect(the_metadata_log_trusts_memory_after_a_failed_sync, 400, ("",)),
    "sequences ignored": Defect(sequences_are_not_looked_at, 40),
    "epochs ignored": Defect(epochs_are_not_looked_at, 250, ("anomalies in", "problems, the first")),
    "no epoch begun by a restart": Defect(a_restart_begins_no_epoch, 250),
    "producer ids given twice": Defect(producer_ids_are_given_twice, 20, ("was given twice", "anomalies in")),
    "a partial write left": Defect(a_partial_write_is_not_cut, 100, ("",)),
}


@pytest.mark.parametrize("name", DEFECTS)
def test_a_planted_defect_of_a_node_is_found(name: str, monkeypatch: pytest.MonkeyPatch, record_property: Any) -> None:
    defect = DEFECTS[name]
    defect.plant(monkeypatch)
    run = first_failure(node, defect.seeds)
    record_property("seeds", run.seed + 1)
    assert any(text in run.failure for text in defect.says)
    again = run_seed(node, run.seed)
    assert (again.digest, again.failure) == (run.digest, run.failure), "a failing seed repeats exactly"
