"""A real node for real clients.

By default each worker starts one of ours. HEADRACE_COMPAT_BOOTSTRAP=host:port runs the suite against any other node:
against Apache Kafka it shows that a test asks for what Kafka does. Tests that restart the node are left out then.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.compat.process import Process
from tests.compat.requests import settle
from tests.compat.wire import Wire

# By default a group waits for three seconds for more members, which would be most of the time of many a test.
SETTINGS = ("--set", "group.initial.rebalance.delay.ms=200")

MakeTopic = Callable[..., str]


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """host:port of a node that every test of this worker shares."""
    given = os.environ.get("HEADRACE_COMPAT_BOOTSTRAP")
    if given:
        yield given
        return
    process = Process(tmp_path_factory.mktemp("cluster") / "data", *SETTINGS)
    process.start()
    yield process.bootstrap
    assert process.stop() == 0, process.said


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Process]:
    """A node of the test's own, to be killed and started again."""
    if os.environ.get("HEADRACE_COMPAT_BOOTSTRAP"):
        pytest.skip("the node that HEADRACE_COMPAT_BOOTSTRAP names is not ours to restart")
    process = Process(tmp_path / "data", *SETTINGS)
    process.start()
    yield process
    if process.is_running:
        assert process.stop() == 0, process.said


@pytest.fixture(scope="session")
def admin(cluster: str) -> Any:
    return AdminClient({"bootstrap.servers": cluster})


@pytest.fixture
def make_topic(cluster: str, admin: Any) -> MakeTopic:
    """Creates a topic that no other test has; returns its name, when its partitions have a leader that answers."""

    def make(partitions: int = 1, **config: str) -> str:
        topic = create_topic(admin, partitions, **config)
        with Wire(cluster) as client:
            settle(client, topic, partitions)
        return topic

    return make


@pytest.fixture
def topic(make_topic: MakeTopic) -> str:
    return make_topic()


@pytest.fixture
def wire(cluster: str) -> Iterator[Wire]:
    with Wire(cluster) as client:
        yield client


def is_ours() -> bool:
    """False where the suite runs against another node, which may serve more."""
    return "HEADRACE_COMPAT_BOOTSTRAP" not in os.environ


def new_name() -> str:
    return f"compat.{uuid.uuid4().hex}"


def create_topic(admin: Any, partitions: int = 1, name: str | None = None, **config: str) -> str:
    name = name or new_name()
    settings = {key.replace("_", "."): value for key, value in config.items()}
    futures = admin.create_topics([NewTopic(name, partitions, 1, config=settings)], operation_timeout=60)
    futures[name].result(60)
    return name
