"""How a node is looked at: the HTTP port with its pages, what is measured for them, and clients' telemetry."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Protocol

from headrace.broker.fetch import Fetch
from headrace.broker.fetch_memory import ReplyMemory
from headrace.broker.later import later
from headrace.broker.listeners import Listeners
from headrace.broker.loop_lag import LoopLag
from headrace.broker.ports import NodePorts
from headrace.broker.produce import Produce
from headrace.broker.router import Route, Router
from headrace.broker.watched import Watched
from headrace.config.http import HttpConfig
from headrace.config.listeners import host_and_port
from headrace.errors import HeadraceError
from headrace.metadata.service import MetadataService
from headrace.replica.manager import Replicas
from headrace.storage.disk import Disk
from headrace.storage.flusher import Flusher

if TYPE_CHECKING:
    from headrace.broker.http import HttpServer
    from headrace.broker.metrics import NodeMetrics
    from headrace.broker.pages import Pages
    from headrace.broker.telemetry import Telemetry

logger = logging.getLogger(__name__)


class Observed(Protocol):
    """The node, as far as its health goes."""

    id: int
    cluster_id: str
    failed: asyncio.Future[HeadraceError]


class Observation:
    """`start` comes first of all, so that whoever asks is told that the node is starting; `stop` last."""

    __slots__ = (
        "_clock_ns",
        "_config",
        "_fetch",
        "_is_serving",
        "_lag",
        "_metadata",
        "_metrics",
        "_node",
        "_ports",
        "_produce",
        "_server",
        "_telemetry",
        "address",
    )

    def __init__(self, config: HttpConfig, ports: NodePorts, clock_ns: Callable[[], int], node: Observed) -> None:
        self._config = config
        self._ports = ports
        self._clock_ns = clock_ns
        self._node = node
        self._server: HttpServer | None = None
        self._lag = LoopLag(asyncio.get_running_loop(), clock_ns)
        self._telemetry: Telemetry | None = None
        self._produce: Produce | None = None
        self._fetch: Fetch | None = None
        self._metadata: MetadataService | None = None
        self._metrics: NodeMetrics | None = None
        self._is_serving = False
        self.address: tuple[str, int] | None = None
        """Where the pages are, once it has started; None when there are none."""

    async def start(self) -> None:
        wanted = self._config.address()
        if wanted is None:
            return
        pages: Pages = later(
            "headrace.broker.pages:Pages", self._about, self._failure, self._why_not_ready, lambda: self._metrics
        )
        server: HttpServer = later("headrace.broker.http:HttpServer", pages.answer)
        self._server = server
        self.address = await server.start(wanted.host, wanted.port, may_differ=wanted.may_differ)
        logger.info("metrics and health are told on http://%s/", host_and_port(*self.address))
        self._lag.start()

    def chosen(self) -> dict[str, str]:
        """Where the pages are, by the setting that leaves it to the node; nothing when it was said outright."""
        wanted = self._config.address()
        if self.address is None or wanted is None or (wanted.port and not wanted.may_differ):
            return {}
        return {"http.listen": host_and_port(*self.address)}

    def routes(self, metadata: MetadataService, now_ms: Callable[[], int]) -> list[Route]:
        """The APIs of clients' telemetry."""
        loader = metadata.loader
        telemetry: Telemetry = later(
            "headrace.broker.telemetry:Telemetry",
            lambda: loader.image,
            self._ports.workers_of("telemetry"),
            max_bytes=self._config.telemetry_max_bytes,
            now_ms=now_ms,
            random_bytes=self._ports.random_bytes,
        )
        self._telemetry = telemetry
        return [
            Route("GetTelemetrySubscriptions", telemetry.get_subscriptions),
            Route("PushTelemetry", telemetry.push),
        ]

    def watch(self, produce: Produce, fetch: Fetch) -> None:
        """Whose waiting requests are counted."""
        self._produce, self._fetch = produce, fetch

    def serving(
        self,
        metadata: MetadataService,
        replicas: Replicas,
        router: Router,
        listeners: Listeners,
        flushers: Mapping[Disk, Flusher],
        memory: ReplyMemory,
    ) -> None:
        """`watch` was called. The node serves clients, and all its parts are there."""
        assert self._telemetry is not None, "its routes are served"
        assert self._produce is not None
        assert self._fetch is not None
        self._metadata = metadata
        self._is_serving = True
        metrics: NodeMetrics = later(
            "headrace.broker.metrics:NodeMetrics",
            Watched(
                node_id=self._node.id,
                cluster_id=self._node.cluster_id,
                router=router,
                listeners=listeners,
                replicas=replicas,
                directories=replicas.directories,
                flushers=flushers,
                metadata=metadata,
                produce=self._produce,
                fetch=self._fetch,
                memory=memory,
                telemetry=self._telemetry,
                loop_lag=self._lag.lag,
                process=self._ports.process,
                is_ready=lambda: self._failure() is None and self._why_not_ready() is None,
            ),
        )
        self._metrics = metrics

    def stopping(self) -> None:
        """Clients are served no more."""
        self._is_serving = False

    async def stop(self) -> None:
        self._lag.stop()
        if self._server is not None:
            await self._server.stop()

    # --- health -------------------------------------------------------------------------------------------------------

    def _about(self) -> str:
        return f"Node {self._node.id} of cluster {self._node.cluster_id or '(not known yet)'}."

    def _failure(self) -> str | None:
        failed = self._node.failed
        return str(failed.result()) if failed.done() else None

    def _why_not_ready(self) -> str | None:
        if not self._is_serving or self._metadata is None:
            return "The node is starting, or stopping: clients are not served."
        broker = self._metadata.loader.image.brokers.get(self._node.id)
        if broker is None or broker.is_fenced:
            return "The controller has fenced this broker: its clients are sent elsewhere."
        return None
