"""Transactions with kafkajs."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tests.compat.conftest import MakeTopic, new_name
from tests.compat.test_kafkajs import pytestmark, run

__all__ = ["pytestmark"]

SCRIPT: Final = Path(__file__).parent / "kafkajs" / "transactions.js"


def test_what_is_committed_is_read_and_what_is_aborted_is_not(cluster: str, make_topic: MakeTopic) -> None:
    assert run("ends", cluster, "", make_topic(), new_name(), script=SCRIPT) == ["0", "0", "2", "2", "4", "4"]


def test_offsets_go_with_the_transaction(cluster: str, make_topic: MakeTopic) -> None:
    found = run("offsets", cluster, make_topic(), make_topic(), new_name(), script=SCRIPT)
    assert found == {"seen": ["3", "3", "5"], "values": ["up to 3", "up to 5"]}
