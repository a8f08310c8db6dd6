"""Imports point one way, and what decides does no I/O: both read from the syntax trees, so nothing is imported."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "headrace"

# What each part may import of the rest, besides itself. The way of the data, then the way of the users.
FOUNDATION = {"errors", "config", "metrics", "named_tuple", "plain"}
PROTOCOL = FOUNDATION | {"protocol"}
STORAGE = PROTOCOL | {"storage"}
RAFT = STORAGE | {"net", "raft"}
METADATA = RAFT | {"metadata"}
REPLICA = METADATA | {"replica"}
COORDINATOR = REPLICA | {"coordinator"}
CLIENT = PROTOCOL | {"net", "client"}
EVERYTHING = COORDINATOR | CLIENT | {"cores", "broker", "gateway", "console", "spark", "testing", "cli"}

MAY_IMPORT = {
    "plain": set[str](),
    "named_tuple": set[str](),
    "errors": set[str](),
    "cores": set[str](),
    "config": {"errors", "named_tuple", "plain"},
    "metrics": {"errors", "named_tuple", "plain"},
    "protocol": FOUNDATION,
    "net": PROTOCOL,
    "storage": PROTOCOL,
    "raft": RAFT,
    "metadata": METADATA,
    "replica": REPLICA,
    "coordinator": COORDINATOR,
    "broker": COORDINATOR | {"client", "cores"},
    "client": CLIENT,
    "gateway": CLIENT,
    "console": CLIENT,
    "spark": CLIENT,
    "testing": EVERYTHING - {"cli"},
    "cli": EVERYTHING,
    "__main__": {"cli"},
}

# What does no I/O, reads no clock and throws no dice, so that a seed repeats a run. Folders count with all in them.
PURE = (
    "plain",
    "named_tuple",
    "errors",
    "config",
    "metrics",
    "protocol",
    "raft/node",
    "raft/quorum",
    "metadata/brokers",
    "metadata/controller",
    "metadata/delta",
    "metadata/features",
    "metadata/image",
    "metadata/leadership",
    "metadata/loader",
    "metadata/names",
    "metadata/placement",
    "metadata/refusals",
    "metadata/sessions",
    "metadata/snapshot",
    "metadata/topics",
    "replica/in_sync",
    "broker/fetch_session",
    "broker/operations",
    "coordinator/groups",
    "coordinator/offsets",
    "coordinator/shard",
    "coordinator/state_topic",
    "coordinator/transactions",
    "storage/verification",
)
# Commands of ours that live beside what they write, and that nothing imports.
TOOLS = ("protocol/keep", "protocol/stubs")
IMPURE = {
    "asyncio",
    "concurrent",
    "ctypes",
    "datetime",
    "fcntl",
    "io",
    "logging",
    "mmap",
    "multiprocessing",
    "os",
    "pathlib",
    "random",
    "secrets",
    "select",
    "selectors",
    "shutil",
    "signal",
    "socket",
    "ssl",
    "subprocess",
    "tempfile",
    "threading",
    "time",
    "urllib",
    "uuid",
    "uvloop",
}


class Import(NamedTuple):
    line: int
    module: str


def imports_of(tree: ast.AST) -> Iterator[Import]:
    """Everything that a module imports, wherever in it, but for what only the type checker sees."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            continue
        if isinstance(node, ast.Import):
            yield from (Import(node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            # from headrace import config, and from headrace.config import LogConfig
            names = (
                [f"headrace.{alias.name}" for alias in node.names] if node.module == "headrace" else [node.module or ""]
            )
            yield from (Import(node.lineno, "." * node.level + name) for name in names)
        else:
            yield from imports_of(node)


def violations(path: str, source: str) -> list[str]:
    """What is wrong with the imports of one module, `path` being its place under src/headrace."""
    place = path.removesuffix(".py").removesuffix("/__init__")
    layer = place.partition("/")[0]
    pure = place not in TOOLS and any(place == name or place.startswith(f"{name}/") for name in PURE)
    found = []
    for line, module in imports_of(ast.parse(source)):
        top, _, rest = module.partition(".")
        if module.startswith("."):
            found.append(f"{path}:{line} imports {module}: write the whole name")
        elif rest.replace(".", "/") in TOOLS:
            found.append(f"{path}:{line} imports {module}: that is a command")
        elif top == "headrace" and rest:
            other = rest.partition(".")[0]
            if other not in {layer, "__version__"} | MAY_IMPORT.get(layer, set()):
                found.append(f"{path}:{line} imports {module}: {layer} is below {other}, or beside it")
        elif pure and top in IMPURE:
            found.append(f"{path}:{line} imports {module}: what decides does no I/O")
    return found


def modules() -> dict[str, str]:
    return {path.relative_to(SOURCE).as_posix(): path.read_text() for path in sorted(SOURCE.rglob("*.py"))}


def test_imports_point_one_way_and_pure_modules_do_no_io() -> None:
    assert [problem for path, source in modules().items() for problem in violations(path, source)] == []


def test_every_part_has_its_place_in_the_order() -> None:
    parts = {path.removesuffix(".py").partition("/")[0] for path in modules()}
    assert parts - {"__init__"} <= MAY_IMPORT.keys()


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("protocol/frame.py", "import headrace.net.listener"),
        ("protocol/frame.py", "from headrace.storage import log"),
        ("protocol/frame.py", "from headrace import storage"),
        ("protocol/frame.py", "def later():\n    from headrace.storage.log import Log"),
        ("storage/log.py", "from headrace.net import peer"),
        ("net/listener.py", "from headrace.broker.node import Node"),
        ("client/admin/topics.py", "from headrace.metadata.image import Image"),
        ("errors.py", "from headrace.config import LogConfig"),
        ("replica/manager.py", "from headrace.broker import router"),
        ("config/topic.py", "from .setting import Setting"),
        ("protocol/frame.py", "from headrace.protocol.stubs import render"),
    ],
)
def test_an_import_that_points_the_other_way_is_found(path: str, source: str) -> None:
    assert len(violations(path, source)) == 1


@pytest.mark.parametrize("module", sorted(IMPURE))
def test_io_in_a_pure_module_is_found(module: str) -> None:
    assert len(violations("protocol/frame.py", f"import {module}")) == 1
    assert len(violations("raft/node.py", f"try:\n    from {module} import x\nexcept ImportError:\n    pass")) == 1
    assert violations("storage/disk.py", f"import {module}") == []


@pytest.mark.parametrize(
    ("path", "source"),
    [
        (
            "protocol/frame.py",
            "import struct\nfrom headrace.errors import ProtocolError\nfrom headrace.protocol import wire",
        ),
        ("protocol/frame.py", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import asyncio"),
        ("storage/log.py", "import os\nfrom headrace.protocol.batch import Batch"),
        ("cli/serve.py", "from headrace.broker.node import Node\nfrom headrace import __version__"),
        ("testing/cluster.py", "from headrace.broker.node import Node"),
    ],
)
def test_an_import_that_points_the_right_way_is_let_be(path: str, source: str) -> None:
    assert violations(path, source) == []
