"""Clients' telemetry (KIP-714): what a client is asked to push, and what it pushed, by the rules of Kafka.

Subscriptions are resources of the type CLIENT_METRICS in the metadata image. What clients push is told at /metrics.
Clients are asked for cumulative values, which is what a scraper wants; Kafka asks for differences. Both are taken.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final, Self

from headrace.broker.cluster import ClientSoftware
from headrace.config.client_metrics import ClientMetricsConfig
from headrace.errors import Error, HeadraceError, ProtocolError, Refused
from headrace.metadata.image import Image, Resource, ResourceType
from headrace.metrics.client_series import ClientSeries, PushingClient
from headrace.metrics.otlp import Pushed, read_metrics
from headrace.named_tuple import NamedTuple
from headrace.net.connection import Connection
from headrace.protocol import messages as m
from headrace.protocol.batch_crc import crc32c
from headrace.protocol.compression import Compression, decompress
from headrace.protocol.frame import Request
from headrace.storage.identity import id_text
from headrace.storage.workers import Workers

logger = logging.getLogger(__name__)

ALL: Final = "*"
INTERVAL_MS: Final = 300_000
EXPIRY_MS_MIN: Final = 60_000
INTERVALS_TO_EXPIRY: Final = 3
CLIENTS_MAX: Final = 4096
UNPACKED_TIMES_MAX: Final = 16
"""How much larger than telemetry.max.bytes a push may be when it is unpacked."""
LOOP_BYTES_MAX: Final = 16 << 10
"""A larger push is read by a worker."""
ACCEPTED: Final = [Compression.ZSTD.value, Compression.LZ4.value, Compression.GZIP.value, Compression.SNAPPY.value]
"""In the order in which Kafka prefers them."""
RESERVED_IDS: Final = (bytes(16), bytes(15) + b"\x01")
ATTRIBUTE_CHARACTERS_MAX: Final = 256
UNKNOWN: Final = "unknown"


class Subscription(NamedTuple):
    metrics: tuple[str, ...]
    interval_ms: int
    patterns: tuple[tuple[str, Any], ...]

    def matches(self, attributes: Mapping[str, str]) -> bool:
        return all(pattern.fullmatch(attributes[name]) for name, pattern in self.patterns)


class Instance:
    """One client, by the id that it was given, with what it is asked for."""

    __slots__ = (
        "attributes",
        "client",
        "connection",
        "error",
        "expires_ms",
        "interval_ms",
        "is_invited",
        "is_terminating",
        "last_get_ms",
        "last_push_ms",
        "metrics",
        "subscription_id",
        "version",
    )

    def __init__(self, instance_id: bytes, attributes: dict[str, str], connection: Connection) -> None:
        self.attributes = attributes
        self.client = PushingClient(attributes["client_instance_id"], attributes["client_id"])
        self.connection = connection
        self.version = -1
        self.metrics: list[str] = []
        self.interval_ms = INTERVAL_MS
        self.subscription_id = 0
        self.expires_ms = 0
        self.reset()

    def reset(self) -> None:
        """As Kafka has it when a client is new, or comes back, or is asked for something else."""
        self.last_get_ms = self.last_push_ms = 0
        self.is_invited = False
        """It has asked what to push, and may push at any time within the interval."""
        self.is_terminating = False
        self.error = Error.NONE

    def may_get(self, now_ms: int) -> bool:
        if self.error in (Error.UNKNOWN_SUBSCRIPTION_ID, Error.UNSUPPORTED_COMPRESSION_TYPE):
            return True
        return now_ms - max(self.last_get_ms, self.last_push_ms) >= self.interval_ms

    def may_push(self, now_ms: int) -> bool:
        return self.is_invited or now_ms - self.last_push_ms >= self.interval_ms


class Telemetry:
    """The handlers. `series` is what is told at /metrics."""

    __slots__ = (
        "_configs",
        "_image",
        "_instances",
        "_max_bytes",
        "_now_ms",
        "_random_bytes",
        "_subscriptions",
        "_version",
        "_workers",
        "pushes",
        "series",
    )

    def __init__(
        self,
        image: Callable[[], Image],
        workers: Workers,
        *,
        max_bytes: int,
        now_ms: Callable[[], int],
        random_bytes: Callable[[int], bytes],
    ) -> None:
        self._image = image
        self._workers = workers
        self._max_bytes = max_bytes
        self._now_ms = now_ms
        self._random_bytes = random_bytes
        self._instances: dict[bytes, Instance] = {}
        """The one that was silent for longest first."""
        self._configs: Mapping[Resource, Mapping[str, str]] | None = None
        self._subscriptions: dict[str, Subscription] = {}
        self._version = 0
        self.series = ClientSeries()
        self.pushes = 0

    @property
    def clients(self) -> int:
        return len(self._instances)

    # --- the handlers -------------------------------------------------------------------------------------------------

    def get_subscriptions(self, connection: Connection, request: Request) -> m.GetTelemetrySubscriptionsResponse:
        body: m.GetTelemetrySubscriptionsRequest = request.body
        instance_id, now_ms = bytes(body.client_instance_id), self._now_ms()
        if instance_id == RESERVED_IDS[0]:
            instance_id = self._new_id()
        instance = self._instance(instance_id, connection, request, now_ms)
        if not instance.may_get(now_ms):
            return m.GetTelemetrySubscriptionsResponse(error_code=Error.THROTTLING_QUOTA_EXCEEDED)
        instance.last_get_ms = now_ms
        instance.is_invited = True
        instance.error = Error.NONE
        return m.GetTelemetrySubscriptionsResponse(
            client_instance_id=instance_id,
            subscription_id=instance.subscription_id,
            accepted_compression_types=list(ACCEPTED),
            push_interval_ms=instance.interval_ms,
            telemetry_max_bytes=self._max_bytes,
            delta_temporality=False,
            requested_metrics=list(instance.metrics),
        )

    def push(
        self, connection: Connection, request: Request
    ) -> m.PushTelemetryResponse | Coroutine[Any, Any, m.PushTelemetryResponse]:
        body: m.PushTelemetryRequest = request.body
        instance_id, now_ms = bytes(body.client_instance_id), self._now_ms()
        if instance_id in RESERVED_IDS:
            return m.PushTelemetryResponse(error_code=Error.INVALID_REQUEST)
        instance = self._instance(instance_id, connection, request, now_ms)
        instance.error = self._refusal(instance, body, now_ms)
        instance.is_terminating = body.terminating
        if instance.error or not body.metrics:
            return m.PushTelemetryResponse(error_code=instance.error)
        # The frame is only lent: the rest is done later.
        return self._take(instance_id, instance, Compression(body.compression_type), bytes(body.metrics))

    async def _take(
        self, instance_id: bytes, instance: Instance, compression: Compression, data: bytes
    ) -> m.PushTelemetryResponse:
        try:
            pushed = await self._read(compression, data)
        except HeadraceError as error:
            logger.debug("the telemetry of %s can't be read: %s", instance.connection, error)
            instance.error = Error.INVALID_RECORD
        else:
            if self._instances.get(instance_id) is instance:
                self.series.take(instance.client, pushed)
            self.pushes += 1
        return m.PushTelemetryResponse(error_code=instance.error)

    def _refusal(self, instance: Instance, body: m.PushTelemetryRequest, now_ms: int) -> Error:
        if instance.is_terminating:
            return Error.INVALID_REQUEST
        if instance.may_push(now_ms):
            instance.last_push_ms = now_ms
            instance.is_invited = False
        elif not body.terminating:
            return Error.THROTTLING_QUOTA_EXCEEDED
        if body.subscription_id != instance.subscription_id:
            return Error.UNKNOWN_SUBSCRIPTION_ID
        if body.compression_type not in Compression._value2member_map_:
            return Error.UNSUPPORTED_COMPRESSION_TYPE
        is_large = body.metrics is not None and len(body.metrics) > self._max_bytes
        return Error.TELEMETRY_TOO_LARGE if is_large else Error.NONE

    # --- what was pushed ----------------------------------------------------------------------------------------------

    async def _read(self, compression: Compression, data: bytes) -> Pushed:
        unpacked_max = UNPACKED_TIMES_MAX * self._max_bytes

        def read() -> Pushed:
            return read_metrics(decompress(compression, data, unpacked_max) if compression else data)

        if not compression and len(data) <= LOOP_BYTES_MAX:
            return read()
        result: asyncio.Future[Pushed] = asyncio.get_running_loop().create_future()

        def done(pushed: Pushed | None, error: BaseException | None) -> None:
            if result.done():
                return
            if pushed is not None:
                result.set_result(pushed)
            else:
                known = isinstance(error, HeadraceError)
                result.set_exception(error if known and error else ProtocolError(f"it can't be unpacked ({error})"))

        self._workers.run(read, done)
        return await result

    # --- clients ------------------------------------------------------------------------------------------------------

    def _instance(self, instance_id: bytes, connection: Connection, request: Request, now_ms: int) -> Instance:
        self._see_subscriptions()
        instance = self._instances.pop(instance_id, None)
        if instance is None:
            instance = Instance(instance_id, _attributes(instance_id, connection, request), connection)
        elif instance.connection != connection:
            # It is another one when it comes again: what it asked on the last connection does not hold it up.
            if instance.connection.is_closing:
                instance.reset()
            instance.connection = connection
        if instance.version != self._version:
            self._subscribe(instance, instance_id)
        instance.expires_ms = now_ms + max(EXPIRY_MS_MIN, INTERVALS_TO_EXPIRY * instance.interval_ms)
        self._instances[instance_id] = instance
        if len(self._instances) > CLIENTS_MAX:
            self._forget(next(iter(self._instances)))
        return instance

    def expire(self) -> Self:
        """Forgets clients that are silent, with what they pushed."""
        now_ms = self._now_ms()
        for instance_id in [found for found, one in self._instances.items() if one.expires_ms <= now_ms]:
            self._forget(instance_id)
        return self

    def _forget(self, instance_id: bytes) -> None:
        self.series.forget(self._instances.pop(instance_id).client)

    def _new_id(self) -> bytes:
        while True:
            drawn = bytearray(self._random_bytes(16))
            drawn[6] = drawn[6] & 0x0F | 0x40
            drawn[8] = drawn[8] & 0x3F | 0x80
            if drawn[0] >> 2 != 62 and bytes(drawn) not in self._instances:  # 62 is "-" in base64
                return bytes(drawn)

    # --- subscriptions ------------------------------------------------------------------------------------------------

    def _see_subscriptions(self) -> None:
        """Images share what did not change, so that a look at one costs nothing."""
        configs = self._image().configs
        if configs is self._configs:
            return
        self._configs = configs
        found = {}
        for (kind, name), texts in configs.items():
            if kind == ResourceType.CLIENT_METRICS and texts:
                try:
                    found[name] = _subscription(texts)
                except HeadraceError as error:
                    logger.warning("the subscription %s to clients' metrics is left out: %s", name, error)
        if found != self._subscriptions:
            self._subscriptions = found
            self._version += 1

    def _subscribe(self, instance: Instance, instance_id: bytes) -> None:
        matching = [found for found in self._subscriptions.values() if found.matches(instance.attributes)]
        metrics = sorted({metric for found in matching for metric in found.metrics})
        instance.metrics = [ALL] if ALL in metrics else metrics
        instance.interval_ms = min((found.interval_ms for found in matching), default=INTERVAL_MS)
        instance.subscription_id = _subscription_id(instance.metrics, instance.interval_ms, instance_id)
        instance.version = self._version
        instance.reset()


def _attributes(instance_id: bytes, connection: Connection, request: Request) -> dict[str, str]:
    software = connection.state if isinstance(connection.state, ClientSoftware) else ClientSoftware(UNKNOWN, UNKNOWN)
    found = {
        "client_instance_id": id_text(instance_id),
        "client_id": request.client_id or "",
        "client_software_name": software.name,
        "client_software_version": software.version,
        "client_source_address": connection.peer_host,
        "client_source_port": str(connection.peer_port),
    }
    return {name: text[:ATTRIBUTE_CHARACTERS_MAX] for name, text in found.items()}


def _subscription(texts: Mapping[str, str]) -> Subscription:
    config = ClientMetricsConfig.parse(texts)
    patterns = tuple((name, _compiled(pattern)) for name, pattern in config.patterns().items())
    return Subscription(config.metrics, config.interval_ms, patterns)


def _compiled(pattern: str) -> Any:
    """By an engine that takes linear time: what is matched is what a stranger says of itself."""
    import re2  # only where there is such a subscription: it takes milliseconds to import

    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        raise Refused(
            Error.INVALID_CONFIG, f"'{pattern}' is a regular expression that can't be used: {error}"
        ) from None


def _subscription_id(metrics: list[str], interval_ms: int, instance_id: bytes) -> int:
    """A checksum over what is asked for, mixed with the client's id as Kafka does, as a signed number."""
    high, low = int.from_bytes(instance_id[:8]), int.from_bytes(instance_id[8:])
    mixed = high ^ low
    value = crc32c(f"[{', '.join(metrics)}]{interval_ms}".encode()) ^ ((mixed >> 32) ^ mixed) & 0xFFFF_FFFF
    return value - (1 << 32) if value >> 31 else value
