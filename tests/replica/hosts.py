"""A node's partitions for the tests: disks in memory, a loop, workers and a clock that are stepped by hand."""

from __future__ import annotations

import heapq
import random
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from headrace.config import LogConfig
from headrace.metadata.loader import Loader
from headrace.protocol import messages as m
from headrace.protocol.message import Message
from headrace.replica.manager import Replicas
from headrace.replica.partition import Partition
from headrace.replica.topic_settings import TopicSettings
from headrace.replica.waits import Waits
from headrace.storage.directories import Directories
from headrace.storage.disk import Disk, SyncFailed
from headrace.storage.flusher import Flusher
from headrace.storage.handles import Handles
from headrace.storage.index import IndexCache
from headrace.storage.log_options import LogOptions
from headrace.storage.ports import Ports
from headrace.storage.shared import Shared
from headrace.testing.disk import FaultyDisk
from headrace.testing.workers import SteppedWorkers

NODE = 1
TOPIC_ID = bytes(range(16))
START_MS = 1_700_000_000_000


class SteppedLoop:
    """Timers run when a test moves the time, callbacks when it says so."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        self.soon: deque[Callable[[], None]] = deque()
        self._timers: list[tuple[float, int, SteppedTimer]] = []
        self._number = 0

    def time(self) -> float:
        return self.now_s

    def call_at(self, when_s: float, callback: Callable[[], None]) -> SteppedTimer:
        self._number += 1
        timer = SteppedTimer(callback)
        heapq.heappush(self._timers, (when_s, self._number, timer))
        return timer

    def call_later(self, pause_s: float, callback: Callable[[], None]) -> SteppedTimer:
        return self.call_at(self.now_s + pause_s, callback)

    def pass_ms(self, time_ms: float) -> None:
        """Runs the timers that are due within this time, each at its own."""
        end_s = self.now_s + time_ms / 1000
        while self._timers and self._timers[0][0] <= end_s:
            when_s, _, timer = heapq.heappop(self._timers)
            self.now_s = max(self.now_s, when_s)
            if not timer.is_cancelled:
                timer.callback()
        self.now_s = end_s


class SteppedTimer:
    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback = callback
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True


class Host:
    """One incarnation of a node: its directories, its image and its partitions."""

    def __init__(
        self,
        disks: Sequence[Disk] | None = None,
        *,
        config: LogConfig | None = None,
        records: Sequence[Message] = (),
        seed: int = 0,
    ) -> None:
        self.disks = list(disks) if disks is not None else [FaultyDisk(root="/disk0")]
        self.loop = SteppedLoop()
        self.workers = SteppedWorkers()
        self.config = config or LogConfig(file_delete_delay_ms=0)
        self._chance = random.Random(seed)
        self.settings = TopicSettings(self.config)
        self.records = list(records)
        ports = Ports(
            now_ms=self.now_ms,
            random_bytes=self._chance.randbytes,
            flusher_of=self._flusher,
            workers_of=lambda disk: self.workers,
        )
        shared = Shared(Handles(100), IndexCache(1 << 20), LogOptions(), self.settings.of)
        self.directories = open_directories(self.disks, ports, shared)
        self.drain()
        self.waits = Waits(self.loop.call_at, self.loop.time)
        self.replicas = Replicas(
            NODE,
            self.directories,
            self.settings,
            self.waits,
            now_ms=self.now_ms,
            call_soon=self.loop.soon.append,
        )
        self.loader = Loader()
        if self.records:
            self.loader.apply(self.records, len(self.records), 1)
        self.loader.subscribe(self.replicas.apply)

    def now_ms(self) -> int:
        return START_MS + int(self.loop.now_s * 1000)

    def _flusher(self, disk: Disk, on_offline: Callable[[SyncFailed], None]) -> Flusher:
        return Flusher(disk, self.workers, call_soon=self.loop.soon.append, clock=lambda: 0.0, on_offline=on_offline)

    def apply(self, *records: Message) -> None:
        """The metadata log commits these records together."""
        self.records += records
        self.loader.apply(records, len(self.records), 1)

    def run_soon(self) -> None:
        while self.loop.soon:
            self.loop.soon.popleft()()

    def drain(self) -> None:
        """Runs everything that waits, on the loop and in the workers."""
        while self.loop.soon or len(self.workers):
            self.run_soon()
            if len(self.workers):
                self.workers.step()

    def turn(self, chance: random.Random) -> None:
        """Runs one thing that waits, on the loop or in the workers."""
        if self.loop.soon and (not len(self.workers) or chance.random() < 0.5):
            self.loop.soon.popleft()()
        elif len(self.workers):
            self.workers.step()

    def checkpoint(self) -> None:
        self.directories.checkpoint()
        self.drain()

    def create(self, topic: str = "t", partitions: int = 1, topic_id: bytes = TOPIC_ID, **settings: str) -> None:
        self.apply(
            m.TopicRecord(name=topic, topic_id=topic_id),
            *(setting(name.replace("_", "."), value, topic) for name, value in settings.items()),
            *(partition_record(topic_id, index) for index in range(partitions)),
        )
        self.drain()

    def partition(self, topic: str = "t", index: int = 0) -> Partition:
        return self.replicas.find(topic, index)

    def restart(self, *, power_lost: bool = False, clean: bool = False, extra: Sequence[Message] = ()) -> Host:
        """The next incarnation, with the image of this one."""
        if clean:
            self.replicas.stop()
            self.directories.close(7)
        disks = [disk.restart(power_lost=power_lost) if isinstance(disk, FaultyDisk) else disk for disk in self.disks]
        return Host(disks, config=self.config, records=[*self.records, *extra])


def open_directories(disks: Sequence[Disk], ports: Ports, shared: Shared) -> Directories:
    return Directories.open(disks, ports, shared, cluster_id="a-cluster", node_id=NODE)


def partition_record(
    topic_id: bytes = TOPIC_ID, index: int = 0, *, replicas: Sequence[int] = (NODE,), leader: int = NODE, **more: Any
) -> m.PartitionRecord:
    more.setdefault("isr", list(replicas))
    more.setdefault("leader_epoch", 0)
    return m.PartitionRecord(
        topic_id=topic_id, partition_id=index, replicas=list(replicas), leader=leader, partition_epoch=0, **more
    )


def change(topic_id: bytes = TOPIC_ID, index: int = 0, **changes: Any) -> m.PartitionChangeRecord:
    return m.PartitionChangeRecord(topic_id=topic_id, partition_id=index, **changes)


def setting(name: str, value: str | None, topic: str = "t") -> m.ConfigRecord:
    return m.ConfigRecord(resource_type=2, resource_name=topic, name=name, value=value)
