"""A pytest plugin: a broker for the whole run, and a fresh topic for each test. Loading it imports nothing of ours.

def test_it(headrace_topic, headrace_bootstrap):
    Producer({"bootstrap.servers": headrace_bootstrap}).produce(headrace_topic, b"hello")
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from headrace.testing.cluster import Cluster


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini("headrace_settings", "settings of the broker, one NAME=VALUE a line", type="linelist", default=[])
    parser.addini("headrace_child", "run the broker in a process of its own", type="bool", default=False)
    parser.addini("headrace_partitions", "how many partitions headrace_topic has", default="1")


@pytest.fixture(scope="session")
def headrace_cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """A real broker, started when the first test asks for it, and gone with its data at the end."""
    from headrace.testing.cluster import Cluster

    settings = dict(_setting(line) for line in request.config.getini("headrace_settings"))
    with Cluster(in_process=not request.config.getini("headrace_child"), settings=settings) as cluster:
        yield cluster


@pytest.fixture
def headrace_bootstrap(headrace_cluster: Cluster) -> str:
    """What a client wants for bootstrap.servers."""
    return headrace_cluster.bootstrap


@pytest.fixture
def headrace_topic(headrace_cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[str]:
    """The name of an empty topic that only this test uses. It is deleted after the test."""
    from headrace.testing.cluster import topic_name

    name = topic_name(request.node.name)
    headrace_cluster.create_topic(name, partitions=_partitions(request.config.getini("headrace_partitions")))
    yield name
    headrace_cluster.delete_topic(name)


def _partitions(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text)):
        pytest.fail(f"headrace_partitions is {text!r}; write a whole number from 1 on, as in 3.", pytrace=False)
    return int(text)


def _setting(line: str) -> tuple[str, str]:
    name, separator, value = line.partition("=")
    if not separator:
        said = f"headrace_settings has the line {line!r}; write NAME=VALUE, as in num.partitions=4."
        pytest.fail(said, pytrace=False)
    return name.strip(), value.strip()
