"""A whole node for tests, in this process: disks in memory, jobs on the loop, a real socket."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from headrace.broker.node import Node
from headrace.broker.ports import NodePorts
from headrace.config import NodeConfig
from headrace.net.peer import Peer
from headrace.protocol import messages as m
from headrace.storage.cleaning_work import InlineWork
from headrace.storage.disk import Disk
from headrace.testing.disk import FaultyDisk
from headrace.testing.workers import LoopWorkers

TIMEOUT_SECONDS = 30.0


def memory_ports(disk: Disk, seed: int = 0) -> NodePorts:
    chance = random.Random(seed)
    return NodePorts(
        disk_of=lambda folder: disk,
        workers_of=lambda name: LoopWorkers(),
        clean=InlineWork,
        now_ms=lambda: 1_700_000_000_000 + int(asyncio.get_running_loop().time() * 1000),
        random_bytes=chance.randbytes,
        choose=chance.randrange,
        host_name=lambda: "a-machine",
    )


@asynccontextmanager
async def running(disk: Disk | None = None, seed: int = 0, **settings: str) -> AsyncIterator[Node]:
    """Settings are named with underscores."""
    texts = {"listeners": "PLAINTEXT://127.0.0.1:0", "http.listen": "off"} | {
        key.replace("_", "."): text for key, text in settings.items()
    }
    node = Node(NodeConfig.parse(texts), memory_ports(disk or FaultyDisk(), seed))
    try:
        await node.start()
        yield node
    finally:
        await node.stop()


@asynccontextmanager
async def connected(node: Node, listener: int = 0) -> AsyncIterator[Peer]:
    endpoint = node.endpoints[listener]
    peer = Peer("127.0.0.1", endpoint.port, "a-test")
    await peer.connect(TIMEOUT_SECONDS)
    try:
        yield peer
    finally:
        peer.close()


async def ask(peer: Peer, request: Any, version: int) -> Any:
    return await peer.call(request, version, TIMEOUT_SECONDS)


async def create(peer: Peer, name: str, partitions: int = 1, **configs: str) -> bytes:
    """Makes a topic and returns its id."""
    wanted = m.CreateTopicsRequest.CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=1,
        configs=[
            m.CreateTopicsRequest.CreatableTopicConfig(name=key.replace("_", "."), value=value)
            for key, value in configs.items()
        ],
    )
    response = await ask(peer, m.CreateTopicsRequest(topics=[wanted], timeout_ms=10_000), 7)
    (made,) = response.topics
    assert not made.error_code, made
    return bytes(made.topic_id)


def run(coroutine: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(coroutine, 60))
