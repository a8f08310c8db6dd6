"""A node of ours in memory, with clients beside it: for what no script of a broker could play."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from headrace.broker.node import Node
from headrace.client import Client
from tests.broker.nodes import running

NODE_MS = 1_700_000_000_000


@asynccontextmanager
async def coordinating(**settings: str) -> AsyncIterator[Node]:
    """A node whose groups do not wait for more members, with small state topics."""
    quick = {"group_initial_rebalance_delay_ms": "0", "offsets_topic_num_partitions": "1"}
    quick["transaction_state_log_num_partitions"] = "1"
    async with running(None, 0, **{**quick, **settings}) as node:
        yield node


@asynccontextmanager
async def client_of(node: Node) -> AsyncIterator[Client]:
    async with Client(f"127.0.0.1:{node.endpoints[0].port}", now_ms=lambda: NODE_MS) as client:
        yield client
