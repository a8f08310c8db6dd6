"""What storage is handed in, and does not make by itself."""

from __future__ import annotations

from collections.abc import Callable

from headrace.plain import plain
from headrace.storage.disk import Disk, SyncFailed
from headrace.storage.flush import SyncsFiles
from headrace.storage.workers import Workers


@plain
class Ports:
    """The clock, chance, and other threads."""

    now_ms: Callable[[], int]
    random_bytes: Callable[[int], bytes]
    flusher_of: Callable[[Disk, Callable[[SyncFailed], None]], SyncsFiles]
    """Makes the flusher of a disk; it calls the second when a sync failed."""
    workers_of: Callable[[Disk], Workers]
    """Runs what blocks for a disk: the checkpoints."""
    openers_of: Callable[[Disk], Workers] | None = None
    """Runs what may block for long: a log is opened, files are removed. Those of the checkpoints without."""
