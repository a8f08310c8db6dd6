"""A node in this process: in a thread of its own, with a loop of its own. It sets no signal handlers and no limits."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Final

import uvloop

from headrace.broker.local import guest_ports
from headrace.broker.node import Node
from headrace.broker.ports import NodePorts
from headrace.config import NodeConfig
from headrace.config.listeners import host_and_port
from headrace.errors import HeadraceError
from headrace.storage.workers import Workers
from headrace.testing.unsynced_disk import UnsyncedDisk
from headrace.testing.workers import LoopWorkers

STOP_SECONDS: Final = 60.0
_SYNCING: Final = ("flusher", "checkpoints", "metadata")
"""Workers whose jobs wait for nothing when nothing is synced."""


def ports_of(loop: uvloop.Loop, fsync: bool) -> NodePorts:
    ports = guest_ports(loop, syncs_files=fsync)
    if fsync:
        return ports
    threads = ports.workers_of

    def workers_of(name: str) -> Workers:
        return LoopWorkers() if name in _SYNCING else threads(name)

    ports.disk_of = UnsyncedDisk
    ports.workers_of = workers_of
    return ports


class NodeThread:
    """Started when it is made."""

    def __init__(self, settings: Mapping[str, str], fsync: bool, timeout_s: float) -> None:
        self.address = ""
        self._config = NodeConfig.parse(settings)
        self._fsync = fsync
        self._loop = uvloop.new_event_loop()
        self._is_ready = threading.Event()
        self._failure: BaseException | None = None
        # A daemon, so that a test run that forgets to stop it can end.
        self._thread = threading.Thread(target=self._run, name="headrace", daemon=True)
        self._thread.start()
        if not self._is_ready.wait(timeout_s):
            self._loop.call_soon_threadsafe(self._loop.stop)
            raise HeadraceError(f"The node was not ready within {timeout_s:g} s; is the machine overloaded?")
        if self._failure is not None:
            self._thread.join()
            raise self._failure

    def _run(self) -> None:
        loop = self._loop
        try:
            node = loop.run_until_complete(self._start())
            if node is not None:
                self._is_ready.set()
                loop.run_forever()
                loop.run_until_complete(node.stop())
        except BaseException as error:
            self._failure = error
        finally:
            self._is_ready.set()
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.close()

    async def _start(self) -> Node | None:
        node = Node(self._config, ports_of(self._loop, self._fsync))
        try:
            await node.start()
        except BaseException as error:
            self._failure = error
            await node.stop()
            return None
        self.address = ",".join(host_and_port(endpoint.host, endpoint.port) for endpoint in node.endpoints)
        node.failed.add_done_callback(lambda failed: self._loop.stop())
        return node

    def stop(self) -> None:
        """Returns when the node has stopped; raises why it did before."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(STOP_SECONDS)
        if self._thread.is_alive():
            raise HeadraceError(f"The node did not stop within {STOP_SECONDS:g} s.")
        if self._failure is not None:
            raise self._failure

    def kill(self) -> None:
        raise NotImplementedError("a thread can't be killed")
