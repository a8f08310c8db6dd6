"""Standard streams that are closed, or that take ASCII only."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.cli.running import Cli
from tests.cli.terminal import HEADRACE, TIMEOUT_S, headrace


def without(descriptors: Sequence[int], *arguments: str) -> subprocess.Popen[str]:
    def close() -> None:
        for descriptor in descriptors:
            os.close(descriptor)

    return subprocess.Popen(
        [*HEADRACE, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=close
    )


@pytest.mark.parametrize("closed", [(0,), (1,), (2,), (0, 1, 2)])
def test_a_command_does_without_a_stream_that_is_closed(cli: Cli, topic: str, closed: tuple[int, ...]) -> None:
    process = without(closed, "topic", "list", "--names", "--bootstrap", cli.bootstrap)
    out, err = process.communicate(timeout=TIMEOUT_S)
    assert (process.returncode, err) == (0, "")
    assert (topic in out.split()) == (1 not in closed)


def test_a_node_does_without_streams_that_are_closed(tmp_path: Path) -> None:
    settings = ("--listen", "127.0.0.1:0", "--set", "http.listen=off")
    process = without((0, 2), "serve", "--data", str(tmp_path), *settings)
    try:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("headrace is ready on ")
        streams = {os.readlink(f"/proc/{process.pid}/fd/{descriptor}") for descriptor in (0, 2)}
        assert streams == {os.devnull}
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=TIMEOUT_S)
        assert process.returncode == 0
    finally:
        process.kill()


def test_output_that_takes_ascii_only_gets_what_looks_alike(cli: Cli, topic: str) -> None:
    options = ("--topic", topic, "--warmup", "0", "--duration", "300ms", "--rate", "200")
    done = headrace("bench", "latency", *options, "--bootstrap", cli.bootstrap, PYTHONIOENCODING="ascii")
    assert (done.returncode, done.stderr) == (0, "")
    assert "p99.9" in done.stdout
    assert "###" in done.stdout
    once = headrace("top", "--once", "--interval", "200ms", "--bootstrap", cli.bootstrap, PYTHONIOENCODING="ascii")
    assert (once.returncode, once.stderr) == (0, "")
    assert "#" in once.stdout


def test_json_is_whole_where_output_takes_ascii_only(cli: Cli, topic: str, name: str) -> None:
    group = f"{name}-µ-é"
    cli.done("group", "reset", group, "--topic", topic, "--to", "earliest", "--create", "--yes")
    told = headrace("group", "lag", group, "--json", "--bootstrap", cli.bootstrap, PYTHONIOENCODING="ascii")
    assert json.loads(told.stdout)[0]["group"] == group
    plain = headrace("group", "list", "--names", "--bootstrap", cli.bootstrap, PYTHONIOENCODING="ascii")
    assert f"{name}-u-\\xe9" in plain.stdout.split()
