"""Each script in `scripts/classic` gives what is written in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import scripts
from tests.coordinator.classic_script import ClassicScript

SCRIPTS = sorted((Path(__file__).parent / "scripts" / "classic").glob("*.txt"))


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_a_script_gives_what_is_written_in_it(path: Path) -> None:
    scripts.check(path, ClassicScript)
