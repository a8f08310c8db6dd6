"""Transactions on a running node, as an administrator lists and ends them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from headrace.broker.ports import NodePorts
from headrace.errors import Error
from headrace.net.peer import Peer
from headrace.protocol import messages as m
from headrace.storage.disk import Disk
from headrace.testing.workers import SteppedWorkers
from tests.broker import nodes
from tests.broker.nodes import ask, connected, create, memory_ports, run, running
from tests.broker.transactional import add, describe, end, fetch, identity, init, list_ids, produce, read, settled


def test_transactions_are_listed_by_what_they_are() -> None:
    async def check() -> None:
        async with running() as node, connected(node) as peer:
            await create(peer, "t")
            ongoing = await identity(peer, "orders-1")
            await identity(peer, "orders-2")
            await produce(peer, ongoing, b"a", transactional_id="orders-1", version=12)
            await init(peer, "bills-1")
            assert sorted(await list_ids(peer, 0)) == ["bills-1", "orders-1", "orders-2"]
            assert await list_ids(peer, 0, state_filters=["Ongoing"]) == ["orders-1"]
            assert await list_ids(peer, 0, producer_id_filters=[ongoing[0]]) == ["orders-1"]
            assert await list_ids(peer, 1, duration_filter=10_000_000) == []
            assert await list_ids(peer, 1, duration_filter=-1, state_filters=["Empty"]) != []
            assert sorted(await list_ids(peer, 2, transactional_id_pattern="orders-.*")) == ["orders-1", "orders-2"]
            assert await list_ids(peer, 2, transactional_id_pattern="orders") == []
            response = await ask(peer, m.ListTransactionsRequest(transactional_id_pattern="("), 2)
            assert response.error_code == Error.INVALID_REGULAR_EXPRESSION
            large = m.ListTransactionsRequest(transactional_id_pattern=r"(?:\pL\pN){200}")
            assert (await ask(peer, large, 2)).error_code == Error.INVALID_REGULAR_EXPRESSION
            response = await ask(peer, m.ListTransactionsRequest(state_filters=["Odd"]), 0)
            assert response.unknown_state_filters == ["Odd"]
            assert response.transaction_states == []
            assert (await describe(peer, "none")).error_code == Error.TRANSACTIONAL_ID_NOT_FOUND

    run(check())


def test_names_are_matched_away_from_the_loop_and_others_are_served_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pattern and a name may be such that this takes seconds."""
    matchers = SteppedWorkers()

    def ports(disk: Disk, seed: int) -> NodePorts:
        found = memory_ports(disk, seed)
        workers_of = found.workers_of
        found.workers_of = lambda name: matchers if name == "patterns" else workers_of(name)
        return found

    async def check() -> None:
        async with running() as node, connected(node) as peer, connected(node) as other:
            for name in ("orders-1", "bills-1"):
                await identity(peer, name)
            listing = asyncio.create_task(list_ids(peer, 2, transactional_id_pattern="(.*[a-z])*" * 20 + "-1"))
            while not len(matchers):
                assert not listing.done()
                await asyncio.sleep(0)
            assert sorted(await list_ids(other, 2)) == ["bills-1", "orders-1"]
            assert not listing.done()
            matchers.step()
            assert sorted(await listing) == ["bills-1", "orders-1"]

    monkeypatch.setattr(nodes, "memory_ports", ports)
    run(check())


def test_an_administrator_ends_a_transaction_that_hangs() -> None:
    """As kafka-transactions abort does: a marker to the partition itself."""

    async def check() -> None:
        settings: dict[str, Any] = {"transaction_partition_verification_enable": "false"}
        async with running(**settings) as node, connected(node) as peer:
            await create(peer, "t")
            who = await identity(peer)
            await add(peer, who, ("t", 0))
            await end(peer, who, commits=False, version=4)
            await settled(peer)
            assert await produce(peer, who, b"hangs", version=9) == Error.NONE
            assert (await fetch(peer)).last_stable_offset == 1
            assert await mark(peer, who, coordinator_epoch=-1) == Error.TRANSACTION_COORDINATOR_FENCED
            assert await mark(peer, (who[0], who[1] - 1)) == Error.INVALID_PRODUCER_EPOCH
            assert await mark(peer, who) == Error.NONE
            assert (await fetch(peer)).last_stable_offset == 3
            assert await read(peer) == []

    async def mark(peer: Peer, who: tuple[int, int], coordinator_epoch: int = 100) -> Error:
        kind = m.WriteTxnMarkersRequest
        request = kind(
            markers=[
                kind.WritableTxnMarker(
                    producer_id=who[0],
                    producer_epoch=who[1],
                    transaction_result=False,
                    topics=[kind.WritableTxnMarkerTopic(name="t", partition_indexes=[0])],
                    coordinator_epoch=coordinator_epoch,
                )
            ]
        )
        response = await ask(peer, request, 1)
        return Error.of(response.markers[0].topics[0].partitions[0].error_code)

    run(check())
