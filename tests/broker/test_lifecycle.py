"""What a node says of its heartbeats."""

from __future__ import annotations

import asyncio
import logging
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.broker.lifecycle import Lifecycle
from headrace.errors import Error, Refused
from headrace.protocol import messages as m
from headrace.protocol.message import Message

ANSWERED = m.BrokerHeartbeatResponse(is_fenced=False)
REFUSED = m.BrokerHeartbeatResponse(error_code=Error.NOT_CONTROLLER)


class Controller:
    """It answers as it was told to, and not at all where there is None."""

    def __init__(self, *answers: Message | None) -> None:
        self.answers = list(answers)
        self.ended = asyncio.Event()

    async def call(self, request: Message, timeout_s: float) -> Message:
        if isinstance(request, m.BrokerRegistrationRequest):
            return m.BrokerRegistrationResponse(broker_epoch=7)
        answer = self.answers.pop(0)
        if not self.answers:
            self.ended.set()
            await asyncio.sleep(3600)
        if answer is None:
            raise Refused(Error.REQUEST_TIMED_OUT)
        return answer


def test_trouble_with_heartbeats_is_told_once_and_so_is_its_end(caplog: pytest.LogCaptureFixture) -> None:
    async def check() -> None:
        controller = Controller(ANSWERED, None, None, None, REFUSED, REFUSED, None, ANSWERED, ANSWERED, None)
        loader: Any = SimpleNamespace(image=SimpleNamespace(offset=0, brokers={}))
        lifecycle = Lifecycle(controller, loader, 1, bytes(16), 1, list, lambda failure: None)
        await lifecycle.start(
            cluster_id="c", endpoints=[], features={}, rack=None, directories=[bytes(16)], previous_epoch=-1
        )
        await asyncio.wait_for(controller.ended.wait(), 10)

    with caplog.at_level(logging.INFO, "headrace.broker.lifecycle"):
        asyncio.run(check())
    assert [text.partition(":")[0] for text in caplog.messages] == [
        "no answer to a heartbeat",
        "the controller refuses a heartbeat",
        "no answer to a heartbeat",
        "heartbeats are answered again",
    ]
