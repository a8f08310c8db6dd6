"""The short form of the campaign; the long one is a command."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.faults.kill9 import campaign


def test_nothing_acknowledged_is_lost_by_a_kill_under_load(tmp_path: Path) -> None:
    if os.environ.get("HEADRACE_COMPAT_BOOTSTRAP"):
        pytest.skip("the node that HEADRACE_COMPAT_BOOTSTRAP names is not ours to kill")
    assert campaign(2, tmp_path, seed=1, told=lambda done, count: None) > 0
