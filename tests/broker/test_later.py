"""Parts of a node that are made when they are first asked for: what is promised of them is there."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from subprocess import run

import pytest

import headrace.broker
from headrace.broker.later import later


class Counted:
    made = 0

    def __init__(self, start: int, *, step: int) -> None:
        type(self).made += 1
        self._now, self._step = start, step

    def next(self) -> int:
        self._now += self._step
        return self._now

    def __len__(self) -> int:
        """Nothing in it, as in a coordinator without markers on their way: it is there all the same."""
        return 0


def test_it_is_made_once_with_the_first_call_of_any_method() -> None:
    Counted.made = 0
    counted: Counted = later(f"{__name__}:Counted", 10, step=5)
    following = counted.next
    assert Counted.made == 0
    assert [following(), counted.next(), following()] == [15, 20, 25]
    assert Counted.made == 1


def _targets() -> Iterator[tuple[str, str]]:
    """What is named in the source, and the type that the type checker takes it for."""
    for path in sorted(Path(headrace.broker.__file__).parent.glob("*.py")):
        typed: dict[ast.AST, str] = {}
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.AnnAssign) and node.value is not None:
                typed[node.value] = ast.unparse(node.annotation)
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "later":
                target = node.args[0]
                assert isinstance(target, ast.Constant), f"{path.name}: what is made later is not named"
                yield str(target.value), typed.get(node, "")


def test_the_type_checker_takes_each_for_what_it_will_be() -> None:
    found = list(_targets())
    assert len(found) >= 10
    for target, name in found:
        assert target.partition(":")[2] == name, target


@pytest.mark.parametrize("target", sorted({target for target, _ in _targets()}))
def test_what_is_made_later_is_there(target: str) -> None:
    module, _, name = target.partition(":")
    assert isinstance(getattr(import_module(module), name), type)


def test_a_fresh_cluster_makes_no_messages_that_nobody_has_sent() -> None:
    start = "from headrace.testing import Cluster; cluster = Cluster().start(); from headrace.protocol import messages"
    done = run(
        [sys.executable, "-c", f"{start}; print(*vars(messages)); cluster.stop()"],
        capture_output=True,
        text=True,
        check=True,
    )
    made = set(done.stdout.split())
    assert "BrokerRegistrationRequest" in made
    assert not {name for name in made if name.startswith(("Fetch", "Produce", "DescribeQuorum", "Metadata"))}


def test_a_fresh_cluster_starts_without_what_nobody_has_asked_for() -> None:
    start = "import sys; from headrace.testing import Cluster; cluster = Cluster().start(); print(*sys.modules)"
    done = run([sys.executable, "-c", f"{start}; cluster.stop()"], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert "headrace.broker.node" in loaded
    assert not loaded & {target.partition(":")[0] for target, _ in _targets()}
    assert not loaded & {
        "cramjam",
        "ctypes",
        "dataclasses",
        "encodings.idna",
        "headrace.client",
        "headrace.coordinator.hosted",
        "headrace.metadata.configs",
        "headrace.metadata.elections",
        "headrace.metadata.feature_updates",
        "headrace.metadata.quorum_view",
        "headrace.metadata.reassignments",
        "headrace.storage.inventory",
        "mmap",
        "pathlib",
        "prometheus_client",
        "rich",
        "typer",
    }
