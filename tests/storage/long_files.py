"""Files that end behind their batches: padded ones (decision 0020) and stretched ones (0023)."""

from __future__ import annotations

from headrace.config import LogConfig
from headrace.storage.log import Log
from tests.storage.batches import START_MS, batch

LARGE = LogConfig()


def append(log: Log, size_bytes: int = 100) -> None:
    log.append_as_leader(memoryview(batch(b"v" * size_bytes)), 0, START_MS)


def flush(log: Log) -> None:
    failures: list[object] = []
    log.flush(failures.append)
    assert failures == [None]


def file_bytes(log: Log) -> int:
    return log.segments.active.file.size()
