"""What is asked of clients' telemetry, well and badly, for the test of all versions."""

from __future__ import annotations

from headrace.protocol import messages as m
from headrace.protocol.message import Message

IDS = (bytes(16), bytes(15) + b"\x01", b"?" * 16)


def subscriptions(topic_id: bytes) -> list[Message]:
    return [m.GetTelemetrySubscriptionsRequest(client_instance_id=found) for found in IDS for _ in range(2)]


def pushes(topic_id: bytes) -> list[Message]:
    return [
        m.PushTelemetryRequest(
            client_instance_id=found,
            subscription_id=number,
            terminating=terminating,
            compression_type=codec,
            metrics=metrics,
        )
        for found in IDS
        for number in (0, -1, 2**31 - 1)
        for terminating in (False, True)
        for codec in (0, 4, 9, -1)
        for metrics in (b"", b"\xff" * 100, bytes(2 << 20))
    ]


ASKED = {71: subscriptions, 72: pushes}
