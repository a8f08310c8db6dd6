"""A node of ours as a process of the simulation: the very code that runs outside, on simulated ports."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Callable, Mapping

from headrace.broker.node import Node
from headrace.broker.ports import NodePorts
from headrace.config import NodeConfig
from headrace.errors import HeadraceError
from headrace.storage.cleaning_work import InlineWork
from headrace.testing.sim.process import Main, Process
from headrace.testing.syncs import WorkerSyncs

logger = logging.getLogger(__name__)

PORT = 9092


def node_ports(process: Process) -> NodePorts:
    return NodePorts(
        disk_of=process.disk,
        workers_of=process.workers,
        clean=InlineWork,
        now_ms=process.time_ms,
        random_bytes=process.chance.randbytes,
        choose=process.chance.randrange,
        host_name=lambda: process.host.name,
        syncs_of=lambda disk, ended: WorkerSyncs(disk, process.workers("syncs"), ended),
        open_files=100,
    )


def node_main(settings: Mapping[str, str], started: Callable[[Node], None] = lambda node: None) -> Main:
    """What `headrace serve` does: it runs until SIGTERM, or until the node can't go on, and then exits."""

    async def main(process: Process) -> None:
        texts = {
            "listeners": f"PLAINTEXT://0.0.0.0:{PORT}",
            "advertised.listeners": f"PLAINTEXT://{process.host.address}:{PORT}",
            "log.dirs": "data",
            "http.listen": "off",
            **settings,
        }
        stopping = asyncio.Event()
        process.signal_handlers[signal.SIGTERM] = stopping.set
        node = Node(NodeConfig.parse(texts), node_ports(process))
        starting = process.loop.create_task(node.start())
        waiting = process.loop.create_task(stopping.wait())
        await asyncio.wait([starting, waiting], return_when=asyncio.FIRST_COMPLETED)
        if not starting.done():
            starting.cancel()
            await asyncio.wait([starting])
        elif starting.exception() is None:
            started(node)
            node.failed.add_done_callback(lambda failed: stopping.set())
            await waiting
        elif isinstance(error := starting.exception(), HeadraceError):
            logger.warning("the node did not start: %s", error)
        else:
            starting.result()
        await node.stop()

    return main
