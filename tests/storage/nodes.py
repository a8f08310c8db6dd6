"""The storage of a node for tests: directories on disks in memory, a loop and workers that are stepped by hand."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Sequence

from headrace.config import LogConfig
from headrace.storage.directories import Directories
from headrace.storage.disk import Disk, DiskError, SyncFailed
from headrace.storage.flusher import Flusher
from headrace.storage.handles import Handles
from headrace.storage.index import IndexCache
from headrace.storage.log import Log
from headrace.storage.log_options import LogOptions
from headrace.storage.ports import Ports
from headrace.storage.progress import Progress
from headrace.storage.shared import Shared
from headrace.testing.disk import FaultyDisk
from headrace.testing.workers import SteppedWorkers
from tests.storage.batches import batch
from tests.storage.logs import values_in

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
        topic_ids: dict[str, bytes] | None = None,
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
        self.directories = Directories.claim(self.disks, ports, shared, cluster_id=cluster_id, node_id=node_id)
        self.directories.load(progress, (topic_ids or {}).get)
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


def two_disks() -> list[FaultyDisk]:
    return [FaultyDisk(root="/disk0"), FaultyDisk(root="/disk1")]


def append(log: Log, *values: bytes, **header: int) -> None:
    log.append_as_leader(memoryview(batch(*values, **header)), 1, 1_700_000_000_000)  # type: ignore[arg-type]


def fill(log: Log, count: int) -> list[tuple[int, bytes | None]]:
    for number in range(count):
        append(log, b"v%d" % number + b"x" * 50)
    return values_in(log)


def flush(node: Node, log: Log) -> list[DiskError | None]:
    told: list[DiskError | None] = []
    log.flush(told.append)
    node.drain()
    return told


def put(disk: Disk, folder: str, files: dict[str, bytes]) -> None:
    disk.make_directory(folder)
    for name, content in files.items():
        disk.replace(f"{folder}/{name}", content)


def with_history(node: Node) -> Log:
    log = node.directories.create("t", 0, TOPIC_ID)
    append(log, b"v0", producer_id=8, producer_epoch=0, base_sequence=0)
    for number in range(1, 30):
        append(log, b"v%d" % number + b"x" * 30, producer_id=9, producer_epoch=0, base_sequence=number - 1)
    log.set_high_watermark(25)
    log.delete_before(13)
    return log
