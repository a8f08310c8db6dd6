"""The short form of the campaign; the long one is a command."""

from __future__ import annotations

import os
import platform
import socket
import struct
import time
from pathlib import Path

import pytest

from tests.compat.process import Process
from tests.faults.listener_fuzz import campaign, rss_mb


def test_hazard_15_hostile_clients_harm_neither_the_node_nor_its_other_clients(tmp_path: Path) -> None:
    if os.environ.get("HEADRACE_COMPAT_BOOTSTRAP"):
        pytest.skip("the node that HEADRACE_COMPAT_BOOTSTRAP names is not ours to attack")
    outcome = campaign(5, tmp_path, seed=1, told=lambda passed, outcome: None, idle_connections=300)
    assert outcome.frames.total() > 0


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="what a freed buffer leaves is the C library's affair")
def test_hazard_15_clients_that_announced_much_and_left_cost_no_memory(tmp_path: Path) -> None:
    """A frame that is freed makes glibc keep what is smaller than it, unless it is told otherwise."""
    node = Process(tmp_path / "data")
    node.start()
    try:
        before_mb = rss_mb(node.pid, "VmRSS")
        announce(node, 3_000_000, connections=1)
        announce(node, 1_000_000, connections=200)
        deadline = time.monotonic() + 30
        while rss_mb(node.pid, "VmRSS") > before_mb + 50 and time.monotonic() < deadline:
            time.sleep(0.1)
        assert rss_mb(node.pid, "VmRSS") < before_mb + 50
    finally:
        node.stop()


def announce(node: Process, frame_bytes: int, connections: int) -> None:
    """Clients that say how much they will send, send a little of it, and leave when the node has had time for them."""
    sockets = [socket.create_connection(("127.0.0.1", node.port)) for _ in range(connections)]
    for one in sockets:
        one.sendall(struct.pack(">i", frame_bytes) + bytes(100))
    time.sleep(1)
    for one in sockets:
        one.close()
