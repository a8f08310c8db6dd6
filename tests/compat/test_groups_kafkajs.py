"""Classic groups with kafkajs, which has an assignor and a way to rebalance of its own."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

from tests.compat.confluent import TIMEOUT_S
from tests.compat.conftest import MakeTopic, new_name
from tests.compat.test_kafkajs import MODULES, NODE, pytestmark

__all__ = ["pytestmark"]

SCENARIO = Path(__file__).parent / "kafkajs" / "groups.js"


def test_members_of_kafkajs_share_and_read_everything(cluster: str, make_topic: MakeTopic) -> None:
    assert NODE is not None
    topic, group = make_topic(4), new_name()
    done = subprocess.run(
        [NODE, str(SCENARIO), "share", cluster, topic, group],
        env={**os.environ, "NODE_PATH": str(MODULES), "KAFKAJS_NO_PARTITIONER_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S * 3,
        check=False,
    )
    assert done.returncode == 0, done.stderr + done.stdout
    assert json.loads(done.stdout.splitlines()[-1]) == {
        "state": "Stable",
        "protocol": "RoundRobinAssigner",
        "members": 1,
        "listed": True,
        "offsets": [20] * 4,
        "deleted": [0],
    }
