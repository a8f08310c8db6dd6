"""A node of a quorum on a disk in memory, with its driver, its clock and its timers in the hand of a test."""

from __future__ import annotations

from collections.abc import Callable

from headrace.config import LogConfig
from headrace.errors import HeadraceError
from headrace.protocol.message import Message
from headrace.protocol.messages import FeatureLevelRecord
from headrace.raft.checkpoints import Record, Snapshot
from headrace.raft.driver import Committed, Driver
from headrace.raft.metadata_log import CONFIG, FOLDER, format_voter, is_formatted, open_metadata_log
from headrace.raft.node import LeaderAndEpoch, Node, Send, Timing
from headrace.raft.quorum import VoterSet
from headrace.raft.quorum_state import QUORUM_STATE, read_quorum_state
from headrace.storage.flush import SyncsFiles
from headrace.storage.flusher import Flusher
from headrace.storage.handles import Handles
from headrace.storage.index import IndexCache
from headrace.testing.disk import FaultyDisk
from headrace.testing.workers import SteppedWorkers
from tests.raft.memory import CLUSTER, key, voter_set

SMALL = LogConfig(
    segment_bytes=600,
    retention_ms=-1,
    retention_bytes=-1,
    max_message_bytes=CONFIG.max_message_bytes,
    file_delete_delay_ms=0,
)


def feature(level: int) -> Record:
    return FeatureLevelRecord(name="f", feature_level=level), 0


class State:
    """The listener: what was applied, as levels in the order of the log."""

    def __init__(self) -> None:
        self.levels: list[int] = []
        self.leaders: list[LeaderAndEpoch] = []
        self.snapshots: list[int] = []

    def handle_snapshot(self, snapshot: Snapshot) -> None:
        self.snapshots.append(snapshot.id.offset)
        self.levels = [level_of(record) for batch in snapshot.batches() for record in batch]

    def handle_commit(self, batch: Committed) -> None:
        self.levels += [level_of(record) for record in batch.records]

    def handle_leader_change(self, leader: LeaderAndEpoch) -> None:
        self.leaders.append(leader)


def level_of(record: Record) -> int:
    message = record[0]
    assert isinstance(message, FeatureLevelRecord)
    return message.feature_level


class Timers:
    """Timers of a test's clock, which stands still until it is moved."""

    def __init__(self) -> None:
        self.now_ms = 1_000_000
        self._timers: list[_Timer] = []

    def call_later(self, seconds: float, callback: Callable[[], None]) -> _Timer:
        timer = _Timer(self.now_ms + round(seconds * 1000), callback)
        self._timers.append(timer)
        return timer

    def has_due(self) -> bool:
        return any(timer.due_ms <= self.now_ms and not timer.is_cancelled for timer in self._timers)

    def advance(self, ms: int) -> None:
        self.now_ms += ms
        due = [timer for timer in self._timers if timer.due_ms <= self.now_ms]
        self._timers = [timer for timer in self._timers if timer not in due]
        for timer in due:
            if not timer.is_cancelled:
                timer.callback()


class _Timer:
    def __init__(self, due_ms: int, callback: Callable[[], None]) -> None:
        self.due_ms = due_ms
        self.callback = callback
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True


class Running:
    """One incarnation on a disk. `settle` lets the workers end what they have."""

    def __init__(
        self,
        disk: FaultyDisk,
        *,
        id: int = 1,
        voters: VoterSet | None = None,
        timers: Timers | None = None,
        send: Callable[[Send, Callable[[Message | None], None]], None] | None = None,
        config: LogConfig = SMALL,
    ) -> None:
        self.disk = disk
        self.timers = timers or Timers()
        self.workers = SteppedWorkers()
        self.soon: list[Callable[[], None]] = []
        self.failures: list[HeadraceError] = []
        self.state = State()
        flusher: SyncsFiles = Flusher(
            disk, self.workers, call_soon=self.soon.append, clock=lambda: 0.0, on_offline=lambda failure: None
        )
        if not is_formatted(disk):
            format_voter(disk, voters or voter_set(id), self.timers.now_ms)
        self.metadata = open_metadata_log(
            disk,
            flusher,
            handles=Handles(100),
            indexes=IndexCache(1 << 20),
            now_ms=self.timers.now_ms,
            config=config,
        )
        node = Node(
            key(id),
            cluster_id=CLUSTER,
            state=read_quorum_state(disk, f"{FOLDER}/{QUORUM_STATE}"),
            history=self.metadata.history,
            timing=Timing(),
            jitter_ms=lambda most_ms: 0,
        )
        self._send = send
        self.driver = Driver(
            node,
            self.metadata,
            workers=self.workers,
            channel=self,
            listener=self.state,
            now_ms=lambda: self.timers.now_ms,
            call_later=self.timers.call_later,
            failed=self.failures.append,
        )
        self.driver.start()

    def send(self, to: Send, answered: Callable[[Message | None], None]) -> None:
        if self._send is not None:
            self._send(to, answered)

    def step(self) -> bool:
        """One thing of what is to be done outside the loop's current round."""
        if self.soon:
            self.soon.pop(0)()
            return True
        if len(self.workers):
            self.workers.step()
            return True
        return False

    def settle(self) -> Running:
        while self.step():
            pass
        return self

    def append(self, *levels: int) -> int:
        return self.driver.append([feature(level) for level in levels], self.driver.leader.epoch)

    def take_snapshot(self) -> None:
        writer = self.driver.begin_snapshot()
        if writer is not None:
            writer.append([feature(level) for level in self.state.levels])
            self.driver.freeze_snapshot(writer)
