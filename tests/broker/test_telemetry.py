"""Clients' telemetry (KIP-714), by the rules of Kafka: who is asked for what, and what is taken of it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from headrace.broker.node import Node
from headrace.errors import Error
from headrace.net.peer import Peer
from headrace.protocol import messages as m
from headrace.protocol.compression import Compression, compress
from tests.broker.nodes import ask, connected, run, running
from tests.broker.test_http import asking, get
from tests.metrics.pushes import gauge, metric, number_point, push, sum_of

NO_ID = bytes(16)
CLIENT_METRICS = 16
PUSHED = push(metric("org.apache.kafka.producer.connection.count", gauge(number_point(3))))


async def subscribe(peer: Peer, name: str = "all", **settings: str) -> None:
    kind = m.IncrementalAlterConfigsRequest
    configs = [
        kind.AlterableConfig(name=key.replace("_", "."), config_operation=0, value=value)
        for key, value in settings.items()
    ]
    wanted = kind.AlterConfigsResource(resource_type=CLIENT_METRICS, resource_name=name, configs=configs)
    response = await ask(peer, kind(resources=[wanted]), 1)
    assert not response.responses[0].error_code, response


async def get_subscriptions(peer: Peer, instance_id: bytes = NO_ID) -> Any:
    return await ask(peer, m.GetTelemetrySubscriptionsRequest(client_instance_id=instance_id), 0)


async def send(peer: Peer, found: Any, data: bytes = PUSHED, **more: Any) -> Error:
    """Pushes by the subscription that was found; returns the error."""
    fields = {"client_instance_id": bytes(found.client_instance_id), "subscription_id": found.subscription_id}
    response = await ask(peer, m.PushTelemetryRequest(**{**fields, "metrics": data, **more}), 0)
    return Error.of(response.error_code)


@asynccontextmanager
async def node_and_peer(**settings: Any) -> AsyncIterator[tuple[Node, Peer]]:
    async with running(http_listen="127.0.0.1:0", **settings) as node, connected(node) as peer:
        await ask(peer, m.ApiVersionsRequest(client_software_name="a-test", client_software_version="1.2.3"), 3)
        yield node, peer


async def scraped(node: Node) -> str:
    assert node.http_address is not None
    async with asking(node.http_address[1]) as asker:
        status, _, text = await asker.ask(get("/metrics"))
        assert status == 200
        return text


def test_without_a_subscription_nothing_is_asked_for() -> None:
    async def check() -> None:
        async with node_and_peer() as (_, peer):
            found = await get_subscriptions(peer)
            assert (found.error_code, found.requested_metrics, found.push_interval_ms) == (0, [], 300_000)
            assert bytes(found.client_instance_id) != NO_ID
            assert found.telemetry_max_bytes == 1 << 20
            assert found.accepted_compression_types == [4, 3, 1, 2]
            assert found.delta_temporality is False

    run(check())


def test_what_is_pushed_is_told_at_metrics_with_who_pushed_it() -> None:
    async def check() -> None:
        async with node_and_peer() as (node, peer):
            await subscribe(peer, metrics="*", interval_ms="1000")
            found = await get_subscriptions(peer)
            assert (found.requested_metrics, found.push_interval_ms) == (["*"], 1000)
            assert await send(peer, found) is Error.NONE
            text = await scraped(node)
            assert 'headrace_client_producer_connection_count{client_instance_id="' in text
            assert 'client_id="a-test"} 3\n' in text
            assert "headrace_telemetry_clients 1\n" in text
            assert "headrace_telemetry_pushes_total 1\n" in text

    run(check())


@pytest.mark.parametrize("codec", list(Compression))
def test_every_compression_is_taken(codec: Compression) -> None:
    async def check() -> None:
        async with node_and_peer() as (node, peer):
            await subscribe(peer, metrics="*")
            found = await get_subscriptions(peer)
            points = [number_point(number, n=str(number)) for number in range(500)]
            data = push(metric("org.apache.kafka.many", gauge(*points)))
            packed = bytes(compress(codec, data)) if codec else data
            assert await send(peer, found, packed, compression_type=codec.value) is Error.NONE
            assert "headrace_telemetry_series 500\n" in await scraped(node)

    run(check())


def test_subscriptions_that_match_are_joined() -> None:
    async def check() -> None:
        async with node_and_peer() as (_, peer):
            await subscribe(peer, "one", metrics="a.,b.", interval_ms="5000", match="client_id=a-.*")
            await subscribe(peer, "two", metrics="b.,c.", interval_ms="3000", match="client_software_name=a-test")
            await subscribe(peer, "three", metrics="d.", interval_ms="100", match="client_id=a.*,client_source_port=1")
            await subscribe(peer, "four", metrics="e.", match="client_id=test")
            found = await get_subscriptions(peer)
            assert (found.requested_metrics, found.push_interval_ms) == (["a.", "b.", "c."], 3000)
            await subscribe(peer, "five", metrics="*", match="client_software_version=1\\.2\\..*")
            assert (await get_subscriptions(peer)).requested_metrics == ["*"]
            await subscribe(peer, "six", metrics="f.", match=f"client_source_address={peer.host}")
            assert (await get_subscriptions(peer)).error_code == 0

    run(check())


def test_a_subscription_has_the_same_number_for_a_client_until_it_changes() -> None:
    async def check() -> None:
        async with node_and_peer() as (node, peer):
            await subscribe(peer, metrics="a.", interval_ms="100")
            found = await get_subscriptions(peer)
            async with connected(node) as other:
                assert (await get_subscriptions(other)).subscription_id != found.subscription_id
            await subscribe(peer, metrics="a.,b.")
            assert await send(peer, found) is Error.UNKNOWN_SUBSCRIPTION_ID
            again = await get_subscriptions(peer, bytes(found.client_instance_id))
            assert (again.error_code, again.requested_metrics) == (0, ["a.", "b."])
            assert again.client_instance_id == found.client_instance_id
            assert await send(peer, again) is Error.NONE

    run(check())


def test_a_client_that_is_fast_is_not_taken_for_one_that_comes_too_early() -> None:
    """All within one millisecond: the clock does not say that it asked after it had pushed."""

    async def check() -> None:
        async with node_and_peer() as (node, peer):
            await subscribe(peer, metrics="a.", interval_ms="3600000")
            assert node._observation._telemetry is not None
            telemetry = node._observation._telemetry.expire()
            now_ms = telemetry._now_ms()
            telemetry._now_ms = lambda: now_ms
            found = await get_subscriptions(peer)
            await subscribe(peer, metrics="a.,b.")
            assert await send(peer, found) is Error.UNKNOWN_SUBSCRIPTION_ID
            again = await get_subscriptions(peer, bytes(found.client_instance_id))
            assert await send(peer, again) is Error.NONE
            assert await send(peer, again) is Error.THROTTLING_QUOTA_EXCEEDED

    run(check())


def test_who_comes_too_early_is_held_back() -> None:
    async def check() -> None:
        async with node_and_peer() as (_, peer):
            await subscribe(peer, metrics="*", interval_ms="3600000")
            found = await get_subscriptions(peer)
            instance_id = bytes(found.client_instance_id)
            assert (await get_subscriptions(peer, instance_id)).error_code == Error.THROTTLING_QUOTA_EXCEEDED
            assert await send(peer, found) is Error.NONE, "the first push comes at any time"
            assert await send(peer, found) is Error.THROTTLING_QUOTA_EXCEEDED
            assert await send(peer, found, terminating=True) is Error.NONE, "the last one too"
            assert await send(peer, found, terminating=True) is Error.INVALID_REQUEST, "and nothing after it"

    run(check())


def test_a_client_that_connects_again_is_not_held_back() -> None:
    async def check() -> None:
        async with node_and_peer() as (node, peer):
            await subscribe(peer, metrics="*", interval_ms="3600000")
            async with connected(node) as first:
                found = await get_subscriptions(first)
                assert await send(first, found) is Error.NONE
            while True:  # until the node has seen the connection close
                async with connected(node) as second:
                    again = await get_subscriptions(second, bytes(found.client_instance_id))
                if not again.error_code:
                    break
            assert again.subscription_id == found.subscription_id

    run(check())


def test_after_an_error_the_subscription_may_be_asked_for_again() -> None:
    async def check() -> None:
        async with node_and_peer() as (_, peer):
            await subscribe(peer, metrics="*", interval_ms="3600000")
            found = await get_subscriptions(peer)
            instance_id = bytes(found.client_instance_id)
            assert await send(peer, found, compression_type=9) is Error.UNSUPPORTED_COMPRESSION_TYPE
            found = await get_subscriptions(peer, instance_id)
            assert found.error_code == 0
            assert await send(peer, found, subscription_id=7) is Error.UNKNOWN_SUBSCRIPTION_ID
            assert (await get_subscriptions(peer, instance_id)).error_code == 0

    run(check())


def test_what_is_too_large_or_can_not_be_read_is_refused() -> None:
    async def check() -> None:
        async with node_and_peer(telemetry_max_bytes="100") as (node, peer):
            await subscribe(peer, metrics="*")
            for data, more, error in (
                (b"\x0a" * 100, {}, Error.INVALID_RECORD),
                (b"\x0a" * 101, {}, Error.TELEMETRY_TOO_LARGE),
                (b"no zstd", {"compression_type": 4}, Error.INVALID_RECORD),
                (bytes(compress(Compression.ZSTD, bytes(100_000))), {"compression_type": 4}, Error.INVALID_RECORD),
                (b"", {}, Error.NONE),
            ):
                found = await get_subscriptions(peer)
                assert found.telemetry_max_bytes == 100
                assert await send(peer, found, data, **more) is error
            assert await send(peer, found, client_instance_id=NO_ID) is Error.INVALID_REQUEST
            assert await send(peer, found, client_instance_id=bytes(15) + b"\x01") is Error.INVALID_REQUEST
            assert "headrace_telemetry_series 0\n" in await scraped(node)

    run(check())


def test_a_client_that_is_silent_is_forgotten_with_what_it_pushed() -> None:
    async def check() -> None:
        async with node_and_peer() as (node, peer):
            await subscribe(peer, metrics="*", interval_ms="100")
            assert await send(peer, await get_subscriptions(peer)) is Error.NONE
            assert node._observation._telemetry is not None
            telemetry = node._observation._telemetry.expire()
            now_ms = telemetry._now_ms
            telemetry._now_ms = lambda: now_ms() + 59_000
            telemetry.expire()
            assert (telemetry.clients, telemetry.series.count) == (1, 1)
            telemetry._now_ms = lambda: now_ms() + 60_001
            telemetry.expire()
            assert (telemetry.clients, telemetry.series.count) == (0, 0)

    run(check())


def test_there_are_only_so_many_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.broker.telemetry.CLIENTS_MAX", 3)

    async def check() -> None:
        async with node_and_peer() as (node, peer):
            await subscribe(peer, metrics="*", interval_ms="100")
            for number in range(5):
                found = await get_subscriptions(peer)
                data = push(metric("m", sum_of(number_point(number), monotonic=True)))
                assert await send(peer, found, data) is Error.NONE
            assert node._observation._telemetry is not None
            telemetry = node._observation._telemetry.expire()
            assert (telemetry.clients, telemetry.series.count) == (3, 3)

    run(check())
