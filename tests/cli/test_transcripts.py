"""The page of the command line shows what the commands print."""

from __future__ import annotations

import os

import pytest

from headrace.cli import COMMANDS
from tests.cli.transcripts import PAGE, rendered


@pytest.mark.skipif("HEADRACE_COMPAT_BOOTSTRAP" in os.environ, reason="the page shows our own node")
def test_the_page_shows_what_the_commands_print() -> None:
    page = PAGE.read_text()
    assert rendered(page) == page, "output has changed: run python -m tests.cli.transcripts"


def test_the_page_has_every_command() -> None:
    page = PAGE.read_text()
    assert [name for name in COMMANDS if f"`headrace {name}" not in page] == []
