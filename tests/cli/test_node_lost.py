"""What commands say when the node goes away in the middle."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.cli.terminal import TIMEOUT_S, Terminal, headrace, started
from tests.compat.process import Process


@pytest.mark.skipif("HEADRACE_COMPAT_BOOTSTRAP" in os.environ, reason="it kills a node of ours")
def test_a_node_that_is_killed_leaves_counts_and_a_note(tmp_path: Path) -> None:
    node = Process(tmp_path / "data")
    node.start()
    assert headrace("topic", "create", "orders", "--bootstrap", node.bootstrap).returncode == 0
    watching = Terminal("top", "--interval", "200ms", "--bootstrap", node.bootstrap)
    watching.until("orders")
    with started("produce", "orders", "--bootstrap", node.bootstrap) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdin.write(b"one\n")
        process.stdin.flush()
        while (
            b"1\n"
            not in headrace(
                "consume",
                "orders",
                "--from",
                "beginning",
                "-n",
                "1",
                "-t",
                "{offset + 1}",
                "--bootstrap",
                node.bootstrap,
            ).stdout.encode()
        ):
            pass
        node.kill()
        process.stdin.write(b"two\n")
        process.stdin.flush()
        watching.until("does not answer")
        process.send_signal(signal.SIGINT)
        assert process.stderr.readline() == b"Waiting for 1 record under way; Ctrl-C again gives them up.\n"
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 130
    assert out.decode().startswith(
        "1 of 2 records (6 B) acknowledged by topic orders.\n1 record may or may not be there: nobody answered.\n"
    ) or out.decode().startswith("1 of 2 records (6 B) acknowledged by topic orders, ")
    assert err == b"Stopped by Ctrl-C.\n"
    assert watching.interrupted() == 130
