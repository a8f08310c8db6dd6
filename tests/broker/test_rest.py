"""What a node imports when it is asked for: one that stays has it before its files become those of another version."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import headrace
from headrace.protocol import messages as m
from tests.compat.wire import Wire

TIMEOUT_S = 60
TRIES = 1000


def test_a_node_that_runs_goes_on_when_its_files_are_replaced(tmp_path: Path) -> None:
    root = tmp_path / "installed"
    shutil.copytree(Path(headrace.__path__[0]), root / "headrace", ignore=shutil.ignore_patterns("__pycache__"))
    arguments = ["serve", "--listen", "127.0.0.1:0", "--data", str(tmp_path / "data")]
    child = subprocess.Popen(
        [sys.executable, "-m", "headrace", *arguments, "--log-level", "warning", "--log-level", "broker.rest=debug"],
        env={**os.environ, "PYTHONPATH": str(root)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert child.stdout is not None
        assert child.stderr is not None
        bootstrap = child.stdout.readline().split()[4]
        assert "everything is imported" in child.stderr.readline()
        for path in (root / "headrace").rglob("*.py"):
            path.write_text("raise ImportError('of another version')\n")
        ask_for_what_is_rare(bootstrap)
        child.terminate()
        _, errors = child.communicate(timeout=TIMEOUT_S)
    finally:
        child.kill()
        child.wait()
    assert not errors


def ask_for_what_is_rare(bootstrap: str) -> None:
    with Wire(bootstrap) as wire:
        resource = m.DescribeConfigsRequest.DescribeConfigsResource(resource_type=4, resource_name="1")
        assert not wire.ask(m.DescribeConfigsRequest(resources=[resource]), 4).results[0].error_code
        assert not wire.ask(m.DescribeLogDirsRequest(topics=None), 4).error_code
        coordinator = m.FindCoordinatorRequest(key_type=1, coordinator_keys=["id"])
        until(lambda: not wire.ask(coordinator, 4).coordinators[0].error_code)
        producer = m.InitProducerIdRequest(transactional_id="id", transaction_timeout_ms=60_000)
        until(lambda: not wire.ask(producer, 5).error_code)
        assert not wire.ask(m.ListGroupsRequest(), 4).groups


def until(is_so: Callable[[], bool]) -> None:
    assert any(is_so() for _ in range(TRIES))
