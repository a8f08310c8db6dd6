"""The parts of a node that a scrape looks at."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from headrace.plain import plain

if TYPE_CHECKING:
    from headrace.broker.fetch import Fetch
    from headrace.broker.fetch_memory import ReplyMemory
    from headrace.broker.listeners import Listeners
    from headrace.broker.process import ProcessFigures
    from headrace.broker.produce import Produce
    from headrace.broker.router import Router
    from headrace.broker.telemetry import Telemetry
    from headrace.metadata.service import MetadataService
    from headrace.metrics.histogram import Histogram
    from headrace.replica.manager import Replicas
    from headrace.storage.directories import Directories
    from headrace.storage.disk import Disk
    from headrace.storage.flusher import Flusher


@plain
class Watched:
    """The parts of a node that have something to tell."""

    node_id: int
    cluster_id: str
    router: Router
    listeners: Listeners
    replicas: Replicas
    directories: Directories
    flushers: Mapping[Disk, Flusher]
    metadata: MetadataService
    produce: Produce
    fetch: Fetch
    memory: ReplyMemory
    telemetry: Telemetry
    loop_lag: Histogram
    process: Callable[[], ProcessFigures | None]
    is_ready: Callable[[], bool]
