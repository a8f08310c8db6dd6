"""Transactions with kafkajs."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any, Final

from tests.compat.confluent import TIMEOUT_S
from tests.compat.conftest import MakeTopic, new_name
from tests.compat.test_kafkajs import MODULES, NODE, pytestmark

__all__ = ["pytestmark"]

SCENARIOS: Final = Path(__file__).parent / "kafkajs" / "transactions.js"


def run(scenario: str, bootstrap: str, source: str, target: str) -> Any:
    assert NODE is not None
    done = subprocess.run(
        [NODE, str(SCENARIOS), scenario, bootstrap, source, target, new_name()],
        env={**os.environ, "NODE_PATH": str(MODULES), "KAFKAJS_NO_PARTITIONER_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S * 2,
        check=False,
    )
    assert done.returncode == 0, done.stderr + done.stdout
    return json.loads(done.stdout.splitlines()[-1])


def test_what_is_committed_is_read_and_what_is_aborted_is_not(cluster: str, make_topic: MakeTopic) -> None:
    assert run("ends", cluster, "", make_topic()) == ["0", "0", "2", "2", "4", "4"]


def test_offsets_go_with_the_transaction(cluster: str, make_topic: MakeTopic) -> None:
    found = run("offsets", cluster, make_topic(), make_topic())
    assert found == {"seen": ["3", "3", "5"], "values": ["up to 3", "up to 5"]}
