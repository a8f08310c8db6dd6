"""A real node for the commands. HEADRACE_COMPAT_BOOTSTRAP=host:port runs them against any other cluster, as Kafka's."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator

import pytest

from tests.cli.running import Cli
from tests.compat.process import Process


@pytest.fixture(scope="session")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """host:port of a node that every test of this worker shares."""
    given = os.environ.get("HEADRACE_COMPAT_BOOTSTRAP")
    if given:
        yield given
        return
    process = Process(tmp_path_factory.mktemp("cluster") / "data")
    process.start()
    yield process.bootstrap
    assert process.stop() == 0, process.said
    assert process.defects == []


@pytest.fixture
def cli(bootstrap: str, monkeypatch: pytest.MonkeyPatch) -> Cli:
    monkeypatch.setenv("HEADRACE_BOOTSTRAP", bootstrap)
    monkeypatch.setenv("COLUMNS", "120")
    return Cli(bootstrap)


@pytest.fixture
def name() -> str:
    """Of a topic or group that no other test has."""
    return f"t{uuid.uuid4().hex[:12]}"


@pytest.fixture
def topic(cli: Cli, name: str) -> str:
    """A topic of three partitions; the first has ten records."""
    cli.done("topic", "create", name, "--partitions", "3")
    cli.produce(name, 10)
    return name
