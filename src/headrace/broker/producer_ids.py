"""InitProducerId: a number for each idempotent producer, that no other one ever has (hazard 7).

The controller hands out blocks, a broker hands out numbers of its block, and asks for the next block in good time. What
is left of a block when the broker stops is never used.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final

from headrace.broker.forward import Channel
from headrace.errors import Error, Refused
from headrace.net.connection import Connection
from headrace.protocol import messages as m
from headrace.protocol.frame import Request

_TIMEOUT_SECONDS: Final = 10.0
NO_PRODUCER: Final = -1
NO_EPOCH: Final = -1
_FETCH_BELOW: Final = 100
"""How many numbers are left when the next block is asked for."""


class ProducerIds:
    __slots__ = ("_broker_epoch", "_broker_id", "_channel", "_fetching", "_left", "_next_block", "transactional")

    def __init__(self, channel: Channel, broker_id: int, broker_epoch: Callable[[], int]) -> None:
        self._channel = channel
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._left = range(0)
        self._next_block = range(0)
        self._fetching: asyncio.Task[None] | None = None
        self.transactional: Callable[[Connection, Request], m.InitProducerIdResponse | None] = _no_coordinator
        """Answers those that have a transactional id: its coordinator."""

    def init(
        self, connection: Connection, request: Request
    ) -> m.InitProducerIdResponse | Coroutine[Any, Any, m.InitProducerIdResponse] | None:
        body: m.InitProducerIdRequest = request.body
        if body.transactional_id == "" or (body.producer_id == NO_PRODUCER) != (body.producer_epoch == NO_EPOCH):
            return m.InitProducerIdResponse(error_code=Error.INVALID_REQUEST, producer_id=-1, producer_epoch=-1)
        if body.transactional_id is not None:
            return self.transactional(connection, request)
        if self._left or self._next_block:
            return m.InitProducerIdResponse(producer_id=self._take(), producer_epoch=0)
        return self._init_later()

    async def _init_later(self) -> m.InitProducerIdResponse:
        try:
            while not self._left and not self._next_block:
                await asyncio.shield(self._fetch())
        except Refused as refused:
            error = refused.error if refused.error.retriable else Error.COORDINATOR_NOT_AVAILABLE
            return m.InitProducerIdResponse(error_code=error, producer_id=-1, producer_epoch=-1)
        return m.InitProducerIdResponse(producer_id=self._take(), producer_epoch=0)

    def take(self) -> int | None:
        """A number, if one is at hand; else the next block is asked for."""
        if self._left or self._next_block:
            return self._take()
        self.when_at_hand(_nothing)
        return None

    def when_at_hand(self, call: Callable[[], None]) -> None:
        """Calls when there are numbers, which is at once nearly always, or when there can't be any for now."""
        if self._left or self._next_block:
            call()
            return

        def fetched(task: asyncio.Task[None]) -> None:
            if not task.cancelled():
                task.exception()  # whoever takes a number then finds out
                call()

        self._fetch().add_done_callback(fetched)

    def _take(self) -> int:
        if not self._left:
            self._left, self._next_block = self._next_block, range(0)
        producer_id, self._left = self._left[0], self._left[1:]
        if len(self._left) < _FETCH_BELOW and not self._next_block and self._fetching is None:
            # Nobody waits for this one yet: whoever does later hears of a failure.
            self._fetch().add_done_callback(lambda task: task.cancelled() or task.exception())
        return producer_id

    def _fetch(self) -> asyncio.Task[None]:
        if self._fetching is None:
            self._fetching = asyncio.get_running_loop().create_task(self._fetch_block())
        return self._fetching

    async def _fetch_block(self) -> None:
        try:
            request = m.AllocateProducerIdsRequest(broker_id=self._broker_id, broker_epoch=self._broker_epoch())
            response = await self._channel.call(request, _TIMEOUT_SECONDS)
            assert isinstance(response, m.AllocateProducerIdsResponse)
            if response.error_code:
                raise Refused(Error.of(response.error_code))
            start = response.producer_id_start
            self._next_block = range(start, start + response.producer_id_len)
        finally:
            self._fetching = None


def _no_coordinator(connection: Connection, request: Request) -> m.InitProducerIdResponse:
    return m.InitProducerIdResponse(error_code=Error.COORDINATOR_NOT_AVAILABLE, producer_id=-1, producer_epoch=-1)


def _nothing() -> None:
    pass
