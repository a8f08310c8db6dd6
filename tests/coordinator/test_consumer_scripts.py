"""Each script in `scripts/consumer` gives what is written in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import scripts
from tests.coordinator.consumer_script import ConsumerScript

SCRIPTS = sorted((Path(__file__).parent / "scripts" / "consumer").glob("*.txt"))


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_a_script_gives_what_is_written_in_it(path: Path) -> None:
    scripts.check(path, ConsumerScript)
