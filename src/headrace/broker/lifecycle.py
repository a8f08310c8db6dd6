"""A broker's life in the cluster, as the controller hears of it: it registers, beats, and leaves.

Every start is another incarnation, with another epoch: the leader epochs of what it leads go up, and whoever still
follows the one before is told (design of the high watermark).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final

from headrace.broker.forward import Channel
from headrace.errors import Error, HeadraceError, Refused
from headrace.metadata.image import Endpoint, Image
from headrace.metadata.loader import Loader
from headrace.protocol import messages as m

logger = logging.getLogger(__name__)

_RETRY_SECONDS: Final = 0.1
_CALL_SECONDS: Final = 5.0


class Lifecycle:
    __slots__ = (
        "_beating",
        "_broker_id",
        "_channel",
        "_failed",
        "_incarnation_id",
        "_interval_seconds",
        "_loader",
        "_offline_directories",
        "_trouble",
        "_wakes",
        "epoch",
    )

    def __init__(
        self,
        channel: Channel,
        loader: Loader,
        broker_id: int,
        incarnation_id: bytes,
        interval_ms: int,
        offline_directories: Callable[[], Sequence[bytes]],
        failed: Callable[[HeadraceError], None],
    ) -> None:
        """`failed` is called when the broker has no place in the cluster any more."""
        self._channel = channel
        self._loader = loader
        self._broker_id = broker_id
        self._incarnation_id = incarnation_id
        self._interval_seconds = interval_ms / 1000
        self._offline_directories = offline_directories
        self._failed = failed
        self._beating: asyncio.Task[None] | None = None
        self._wakes = asyncio.Event()
        self._trouble = ""
        """What is wrong with heartbeats, and was said."""
        self.epoch = -1
        """Of this incarnation, once it is registered."""

    async def start(
        self,
        *,
        cluster_id: str,
        endpoints: Sequence[Endpoint],
        features: Mapping[str, tuple[int, int]],
        rack: str | None,
        directories: Sequence[bytes],
        previous_epoch: int,
    ) -> None:
        """Registers, and beats until the controller lets clients at it. Raises when it is refused for good."""
        request = m.BrokerRegistrationRequest(
            broker_id=self._broker_id,
            cluster_id=cluster_id,
            incarnation_id=self._incarnation_id,
            listeners=[
                m.BrokerRegistrationRequest.Listener(
                    name=endpoint.name,
                    host=endpoint.host,
                    port=endpoint.port,
                    security_protocol=endpoint.security_protocol,
                )
                for endpoint in endpoints
            ],
            features=[
                m.BrokerRegistrationRequest.Feature(name=name, min_supported_version=low, max_supported_version=high)
                for name, (low, high) in features.items()
            ],
            rack=rack,
            log_dirs=list(directories),
            previous_broker_epoch=previous_epoch,
        )
        while self.epoch < 0:
            try:
                response = await self._channel.call(request, _CALL_SECONDS)
                assert isinstance(response, m.BrokerRegistrationResponse)
                if response.error_code:
                    raise Refused(Error.of(response.error_code))
                self.epoch = response.broker_epoch
            except Refused as refused:
                if not refused.error.retriable and refused.error is not Error.DUPLICATE_BROKER_REGISTRATION:
                    raise HeadraceError(f"The controller refuses broker {self._broker_id}: {refused}") from refused
                logger.info("registering again: %s", refused)
                await asyncio.sleep(_RETRY_SECONDS)
        while await self._beat() is not False:
            await asyncio.sleep(_RETRY_SECONDS)
        self._beating = asyncio.get_running_loop().create_task(self._go_on())

    async def stop(self, timeout_seconds: float) -> None:
        """Asks the controller to give what it leads to others, and waits until that is so, or the time is over."""
        if self._beating is None:
            return
        self._beating.cancel()
        with suppress(asyncio.CancelledError):
            await self._beating
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_seconds):
                while not await self._beat(leaving=True):
                    await asyncio.sleep(_RETRY_SECONDS)

    def is_registered(self, image: Image) -> bool:
        """The image knows of this incarnation, and so of all that the cluster did before it."""
        broker = image.brokers.get(self._broker_id)
        return broker is not None and broker.incarnation_id == self._incarnation_id

    def beat_now(self) -> None:
        """The controller should hear at once: a directory went offline."""
        self._wakes.set()

    async def _go_on(self) -> None:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._interval_seconds):
                    await self._wakes.wait()
            self._wakes.clear()
            await self._beat()

    async def _beat(self, *, leaving: bool = False) -> bool | None:
        """One heartbeat. Whether the broker is fenced, or may stop when it is leaving; None when nobody answered."""
        request = m.BrokerHeartbeatRequest(
            broker_id=self._broker_id,
            broker_epoch=self.epoch,
            current_metadata_offset=self._loader.image.offset,
            want_shut_down=leaving,
            offline_log_dirs=list(self._offline_directories()),
        )
        try:
            response = await self._channel.call(request, _CALL_SECONDS)
        except Refused as refused:
            self._say(f"no answer to a heartbeat: {refused}")
            return None
        assert isinstance(response, m.BrokerHeartbeatResponse)
        if response.error_code == Error.STALE_BROKER_EPOCH:
            if self._broker_id in self._loader.image.brokers:
                why = f"another process has registered as broker {self._broker_id}; stop one of them."
            else:
                why = f"broker {self._broker_id} was unregistered; start it again if it is to be in the cluster."
            self._failed(HeadraceError(why))
            return None
        if response.error_code:
            self._say(f"the controller refuses a heartbeat: {Error.of(response.error_code).text}")
            return None
        self._say("")
        return response.should_shut_down if leaving else response.is_fenced

    def _say(self, trouble: str) -> None:
        """Once, and that it is over: there is a heartbeat every two seconds."""
        if trouble == self._trouble:
            return
        if trouble:
            logger.warning("%s", trouble)
        else:
            logger.info("heartbeats are answered again")
        self._trouble = trouble
