"""The same seed gives the same run: in this process, and in others that hash differently."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.testing.sim.run import run_seed
from headrace.testing.sim.simulation import Scenario
from tests.sim.coordinators import coordinators
from tests.sim.echo import echo
from tests.sim.ledger import ledger
from tests.sim.node import node

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("scenario", [echo, ledger, node, coordinators])
def test_a_seed_repeats_callback_by_callback(scenario: Scenario) -> None:
    digests = [run_seed(scenario, seed).digest for seed in (1, 2, 3, 1, 2, 3)]
    assert digests[:3] == digests[3:]
    assert len(set(digests)) == 3


@pytest.mark.parametrize(
    "scenario",
    [
        "tests.sim.echo:echo",
        "tests.sim.ledger:ledger",
        "tests.sim.node:node",
        "tests.sim.coordinators:coordinators",
    ],
)
def test_two_processes_that_hash_differently_give_the_same_trace(scenario: str) -> None:
    def traced(hash_seed: str) -> str:
        command = [sys.executable, "-m", "headrace.testing.sim", "--scenario", scenario, "--seed", "7", "--trace"]
        environment = os.environ | {"PYTHONHASHSEED": hash_seed}
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
        return "\n".join(line for line in done.stdout.splitlines() if "CPU-s" not in line) + done.stdout[-40:]

    assert traced("1") == traced("4711")
