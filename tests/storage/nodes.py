"""The storage of a node for tests: directories on disks in memory, a loop and workers that are stepped by hand."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Sequence

from headrace.config import LogConfig
from headrace.storage.directories import Directories
from headrace.storage.disk import Disk, SyncFailed
from headrace.storage.flusher import Flusher
from headrace.storage.handles import Handles
from headrace.storage.index import IndexCache
from headrace.storage.log import LogOptions
from headrace.storage.log_directory import Ports, Shared
from headrace.storage.progress import Progress
from headrace.testing.disk import FaultyDisk
from headrace.testing.workers import SteppedWorkers

SMALL = LogConfig(segment_bytes=1000, index_interval_bytes=100, file_delete_delay_ms=10)
CLUSTER = "a-cluster"
TOPIC_ID = bytes(range(16))


class Node:
    """One incarnation of a node's storage."""

    def __init__(
        self,
        disks: Sequence[Disk] | None = None,
        *,
        config: LogConfig = SMALL,
        seed: int = 0,
        now_ms: int = 1_700_000_000_000,
        progress: Progress | None = None,
        cluster_id: str = CLUSTER,
        node_id: int = 1,
    ) -> None:
        self.disks = list(disks) if disks is not None else [FaultyDisk(root="/disk0")]
        self.now_ms = now_ms
        self._chance = random.Random(seed)
        self._soon: deque[Callable[[], None]] = deque()
        self.workers = SteppedWorkers()
        ports = Ports(
            now_ms=lambda: self.now_ms,
            random_bytes=self._chance.randbytes,
            flusher_of=self._flusher,
            workers_of=lambda disk: self.workers,
        )
        shared = Shared(Handles(100), IndexCache(1 << 20), LogOptions(), lambda topic: config)
        self.directories = Directories.open(
            self.disks, ports, shared, cluster_id=cluster_id, node_id=node_id, progress=progress
        )
        self.drain()

    def _flusher(self, disk: Disk, on_offline: Callable[[SyncFailed], None]) -> Flusher:
        return Flusher(disk, self.workers, call_soon=self._soon.append, clock=lambda: 0.0, on_offline=on_offline)

    def turn(self, chance: random.Random) -> None:
        """Runs one thing that waits, on the loop or in the workers."""
        if self._soon and (not len(self.workers) or chance.random() < 0.5):
            self._soon.popleft()()
        elif len(self.workers):
            self.workers.step()

    def drain(self) -> None:
        """Runs everything that waits, on the loop and in the workers."""
        while self._soon or len(self.workers):
            while self._soon:
                self._soon.popleft()()
            if len(self.workers):
                self.workers.step()

    def checkpoint(self) -> None:
        self.directories.checkpoint()
        self.drain()

    def look_after(self) -> None:
        for _ in self.directories.look_after():
            pass

    def stop(self, broker_epoch: int = 7) -> None:
        self.directories.close(broker_epoch)

    def restart(self, *, power_lost: bool = False, **more: object) -> Node:
        """The next incarnation, whether or not this one was stopped."""
        disks = [disk.restart(power_lost=power_lost) if isinstance(disk, FaultyDisk) else disk for disk in self.disks]
        return Node(disks, now_ms=self.now_ms, **more)  # type: ignore[arg-type]
