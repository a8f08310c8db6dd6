"""The short form of the campaign; the long one is a command."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.faults.listener_fuzz import campaign


def test_hazard_15_hostile_clients_harm_neither_the_node_nor_its_other_clients(tmp_path: Path) -> None:
    if os.environ.get("HEADRACE_COMPAT_BOOTSTRAP"):
        pytest.skip("the node that HEADRACE_COMPAT_BOOTSTRAP names is not ours to attack")
    outcome = campaign(5, tmp_path, seed=1, told=lambda passed, outcome: None, idle_connections=300)
    assert outcome.frames.total() > 0
